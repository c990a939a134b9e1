"""Which values of a JobSet follow its TrainJob: a change counts while the TrainJob waits.

Admission copies labels and annotations of a TrainJob to its JobSet when that is created, where the
runtime sets none. Those that only the PodGroups need may change later: an annotation of the JobSet
names them, and the podgrouper reads their values from the TrainJob. A JobSet without the annotation
follows in nothing: an earlier version admitted it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    FOLLOWS_TRAINJOB,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.policy.workloads.workload import Workload

_LABELS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY)
_ANNOTATIONS: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    BATCH_MIN_MEMBER,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
)
_BETWEEN: Final = ","


class FollowedValues(NamedTuple):
    """What a TrainJob says now of the values that may follow it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def followed_values(trainjob: Meta) -> FollowedValues:
    return FollowedValues(
        {name: trainjob.labels[name] for name in _LABELS if name in trainjob.labels},
        {name: trainjob.annotations[name] for name in _ANNOTATIONS if name in trainjob.annotations},
    )


def followed_names(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the value of the annotation: the names that a JobSet as Trainer built it lacks."""
    names = [name for name in _LABELS if name not in labels]
    return _BETWEEN.join([*names, *(name for name in _ANNOTATIONS if name not in annotations)])


def with_followed_values(workload: Workload, trainjob: FollowedValues) -> Workload:
    """Return a workload with the values that its TrainJob has now; it lacks removed ones."""
    meta = workload.metadata
    names = set(meta.annotations.get(FOLLOWS_TRAINJOB, "").split(_BETWEEN))
    labels = _followed(meta.labels, trainjob.labels, names.intersection(_LABELS))
    annotations = _followed(
        meta.annotations, trainjob.annotations, names.intersection(_ANNOTATIONS)
    )
    if (labels, annotations) == (dict(meta.labels), dict(meta.annotations)):
        return workload
    return replace(workload, metadata=replace(meta, labels=labels, annotations=annotations))


def _followed(
    own: Mapping[str, str], trainjob: Mapping[str, str], names: set[str]
) -> dict[str, str]:
    kept = {name: text for name, text in own.items() if name not in names}
    return {**kept, **{name: trainjob[name] for name in names if name in trainjob}}
