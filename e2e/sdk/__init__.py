"""The Kubeflow SDK of users, in an environment of its own, against all our processes."""
