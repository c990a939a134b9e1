"""What groups and sub-groups are called.

The names are KAI's, so that either side can be swapped. They are made of nothing but what stands on
a pod, so that admission can name a pod's group without reading anything.
"""

import hashlib
import re
from typing import Final

from trainer_kai.api.meta import Key

__all__ = ["MAIN", "group_name", "leaf_name", "leaf_prefix", "owner_name", "unit_name"]

MAIN: Final = "Main"  # of a JobSet that is one group; no replicatedJob can be called so

_MAX_OWN: Final = 48  # characters, that with "-replica-" and an index it is still a label's value
_GROUP: Final = re.compile(r"pg-(?P<owner>.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-.+)?")
_KEPT: Final = 39  # the rest is for what tells it apart


def group_name(jobset: str, uid: str, suffix: str) -> str:
    """Return the name of a group; the suffix tells the groups of one JobSet apart."""
    return f"pg-{jobset}-{uid}" if suffix == MAIN else f"pg-{jobset}-{uid}-{suffix}"


def owner_name(group: str) -> str:
    """Return what a group was made for, by its name: a JobSet, which is called like its TrainJob.

    It is for people only; a group that is called otherwise is its own.
    """
    found = _GROUP.fullmatch(group)
    return found["owner"] if found else group


def unit_name(group: Key) -> str:
    """Return what people call a unit, by its group: a TrainJob, or a pod on its own."""
    return f"{group.namespace}/{owner_name(group.name)}"


def leaf_name(replicated_job: str, index: int | str) -> str:
    """Return the sub-group of the pods of one Job."""
    return f"{leaf_prefix(replicated_job)}{index}"


def leaf_prefix(replicated_job: str) -> str:
    """Return what the sub-groups of a replicatedJob begin with; the index of the Job follows."""
    if len(replicated_job) <= _MAX_OWN:
        return f"{replicated_job}-replica-"
    mark = hashlib.sha256(replicated_job.encode()).hexdigest()[:8]
    return f"{replicated_job[:_KEPT]}-{mark}-replica-"
