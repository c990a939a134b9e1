"""Termination deadlines, what terminating pods charge, and which PodGroups wait (rule 4)."""

from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import commands_from_plan
from scheduler.state.inputs import StateOptions, epoch_s
from scheduler.state.pods.pod_table import termination_deadline
from scheduler.state.snapshot.cluster_state import ClusterState, encode
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    decode_object,
    encode_objects,
    group,
    node,
    pod,
    queue,
)
from trainer_kai.api.meta import Key, Meta

_REQUESTED_DELETION: Final = "2026-01-05T08:00:00Z"  # which is NOW
_UNREACHABLE: Final = [{"type": "Ready", "status": "Unknown"}]
_POLICIES: Final = build_policies(PolicySelection())

# deletion timestamp, grace period → the deadline, from NOW on
DEADLINES: list[Case[tuple[str, int], int]] = [
    Case("at once", ("2026-01-05T08:00:00Z", 0), 120),
    Case("half a minute", ("2026-01-05T08:00:30Z", 30), 150),
    Case("as long as the site allows", ("2026-01-05T09:00:00Z", 3600), 3720),
    Case("a second longer", ("2026-01-05T09:00:01Z", 3601), 3720),
    Case("68 years", ("2094-01-23T11:14:07Z", 2**31 - 1), 3720),
    Case("no time at all", ("2026-01-05T08:00:00Z", -5), 120),
    Case("longer than anything lasts", ("2026-01-05T07:59:59Z", 2**63 - 1), -NOW),
    Case("what is no time", ("soon", 30), 2**62 - NOW),
]


@pytest.mark.parametrize("case", DEADLINES, ids=ids)
def test_the_termination_deadline(case: Case[tuple[str, int], int]) -> None:
    """Counted from the request of the deletion: its timestamp less the grace period."""
    assert epoch_s(_REQUESTED_DELETION) == NOW
    deletion, grace = case.given
    meta = Meta(deletion_timestamp=deletion, deletion_grace_period_seconds=grace)
    assert termination_deadline(meta, StateOptions(now=0)) - NOW == case.want


def test_a_site_bounds_the_grace_period() -> None:
    """Ten seconds instead of an hour."""
    meta = Meta(deletion_timestamp="2026-01-05T08:01:00Z", deletion_grace_period_seconds=60)
    options = StateOptions(now=0, max_termination_grace_s=10, stuck_in_releasing_s=5)
    assert termination_deadline(meta, options) == NOW + 15


def _terminating(name: str, of: str = "", at: str = "a", **more: Any) -> dict[str, Any]:
    meta = {"deletionTimestamp": "2026-01-05T09:00:00Z", "deletionGracePeriodSeconds": 3600}
    return pod(name, of, node=at, meta=meta, **more)


def test_releasing_amounts_are_by_queue_and_node() -> None:
    """Of PodGroups, standalone and misplaced pods; not of the pods of other schedulers."""
    found = encode_objects(
        *map(node, "ab"),
        group("g", queue="r"),
        queue("r"),
        _terminating("g0", "g"),
        _terminating("g1", "g"),
        _terminating("g2", "g", "b"),
        _terminating("g3", "g", "gone"),
        _terminating("alone"),
        _terminating("foreign", schedulerName="x"),
        _terminating("stray", "none"),
        pod("there", "g", node="a"),
    ).snapshot
    names, at = found.queues.names, found.nodes.names
    releasing_amounts = {
        (names[it.queue], at[it.node]): it.amounts[2] for it in found.queues.releasing
    }
    assert releasing_amounts == {("r", "a"): 2000, ("r", "b"): 1000, ("q", "a"): 2000}


@pytest.mark.parametrize("now", [NOW, NOW + 10_000], ids=["going", "stuck"])
def test_pods_of_a_lost_node_block_no_pod_elsewhere(now: int) -> None:
    """No kubelet confirms that its pods have ended, also when it is cordoned."""
    lost = node("a", spec={"unschedulable": True}, conditions=_UNREACHABLE)
    objects = cluster_cache(
        lost, queue("q"), group("g"), _terminating("g0", "g"), _terminating("g1", "g", "gone")
    )
    table = encode(objects, StateOptions(now=now)).snapshot.queues
    assert table.releasing == ()
    assert not table.allocated.any()


