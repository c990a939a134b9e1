"""The chain itself, before anything of ours: what Trainer, JobSet and Kubernetes do."""
