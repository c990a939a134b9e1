"""What a plan is made from, and what it says: arrays, PodGroups, results, failures."""
