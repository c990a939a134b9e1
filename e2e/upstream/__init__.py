"""The cluster without our processes: what Trainer, JobSet and Kubernetes do."""
