"""From a TrainJob and its runtime to queue, stages, units, groups and lint findings.

Pure: the same objects always give the same answer. It never places a pod or writes an object.
"""
