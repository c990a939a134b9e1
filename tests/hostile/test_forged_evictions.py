"""The annotation `trainer-kai.dev/evicted-by` on a TrainJob is its user's word, and gets nothing.

A tenant with the role `edit` writes any annotation on a TrainJob, under any field manager. That a
TrainJob is evicted stands on its PodGroups, which no tenant may write.
"""

import json
from typing import Any

from scheduler.core.model.resources import ResourceKind
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import GPU, TENANT, Obj, cluster, pod, pod_group
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import (
    JOBSET,
    NOW,
    decode_object,
    gang_in,
    group,
    jobset_pod,
    make_object,
    node,
    queue,
    queue_with_quota,
    trainjob,
)

_RECORD = "trainer-kai.dev/evicted-by"
_OWNER = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "controller": True}


def forged(job: str, group: str) -> dict[str, str]:
    """Return the best forgery there is: it names the right TrainJob and PodGroup."""
    record = {"by": "trainer-kai-eviction", "why": "so", "trainJob": job, "podGroup": group}
    return {_RECORD: json.dumps(record)}


def test_a_suspended_trainjob_keeps_no_place_by_a_forged_record(simulate: SimulateFixture) -> None:
    """It was moved, then its user suspended it: the places of its return are the victim's."""
    like = {"subGroupPrefix": "n-replica-0", "replicas": 1, "count": 1, "requests": {GPU: "8"}}
    held = {"nodes": {"n0": 1}, "cause": "move", "until": "2999-01-01T00:00:00Z", "like": like}
    notes = {"trainer-kai.dev/reserved": json.dumps({"n-replica-0": held})}
    jobset: Obj = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            **_meta("job", "jobset"),
            "ownerReferences": [{**_OWNER, "name": "job", "uid": "trainjob"}],
        },
        "spec": {"suspend": True, "replicatedJobs": []},
    }
    owned = pod_group(TENANT, "moved")
    owned["metadata"] |= {"uid": "moved", "annotations": notes}
    owned["metadata"]["ownerReferences"] = [{**JOBSET, "name": "job", "uid": "jobset"}]
    owned["spec"] = {"queue": TENANT, "subGroups": [{"name": "n-replica-0", "minMember": 1}]}
    job: Obj = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**_meta("job", "trainjob"), "annotations": forged("trainjob", "moved")},
        "spec": {"runtimeRef": {"name": "r"}, "suspend": True},
    }
    victim = pod("red", "p", 8)

    seen = simulate([*cluster(nodes=1), jobset, owned, job, victim])

    assert seen.binds == {"red/p": "n0"}


def test_pods_of_a_suspended_trainjob_are_charged_whatever_it_says() -> None:
    """They stay on their nodes, and so in the share of their queue."""
    live = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q"))
    owner = {**_OWNER, "name": "j", "uid": "t"}
    notes = {"uid": "t", "annotations": forged("t", "g")}
    objects = [
        node("n"),
        queue(),
        make_object(
            "JobSet", "j", {"uid": "u", "ownerReferences": [owner]}, spec={"suspend": True}
        ),
        group("g", meta={"ownerReferences": [JOBSET]}, subGroups=[{"name": "n-replica-0"}]),
        *(jobset_pod(f"p{i}", "g", node="n") for i in range(4)),
    ]
    for fields in objects:
        _apply_change(live, fields)
    live.start_leading()
    _apply_change(live, make_object("TrainJob", "j", notes, spec={"suspend": True}))

    found = live.snapshot()

    assert found.snapshot.queues.allocated[0, ResourceKind.GPU] == 4_000
    assert found.snapshot.nodes.releasing[0, ResourceKind.GPU] == 0


async def test_a_trainjob_with_a_forged_record_is_evicted_as_any_other() -> None:
    """The owner of the GPUs has them at once: nothing says that it cannot be suspended."""
    scheduler = SchedulerHarness()
    scheduler.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    job, *others = trainjob("x", "a")
    job["metadata"]["annotations"] = forged("x", "pg-x")
    scheduler.api.put(job, *others)
    async with scheduler.leading():
        await scheduler.advance(2)
        scheduler.api.put(*gang_in("lender", "l", 2))
        await scheduler.advance(2)

    assert scheduler.api.get("TrainJob", "x")["spec"].get("suspend") is True


def _meta(name: str, uid: str) -> dict[str, Any]:
    return {"name": name, "namespace": TENANT, "uid": uid}


def _apply_change(live: ClusterCache, fields: dict[str, Any]) -> None:
    live.update(*decode_object(fields))
