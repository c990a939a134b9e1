"""From the stages of a JobSet to its PodGroups, and what is recorded on them."""
