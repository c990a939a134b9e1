"""The fields of a TrainJob that are decoded and cached."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE, TRAINER
from trainer_kai.api.resource import Resource
from trainer_kai.api.trainjob import RuntimeRef, TrainJobStatus
from trainer_kai.policy.expand.carried_metadata import (
    CARRIED_ANNOTATIONS,
    CARRIED_LABELS,
    CARRIED_TO_PODS,
)
from webhook.cache.bounded_store import OBJECT_BYTES, text_bytes
from webhook.cache.runtimes import runtime_key

_FINISHED: Final = ("Complete", "Failed")


class SlimTrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The runtime that a TrainJob names."""

    runtime_ref: RuntimeRef = RuntimeRef()


class SlimTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A TrainJob, with the fields that admission reads."""

    metadata: Meta
    spec: SlimTrainJobSpec = SlimTrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()


class TrainJobSummary(NamedTuple):
    """The cached fields of a TrainJob."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: Key  # without a namespace for a ClusterTrainingRuntime
    is_finished: bool = False


TRAINJOBS: Final = Resource(
    TRAINER, "v1alpha1", "trainjobs", "TrainJob", namespaced=True, struct=SlimTrainJob
)


def summarize_trainjob(trainjob: SlimTrainJob) -> TrainJobSummary:
    """Return the fields of a TrainJob that are cached."""
    meta = trainjob.metadata
    return TrainJobSummary(
        uid=meta.uid,
        labels=_select(meta.labels, (QUEUE, *CARRIED_LABELS)),
        annotations=_select(meta.annotations, (*CARRIED_ANNOTATIONS, *CARRIED_TO_PODS)),
        runtime=runtime_key(trainjob.spec.runtime_ref, meta.namespace),
        is_finished=any(
            it.type in _FINISHED and it.status == "True" for it in trainjob.status.conditions
        ),
    )


def trainjob_bytes(job: TrainJobSummary) -> int:
    """Return how many bytes a cached TrainJob takes."""
    texts = (*job.labels.values(), *job.annotations.values(), *job.runtime, job.uid)
    return OBJECT_BYTES + text_bytes(texts)


def _select(given: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    return {name: given[name] for name in names if name in given}
