"""Pods that a kubelet refuses: the node is avoided, and the gang starts anew elsewhere."""

import json
from typing import Any, Final

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import is_suspended
from tests.support.case import Case, ids
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import gang, node, pod, queue, trainjob
from trainer_kai.api.cluster_kinds import Event
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.policy.podgroups.avoided_nodes import AvoidTimes

REASON: Final = "OutOfnvidia.com/gpu"


def job(failed: int = 1) -> Fields:
    """Return the Job of the TrainJob, with its counter."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "x", "uid": "x"}
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "x",
        "jobset.sigs.k8s.io/replicatedjob-name": "n",
    }
    meta = {"uid": "x-n-0", "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"completions": 2, "parallelism": 2, "suspend": True}
    return {
        "kind": "Job",
        "metadata": {"name": "x-n-0", "namespace": "ns", **meta},
        "spec": spec,
        "status": {"failed": failed},
    }


def start(harness: SchedulerHarness, *nodes: str) -> None:
    harness.api.put(queue("borrower"), *(node(it) for it in nodes), *trainjob("x", ""))


def start_unsuspendable(harness: SchedulerHarness, *nodes: str) -> None:
    """Start a TrainJob with its Job that the API server lets no client suspend."""
    start(harness, *nodes)
    harness.api.put(job())
    harness.api.refuse_with = lambda what: 403 if "trainjobs" in what else None


def refuse(harness: SchedulerHarness, name: str, reason: str = REASON, at: str = "") -> None:
    """Do what a kubelet does that does not admit a pod, which was bound then or just now."""
    found = harness.api.get("Pod", name)
    at = at or harness.api.clock.now().isoformat(timespec="seconds")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    status = {"phase": "Failed", "reason": reason, "conditions": [scheduled]}
    meta = {"creationTimestamp": at, **found["metadata"]}
    harness.api.put({**found, "kind": "Pod", "metadata": meta, "status": status})


def avoided(harness: SchedulerHarness, name: str = "pg-x") -> dict[str, Any]:
    notes = harness.api.get("PodGroup", name)["metadata"].get("annotations", {})
    found: dict[str, Any] = json.loads(notes.get("trainer-kai.dev/avoided-nodes", "{}"))
    return found


def recreate_pods(harness: SchedulerHarness) -> None:
    for it in trainjob("x", "")[3:]:
        harness.api.put({**it, "metadata": {**it["metadata"], "uid": f"{it['metadata']['name']}-"}})


async def test_the_gang_starts_anew_elsewhere(harness: SchedulerHarness) -> None:
    """Whole: its Job is recreated, so that nothing counts the refused pod."""
    start(harness, "a", "b")
    harness.api.put(job())
    async with harness.leading():
        await harness.advance(1)
        assert harness.api.node_of_pods() == {"x0": "a", "x1": "a"}
        refuse(harness, "x0")
        await harness.advance(1)
        assert [*avoided(harness)] == ["a"]
        assert is_suspended(harness)
        jobset = harness.api.get("JobSet", "x")
        harness.api.put({**jobset, "kind": "JobSet", "spec": {**jobset["spec"], "suspend": True}})
        harness.api.delete("Pod", "x1")  # what was refused stays as long as its Job
        await harness.advance(3)
        assert "delete jobs x-n-0" in harness.api.written()
        assert is_suspended(harness)
        harness.api.delete("Pod", "x0")
        harness.api.put({**job(failed=0), "metadata": {**job()["metadata"], "uid": "other"}})
        await harness.advance(3)
        assert not is_suspended(harness)
        recreate_pods(harness)
        await harness.advance(1)
        assert harness.api.node_of_pods() == {"x0": "b", "x1": "b"}
    (event,) = [
        it
        for it in harness.api.events
        if it["reason"] == "NodeAvoided" and it["involvedObject"]["kind"] == "TrainJob"
    ]
    assert event["type"] == "Warning"
    assert event["message"].startswith(
        f"Node a refused pod x0 ({REASON}). The PodGroup avoids the node until "
    )
    record = json.loads(
        harness.api.get("PodGroup", "pg-x")["metadata"]["annotations"][
            "trainer-kai.dev/last-eviction"
        ]
    )
    assert (record["action"], record["rule"]) == ("noderefusedpod", "22b")


async def test_each_refused_pod_is_marked_at_once(harness: SchedulerHarness) -> None:
    """As a disruption, which the podFailurePolicy of a Job may ignore; once."""
    harness.api.put(node("a"), node("b"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(1)
        for name in ("g0", "g1"):
            refuse(harness, name)
        await harness.advance(0.1)
        for name in ("g0", "g1"):
            (found,) = [
                it
                for it in harness.api.get("Pod", name)["status"]["conditions"]
                if it["type"] == "DisruptionTarget"
            ]
            assert (found["status"], found["reason"]) == ("True", "RefusedByNode")
            assert found["message"] == f"Node a refused the pod ({REASON})"
        await harness.advance(5)
        assert harness.api.written().count("patch pods/status g0") == 1


async def test_what_has_succeeded_is_kept(harness: SchedulerHarness) -> None:
    """A Job with more rounds: its counter of failures stays, and so does what it has done."""
    start(harness, "a", "b")
    done = job()
    done["spec"]["completions"], done["status"]["succeeded"] = 10, 4
    harness.api.put(done)
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(1)
        assert is_suspended(harness)
        jobset = harness.api.get("JobSet", "x")
        harness.api.put({**jobset, "kind": "JobSet", "spec": {**jobset["spec"], "suspend": True}})
        harness.api.delete("Pod", "x1")
        await harness.advance(3)
        assert not is_suspended(harness)
        assert "delete jobs x-n-0" not in harness.api.written()


async def test_it_is_avoided_before_it_is_written(harness: SchedulerHarness) -> None:
    """A plan that comes first places no pod there; the write is tried again."""
    harness.api.put(node("a"), node("b"), *gang("g", 2))
    harness.api.refuse_with = lambda what: 500 if what == "patch podgroups g" else None
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "g0")
        harness.api.put(pod("g2", "g"))
        await harness.advance(1)
        assert harness.api.node_of_pods()["g2"] == "b"
        assert avoided(harness, "g") == {}
        harness.api.refuse_with = lambda _: None
        await harness.advance(30)
        assert [*avoided(harness, "g")] == ["a"]


async def test_a_pod_that_ran_for_long_may_be_refused(harness: SchedulerHarness) -> None:
    """The node was restarted, and its kubelet admits its pods before it knows its GPUs again."""
    start(harness, "a", "b")
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0", "UnexpectedAdmissionError", at="2026-01-01T00:00:00+00:00")
        await harness.advance(1)
        assert [*avoided(harness)] == ["a"]
        assert is_suspended(harness)
        assert harness.api.written().count("patch pods/status x0") == 1


@pytest.mark.parametrize("reason", ["Evicted", "Error", "", "DeadlineExceeded", "NodeShutdown"])
async def test_other_failures_are_no_refusals(harness: SchedulerHarness, reason: str) -> None:
    """The program of a pod, or the end of a node, says nothing about the next pod there."""
    harness.api.put(node("a"), node("b"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "g0", reason)
        harness.api.put(pod("g2", "g"))
        await harness.advance(1)
        assert harness.api.node_of_pods()["g2"] == "a"
        assert avoided(harness, "g") == {}


async def test_only_its_own_podgroup_avoids_it(harness: SchedulerHarness) -> None:
    """A tenant can keep no other one from a node."""
    harness.api.put(node("a"), node("b"), *gang("g", 1), *gang("h", 1))
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "g0")
        await harness.advance(1)
        harness.api.put(pod("h1", "h"), pod("g1", "g"))
        await harness.advance(1)
        nodes = harness.api.node_of_pods()
        assert (nodes["h1"], nodes["g1"]) == ("a", "b")


async def test_the_time_grows(harness: SchedulerHarness) -> None:
    """The refused pods stay as objects, and each counts once; another leader knows all of it."""
    harness.avoid_times = AvoidTimes(20, 50)
    harness.api.put(node("a"), *gang("g", 1))
    async with harness.leading():
        for number, seconds in enumerate((20, 40, 50)):
            await harness.advance(1)
            refuse(harness, f"g{number}")
            await harness.advance(1)
            (found,) = avoided(harness, "g").values()
            assert found.get("times", 1) == number + 1
            harness.api.put(pod(f"g{number + 1}", "g"))
            await harness.advance(seconds - 8)
            assert f"g{number + 1}" not in harness.api.node_of_pods()
            await harness.advance(14)
            assert harness.api.node_of_pods()[f"g{number + 1}"] == "a"
    before, successor = avoided(harness, "g"), harness.successor()
    successor.avoid_times = harness.avoid_times
    async with successor.leading():
        await harness.advance(5)
    assert avoided(harness, "g") == before


async def test_the_next_leader_writes_it(harness: SchedulerHarness) -> None:
    """The process ended before it wrote anything."""
    start(harness, "a", "b")
    harness.api.put(job())
    for name in ("x0", "x1"):
        found = harness.api.get("Pod", name)
        harness.api.put({**found, "kind": "Pod", "spec": {**found["spec"], "nodeName": "a"}})
    refuse(harness, "x0")
    async with harness.leading():
        await harness.advance(1)
        assert [*avoided(harness)] == ["a"]
        assert is_suspended(harness)


async def test_the_next_leader_suspends_what_the_last_one_could_not(
    harness: SchedulerHarness,
) -> None:
    """Its process ended between the two writes, of which the first one is not repeated."""
    start_unsuspendable(harness, "a", "b")
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(1)
        assert [*avoided(harness)] == ["a"]
    harness.api.refuse_with = lambda _what: None
    successor = harness.successor()
    async with successor.leading():
        await successor.advance(1)
        assert is_suspended(successor)
    assert len([it for it in harness.api.events if it["reason"] == "NodeAvoided"]) == 2


def failures(harness: SchedulerHarness) -> int:
    """Return how often the TrainJob could not be suspended."""
    counter = harness.metrics.evictions.labels("noderefusedpod", "refused", "borrower")
    return int(counter._value.get())


async def test_a_suspension_that_fails_is_tried_again(harness: SchedulerHarness) -> None:
    """By the same leader: a refused pod does not change any more, so nothing else would."""
    start_unsuspendable(harness, "a", "b")
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(50)
        assert not is_suspended(harness)
        harness.api.refuse_with = lambda _what: None
        await harness.advance(15)
        assert is_suspended(harness)
    posted = [it["message"] for it in harness.api.events if it["reason"] == "NotEvicted"]
    assert len([it for it in posted if "does not evict it again for 60 s" in it]) == 1


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_it_is_tried_a_few_times(harness: SchedulerHarness, *, is_stuck: bool) -> None:
    """Each time after twice as long, also if its kubelet reports the pod again and again."""
    start_unsuspendable(harness, "a", "b")
    seen = []
    async with harness.leading():
        await harness.advance(1)
        if not is_stuck:
            refuse(harness, "x0")
            await harness.advance(5)
        for number in range(64):
            if is_stuck and number < 60:
                failed_start(harness, "x0", 1, count=3 + number)
            await harness.advance(30)
            seen.append(failures(harness))
        assert not is_suspended(harness)
    assert [seen.index(it) for it in range(1, 7)] == [0, 1, 5, 13, 29, 61]
    assert seen[-1] == 6


async def test_what_another_node_refuses_meanwhile_is_tried_at_once(
    harness: SchedulerHarness,
) -> None:
    """Of a gang that was complete again: the next try for its first refused pod is far off."""
    start_unsuspendable(harness, "a", "b", "c")
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(190)
        assert failures(harness) == 3
        for name, node_name in (("y0", "b"), ("z0", "c")):
            found = harness.api.get("Pod", "x1")
            meta = {**found["metadata"], "name": name, "uid": name}
            spec = {**found["spec"], "nodeName": node_name}
            harness.api.put({"kind": "Pod", "metadata": meta, "spec": spec})
            await harness.advance(5)
            refuse(harness, name)
            await harness.advance(5)
            if name == "y0":
                assert (is_suspended(harness), failures(harness)) == (False, 4)
                harness.api.refuse_with = lambda _what: None
        assert is_suspended(harness)


async def test_it_is_not_tried_again_without_a_refused_pod(harness: SchedulerHarness) -> None:
    """Its successor waits for room: the gang lacks a pod, and not because of a node."""
    start(harness, "a")
    harness.api.refuse_with = lambda what: 403 if "trainjobs" in what else None
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(1)
        assert failures(harness) == 1
        found = harness.api.get("Pod", "x1")
        pending = {it: text for it, text in found["spec"].items() if it != "nodeName"}
        for name in ("x0", "x1"):
            harness.api.delete("Pod", name)
        for name in ("y0", "y1"):
            meta = {**found["metadata"], "name": name, "uid": name}
            harness.api.put({"kind": "Pod", "metadata": meta, "spec": pending})
        await harness.advance(200)
        assert failures(harness) == 1


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_gang_with_its_minimum_goes_on(
    harness: SchedulerHarness, *, is_stuck: bool
) -> None:
    """A pod that can be spared was refused, or waits there: no pod that runs is evicted for it."""
    start(harness, "a", "b")
    podgroup = harness.api.get("PodGroup", "pg-x")
    harness.api.put({**podgroup, "kind": "PodGroup", "spec": {**podgroup["spec"], "minMember": 1}})
    async with harness.leading():
        await harness.advance(1)
        if is_stuck:
            failed_start(harness, "x0", 1, count=3)
        else:
            refuse(harness, "x0")
        await harness.advance(5)
        assert [*avoided(harness)] == ["a"]
        assert not is_suspended(harness)


async def test_all_nodes_refuse(harness: SchedulerHarness) -> None:
    """The PodGroup waits, says until when, and is not tried again and again."""
    harness.api.put(node("a"), *gang("g", 1))
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "g0")
        harness.api.put(pod("g1", "g"))
        await harness.advance(60)
        written = harness.api.written()
        assert [it for it in written if it.startswith("bind")] == ["bind g0 to a"]
        (condition,) = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert "avoided because it refused a pod of the PodGroup (a; until " in condition["message"]
        assert len([it for it in harness.api.events if it["reason"] == "NodeAvoided"]) == 1


def failed_start(
    harness: SchedulerHarness, name: str, number: int, count: int = 1, **more: Any
) -> None:
    """Report as a kubelet does that the sandbox of a pod cannot be created."""
    involved = {"kind": "Pod", "namespace": "ns", "name": name, "uid": name}
    event = {
        "metadata": {"name": f"{name}.{number}", "namespace": "ns"},
        "involvedObject": involved,
        "reason": "FailedCreatePodSandBox",
        "message": "Failed to create pod sandbox: nvidia-container-cli: no driver",
        "count": count,
        **more,
    }
    decoded = decode(Event, json.dumps(event).encode())
    harness.cache.failed_starts.update(Key("ns", f"{name}.{number}"), decoded)


async def test_a_pod_that_cannot_start_three_times(harness: SchedulerHarness) -> None:
    """It holds its GPUs on the node: its gang starts anew elsewhere, whole."""
    start(harness, "a", "b")
    async with harness.leading():
        await harness.advance(1)
        for number in (1, 2, 2):
            failed_start(harness, "x0", number)
        await harness.advance(1)
        assert avoided(harness) == {}
        failed_start(harness, "x0", 2, count=2)
        await harness.advance(1)
        assert [*avoided(harness)] == ["a"]
        assert is_suspended(harness)
    messages = [it["message"] for it in harness.api.events if it["reason"] == "NodeAvoided"]
    assert messages[0].startswith("Node a cannot start pod x0: Failed to create pod sandbox: nvid")


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_it_is_suspended_once_however_many_nodes_refuse(
    harness: SchedulerHarness, *, seconds: float
) -> None:
    """The others fail while the workload is being suspended, or when it is."""
    start(harness)
    harness.api.put(node("a", gpu=1), node("b", gpu=1))
    harness.api.delay_s = lambda what: 0.5 if "trainjobs" in what else 0.0
    async with harness.leading():
        await harness.advance(1)
        refuse(harness, "x0")
        await harness.advance(0.2 + seconds)
        assert is_suspended(harness) == bool(seconds)
        refuse(harness, "x1")
        failed_start(harness, "x1", 1, count=3)
        await harness.advance(5)
        assert is_suspended(harness)
        assert sorted(avoided(harness)) == ["a", "b"]
    evictions = harness.metrics.evictions
    counted = [
        evictions.labels("noderefusedpod", outcome, "borrower")._value.get()
        for outcome in ("evicted", "refused")
    ]
    assert counted == [1, 0]


async def test_the_next_pod_that_cannot_start_is_one_too_many(harness: SchedulerHarness) -> None:
    """The first one could be spared, and the node is avoided by now."""
    start(harness, "a", "b")
    podgroup = harness.api.get("PodGroup", "pg-x")
    harness.api.put({**podgroup, "kind": "PodGroup", "spec": {**podgroup["spec"], "minMember": 1}})
    async with harness.leading():
        await harness.advance(1)
        failed_start(harness, "x0", 1, count=3)
        await harness.advance(5)
        assert not is_suspended(harness)
        written = harness.api.written().count("patch podgroups pg-x")
        failed_start(harness, "x0", 1, count=4)
        await harness.advance(5)
        assert not is_suspended(harness)
        assert harness.api.written().count("patch podgroups pg-x") == written
        failed_start(harness, "x1", 1, count=3)
        await harness.advance(5)
        assert is_suspended(harness)
    assert len([it for it in harness.api.events if it["reason"] == "NodeAvoided"]) == 2


OTHER_EVENTS: Final[list[Case[dict[str, Any], None]]] = [
    Case("an image that cannot be pulled", {"reason": "Failed"}, None),
    Case("a program that ends again and again", {"reason": "BackOff"}, None),
    Case("a configuration that is missing", {"reason": "FailedMount"}, None),
    Case("another pod of that name", {"involvedObject": {"kind": "Pod", "name": "g0"}}, None),
    Case("of no pod", {"involvedObject": {"kind": "Job", "name": "g0", "uid": "g0"}}, None),
]


@pytest.mark.parametrize("case", OTHER_EVENTS, ids=ids)
async def test_other_events_say_nothing_about_a_node(
    harness: SchedulerHarness, case: Case[dict[str, Any], None]
) -> None:
    harness.api.put(node("a"), *gang("g", 1))
    async with harness.leading():
        await harness.advance(1)
        for number in range(4):
            failed_start(harness, "g0", number, **case.given)
        found = harness.api.get("Pod", "g0")
        harness.api.put({**found, "kind": "Pod", "status": {"phase": "Running"}})
        for number in range(4):
            failed_start(harness, "g0", number)  # it has started since
        await harness.advance(1)
        assert avoided(harness, "g") == {}


async def test_few_pods_that_cannot_start_are_known(harness: SchedulerHarness) -> None:
    """A user may have very many."""
    harness.api.put(node("a", has={"pods": "900"}), *(pod(f"p{n}", node="a") for n in range(600)))
    async with harness.leading():
        for number in range(600):
            found = harness.api.get("Pod", f"p{number}")
            harness.api.put({**found, "kind": "Pod", "status": {"phase": "Pending"}})
            failed_start(harness, f"p{number}", 1)
        assert len(harness.cache.failed_starts) == 500
