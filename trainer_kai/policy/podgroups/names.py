"""The names of PodGroups and of their PodSets.

The names are KAI's, so that podgroupers and schedulers of both projects work together. They follow
from the labels of a pod, so that admission can name its PodGroup without reading an object.
"""

import hashlib
import re
from typing import Final

from trainer_kai.api.meta import Key

MAIN: Final = "Main"  # the suffix of a JobSet's only PodGroup; no replicatedJob can have this name

_MAX_UNHASHED: Final = 48  # characters: with "-replica-" and an index the name fits into a label
_PODGROUP_NAME: Final = re.compile(
    r"pg-(?P<owner>.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-.+)?"
)
_HASHED_PREFIX: Final = 39  # characters before the hash


def podgroup_name(jobset: str, uid: str, suffix: str) -> str:
    """Return the name of a PodGroup; the suffix distinguishes the PodGroups of one JobSet."""
    return f"pg-{jobset}-{uid}" if suffix == MAIN else f"pg-{jobset}-{uid}-{suffix}"


def owner_name(podgroup: str) -> str:
    """Return the JobSet in the name of a PodGroup; it has the name of its TrainJob.

    Use it in messages only: any other name is returned as it is.
    """
    match = _PODGROUP_NAME.fullmatch(podgroup)
    return match["owner"] if match else podgroup


def workload_name(podgroup: Key) -> str:
    """Return the namespace and name of a PodGroup's TrainJob, or of a single pod."""
    return f"{podgroup.namespace}/{owner_name(podgroup.name)}"


def podset_name(replicated_job: str, index: int | str) -> str:
    """Return the name of the PodSet for the pods of one Job."""
    return f"{podset_name_prefix(replicated_job)}{index}"


def podset_name_prefix(replicated_job: str) -> str:
    """Return the prefix of the PodSets of a replicatedJob; the index of the Job follows."""
    if len(replicated_job) <= _MAX_UNHASHED:
        return f"{replicated_job}-replica-"
    digest = hashlib.sha256(replicated_job.encode()).hexdigest()[:8]
    return f"{replicated_job[:_HASHED_PREFIX]}-{digest}-replica-"
