"""From news to binds: what is decided is done, whole, and nothing else is."""

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.scheduler.shell.conftest import House
from tests.support.clusters import JOBSET, gang, group, jobset_pod, node, pod, queue
from trainer_kai.api.names import RECLAIM_GOAL
from trainer_kai.errors import InvariantError
from trainer_kai.kube.errors import Refusal, Unavailable

_HELD = "trainer-kai.dev/reserved"


def staged() -> list[dict[str, object]]:
    """Return a unit of two, of which the second comes when the first runs."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1}
    later["requests"] = {"nvidia.com/gpu": "1"}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 1}]
    meta = {"annotations": annotations, "ownerReferences": [JOBSET]}
    return [group("s", meta=meta, subGroups=subs), jobset_pod("s0", "s")]


async def test_a_gang_is_bound_whole(house: House) -> None:
    """Each pod once, in one turn."""
    house.api.put(node("a"), *gang("g", 3))
    async with house.leading():
        pass

    assert sorted(house.api.said()) == ["bind g0 to a", "bind g1 to a", "bind g2 to a"]
    assert house.plans == 1


async def test_a_gang_without_room_is_left_alone(house: House) -> None:
    """None of it is bound until there is room for all."""
    house.api.put(node("a", gpu=2), *gang("g", 3))
    async with house.leading():
        assert house.api.where() == {}
        house.api.put(node("b", gpu=1))
        await house.passes(0.1)

        assert len(house.api.where()) == 3


async def test_what_is_assumed_is_taken(house: House) -> None:
    """Before any watch tells of the first gang, nobody asks for it again, or for its room."""
    asked: list[str] = []
    house.api.refuse = asked.append
    house.api.put(node("a", gpu=3), *gang("g", 2))
    house.api.keeps_news = True
    async with house.leading():
        assert len(house.api.where()) == 2
        house.api.keeps_news = False
        held_back, house.api._news[:] = [*house.api._news], []
        house.api.put(*gang("h", 2))
        await house.passes(0.1)

        assert len(house.api.where()) == 2
        assert sum(it.startswith("bind") for it in asked) == 2
        assert held_back


async def test_a_refused_bind_is_planned_again(house: House) -> None:
    """The pod was changed by then; it goes elsewhere, and the others stay."""
    refusals = [409]
    house.api.refuse = lambda what: (
        refusals.pop() if what.startswith("bind g1") and refusals else None
    )
    house.api.put(node("a"), *gang("g", 3))
    async with house.leading():
        await house.passes(0.1)

        assert len(house.api.where()) == 3
        assert (house.plans, len(house.api.said())) == (2, 3)


async def test_what_is_not_allowed_is_not_asked_for_without_end(house: House) -> None:
    """It rests, longer each time, and keeps its place meanwhile."""
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 403 if what.startswith("bind g1") else None

    house.api.refuse = refuse
    house.api.put(node("a", gpu=2), *gang("g", 2))
    async with house.leading():
        await house.passes(120)
        tries = asked.count("bind g1 to a")
        house.api.put(pod("alone"))
        await house.passes(0.1)

        assert house.api.where() == {"g0": "a"}
        assert 3 <= tries <= 8


async def test_a_busy_api_server_is_asked_again(house: House) -> None:
    """A 429 is no answer about the pod."""
    answers = [429, 429]
    house.api.refuse = lambda _: answers.pop() if answers else None
    house.api.put(node("a"), *gang("g", 2))
    async with house.leading():
        await house.passes(2)

        assert len(house.api.where()) == 2


def unanswered(house: House, times: int, *, is_done: bool) -> list[str]:
    """Lose the answer of the first binds of g0; return them as they are sent."""
    sent: list[str] = []

    def refuse(what: str) -> Exception | None:
        if not what.startswith("bind g0"):
            return None
        sent.append(what)
        if len(sent) > times:
            return None
        if is_done:
            house.api.put({**pod("g0", "g", node="a"), "status": {"phase": "Pending"}})
        return Unavailable(Refusal("BIND", 0, "", "gone"), was_sent=True)

    house.api.refuse = refuse
    return sent


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_bind_without_an_answer_is_sent_again(house: House, *, is_done: bool) -> None:
    """To the same node: whatever became of the first, it is on no other one."""
    sent = unanswered(house, 2, is_done=is_done)
    house.api.put(node("a"), node("b"), *gang("g", 2))
    async with house.leading():
        await house.passes(2)

        assert house.api.where() == {"g0": "a", "g1": "a"}
        assert sent == ["bind g0 to a"] * 3


async def test_one_that_has_none_for_long_is_waited_for_on_the_watch(house: House) -> None:
    """Until it is clear that it never was carried out; then it is planned for again."""
    sent = unanswered(house, 6, is_done=False)
    house.api.put(node("a"), *gang("g", 2))
    async with house.leading():
        await house.passes(10)
        assert house.api.where() == {"g1": "a"}
        assert len(sent) == 6
        await house.passes(20)

        assert len(house.api.where()) == 2


async def test_what_went_while_it_was_planned_for_is_not_bound(house: House) -> None:
    """The rest of its gang is not bound either: it is not whole any more."""

    def go() -> None:
        house.while_planning = lambda: None
        house.api.delete("Pod", "g1")

    house.while_planning = go
    house.api.put(node("a"), *gang("g", 2), *gang("h", 1))
    async with house.leading():
        await house.passes(1)

        assert house.api.where() == {"h0": "a"}


async def test_a_node_that_went_while_it_was_planned_for(house: House) -> None:
    """Nothing is sent there."""

    def go() -> None:
        house.while_planning = lambda: None
        house.api.put(node("a", spec={"unschedulable": True}))

    house.while_planning = go
    house.api.put(node("a"), *gang("g", 2))
    async with house.leading():
        await house.passes(1)

        assert house.api.where() == {}


async def test_slots_are_held_before_anything_relies_on_them(house: House) -> None:
    """And let go when their pod is where it should be."""
    house.api.put(node("a", gpu=2), *staged())
    async with house.leading():
        assert house.api.said() == ["patch podgroups s", "bind s0 to a"]
        assert json.loads(_held(house))["l-replica-0"]["nodes"] == {"a": 1}
        house.api.put(*gang("thief", 1))
        await house.passes(1)
        assert "thief0" not in house.api.where()
        house.api.put(jobset_pod("l0", "s", "l"))
        await house.passes(1)

        assert [it for it in house.api.said() if "status" not in it] == [
            "patch podgroups s",
            "bind s0 to a",
            "bind l0 to a",
            "patch podgroups s",
        ]
        assert _held(house) == ""


async def test_nothing_is_bound_whose_slots_cannot_be_held(house: House) -> None:
    """Without the slot the unit could be stuck half way."""
    house.api.refuse = lambda what: 503 if what == "patch podgroups s" else None
    house.api.put(node("a", gpu=2), *staged())
    async with house.leading():
        await house.passes(60)

        assert house.api.where() == {}


def _held(house: House) -> str:
    text: str = house.api.get("PodGroup", "s")["metadata"].get("annotations", {}).get(_HELD, "")
    return text


async def test_a_pod_that_is_always_another_one(house: House) -> None:
    """No watch says why it is refused: it is not asked for without end."""
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 409 if what.startswith("bind") else None

    house.api.refuse = refuse
    house.api.put(node("a"), *gang("g", 1))
    async with house.leading():
        await house.passes(60)

        assert 2 <= sum(it.startswith("bind") for it in asked) <= 10


async def test_room_that_somebody_took_while_it_was_planned_with(house: House) -> None:
    """Nothing is sent to a node that is not what it was."""

    def take() -> None:
        house.while_planning = lambda: None
        house.api.put(pod("stranger", node="a", schedulerName="else"))

    house.while_planning = take
    house.api.put(node("a", gpu=1), *gang("g", 1))
    async with house.leading():
        await house.passes(1)

        assert house.api.where() == {"stranger": "a"}


async def test_room_that_came_free_while_it_was_planned_without(house: House) -> None:
    """It is heard of at once, although the plan before had nobody waiting."""
    house.api.put(node("a", gpu=1), pod("stranger", node="a", schedulerName="else"))
    async with house.leading():

        def leave() -> None:
            house.while_planning = lambda: None
            house.api.delete("Pod", "stranger")

        house.while_planning = leave
        house.api.put(*gang("g", 1))
        await house.passes(0.2)

        assert house.api.where() == {"g0": "a"}


async def test_who_only_follows_keeps_no_places(house: House) -> None:
    """Whoever leads writes them; what is written counts when this process leads in turn."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(2))
    house.api.put(node("a", gpu=2), group("g", minMember=2), *pods)
    house.api.heard_by(house.live, house.cycle)
    house.api.delete("Pod", "g1")
    async with house.leading():
        await house.passes(1)

        assert "patch podgroups g" not in house.api.said()


