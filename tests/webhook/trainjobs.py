"""TrainJobs and runtimes as they are reviewed, and what is held against them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tests.webhook.objects import BUNDLED, Obj, request, review
from trainer_kai.api.meta import Key, Meta
from trainer_kai.policy.groups import Rules
from webhook.cache import SlimRuntime, SlimRuntimeSpec, kept_runtime
from webhook.queuetree import QueueTree
from webhook.review import Answer
from webhook.shape import Runtime
from webhook.validate_trainjob import Judged, Known, judge_trainjob, read_trainjob
from webhook.verdict import NOTHING

__all__ = [
    "ANN",
    "OWN",
    "TORCH",
    "TRAINJOB",
    "Given",
    "body",
    "judged",
    "known",
    "patch",
    "pod_patch",
    "runtime",
    "said",
    "slim",
    "submitted",
    "the",
    "tree",
]

TRAINJOB: Final = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
TORCH: Final = Key("", "torch")
OWN: Final = Key("team", "own")
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


def slim(template: Mapping[str, Any], policy: Any = None, key: Key = TORCH) -> SlimRuntime:
    """Return a runtime as it is read off the wire."""
    spec = msgspec.convert({"podGroupPolicy": policy, "template": template}, SlimRuntimeSpec)
    return SlimRuntime(metadata=Meta(namespace=key.namespace, name=key.name), spec=spec)


def runtime(*jobs: Obj, policy: Any = None, **metadata: Any) -> Runtime:
    """Return what is kept of a runtime; its jobs as in a JobSet."""
    listed = list(jobs) or [{"name": "node"}]
    template = {"metadata": metadata, "spec": {"replicatedJobs": listed}}
    return kept_runtime(slim(template, policy))


def tree(*names: str, **below: str) -> QueueTree:
    """Return queues: *names* at the top, and others below them; all there are."""
    found = QueueTree()
    for name in names:
        found.put(name, "")
    for name, parent in below.items():
        found.put(name, parent)
    found.all_listed()
    return found


def known(of: Runtime | None = None, **others: Any) -> Known:
    """Return what is known beside a TrainJob; of queues nothing, unless some are given."""
    return Known(
        runtime() if of is None else of,
        others.pop("namespace", {}),
        **{"queues": QueueTree(), **others},
    )


def judged(
    obj: Obj, beside: Known | None = None, old: Obj | None = None, rules: Rules = BUNDLED
) -> Judged:
    """Return what is held against a TrainJob; nothing where the review is not ours."""
    case = read_trainjob(request(obj, TRAINJOB, old))
    if isinstance(case, Answer):
        return Judged(
            NOTHING if case.refusal is None else NOTHING._replace(refusals=(case.refusal,))
        )
    return judge_trainjob(case, beside or known(), rules)


def said(found: Judged) -> tuple[list[str], list[str]]:
    """Return refusals and warnings."""
    verdict = found.verdict
    return [it.message for it in verdict.refusals], list(verdict.warnings)


def body(obj: Obj, old: Obj | None = None, who: Obj = ANN, **fields: Any) -> bytes:
    """Return the body of a review of a TrainJob."""
    return review(obj, TRAINJOB, old, userInfo=who, **fields)


class Given(NamedTuple):
    """A TrainJob, what is known beside it, and what it was."""

    obj: Obj
    known: Known | None = None
    old: Obj | None = None


def the(given: Given) -> Judged:
    """Judge it."""
    return judged(given.obj, given.known, given.old)
