"""Until when pods are expected to go, whose they are meanwhile, and who waits for them (rule 4)."""

from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import encode
from scheduler.state.live import Live
from scheduler.state.orders import read_orders
from scheduler.state.roll import going_until
from scheduler.state.state import State
from scheduler.state.terms import Terms, epoch_s
from tests.support.case import Case, ids
from tests.support.clusters import NOW, cluster, decoded, encoded, group, node, pod, queue
from trainer_kai.api.meta import Key, Meta

_ASKED: Final = "2026-01-05T08:00:00Z"  # which is NOW
_LOST: Final = [{"type": "Ready", "status": "Unknown"}]
_POLICIES: Final = choose(Choice())

# when it must be gone, and its grace → until when it is expected to go, from NOW on
EXPECTED: list[Case[tuple[str, int], int]] = [
    Case("at once", ("2026-01-05T08:00:00Z", 0), 120),
    Case("half a minute", ("2026-01-05T08:00:30Z", 30), 150),
    Case("as long as the site allows", ("2026-01-05T09:00:00Z", 3600), 3720),
    Case("a second longer", ("2026-01-05T09:00:01Z", 3601), 3720),
    Case("68 years", ("2094-01-23T11:14:07Z", 2**31 - 1), 3720),
    Case("no time at all", ("2026-01-05T08:00:00Z", -5), 120),
    Case("longer than anything lasts", ("2026-01-05T07:59:59Z", 2**63 - 1), -NOW),
    Case("what is no time", ("soon", 30), 2**62 - NOW),
]


@pytest.mark.parametrize("case", EXPECTED, ids=ids)
def test_until_when_a_pod_is_expected_to_go(case: Case[tuple[str, int], int]) -> None:
    """Counted from when its deletion was asked for, which its two times say together."""
    assert epoch_s(_ASKED) == NOW
    due, grace = case.given
    meta = Meta(deletion_timestamp=due, deletion_grace_period_seconds=grace)
    assert going_until(meta, Terms(now=0)) - NOW == case.want


def test_a_site_says_how_long_pods_may_take() -> None:
    """Ten seconds instead of an hour."""
    meta = Meta(deletion_timestamp="2026-01-05T08:01:00Z", deletion_grace_period_seconds=60)
    terms = Terms(now=0, max_termination_grace_s=10, stuck_in_releasing_s=5)
    assert going_until(meta, terms) == NOW + 15


def _going(name: str, of: str = "", at: str = "a", **more: Any) -> dict[str, Any]:
    meta = {"deletionTimestamp": "2026-01-05T09:00:00Z", "deletionGracePeriodSeconds": 3600}
    return pod(name, of, node=at, meta=meta, **more)


def test_what_goes_is_told_by_queue_and_node() -> None:
    """Of groups, of pods on their own and of strays; not of the pods of other schedulers."""
    found = encoded(
        *map(node, "ab"),
        group("g", queue="r"),
        queue("r"),
        _going("g0", "g"),
        _going("g1", "g"),
        _going("g2", "g", "b"),
        _going("g3", "g", "gone"),
        _going("alone"),
        _going("foreign", schedulerName="x"),
        _going("stray", "none"),
        pod("there", "g", node="a"),
    ).snapshot
    names, at = found.queues.names, found.nodes.names
    told = {(names[it.queue], at[it.node]): it.amounts[2] for it in found.queues.going}
    assert told == {("r", "a"): 2000, ("r", "b"): 1000, ("q", "a"): 2000}


@pytest.mark.parametrize("now", [NOW, NOW + 10_000], ids=["going", "stuck"])
def test_what_a_lost_node_has_keeps_nobody_from_another_one(now: int) -> None:
    """Nobody is there to say that its pods are gone, though it be cordoned as well."""
    lost = node("a", spec={"unschedulable": True}, conditions=_LOST)
    objects = cluster(lost, queue("q"), group("g"), _going("g0", "g"), _going("g1", "g", "gone"))
    table = encode(objects, Terms(now=now)).snapshot.queues
    assert table.going == ()
    assert not table.allocated.any()


