"""Webhook, podgrouper and scheduler together on the real cluster, each as a process."""
