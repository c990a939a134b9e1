"""What groups and sub-groups are called.

The names are KAI's, so that either side can be swapped. They are made of nothing but what stands on
a pod, so that admission can name a pod's group without reading anything.
"""

from typing import Final

__all__ = ["MAIN", "group_name", "leaf_name"]

MAIN: Final = "Main"  # of a JobSet that is one group; no replicatedJob can be called so


def group_name(jobset: str, uid: str, suffix: str) -> str:
    """Return the name of a group; the suffix tells the groups of one JobSet apart."""
    return f"pg-{jobset}-{uid}" if suffix == MAIN else f"pg-{jobset}-{uid}-{suffix}"


def leaf_name(replicated_job: str, index: int | str) -> str:
    """Return the sub-group of the pods of one Job."""
    return f"{replicated_job}-replica-{index}"
