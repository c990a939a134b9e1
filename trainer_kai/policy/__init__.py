"""From a TrainJob and its runtime to queue, stages, PodGroups and lint findings.

Pure: the same objects always give the same answer. No pod is placed and no object is written here.
"""
