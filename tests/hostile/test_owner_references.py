"""Whatever a tenant writes as the owner of a JobSet, its pods can be evicted, and only its own."""

import json
from typing import Any, Final

import pytest

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import SuspendableId
from scheduler.state.inputs import StateOptions
from tests.hostile.objects import TENANT, pod_group
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBSETS, PODGROUPS, TRAINJOBS
from trainer_kai.policy.workloads.workload import ObjectKey

_API: Final = "trainer.kubeflow.org/v1alpha1"
_TRUE: Final = {"apiVersion": _API, "kind": "TrainJob", "name": "job", "uid": "t"}


def _live(owner: dict[str, Any], uid: str = "u") -> ClusterCache:
    """Return a cluster with TrainJobs job and other, and a JobSet job of this owner."""
    live = ClusterCache(lambda: StateOptions(now=0))
    for name, suspended in (("job", False), ("other", True)):
        meta = {"namespace": TENANT, "name": name, "uid": name[0]}
        spec = {"runtimeRef": {"name": "r"}, "suspend": suspended}
        trainjob = decode(TRAINJOBS.struct, json.dumps({"metadata": meta, "spec": spec}).encode())
        live.update(TRAINJOBS, trainjob.metadata.key, trainjob)
    of_jobset = {"namespace": TENANT, "name": "job", "uid": "u", "ownerReferences": [owner]}
    jobset = decode(JOBSETS.struct, json.dumps({"metadata": of_jobset, "spec": {}}).encode())
    live.update(JOBSETS, jobset.metadata.key, jobset)
    group = pod_group(TENANT, "pg-job-u")
    of = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "job", "uid": uid}
    group["metadata"]["ownerReferences"] = [of]
    live.update_group(Key(TENANT, "pg-job-u"), decode(PODGROUPS.struct, json.dumps(group).encode()))
    return live


def _owner(live: ClusterCache) -> SuspendableId | None:
    return live.in_flight_evictions.suspendable_id(Key(TENANT, "pg-job-u"))


def test_the_trainjob_is_suspended() -> None:
    """That is what evicts it, where no user changed anything."""
    assert _owner(_live(_TRUE | {"uid": "j", "controller": True})) == SuspendableId(
        ObjectKey("TrainJob", TENANT, "job"), "j"
    )


def test_a_jobset_that_nothing_controls_is_suspended_itself() -> None:
    """Its owner does not control it, so it follows no suspension."""
    assert _owner(_live(_TRUE | {"uid": "j", "controller": False})) == SuspendableId(
        ObjectKey("JobSet", TENANT, "job"), "u"
    )


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"uid": "gone"}, id="a TrainJob that does not exist"),
        pytest.param({"apiVersion": "example.com/v1", "uid": "j"}, id="another API"),
        pytest.param({"name": "other", "uid": "o"}, id="a TrainJob that is suspended already"),
    ],
)
def test_the_pods_of_a_jobset_with_a_forged_owner_go_one_by_one(forged: dict[str, Any]) -> None:
    """To suspend what it names would take nothing from it, or is not possible at all."""
    assert _owner(_live(_TRUE | {"controller": True} | forged)) is None


def test_a_jobset_made_anew_is_not_suspended_for_the_pods_of_the_old_one() -> None:
    """The group of the old one is about to be collected; what is new has pods of its own."""
    live = _live(_TRUE | {"uid": "j", "controller": True}, uid="old")
    assert _owner(live) == SuspendableId(ObjectKey("TrainJob", TENANT, ""), "")