def test_standalone_pods_charge_their_queue_while_they_terminate() -> None:
    """Also when the rows of queues change meanwhile."""
    objects = [node("a"), queue("q"), queue("r", meta={"uid": "r"}), _terminating("alone")]
    state = ClusterState(StateOptions(now=NOW, default_queue="r"))
    state.put_all(cluster_cache(*objects))
    state.check(NOW)
    older = {"uid": "0", "creationTimestamp": "2020-01-01T00:00:00Z"}
    state.put(*decode_object(queue("older", meta=older)))
    for now in (NOW, NOW + 3720, NOW + 3721):
        state.check(now)
        table = state.snapshot(now).snapshot.queues
        has = {table.names[it.queue]: it.amounts[2] for it in table.releasing}
        assert has == ({"r": 1000} if now <= NOW + 3720 else {})
        is_charged = table.allocated[table.names.index("r"), 2]
        assert is_charged == (0 if now <= NOW + 3720 else 1000)


class TerminationHarness:
    """A scheduler that plans and assumes its commands."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.now = NOW
        self.cache = ClusterCache(lambda: StateOptions(now=self.now, default_queue="q"))
        self.cache.start_leading()
        for fields in objects:
            self.put(fields)

    def put(self, fields: dict[str, Any]) -> None:
        self.cache.update(*decode_object(fields))

    def plan_and_assume(self) -> tuple[dict[str, str], set[str]]:
        """Plan, and assume it; return nominations, and the evicted pods."""
        encoded = self.cache.snapshot()
        commands = commands_from_plan(encoded, plan(encoded.snapshot, _POLICIES))
        for podgroup in commands.podgroups:
            self.cache.assume(podgroup)
        goes = {pod.name for one in commands.evictions for pod in one.pods}
        return {pod.name: at for pod, at in commands.nominations}, goes


def test_room_that_does_not_come_is_taken_from_others() -> None:
    """A preemptor is nominated to the room of its victim; if that is stuck, another is evicted."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}

    def of(name: str, quota: int) -> dict[str, Any]:
        gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        return queue(name, resources={"cpu": free, "memory": free, "gpu": gpu})

    def runs(name: str, at: str, minute: int, **meta: object) -> dict[str, Any]:
        made = {"creationTimestamp": f"2026-01-05T07:0{minute}:00Z", **meta}
        return pod(name, node=at, labels={"kai.scheduler/queue": "theirs"}, meta=made)

    harness = TerminationHarness(
        *(node(name, gpu=1) for name in "ab"),
        of("mine", 1),
        of("theirs", 0),
        runs("old", "a", 1),
        runs("young", "b", 2),
        pod("claims", labels={"kai.scheduler/queue": "mine"}),
    )
    claims = Key("ns", "pg-claims-claims")
    assert harness.plan_and_assume() == ({"claims": "b"}, {"young"})
    assert [it.pods for it in harness.cache.in_flight_evictions.current()[claims]] == [
        (Key("ns", "young"),)
    ]

    deletion = {
        "deletionTimestamp": "2094-01-23T11:14:07Z",
        "deletionGracePeriodSeconds": 2**31 - 1,
    }
    harness.put(runs("young", "b", 2, **deletion))
    harness.now = NOW + 3720
    assert harness.plan_and_assume() == ({"claims": "b"}, set())
    assert claims in harness.cache.in_flight_evictions.current()

    harness.now += 1
    assert harness.plan_and_assume() == ({"claims": "a"}, {"old"})
    assert [it.pods for it in harness.cache.in_flight_evictions.current()[claims]] == [
        (Key("ns", "old"),)
    ]
    snapshot = harness.cache.snapshot().snapshot
    assert snapshot.nodes.releasing[:, snapshot.resources.gpus[0]].tolist() == [1000, 0]
