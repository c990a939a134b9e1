"""From nodes, pods, PodGroups and queues to the snapshot that a plan is made from."""
