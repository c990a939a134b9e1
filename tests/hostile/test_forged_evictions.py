"""The annotation `trainer-kai.dev/evicted-by` on a TrainJob is its user's word, and gets nothing.

A tenant with the role `edit` writes any annotation on a TrainJob, under any field manager. That a
TrainJob is evicted stands on its PodGroups, which no tenant may write.
"""

import json
from typing import Any

from scheduler.core.model import Kind
from scheduler.state.live import Live
from scheduler.state.terms import Terms
from tests.hostile.conftest import Simulate
from tests.hostile.teams import GPU, TENANT, Obj, cluster, pod, pod_group
from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import gang_in, owed, trainjob
from tests.support.clusters import JOBSET, NOW, decoded, group, jobset_pod, made, node, queue
from trainer_kai.api.meta import Key

_RECORD = "trainer-kai.dev/evicted-by"
_OWNER = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "controller": True}


def forged(job: str, group: str) -> dict[str, str]:
    """Return the best forgery there is: it names the right TrainJob and PodGroup."""
    told = {"by": "trainer-kai-eviction", "why": "so", "trainJob": job, "podGroup": group}
    return {_RECORD: json.dumps(told)}


def test_a_suspended_trainjob_keeps_no_place_by_a_forged_record(simulate: Simulate) -> None:
    """It was moved, its user suspended it then: the slots of its return are the victim's."""
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
    live = Live(lambda: Terms(now=NOW, default_queue="q"))
    owner = {**_OWNER, "name": "j", "uid": "t"}
    notes = {"uid": "t", "annotations": forged("t", "g")}
    objects = [
        node("n"),
        queue(),
        made("JobSet", "j", {"uid": "u", "ownerReferences": [owner]}, spec={"suspend": True}),
        group("g", meta={"ownerReferences": [JOBSET]}, subGroups=[{"name": "n-replica-0"}]),
        *(jobset_pod(f"p{i}", "g", node="n") for i in range(4)),
    ]
    for fields in objects:
        _tell(live, fields)
    live.lead()
    _tell(live, made("TrainJob", "j", notes, spec={"suspend": True}))

    found = live.snapshot()

    assert found.snapshot.queues.allocated[0, Kind.GPU] == 4_000
    assert found.snapshot.nodes.releasing[0, Kind.GPU] == 0


async def test_a_trainjob_with_a_forged_record_is_evicted_as_any_other() -> None:
    """The owner of the GPUs has them at once: nothing says that it cannot be suspended."""
    house = House()
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2))
    job, *others = trainjob("x", "a")
    job["metadata"]["annotations"] = forged("x", "pg-x")
    house.api.put(job, *others)
    async with house.leading():
        await house.passes(2)
        house.api.put(*gang_in("lender", "l", 2))
        await house.passes(2)

    assert house.api.get("TrainJob", "x")["spec"].get("suspend") is True


def _meta(name: str, uid: str) -> dict[str, Any]:
    return {"name": name, "namespace": TENANT, "uid": uid}


def _tell(live: Live, fields: dict[str, Any]) -> None:
    shelf, key, one = decoded(fields)
    if shelf in ("pods", "pod_groups"):
        (live.pod if shelf == "pods" else live.group)(key, one)
    else:
        name = key if shelf in ("jobsets", "trainjobs") else Key("", key)
        live.put(getattr(live.cluster, shelf), name, one)
