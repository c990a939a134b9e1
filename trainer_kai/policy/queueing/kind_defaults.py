"""What counts for a PodGroup that requests nothing itself, by the kind of its owner."""

from trainer_kai.policy.queueing.priority_classes import DEFAULT_PRIORITY_CLASS


def default_class(_kind: str) -> str:
    """Return the PriorityClass where no label and no pod names one."""
    return DEFAULT_PRIORITY_CLASS
