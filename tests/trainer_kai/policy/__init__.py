"""The rules for TrainJobs."""
