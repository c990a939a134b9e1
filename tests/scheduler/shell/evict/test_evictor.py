"""Victims: evicted after their preemptor is nominated, all of them or none."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import fill_over_quota
from tests.support.state.objects import (
    gang_in,
    group,
    node,
    pod,
    queue_with_quota,
    trainjob,
)
from trainer_kai.policy.workloads.workload import ObjectKey


async def test_nodes_are_nominated_before_any_victim_is_evicted(harness: SchedulerHarness) -> None:
    """Then the victims are marked and deleted by their uids, and no other pod is."""
    fill_over_quota(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        pass
    written = harness.api.written()

    nominations = [written.index(f"patch pods/status l{i}") for i in range(2)]
    deletions = [written.index(f"delete pods b1{i}") for i in range(2)]
    assert max(nominations) < min(deletions)
    assert not [it for it in written if "b00" in it or "b01" in it]
    (mark,) = harness.api.body("patch pods/status b10")["status"]["conditions"]
    assert (mark["type"], mark["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert harness.api.body("delete pods b10")["preconditions"] == {"uid": "b10"}
    assert {("PodGroup b1", "Evict"), ("PodGroup l", "Evicting")} <= {*harness.events()}


async def test_no_other_pod_goes_while_victims_terminate(harness: SchedulerHarness) -> None:
    """Each plan counts them as gone until they are; then the preemptor is bound."""
    fill_over_quota(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        for _ in range(3):
            harness.cycle.replan()
            await harness.advance(5)
        deleted = [it for it in harness.api.written() if it.startswith("delete")]
        assert sorted(deleted) == ["delete pods b10", "delete pods b11"]
        for name in ("b10", "b11"):
            harness.api.delete("Pod", name)
        await harness.advance(0.1)

        assert harness.api.node_of_pods() == {"b00": "a", "b01": "a", "l0": "a", "l1": "a"}


async def test_no_other_pod_goes_before_evictions_are_seen(harness: SchedulerHarness) -> None:
    """No watch has shown the deletions yet, and each plan counts them; no pod is deleted twice."""
    asked: list[str] = []
    harness.api.refuse_with = asked.append
    fill_over_quota(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    harness.api.holds_back_events = True
    async with harness.leading():
        for _ in range(3):
            harness.cycle.replan()
            await harness.advance(1)
        marked = [it for it in asked if it.startswith("patch pods/status b")]
        harness.api.holds_back_events = False
        harness.api.deliver()

    assert sorted(marked) == ["patch pods/status b10", "patch pods/status b11"]


async def test_no_victim_goes_for_a_preemptor_that_cannot_be_nominated(
    harness: SchedulerHarness,
) -> None:
    """The preemptor was changed meanwhile: it is planned again first."""
    fill_over_quota(harness)
    refusals = [409]
    harness.api.refuse_with = lambda what: (
        refusals.pop() if what == "patch pods/status l0" and refusals else None
    )
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(1)
    written = harness.api.written()

    assert not refusals
    assert written.index("patch pods/status l0") < written.index("delete pods b10")


async def test_a_pod_that_had_to_go_leaves_no_place_for_its_successor(
    harness: SchedulerHarness,
) -> None:
    """Its PodGroup goes on without it, and the pod is recreated: its room is the preemptor's."""
    harness.api.put(
        queue_with_quota("lender", 4), queue_with_quota("borrower", 0), node("a", gpu=4)
    )
    harness.api.put(*gang_in("borrower", "b", 4, at="a"))
    harness.api.put(group("b", minMember=2, queue="borrower"))
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        harness.api.put(pod("b4", "b"), pod("b5", "b"))
        await harness.advance(1)

    assert not _has_reservation(harness)
    assert harness.api.node_of_pods() == {"b0": "a", "b1": "a", "l0": "a", "l1": "a"}


def _has_reservation(harness: SchedulerHarness) -> bool:
    bodies = [it.body for it in harness.api.writes if it.what == "patch podgroups b"]
    return any("trainer-kai.dev/reserved" in it["metadata"]["annotations"] for it in bodies)


async def test_no_victim_goes_unless_all_can(harness: SchedulerHarness) -> None:
    """One of two cannot be suspended now; the nomination is planned anew."""
    harness.api.put(
        queue_with_quota("lender", 4),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        node("b", gpu=2),
    )
    harness.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    harness.api.put(*gang_in("lender", "l", 4))
    dry = [422, 422]  # with a copy of the record, and without
    harness.api.refuse_with = lambda what: (
        dry.pop() if what == "try patch trainjobs y" and dry else None
    )
    async with harness.leading():
        await harness.advance(5)
        assert not dry
        assert not [it for it in harness.api.written() if it == "patch trainjobs x"]
        await harness.advance(60)  # it is tried again

    assert {"patch trainjobs x", "patch trainjobs y"} <= {*harness.api.written()}


async def test_only_so_much_is_taken_at_a_time(harness: SchedulerHarness) -> None:
    """A preemptor that begins while GPUs are left gets all it needs; the next one waits."""
    for i in range(20):
        harness.api.put(node(f"n{i:02}", gpu=8), *gang_in("borrower", f"b{i:02}", 8, at=f"n{i:02}"))
    harness.api.put(queue_with_quota("lender", 160), queue_with_quota("borrower", 0))
    for i in range(20):
        harness.api.put(*gang_in("lender", f"l{i:02}", 8))
    async with harness.leading():
        await harness.advance(50)
        first = evicted_gangs(harness)
        await harness.advance(15)
        second = evicted_gangs(harness)

    assert (len(first), len(second)) == (8, 16)  # of 8 GPUs each, and 64 a minute


def evicted_gangs(harness: SchedulerHarness) -> set[str]:
    return {it.split()[-1][:3] for it in harness.api.written() if it.startswith("delete pods")}


async def test_a_trainjob_with_a_running_jobset_is_let_alone(harness: SchedulerHarness) -> None:
    """Its user has suspended it, its JobSet does not follow: no preemptor waits for its room."""
    objects = trainjob("t", "a")
    objects[0]["spec"]["suspend"] = True
    harness.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    harness.api.put(*objects, *gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(1)
        refused = dict(harness.cache.cluster.suspend_refusals)

    assert "its JobSet is not" in refused[ObjectKey("TrainJob", "ns", "t")]
    assert ("PodGroup pg-t", "Evict") not in harness.events()
