"""The only part of the scheduler that waits: watch, plan, bind, evict, report.

It carries out whole plans; it never makes half of one up itself.
"""
