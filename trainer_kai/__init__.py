"""The library under every process: Kubernetes objects as values, the rules, and the one client.

It starts nothing by itself and, except for the command line, never imports a process.
"""
