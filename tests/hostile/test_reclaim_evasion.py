"""What a tenant runs over quota is reclaimed, whatever the tenant does to keep it."""

from collections.abc import Mapping
from typing import Any, Final

from tests.hostile.conftest import SimulateFixture
from tests.hostile.forged_jobsets import jobset, trainjob
from tests.hostile.objects import TENANT, VICTIMS, cluster, node, pod, pod_group, queue

Obj = dict[str, Any]

_JOBSET_API: Final = "jobset.x-k8s.io/v1alpha2"
_KUEUE: Final[Mapping[str, str]] = {"kueue.x-k8s.io/queue-name": "x"}
_BUDGET: Final = "tenant/mine"


def _victims(*names: str) -> list[Obj]:
    """Return a gang of 8 GPUs of each victim, which waits."""
    return [
        it
        for name in names
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


def _running(name: str, at: str, gpus: int, labels: Mapping[str, str] | None = None) -> list[Obj]:
    """Return a TrainJob of the tenant that runs on a node: one pod for each GPU."""
    job = trainjob(name, f"uid-of-{name}")
    job["metadata"]["labels"] = {**(labels or {})}
    job["spec"] = {"runtimeRef": {"name": "any"}}
    group, made = pod_group(TENANT, f"pg-{name}", gpus), jobset(name, [], job)
    owner = {"apiVersion": _JOBSET_API, "kind": "JobSet", "name": name, "uid": f"uid-{name}"}
    group["metadata"]["ownerReferences"] = [owner]
    pods = [_of_job(pod(TENANT, f"{name}-{n}", 1, f"pg-{name}", at)) for n in range(gpus)]
    return [job, made, group, *pods]


def _of_job(one: Obj) -> Obj:
    """Let a pod be made by a Job of a JobSet."""
    of = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": True}
    one["metadata"]["ownerReferences"] = [of]
    one["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "0"
    return one


def _budget(allowed: int) -> Obj:
    """Return the tenant's own budget, which covers all of its pods."""
    status = {"disruptionsAllowed": allowed, "desiredHealthy": 16, "currentHealthy": 16}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "mine", "namespace": TENANT},
        "spec": {"maxUnavailable": 0, "selector": {}},
        "status": {**status, "expectedPods": 16},
    }


def _borrowed(labels: Mapping[str, str] | None = None) -> list[Obj]:
    """Return two TrainJobs of the tenant, which have all 16 GPUs."""
    return [it for at in range(2) for it in _running(f"mine{at}", f"n{at}", 8, labels)]


def test_a_budget_of_the_tenant_keeps_nothing_back(simulate: SimulateFixture) -> None:
    """Both victims get their quota; the tenant's PodGroups are told which budget was passed."""
    found = simulate([*cluster(), *_victims(*VICTIMS), *_borrowed(), _budget(0)])

    assert [*found.evictions.values()] == ["reclaim"] * 16
    reasons = {it["reason"] for it in found.document["cycles"][0]["evictions"]}
    assert all(f"PodDisruptionBudget {_BUDGET} allows only 0" in it for it in reasons)
    assert not found.waiting


def test_a_site_may_keep_budgets_always(simulate: SimulateFixture) -> None:
    """Then the victim is told which budget it is."""
    given = [*cluster(), *_victims("red"), *_borrowed(), _budget(0)]
    found = simulate(given, disruption_budgets="always")

    assert not found.evictions
    report = found.waiting["red/job"]["message"]
    assert f"PodDisruptionBudget {_BUDGET} allows too few evictions" in report


def test_a_pod_that_succeeded_keeps_nothing_back(simulate: SimulateFixture) -> None:
    """One tiny pod of each TrainJob is done; the pods that run go all the same."""
    borrowed = _borrowed()
    for name in ("mine0", "mine1"):
        done = _of_job(pod(TENANT, f"{name}-done", 0, f"pg-{name}", f"n{name[-1]}"))
        done["status"] = {"phase": "Succeeded"}
        borrowed.append(done)
    found = simulate([*cluster(), *_victims(*VICTIMS), *borrowed])

    assert [*found.evictions.values()] == ["reclaim"] * 16
    assert not found.waiting


def test_a_small_minimum_keeps_nothing_back(simulate: SimulateFixture) -> None:
    """With a quota of 1 GPU and a minimum of 1, all 8 go: the first of them would be its own."""
    queues = [queue("red", 8), queue("blue", 7), queue(TENANT, 1)]
    borrowed = _running("mine0", "n0", 8)
    borrowed[2]["spec"]["minMember"] = 1
    others = [
        pod_group("blue", "job", 7),
        *(pod("blue", f"b{n}", 1, "job", "n1") for n in range(7)),
    ]
    found = simulate([node("n0"), node("n1"), *queues, *_victims("red"), *borrowed, *others])

    assert found.evictions == {f"tenant/mine0-{n}": "reclaim" for n in range(8)}
    assert not found.waiting


def test_tiny_pods_first_keep_nothing_back(simulate: SimulateFixture) -> None:
    """Made by hand, two of them are the minimum: without a quota it would first ask for those."""
    borrowed = _running("mine0", "n0", 8)
    borrowed[2]["spec"]["minMember"] = 2
    for name in ("tiny0", "tiny1"):
        borrowed.append(_of_job(pod(TENANT, name, 0, "pg-mine0", "n0")))
        borrowed[-1]["metadata"]["labels"]["kai.scheduler/task-priority"] = "9"
    found = simulate([*cluster(), *_victims(*VICTIMS), *borrowed])

    assert {f"tenant/mine0-{n}" for n in range(8)} <= found.evictions.keys()
    assert not found.waiting


def test_what_cannot_be_evicted_is_the_last_that_is_borrowed(simulate: SimulateFixture) -> None:
    """With a TrainJob that is left to Kueue, which runs here, the tenant borrows nothing more."""
    kept = _running("mine0", "n0", 8, _KUEUE)
    more = [pod_group(TENANT, "more", 1), pod(TENANT, "more", 1, "more")]
    found = simulate([*cluster(), node("n2"), *_victims("red"), *kept, *more], kueue=True)

    assert {it for it in found.binds if it.startswith("red/")} == {f"red/p{n}" for n in range(8)}
    assert not any(it.startswith("tenant/") for it in found.binds)
    report = found.waiting["tenant/more"]
    assert report["reason"] == "NonPreemptibleOverQuota"
    assert report["message"] == (
        "Queue tenant has a quota of 0 GPU and uses 8 GPU that cannot be reclaimed, because 1 "
        "PodGroup cannot be evicted (tenant/pg-mine0); the PodGroup requests 1 GPU more. It can "
        "start when 8 GPU of this can be reclaimed, or its quota is raised to 8 GPU"
    )


def test_a_sibling_queue_keeps_what_is_its_own(simulate: SimulateFixture) -> None:
    """Below one queue: what the tenant cannot give back is not counted against its neighbours."""
    queues = [queue("team", 8), queue("red", 8, parent="team"), queue(TENANT, 0, parent="team")]
    wants = pod_group("red", "job", 8)
    wants["spec"]["preemptibility"] = "non-preemptible"
    pods = [pod("red", f"p{n}", 1, "job") for n in range(8)]
    kept = _running("mine0", "n0", 8, _KUEUE)
    found = simulate([node("n0"), node("n1"), *queues, wants, *pods, *kept], kueue=True)

    assert len(found.binds) == 8