async def test_a_promise_is_kept_when_the_place_is_left(house: House) -> None:
    """Until then nobody waits without a place, and yet there is something to wait for."""
    going = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
    house.api.put(node("a", gpu=1), pod("old", node="a", meta=going), *gang("g", 1))
    async with house.leading():
        await house.passes(1)
        assert house.api.get("Pod", "g0")["status"]["nominatedNodeName"] == "a"
        house.api.delete("Pod", "old")
        await house.passes(0.2)

        assert house.api.where() == {"g0": "a"}


async def test_a_promise_that_cannot_be_kept_is_taken_back(house: House) -> None:
    """Once, and so nobody goes by it later."""
    promised = pod("g0", "g", status={"nominatedNodeName": "a"})
    house.api.put(node("a", gpu=1), pod("other", node="a"), group("g", minMember=1), promised)
    async with house.leading():
        await house.passes(1)
        assert not house.api.get("Pod", "g0")["status"].get("nominatedNodeName")
        house.api.wrote.clear()
        house.api.put(pod("later"))
        await house.passes(1)
        assert "patch pods/status g0" not in house.api.said()


@pytest.mark.parametrize("kind", ["Node", "Pod"])
async def test_a_false_memory_is_found(house: House, kind: str) -> None:
    """What is known is compared with what would be known after a start."""
    house.api.put(node("a"), group("g", minMember=1), pod("g0", "g", node="a"))
    async with house.leading():
        house.live.check()
        known = house.live.cluster
        table: dict[Any, Any] = known.nodes if kind == "Node" else known.pods
        gone = table.popitem()  # and nobody is told
        with pytest.raises(InvariantError):
            house.live.check()
        table.update([gone])


