"""From a TrainJob and its runtime to queue, stages, PodGroups and lint findings.

Pure: the same objects always give the same result. Nothing here places a pod or writes an object.
"""
