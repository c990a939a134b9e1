"""From cluster events to binds: a decision is carried out whole, and nothing else is."""

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import JOBSET, gang, group, jobset_pod, node, pod, queue
from trainer_kai.api.names import RECLAIM_GOAL
from trainer_kai.errors import InvariantError
from trainer_kai.kube.rest.response import ErrorDetails, Unavailable

_RESERVED = "trainer-kai.dev/reserved"


def staged() -> list[dict[str, object]]:
    """Return a PodGroup of two pods, of which the second is created when the first runs."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1}
    later["requests"] = {"nvidia.com/gpu": "1"}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 1}]
    meta = {"annotations": annotations, "ownerReferences": [JOBSET]}
    return [group("s", meta=meta, subGroups=subs), jobset_pod("s0", "s")]


async def test_a_gang_is_bound_whole(harness: SchedulerHarness) -> None:
    """Each pod once, in one cycle."""
    harness.api.put(node("a"), *gang("g", 3))
    async with harness.leading():
        pass

    assert sorted(harness.api.written()) == ["bind g0 to a", "bind g1 to a", "bind g2 to a"]
    assert harness.plans == 1


async def test_a_gang_without_room_is_left_alone(harness: SchedulerHarness) -> None:
    """None of it is bound until there is room for all."""
    harness.api.put(node("a", gpu=2), *gang("g", 3))
    async with harness.leading():
        assert harness.api.node_of_pods() == {}
        harness.api.put(node("b", gpu=1))
        await harness.advance(0.1)

        assert len(harness.api.node_of_pods()) == 3


async def test_what_is_assumed_is_taken(harness: SchedulerHarness) -> None:
    """Before a watch shows the first binds, they are not sent again, and their room is not used."""
    asked: list[str] = []
    harness.api.refuse_with = asked.append
    harness.api.put(node("a", gpu=3), *gang("g", 2))
    harness.api.holds_back_events = True
    async with harness.leading():
        assert len(harness.api.node_of_pods()) == 2
        harness.api.holds_back_events = False
        held_back, harness.api._pending_events[:] = [*harness.api._pending_events], []
        harness.api.put(*gang("h", 2))
        await harness.advance(0.1)

        assert len(harness.api.node_of_pods()) == 2
        assert sum(it.startswith("bind") for it in asked) == 2
        assert held_back


async def test_a_refused_bind_is_planned_again(harness: SchedulerHarness) -> None:
    """The pod was changed by then; it goes elsewhere, and the others stay."""
    refusals = [409]
    harness.api.refuse_with = lambda what: (
        refusals.pop() if what.startswith("bind g1") and refusals else None
    )
    harness.api.put(node("a"), *gang("g", 3))
    async with harness.leading():
        await harness.advance(0.1)

        assert len(harness.api.node_of_pods()) == 3
        assert (harness.plans, len(harness.api.written())) == (2, 3)


async def test_what_is_not_allowed_is_not_asked_for_without_end(harness: SchedulerHarness) -> None:
    """It backs off, longer each time, and keeps its place meanwhile."""
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 403 if what.startswith("bind g1") else None

    harness.api.refuse_with = refuse
    harness.api.put(node("a", gpu=2), *gang("g", 2))
    async with harness.leading():
        await harness.advance(120)
        tries = asked.count("bind g1 to a")
        harness.api.put(pod("alone"))
        await harness.advance(0.1)

        assert harness.api.node_of_pods() == {"g0": "a"}
        assert 3 <= tries <= 8


async def test_a_busy_api_server_is_asked_again(harness: SchedulerHarness) -> None:
    """A 429 is no answer about the pod."""
    answers = [429, 429]
    harness.api.refuse_with = lambda _: answers.pop() if answers else None
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(2)

        assert len(harness.api.node_of_pods()) == 2


def unanswered(harness: SchedulerHarness, times: int, *, is_done: bool) -> list[str]:
    """Lose the answer of the first binds of g0; return them as they are sent."""
    sent: list[str] = []

    def refuse(what: str) -> Exception | None:
        if not what.startswith("bind g0"):
            return None
        sent.append(what)
        if len(sent) > times:
            return None
        if is_done:
            harness.api.put({**pod("g0", "g", node="a"), "status": {"phase": "Pending"}})
        return Unavailable(ErrorDetails("BIND", 0, "", "gone"), was_sent=True)

    harness.api.refuse_with = refuse
    return sent


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_bind_without_an_answer_is_sent_again(
    harness: SchedulerHarness, *, is_done: bool
) -> None:
    """To the same node: whatever became of the first, it is on no other one."""
    sent = unanswered(harness, 2, is_done=is_done)
    harness.api.put(node("a"), node("b"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(2)

        assert harness.api.node_of_pods() == {"g0": "a", "g1": "a"}
        assert sent == ["bind g0 to a"] * 3


async def test_one_that_has_none_for_long_is_waited_for_on_the_watch(
    harness: SchedulerHarness,
) -> None:
    """Until it is clear that it never was carried out; then it is planned for again."""
    sent = unanswered(harness, 6, is_done=False)
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(10)
        assert harness.api.node_of_pods() == {"g1": "a"}
        assert len(sent) == 6
        await harness.advance(20)

        assert len(harness.api.node_of_pods()) == 2


async def test_what_went_while_it_was_planned_for_is_not_bound(harness: SchedulerHarness) -> None:
    """The rest of its PodGroup is not bound either: it is not whole any more."""

    def go() -> None:
        harness.while_planning = lambda: None
        harness.api.delete("Pod", "g1")

    harness.while_planning = go
    harness.api.put(node("a"), *gang("g", 2), *gang("h", 1))
    async with harness.leading():
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"h0": "a"}


async def test_a_node_that_went_while_it_was_planned_for(harness: SchedulerHarness) -> None:
    """No bind is sent there."""

    def go() -> None:
        harness.while_planning = lambda: None
        harness.api.put(node("a", spec={"unschedulable": True}))

    harness.while_planning = go
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(1)

        assert harness.api.node_of_pods() == {}


async def test_places_are_reserved_before_anything_relies_on_them(
    harness: SchedulerHarness,
) -> None:
    """And released when their pod is bound."""
    harness.api.put(node("a", gpu=2), *staged())
    async with harness.leading():
        assert harness.api.written() == ["patch podgroups s", "bind s0 to a"]
        assert json.loads(_reservation(harness))["l-replica-0"]["nodes"] == {"a": 1}
        harness.api.put(*gang("thief", 1))
        await harness.advance(1)
        assert "thief0" not in harness.api.node_of_pods()
        harness.api.put(jobset_pod("l0", "s", "l"))
        await harness.advance(1)

        assert [it for it in harness.api.written() if "status" not in it] == [
            "patch podgroups s",
            "bind s0 to a",
            "bind l0 to a",
            "patch podgroups s",
        ]
        assert _reservation(harness) == ""


async def test_nothing_is_bound_if_its_places_cannot_be_reserved(harness: SchedulerHarness) -> None:
    """Without its reserved places the PodGroup could be stuck half way."""
    harness.api.refuse_with = lambda what: 503 if what == "patch podgroups s" else None
    harness.api.put(node("a", gpu=2), *staged())
    async with harness.leading():
        await harness.advance(60)

        assert harness.api.node_of_pods() == {}


def _reservation(harness: SchedulerHarness) -> str:
    text: str = (
        harness.api.get("PodGroup", "s")["metadata"].get("annotations", {}).get(_RESERVED, "")
    )
    return text


async def test_a_pod_that_is_always_another_one(harness: SchedulerHarness) -> None:
    """No watch says why it is refused: it is not asked for without end."""
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 409 if what.startswith("bind") else None

    harness.api.refuse_with = refuse
    harness.api.put(node("a"), *gang("g", 1))
    async with harness.leading():
        await harness.advance(60)

        assert 2 <= sum(it.startswith("bind") for it in asked) <= 10


async def test_backoffs_of_deleted_pods_are_forgotten(harness: SchedulerHarness) -> None:
    """A pod that was refused and deleted is never planned again."""
    harness.api.refuse_with = lambda what: 409 if what.startswith("bind") else None
    harness.api.put(node("a"), *gang("g", 1))
    async with harness.leading():
        await harness.advance(5)
        assert len(harness.binder._backoffs) == 1
        harness.api.delete("Pod", "g0")
        harness.api.delete("PodGroup", "g")
        await harness.advance(4000)
        harness.api.put(*gang("h", 1))
        await harness.advance(5)

        assert [it.name for it in harness.binder._backoffs] == ["h0"]


async def test_room_that_a_pod_took_while_it_was_planned_with(harness: SchedulerHarness) -> None:
    """Nothing is sent to a node that is not what it was."""

    def occupy() -> None:
        harness.while_planning = lambda: None
        harness.api.put(pod("stranger", node="a", schedulerName="else"))

    harness.while_planning = occupy
    harness.api.put(node("a", gpu=1), *gang("g", 1))
    async with harness.leading():
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"stranger": "a"}


async def test_room_that_came_free_while_it_was_planned_without(harness: SchedulerHarness) -> None:
    """It begins a cycle at once, although no pod waited in the plan before."""
    harness.api.put(node("a", gpu=1), pod("stranger", node="a", schedulerName="else"))
    async with harness.leading():

        def leave() -> None:
            harness.while_planning = lambda: None
            harness.api.delete("Pod", "stranger")

        harness.while_planning = leave
        harness.api.put(*gang("g", 1))
        await harness.advance(0.2)

        assert harness.api.node_of_pods() == {"g0": "a"}


async def test_a_follower_reserves_no_places(harness: SchedulerHarness) -> None:
    """Only the leader writes them; what is written counts when this process leads in turn."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(2))
    harness.api.put(node("a", gpu=2), group("g", minMember=2), *pods)
    harness.api.deliver_to(harness.cache, harness.cycle)
    harness.api.delete("Pod", "g1")
    async with harness.leading():
        await harness.advance(1)

        assert "patch podgroups g" not in harness.api.written()


