"""PodGroups: their pods, trees, reservations, stages and attributes."""