def test_pods_on_their_own_are_of_their_queue_while_they_go() -> None:
    """Also when the rows of queues become others meanwhile."""
    objects = [node("a"), queue("q"), queue("r", meta={"uid": "r"}), _going("alone")]
    state = State(Terms(now=NOW, default_queue="r"))
    state.tell_all(cluster(*objects))
    state.check(NOW)
    older = {"uid": "0", "creationTimestamp": "2020-01-01T00:00:00Z"}
    shelf, key, one = decoded(queue("older", meta=older))
    getattr(state, shelf).tell(key, one)
    for now in (NOW, NOW + 3720, NOW + 3721):
        state.check(now)
        table = state.snapshot(now).snapshot.queues
        has = {table.names[it.queue]: it.amounts[2] for it in table.going}
        assert has == ({"r": 1000} if now <= NOW + 3720 else {})
        is_charged = table.allocated[table.names.index("r"), 2]
        assert is_charged == (0 if now <= NOW + 3720 else 1000)


class House:
    """A scheduler that plans and assumes what it has decided."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.now = NOW
        self.live = Live(lambda: Terms(now=self.now, default_queue="q"))
        self.live.lead()
        for fields in objects:
            self.tell(fields)

    def tell(self, fields: dict[str, Any]) -> None:
        """Tell it of an object."""
        shelf, key, one = decoded(fields)
        if shelf in ("pods", "pod_groups"):
            (self.live.pod if shelf == "pods" else self.live.group)(key, one)
        else:
            named = key if isinstance(key, Key) else Key("", key)
            self.live.put(getattr(self.live.cluster, shelf), named, one)

    def turn(self) -> tuple[dict[str, str], set[str]]:
        """Plan, and assume it; return what is promised, and who goes."""
        encoded = self.live.snapshot()
        orders = read_orders(encoded, plan(encoded.snapshot, _POLICIES))
        for unit in orders.units:
            self.live.assume(unit)
        goes = {pod.name for one in orders.departures for pod in one.pods}
        return {pod.name: at for pod, at in orders.nominations}, goes


def test_room_that_does_not_come_is_taken_from_others() -> None:
    """A claimant is promised what goes for it; when that is stuck, it has another one go."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}

    def of(name: str, quota: int) -> dict[str, Any]:
        gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        return queue(name, resources={"cpu": free, "memory": free, "gpu": gpu})

    def runs(name: str, at: str, minute: int, **meta: object) -> dict[str, Any]:
        made = {"creationTimestamp": f"2026-01-05T07:0{minute}:00Z", **meta}
        return pod(name, node=at, labels={"kai.scheduler/queue": "theirs"}, meta=made)

    house = House(
        *(node(name, gpu=1) for name in "ab"),
        of("mine", 1),
        of("theirs", 0),
        runs("old", "a", 1),
        runs("young", "b", 2),
        pod("claims", labels={"kai.scheduler/queue": "mine"}),
    )
    claims = Key("ns", "pg-claims-claims")
    assert house.turn() == ({"claims": "b"}, {"young"})
    assert [it.pods for it in house.live.leaving.now()[claims]] == [(Key("ns", "young"),)]

    due = {"deletionTimestamp": "2094-01-23T11:14:07Z", "deletionGracePeriodSeconds": 2**31 - 1}
    house.tell(runs("young", "b", 2, **due))
    house.now = NOW + 3720
    assert house.turn() == ({"claims": "b"}, set())
    assert claims in house.live.leaving.now()

    house.now += 1
    assert house.turn() == ({"claims": "a"}, {"old"})
    assert [it.pods for it in house.live.leaving.now()[claims]] == [(Key("ns", "old"),)]
    snapshot = house.live.snapshot().snapshot
    assert snapshot.nodes.releasing[:, snapshot.axes.gpus[0]].tolist() == [1000, 0]