async def test_a_nominated_pod_is_bound_when_the_victims_are_gone(
    harness: SchedulerHarness,
) -> None:
    """Until then no pod waits without a nomination, and yet a cycle has to follow."""
    going = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
    harness.api.put(node("a", gpu=1), pod("old", node="a", meta=going), *gang("g", 1))
    async with harness.leading():
        await harness.advance(1)
        assert harness.api.get("Pod", "g0")["status"]["nominatedNodeName"] == "a"
        harness.api.delete("Pod", "old")
        await harness.advance(0.2)

        assert harness.api.node_of_pods() == {"g0": "a"}


async def test_a_nomination_that_cannot_hold_is_removed(harness: SchedulerHarness) -> None:
    """Once, so that no later plan uses it."""
    nominated = pod("g0", "g", status={"nominatedNodeName": "a"})
    harness.api.put(node("a", gpu=1), pod("other", node="a"), group("g", minMember=1), nominated)
    async with harness.leading():
        await harness.advance(1)
        assert not harness.api.get("Pod", "g0")["status"].get("nominatedNodeName")
        harness.api.writes.clear()
        harness.api.put(pod("later"))
        await harness.advance(1)
        assert "patch pods/status g0" not in harness.api.written()


@pytest.mark.parametrize("kind", ["Node", "Pod"])
async def test_a_wrong_cache_is_found(harness: SchedulerHarness, kind: str) -> None:
    """The incremental cache is compared with a fresh one."""
    harness.api.put(node("a"), group("g", minMember=1), pod("g0", "g", node="a"))
    async with harness.leading():
        harness.cache.check()
        known = harness.cache.cluster
        table: dict[Any, Any] = known.nodes if kind == "Node" else known.pods
        removed = table.popitem()  # without an event
        with pytest.raises(InvariantError):
            harness.cache.check()
        table.update([removed])


