"""The names of PodGroups and of their PodSets.

The names are KAI's, so that either side can be swapped. They are made only of what stands on a pod,
so that admission can name a pod's PodGroup without reading any object.
"""

import hashlib
import re
from typing import Final

from trainer_kai.api.meta import Key

__all__ = [
    "MAIN",
    "owner_name",
    "podgroup_name",
    "podset_name",
    "podset_name_prefix",
    "workload_name",
]

MAIN: Final = "Main"  # of a JobSet that is one group; no replicatedJob can be called so

_MAX_UNHASHED: Final = (
    48  # characters, that with "-replica-" and an index it is still a label's value
)
_PODGROUP_NAME: Final = re.compile(
    r"pg-(?P<owner>.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-.+)?"
)
_HASHED_PREFIX: Final = 39  # the rest is for what tells it apart


def podgroup_name(jobset: str, uid: str, suffix: str) -> str:
    """Return the name of a group; the suffix tells the groups of one JobSet apart."""
    return f"pg-{jobset}-{uid}" if suffix == MAIN else f"pg-{jobset}-{uid}-{suffix}"


def owner_name(podgroup: str) -> str:
    """Return what a group was made for, by its name: a JobSet, which is called like its TrainJob.

    It is for people only; a group that is called otherwise is its own.
    """
    match = _PODGROUP_NAME.fullmatch(podgroup)
    return match["owner"] if match else podgroup


def workload_name(podgroup: Key) -> str:
    """Return what people call a unit, by its group: a TrainJob, or a pod on its own."""
    return f"{podgroup.namespace}/{owner_name(podgroup.name)}"


def podset_name(replicated_job: str, index: int | str) -> str:
    """Return the sub-group of the pods of one Job."""
    return f"{podset_name_prefix(replicated_job)}{index}"


def podset_name_prefix(replicated_job: str) -> str:
    """Return what the sub-groups of a replicatedJob begin with; the index of the Job follows."""
    if len(replicated_job) <= _MAX_UNHASHED:
        return f"{replicated_job}-replica-"
    digest = hashlib.sha256(replicated_job.encode()).hexdigest()[:8]
    return f"{replicated_job[:_HASHED_PREFIX]}-{digest}-replica-"
