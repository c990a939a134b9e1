"""TrainJobs and runtimes as they are reviewed, and their validation."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tests.webhook.objects import BUNDLED, Obj, request, review
from trainer_kai.api.meta import Key, Meta
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import NO_OBJECTIONS, AdmissionResponse
from webhook.cache.admission_cache import QueueTree
from webhook.cache.runtimes import RuntimeSummary, WatchedRuntime
from webhook.rules.trainjob_validate import (
    TrainJobContext,
    TrainJobValidation,
    read_trainjob,
    validate_trainjob,
)

TRAINJOB: Final = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
ONE_JOB: Final[Obj] = {"spec": {"replicatedJobs": [{"name": "node"}]}}  # a template
CLUSTER_RUNTIME: Final = Key("", "torch")
NAMESPACE_RUNTIME: Final = Key("team", "own")
ANN: Final[Obj] = {"username": "ann", "groups": ["people"], "extra": {"from": ["office"]}}


def submitted(labels: Mapping[str, str] | None = None, **parts: Any) -> Obj:
    """Return a TrainJob; *parts* are of its spec, or annotations; `own` names its own runtime."""
    own = parts.pop("own", False)
    ref = {"name": "own", "kind": "TrainingRuntime"} if own else {"name": "torch"}
    metadata: Obj = {"name": "job", "namespace": "team", "labels": dict(labels or {})}
    for name in ("annotations", "deletionTimestamp"):
        if name in parts:
            metadata[name] = parts.pop(name)
    return {"metadata": metadata, "spec": {"runtimeRef": ref, **parts}}


def patch(*jobs: Obj, **metadata: Any) -> Obj:
    """Return an entry of runtimePatches for the JobSet, and for replicatedJobs."""
    template = {"metadata": metadata, "spec": {"replicatedJobs": list(jobs)}}
    return {"manager": "example.com/a", "trainingRuntimeSpec": {"template": template}}


def pod_patch(name: str = "node", **metadata: Any) -> Obj:
    """Return what a patch says of the pods of a replicatedJob."""
    return {"name": name, "template": {"spec": {"template": {"metadata": metadata}}}}


def watched_runtime(
    template: Mapping[str, Any], policy: Any = None, key: Key = CLUSTER_RUNTIME
) -> WatchedRuntime:
    spec = msgspec.Raw(msgspec.json.encode({"podGroupPolicy": policy, "template": template}))
    return WatchedRuntime(metadata=Meta(namespace=key.namespace, name=key.name), spec=spec)


def runtime(*jobs: Obj, policy: Any = None, **metadata: Any) -> RuntimeSummary:
    """Return what is kept of a runtime; its jobs as in a JobSet."""
    listed = list(jobs) or [{"name": "node"}]
    template = {"metadata": metadata, "spec": {"replicatedJobs": listed}}
    return watched_runtime(template, policy).summary


def queue_tree(*names: str, **below: str) -> QueueTree:
    """Return queues: *names* at the top, and others below them; all there are."""
    queues = QueueTree()
    for name in names:
        queues.put(name, "")
    for name, parent in below.items():
        queues.put(name, parent)
    queues.mark_listed()
    return queues


def trainjob_context(of: RuntimeSummary | None = None, **others: Any) -> TrainJobContext:
    """Return what is known beside a TrainJob; of queues nothing, unless some are given."""
    return TrainJobContext(
        runtime() if of is None else of,
        others.pop("namespace_labels", {}),
        **{"queues": QueueTree(), **others},
    )


def validated_trainjob(
    obj: Obj,
    context: TrainJobContext | None = None,
    old: Obj | None = None,
    rules: GroupingRules = BUNDLED,
) -> TrainJobValidation:
    """Return the validation of a TrainJob; no objections where it is not ours."""
    trainjob_review = read_trainjob(request(obj, TRAINJOB, old))
    if isinstance(trainjob_review, AdmissionResponse):
        return TrainJobValidation(
            NO_OBJECTIONS
            if trainjob_review.denial is None
            else NO_OBJECTIONS._replace(denials=(trainjob_review.denial,))
        )
    return validate_trainjob(trainjob_review, context or trainjob_context(), rules)


def messages(validation: TrainJobValidation) -> tuple[list[str], list[str]]:
    result = validation.result
    return [it.message for it in result.denials], list(result.warnings)


def body(obj: Obj, old: Obj | None = None, user_info: Obj = ANN, **fields: Any) -> bytes:
    return review(obj, TRAINJOB, old, userInfo=user_info, **fields)


class TrainJobCase(NamedTuple):
    """A TrainJob, what is known beside it, and what it was."""

    obj: Obj
    context: TrainJobContext | None = None
    old: Obj | None = None


def validate_case(trainjob_case: TrainJobCase) -> TrainJobValidation:
    return validated_trainjob(trainjob_case.obj, trainjob_case.context, trainjob_case.old)
