"""The versions of Kubernetes and Trainer on which the demo works."""
