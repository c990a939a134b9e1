"""TrainJobs, JobSets, PodGroups and pods for tests."""
