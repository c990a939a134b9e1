"""The labels and annotations that admission copies from a TrainJob to its JobSet.

A value that the JobSet has already stays. Trainer itself copies no labels and annotations.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)

__all__ = ["CARRIED_ANNOTATIONS", "CARRIED_LABELS", "with_carried_metadata"]

CARRIED_LABELS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)
CARRIED_ANNOTATIONS: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    BATCH_MIN_MEMBER,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
    SKIP_PODGROUPER,
)


def with_carried_metadata(
    jobset: JobSet, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> JobSet:
    """Return a JobSet with the metadata that admission copies from its TrainJob."""
    meta = jobset.metadata
    return replace(
        jobset,
        metadata=replace(
            meta,
            labels={**_selected(labels, CARRIED_LABELS), **meta.labels},
            annotations={**_selected(annotations, CARRIED_ANNOTATIONS), **meta.annotations},
        ),
    )


def _selected(source: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: source[name] for name in names if name in source}
