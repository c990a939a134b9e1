"""From an older version to this one while TrainJobs run, wait and make room."""
