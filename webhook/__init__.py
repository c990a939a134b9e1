"""Admission: checks TrainJobs, fills in JobSets, marks pods.

Pure by default: only modules named `app`, `certs`, `rotate` and `__main__` may wait. It never
meets the scheduler.
"""