async def test_no_plan_is_made_for_a_gang_that_is_being_created(harness: SchedulerHarness) -> None:
    """Its last pod is what matters, and then it begins at once."""
    harness.api.put(node("a", gpu=8), group("g", minMember=8))
    async with harness.leading():
        before = harness.plans
        for i in range(7):
            harness.api.put(pod(f"g{i}", "g"))
            await harness.advance(0.06)
        assert harness.plans == before
        harness.api.put(pod("g7", "g"))
        await harness.advance(0.06)

        assert set(harness.api.node_of_pods().values()) == {"a"}


async def test_pods_that_come_before_their_group(harness: SchedulerHarness) -> None:
    """They begin when it is there, whatever came in between."""
    harness.api.put(node("a", gpu=8))
    async with harness.leading():
        for i in range(2):
            harness.api.put(pod(f"g{i}", "g"))
            await harness.advance(0.06)
        assert harness.api.node_of_pods() == {}
        harness.api.put(group("g", minMember=2))
        await harness.advance(0.06)

        assert harness.api.node_of_pods() == {"g0": "a", "g1": "a"}


async def test_what_is_wrong_with_queues_is_logged_once(harness: SchedulerHarness) -> None:
    """Again when it was right meanwhile; a goal that is mistyped counts as none."""
    wrong = queue()
    wrong["metadata"]["annotations"] = {RECLAIM_GOAL: "half"}
    with capture_logs() as logs:
        async with harness.leading():
            for one in (wrong, wrong, queue(), wrong):
                harness.api.put(one)
                harness.cycle.replan()
                await harness.advance(1)

    messages = [it["reason"] for it in logs if it["event"] == "invalid value replaced"]
    assert [it.partition(",")[0] for it in messages] == [
        f"queue q: annotation {RECLAIM_GOAL} is 'half'"
    ] * 2


async def test_what_counts_otherwise_is_logged_once(harness: SchedulerHarness) -> None:
    """Of a queue and of a group, until it is another value."""
    unreadable = queue()
    unreadable["spec"]["resources"]["gpu"] = {"quota": -1, "limit": -1, "overQuotaWeight": -1}
    with capture_logs() as logs:
        async with harness.leading():
            for one in (
                unreadable,
                unreadable,
                group("g", preemptionDelay="soon"),
                pod("p", "g"),
                queue(),
            ):
                harness.api.put(one)
                harness.cycle.replan()
                await harness.advance(1)

    messages = [it["reason"] for it in logs if it["event"] == "invalid value replaced"]
    assert [it.partition(": ")[0] for it in messages] == ["queue q", "PodGroup ns/g"]
    assert messages[0].endswith("-1 must be 0 or more: it counts as 1")
