"""Which running pods keep their nodes, and when they no longer do."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import gang, group, node, pod
from trainer_kai.api.names import DO_NOT_DISRUPT, KEEPS_NODE, SAFE_TO_EVICT

_BOTH = {
    DO_NOT_DISRUPT: "true",
    SAFE_TO_EVICT: "false",
    KEEPS_NODE: f"{DO_NOT_DISRUPT},{SAFE_TO_EVICT}",
}


def kept(harness: SchedulerHarness, name: str) -> Fields:
    annotations = harness.api.get("Pod", name)["metadata"].get("annotations", {})
    return {key: it for key, it in annotations.items() if key in _BOTH}


async def test_only_pods_of_gangs_keep_their_nodes_and_only_once_they_run(
    harness: SchedulerHarness,
) -> None:
    """Another pod can be moved: to keep every node would block upgrades for ever."""
    harness.keeps_nodes = True
    elastic = [group("e", minMember=1), pod("e0", "e"), pod("e1", "e")]
    harness.api.put(node("a"), *gang("g", 2), *elastic, pod("p"), *gang("w", 90))
    async with harness.leading():
        await harness.advance(5)

        assert len(harness.api.node_of_pods()) == 5
        assert [kept(harness, it) for it in ("g0", "g1")] == [_BOTH, _BOTH]
        assert [kept(harness, it) for it in ("e0", "p", "w0")] == [{}, {}, {}]
        assert [it for it in harness.api.written() if it.startswith("patch pods g")] == []


async def test_what_a_user_has_written_stays(harness: SchedulerHarness) -> None:
    harness.keeps_nodes = True
    mine = {SAFE_TO_EVICT: "true"}
    members = [pod("g0", "g", annotations=mine), pod("g1", "g")]
    harness.api.put(node("a"), group("g", minMember=2), *members)
    async with harness.leading():
        await harness.advance(5)
        assert kept(harness, "g0") == {**mine, DO_NOT_DISRUPT: "true", KEEPS_NODE: DO_NOT_DISRUPT}
        harness.api.put(node("a", spec={"unschedulable": True}))
        await harness.advance(5)

        assert kept(harness, "g0") == mine
        assert kept(harness, "g1") == {}


async def test_a_cordoned_node_is_let_go_once(harness: SchedulerHarness) -> None:
    """An administrator drains it; the pods of other nodes keep theirs."""
    harness.keeps_nodes = True
    harness.api.put(node("a", gpu=1), node("b", gpu=1), *gang("g", 2))
    async with harness.leading():
        await harness.advance(5)
        on_a = next(name for name, at in harness.api.node_of_pods().items() if at == "a")
        harness.api.refuse_with = lambda what: 403 if what == f"patch pods/status {on_a}" else None
        harness.api.put(node("a", gpu=1, spec={"unschedulable": True}))
        await harness.advance(30)
        assert kept(harness, on_a) == _BOTH
        harness.api.refuse_with = lambda _what: None
        await harness.advance(40)

        assert sorted(kept(harness, it) == _BOTH for it in ("g0", "g1")) == [False, True]
        assert kept(harness, on_a) == {}
        writes = len(harness.api.written())
        await harness.advance(60)
        assert len(harness.api.written()) == writes


async def test_nothing_keeps_a_node_without_the_setting(harness: SchedulerHarness) -> None:
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(5)

        assert len(harness.api.node_of_pods()) == 2
        assert kept(harness, "g0") == {}


async def test_a_termination_notice_lifts_it_as_well(harness: SchedulerHarness) -> None:
    """Pods above the minimum are not moved: Karpenter would wait for them for ever."""
    harness.keeps_nodes = True
    members = [pod(f"g{number}", "g") for number in range(3)]
    harness.api.put(node("a", gpu=2), node("b", gpu=1), group("g", minMember=2), *members)
    async with harness.leading():
        await harness.advance(5)
        (on_b,) = [name for name, at in harness.api.node_of_pods().items() if at == "b"]
        disrupted = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        harness.api.put(node("b", gpu=1, spec={"taints": [disrupted]}))
        await harness.advance(5)

        assert {name: kept(harness, name) for name in harness.api.node_of_pods()} == {
            name: {} if name == on_b else _BOTH for name in ("g0", "g1", "g2")
        }


async def test_pods_of_other_schedulers_are_left_alone(harness: SchedulerHarness) -> None:
    """We may not write them: a user could have us try again and again."""
    forged = pod("p", node="a", schedulerName="other", annotations={KEEPS_NODE: DO_NOT_DISRUPT})
    harness.api.put(node("a", spec={"unschedulable": True}), forged)
    async with harness.leading():
        await harness.advance(60)

        assert [it for it in harness.api.written() if it.startswith("patch pods")] == []


async def test_what_is_refused_is_tried_less_and_less_often(harness: SchedulerHarness) -> None:
    tries: list[str] = []

    def refuse(what: str) -> int:
        tries.append(what)
        return 403

    harness.keeps_nodes = True
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(5)
        harness.api.refuse_with = refuse
        harness.api.put(node("a", spec={"unschedulable": True}))
        await harness.advance(600)

        assert len([it for it in tries if it == "patch pods/status g0"]) < 12
