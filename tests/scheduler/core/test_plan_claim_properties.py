"""Random clusters with claims: what a plan gives out is there, fits, and is given out once."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from scheduler.core.model.claims import (
    ClaimDevices,
    SharedClaim,
    held_device,
    slot_and_device,
    slots_of,
)
from scheduler.core.model.resources import DeviceSort, devices_of
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode
from tests.support.snapshot.claim_devices import (
    BIG,
    GPU,
    NIC,
    TestDevice,
    claim,
    claim_devices,
    claim_signature,
    exactly,
    first_available,
)
from tests.support.snapshot.statement_state import assert_failures_leave_no_trace

_POLICIES = build_policies(PolicySelection())
_SIGNATURES = [
    claim_signature(claim()),
    claim_signature(claim(exactly(GPU, 2))),
    claim_signature(claim(exactly(BIG), exactly(NIC), match=(0, 1))),
    claim_signature(claim(first_available((BIG, 2), (GPU, 1)))),
    claim_signature(claim(exactly(GPU, 0))),
    claim_signature(claim(), claim(exactly(NIC))),
    claim_signature(claim(shared=0)),
    claim_signature(claim(shared=0), claim(exactly(NIC)), cpu=2),
]


def _random_devices(random: Random, nodes: int) -> list[TestDevice]:
    return [
        TestDevice(
            node,
            random.choice(("gpu", "gpu", "big", "nic")),
            random.randint(-1, 1),
            is_tainted=random.random() < 0.1,
            counters=((node, 1),) if random.random() < 0.3 else (),
        )
        for node in range(nodes)
        for _ in range(random.randint(0, 5))
    ]


def _random_snapshot(random: Random) -> Snapshot:
    nodes = random.randint(1, 4)
    devices = _random_devices(random, nodes)
    build = Builder(nodes=[SnapshotNode(gpu=0, cpu=16)] * nodes)
    for one in _SIGNATURES:
        build.signature_row(one)
    free = [*range(len(devices))]
    random.shuffle(free)
    held: dict[int, tuple[int, ...]] = {}
    taken: list[int] = []
    for _ in range(random.randint(0, 3)):  # PodGroups of one pod that run
        gpus = [it for it in free if devices[it].kind in {"gpu", "big"}]
        if gpus:
            device = gpus[0]
            free.remove(device)
            taken.append(device)
            held[len(build._pods)] = (held_device(0, device),)
            build.running_podgroup([devices[device].node], _SIGNATURES[0], priority=40)
    releasing = [free.pop() for _ in range(random.randint(0, 2)) if free]
    foreign = [free.pop() for _ in range(random.randint(0, 1)) if free]
    for _ in range(random.randint(1, 4)):
        one = random.choice(_SIGNATURES)
        build.uniform_podgroup(random.randint(1, 3), one, priority=random.choice((50, 60)))
    table = claim_devices(
        devices,
        taken=[*taken, *foreign],
        releasing=releasing,
        shared=[SharedClaim("s")],
        held=held,
        counters=(3,) * nodes,
    )
    gpus_in_total = 1000 * sum(it.kind != "nic" for it in devices)
    snapshot = build.snapshot(claim_devices=table)
    return replace(snapshot, total=(*snapshot.total[:2], gpus_in_total))


def _check(snapshot: Snapshot, result: Plan) -> None:
    devices = snapshot.claim_devices
    held_before = snapshot.held_devices
    evicted = {pod for it in result.evictions for pod in it.pods}
    freed = {
        slot_and_device(it)[1]
        for pod in evicted
        for it in devices_of(held_before[pod], DeviceSort.CLAIM)
    }
    given: Counter[int] = Counter()
    shared: set[tuple[int, ...]] = set()
    for allocation in result.allocations:
        for bind, is_now in (
            *((it, True) for it in allocation.binds),
            *((it, False) for it in allocation.nominations),
        ):
            claims = snapshot.signatures[int(snapshot.pods.signature[bind.pod])].claims
            slots, of_slot = slots_of(claims), dict[int, list[int]]()
            for it in devices_of(bind.held, DeviceSort.CLAIM):
                slot, device = slot_and_device(it)
                of_slot.setdefault(slot, []).append(device)
                assert devices.node[device] == bind.node
                stays = devices.taken - devices.releasing
                assert device not in (devices.taken if is_now else stays) or (
                    not is_now and device in freed
                )
                if claims[slots[slot].claim].shared == -1:
                    given[device] += 1
            shared.update(
                tuple(of) for slot, of in of_slot.items() if claims[slots[slot].claim].shared != -1
            )
            _check_pod(devices, claims, of_slot)
    given.update({device for of in shared for device in of})
    assert len(shared) <= 1
    assert max(given.values(), default=1) == 1
    left = [*devices.counters]
    for device in {*given} | (devices.taken - devices.releasing - freed):
        for counter, amount in devices.counter_use.get(device, ()):
            left[counter] -= amount
    assert min(left) >= 0


def _check_pod(
    devices: ClaimDevices, claims: tuple[object, ...], of_slot: dict[int, list[int]]
) -> None:
    """Check that each claim has what one alternative of each of its requests asks for."""
    slots = slots_of(claims)  # type: ignore[arg-type]
    for slot, of in of_slot.items():
        c, r, a = slots[slot]
        request = claims[c].requests[r]  # type: ignore[attr-defined]
        alternative = request.alternatives[a]
        assert all(devices.usable[alternative.filter, it] for it in of)
        if alternative.number:
            assert len(of) == alternative.number
        else:
            selected = devices.selected[alternative.filter] & (devices.node == devices.node[of[0]])
            assert sorted(of) == selected.nonzero()[0].tolist()
    for c, claim_ in enumerate(claims):
        for constraint in claim_.constraints:  # type: ignore[attr-defined]
            values = {
                int(devices.attributes[constraint.attribute, it])
                for slot, of in of_slot.items()
                if slots[slot].claim == c and slots[slot][1:] in constraint.slots
                for it in of
            }
            assert len(values) == 1
            assert values != {-1}


@pytest.mark.parametrize("seed", range(examples(150)))
def test_what_is_given_out_is_there_and_fits(seed: int) -> None:
    snapshot = _random_snapshot(Random(seed))
    _check(snapshot, plan(snapshot, _POLICIES))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_placement_that_fails_leaves_no_trace(seed: int) -> None:
    assert_failures_leave_no_trace(_random_snapshot(Random(seed)), _POLICIES)
