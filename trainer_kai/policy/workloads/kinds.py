"""The table of the kinds of workloads: a new kind is a row here, and its adapter."""

from collections.abc import Mapping
from typing import Final

from trainer_kai.api.meta import OwnerReference
from trainer_kai.policy.workloads.job import JOB_KIND
from trainer_kai.policy.workloads.jobset import JOBSET_KIND
from trainer_kai.policy.workloads.workload import PodPlace, WorkloadKind

# The pods of a JobSet have the label of their Job too, so that its row comes before that of Jobs.
KINDS: Final = (JOBSET_KIND, JOB_KIND)
OWNERS: Final = tuple(dict.fromkeys(it.owner for it in KINDS if it.owner is not None))

_BY_GROUP_AND_KIND: Final = {(it.resource.group, it.resource.kind): it for it in KINDS}


def kind_of_owner(owner: OwnerReference) -> WorkloadKind | None:
    """Return the kind of the workload that owns an object, whatever its version."""
    return _BY_GROUP_AND_KIND.get((owner.api_version.partition("/")[0], owner.kind))


def kind_of_pod(labels: Mapping[str, str]) -> WorkloadKind | None:
    """Return the kind of the workload that a pod names; the first row counts."""
    for kind in KINDS:
        if kind.name_label in labels:
            return kind
    return None


def pod_place(labels: Mapping[str, str]) -> PodPlace:
    """Return the place of a pod; in files of users the name of its workload may be missing."""
    kind = kind_of_pod(labels)
    return (kind or JOBSET_KIND).pod_place(labels)
