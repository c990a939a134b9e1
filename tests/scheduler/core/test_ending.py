"""What goes of queues at their limits, and who may wait for it (rule 20a)."""

from typing import Any, Final

from scheduler.core.decision import Plan, QuotaNumbers
from scheduler.core.model import Cause, Going, Group, Kind, Leaf, Slot, Verdict
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, PluginChoice, choose
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

POLICIES: Final = choose(Choice())
ONE, FOUR = shape(gpu=1), shape(gpu=4)


def builder(*nodes: Node, limit: float = 4, **more: Any) -> Builder:
    """Return nodes, and a queue with a limit; pods of it that go have what is being released."""
    build = Builder(nodes, [Queue("a", quota=-1, limit=limit, **more)])
    for row, node in enumerate(nodes):
        if node.releasing_gpu:
            build.going.append(Going(0, row, (0, 0, node.releasing_gpu * 1000)))
    return build


def full(gpu: int = 4) -> Node:
    """Return a node, all of which is being released."""
    return Node(gpu=gpu, releasing_gpu=gpu)


def answer(build: Builder, policies: Any = POLICIES) -> Plan:
    """Plan; whatever comes of it keeps what must hold."""
    snapshot = build.snapshot()
    found = plan(snapshot, policies)
    assert [*violations(snapshot, found)] == []
    return found


def told(found: Plan) -> dict[int, str]:
    """Return of each unit the nodes of its pods, those that are only promised in brackets."""
    said: dict[int, str] = {}
    for it in found.decisions:
        at = [str(node) for _, node in it.binds] + [f"({node})" for _, node in it.nominations]
        said[it.unit] = "".join([said.get(it.unit, ""), *at])
    return said | {it.unit: it.verdict.title for it in found.rejections}


def test_what_goes_is_told_apart_from_what_is_there() -> None:
    """Nothing may be taken for it: it is over soon."""
    build = builder(full(), Node(gpu=8), limit=6, allocated=1)
    build.gang(1, FOUR)
    (rejection,) = answer(build).rejections
    assert rejection.verdict == Verdict.EXCEEDS_LIMIT
    assert rejection.numbers == QuotaNumbers(0, Kind.GPU, 6000, 1000, 4000, ending=4000)
    assert not rejection.is_curable


def test_room_that_is_waited_for_is_not_waited_for_twice() -> None:
    """The first unit takes the place of what goes; then the second one can be bound."""
    build = builder(full(), limit=8)
    build.gang(1, FOUR)
    build.gang(1, FOUR)
    assert told(answer(build)) == {0: "(0)", 1: "NoCapacity"}
    build = builder(full(), Node(gpu=4), limit=8)
    build.gang(1, FOUR)
    build.gang(1, FOUR)
    assert told(answer(build)) == {0: "1", 1: "(0)"}
    build = builder(full(), full(), limit=8)
    for _ in range(3):
        build.gang(1, FOUR)
    assert told(answer(build)) == {0: "(0)", 1: "(1)", 2: "ExceedsLimit"}


def test_who_may_not_wait_leaves_everything_as_it_was() -> None:
    """What it would have covered is there for the next one, and so is the room."""
    build = builder(full(1), Node(gpu=2), limit=2)
    build.gang(2, ONE)
    build.gang(1, ONE)
    assert told(answer(build)) == {0: "ExceedsLimit", 1: "1"}


def test_who_was_promised_another_node_keeps_it() -> None:
    """It is bound when what goes is gone; who was promised nothing has to start over then."""
    for nominated, want in ((1, "(1)"), (-1, "ExceedsLimit")):
        build = builder(full(), Node(gpu=4))
        build.gang(1, shape(gpu=4, nominated=nominated))
        assert told(answer(build)) == {0: want}


def test_a_slot_that_is_there_keeps_nobody_from_waiting_with_it() -> None:
    """What of a unit is promised covers what it asks for, whatever its slot is charged with."""
    build = builder(Node(gpu=4, used_gpu=1, releasing_gpu=4), limit=4, allocated=1)
    nodes = Leaf("nodes", 3, build.pods(3, shape(gpu=1, nominated=0)))
    slot = Slot(0, build.shape(ONE), Cause.ANTICIPATED)
    later = Leaf("later", 1, slots=(slot,), later=1, later_shape=slot.shape)
    build.unit(Group("all", 2, (later, nodes)), is_kept=True)
    assert told(answer(build)) == {0: "(0)(0)(0)"}


def test_what_is_taken_in_a_plan_is_there_until_it_is_gone() -> None:
    """Whoever comes after waits for it as well, though there be room elsewhere."""
    build = builder(Node(gpu=4), Node(gpu=4), limit=4)
    build.runs([0, 0, 0, 0], ONE, priority=20)
    build.gang(1, shape(gpu=2), priority=70)
    found = answer(build)
    assert [it.units for it in found.evictions] == [(0,)]
    assert told(found) == {1: "(1)"}


def test_without_limits_nobody_asks() -> None:
    """Nor where a site has switched them off."""
    build = builder(full(), Node(gpu=4), limit=-1)
    build.gang(1, FOUR)
    assert told(answer(build)) == {0: "1"}
    build = builder(full(), Node(gpu=4), limit=0)
    build.gang(1, FOUR)
    off = choose(Choice(plugins={"proportion": PluginChoice(enabled=False)}))
    assert told(plan(build.snapshot(), off)) == {0: "1"}
