"""The whole thread on the real chain: webhook, podgrouper and scheduler, each as a process."""
