"""`trainer-kai why`: the state of a TrainJob, and why its PodGroups wait."""