async def test_nobody_plans_for_a_gang_that_is_being_made(house: House) -> None:
    """Its last pod is what matters, and then it begins at once."""
    house.api.put(node("a", gpu=8), group("g", minMember=8))
    async with house.leading():
        before = house.plans
        for i in range(7):
            house.api.put(pod(f"g{i}", "g"))
            await house.passes(0.06)
        assert house.plans == before
        house.api.put(pod("g7", "g"))
        await house.passes(0.06)

        assert set(house.api.where().values()) == {"a"}


async def test_pods_that_come_before_their_group(house: House) -> None:
    """They begin when it is there, whatever came in between."""
    house.api.put(node("a", gpu=8))
    async with house.leading():
        for i in range(2):
            house.api.put(pod(f"g{i}", "g"))
            await house.passes(0.06)
        assert house.api.where() == {}
        house.api.put(group("g", minMember=2))
        await house.passes(0.06)

        assert house.api.where() == {"g0": "a", "g1": "a"}


async def test_what_is_wrong_with_queues_is_logged_once(house: House) -> None:
    """Again when it was right meanwhile; a goal that is mistyped counts as none."""
    wrong = queue()
    wrong["metadata"]["annotations"] = {RECLAIM_GOAL: "half"}
    with capture_logs() as logs:
        async with house.leading():
            for one in (wrong, wrong, queue(), wrong):
                house.api.put(one)
                house.cycle.again()
                await house.passes(1)

    told = [it["what"] for it in logs if it["event"] == "counts otherwise"]
    assert [it.partition(",")[0] for it in told] == [
        f"queue q: annotation {RECLAIM_GOAL} is 'half'"
    ] * 2


async def test_what_counts_otherwise_is_logged_once(house: House) -> None:
    """Of a queue and of a group, until it is another value."""
    odd = queue()
    odd["spec"]["resources"]["gpu"] = {"quota": -1, "limit": -1, "overQuotaWeight": -1}
    with capture_logs() as logs:
        async with house.leading():
            for one in (odd, odd, group("g", preemptionDelay="soon"), pod("p", "g"), queue()):
                house.api.put(one)
                house.cycle.again()
                await house.passes(1)

    told = [it["what"] for it in logs if it["event"] == "counts otherwise"]
    assert [it.partition(": ")[0] for it in told] == ["queue q", "PodGroup ns/g"]
    assert told[0].endswith("-1 must be 0 or more: it counts as 1")
