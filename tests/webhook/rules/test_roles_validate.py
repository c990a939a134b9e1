"""Warnings about jobs of Kubeflow v1, Ray objects and LeaderWorkerSets, by what they say."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import BUNDLED, Obj, request, told
from tests.webhook.workload_reviews import DEPLOYMENT, IDLE, QUEUE
from webhook.admission.review import ReviewedKind
from webhook.rules.roles_validate import roles_kind_of, validate_roles

PYTORCH: Final = {"group": "kubeflow.org", "version": "v1", "kind": "PyTorchJob"}
RAY: Final = {"group": "ray.io", "version": "v1", "kind": "RayCluster"}
SEGMENT: Final = "kai.scheduler/segment-size"


def job(*, scheduler: str = "kai-scheduler", notes: Any = None, **metadata: Any) -> Obj:
    template = {"metadata": {"annotations": notes or {}}, "spec": {"schedulerName": scheduler}}
    specs = {"Worker": {"replicas": 2, "template": template}}
    return {"metadata": {"name": "x", **metadata}, "spec": {"pytorchReplicaSpecs": specs}}


def reviewed(obj: Obj, kind: Obj = PYTORCH, old: Obj | None = None) -> str:
    found = roles_kind_of(ReviewedKind(**kind))
    assert found is not None
    return told(validate_roles(request(obj, kind, old), found, IDLE, BUNDLED).response())


CASES: list[Case[Obj, str]] = [
    Case("nothing to say", job(labels={QUEUE: "team-a"}), ""),
    Case("a queue that does not exist", job(labels={QUEUE: "team-x"}),
         "metadata.labels[kai.scheduler/queue]: queue 'team-x' does not exist"),
    Case("another scheduler", job(scheduler="volcano", labels={QUEUE: "team-a"}),
         "spec.pytorchReplicaSpecs: the pods go to the scheduler volcano, for which the label "
         "kai.scheduler/queue has no effect. Set schedulerName: kai-scheduler in the pod "
         "templates, or remove the label"),
    Case("another scheduler without a queue", job(scheduler="volcano"), ""),
    Case("a segment size that is ignored", job(notes={SEGMENT: "0"}),
         f"spec.pytorchReplicaSpecs.Worker.template.metadata.annotations[{SEGMENT}]: ignored: '0' "
         "must be a whole number, 1 or more"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_said_at_creation(case: Case[Obj, str]) -> None:
    assert reviewed(case.given).startswith(case.want)
    assert bool(reviewed(case.given)) == bool(case.want)


def test_an_update_is_told_only_what_it_changes() -> None:
    before = job(labels={QUEUE: "team-x"})
    assert reviewed(before, old=before) == ""
    assert "'team-y'" in reviewed(job(labels={QUEUE: "team-y"}), old=before)


def test_the_cluster_of_a_ray_job_is_not_reviewed() -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "u"}
    meta = {"labels": {QUEUE: "no"}, "ownerReferences": [{**owner, "controller": True}]}
    assert reviewed({"metadata": {"name": "x", **meta}, "spec": {}}, RAY) == ""


def test_what_cannot_be_read_is_let_through() -> None:
    assert reviewed({"metadata": {"name": "x"}, "spec": {"pytorchReplicaSpecs": 1}}) == ""


def test_kinds_of_their_own_rules() -> None:
    assert roles_kind_of(ReviewedKind(**DEPLOYMENT)) is None
    assert roles_kind_of(ReviewedKind(group="batch", version="v1", kind="Job")) is None
