"""The nodes after random changes: exactly what the pods come to that are there.

The changes need not make sense for a scheduler: GPUs are shared by more pods than fit.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

import numpy as np
import pytest

from scheduler.core.model.resources import Ints, held_shares
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.size import seeds
from tests.support.snapshot.builder import (
    Builder,
    SnapshotNode,
    mig_signature,
    share_signature,
    signature,
)
from tests.support.snapshot.statement_state import gpu_shares, working_nodes

GPU: Final = 3  # the column
PODS: Final = 2
SIGNATURES: Final = (
    *(signature(gpu=1), signature(gpu=2, cpu=0.5), signature(cpu=1), mig_signature("2g.10gb", 2)),
    *(share_signature(share) for share in (0.1, 0.5, 0.7, 1, 0.003)),
    *(share_signature(0.25, 2), share_signature(0.6, 3)),
    replace(share_signature(0), device_memory=10_001),
    replace(share_signature(0, 2), device_memory=7_000),
)
NODES: Final = (
    SnapshotNode(gpu=8, gpu_memory=40_000, shares=((300, 0), (0, 200), (100, 400))),
    SnapshotNode(gpu=4, gpu_memory=80_000, used_gpu=1, releasing_gpu=2),
    SnapshotNode(gpu=2, gpu_memory=16_000),
    SnapshotNode(gpu=0),
    SnapshotNode(gpu=4, mig=(0, 8, 0)),
)
SHARING: Final = range(4)  # nodes; one has lost its GPUs
CHANGES: Final = ("allocate", "deallocate", "evict", "pipeline", "reserve", "release")
WEIGHTS: Final = (24, 6, 6, 6, 1, 1)
SLOTS: Final = range(6)
MOST_PODS: Final = 40
CHECKED_EACH: Final = 16  # steps, and after each roll back
CLOSED: Final = frozenset({0, 2})  # rows, and slots of the first node


class Pod(NamedTuple):
    """Pods on a node: there now, or later, or both."""

    node: int
    signature: int
    slots: tuple[int, ...] = ()
    number: int = 1
    is_now: bool = True
    is_later: bool = True


class Tables(NamedTuple):
    idle: list[list[int]]
    free: list[list[int]]
    now: Counter[tuple[int, int]]
    later: Counter[tuple[int, int]]


def snapshot() -> Snapshot:
    """Return nodes with GPUs that pods share, of several sizes, with MIG, and without GPUs."""
    build = Builder(nodes=NODES)
    for one in SIGNATURES:
        build.signature_row(one)
    build.running_podgroup([0, 0], share_signature(0.1), slots=[(0,), (3,)])
    found = build.snapshot()
    return replace(found, devices=replace(found.devices, closed=CLOSED))


def tables_of(nodes: WorkingNodes) -> Tables:
    devices = gpu_shares(nodes)
    now, later = (_by_slot(used) for used in (devices.now, devices.later))
    assert devices.free_shares == sum(max(1000 - it, 0) for it in later.values() if it > 0)
    open_slots = [it for slot, it in enumerate(devices.later[0]) if slot not in CLOSED]
    assert devices.rooms(0) == sum([1000 - it for it in open_slots if 0 < it < 1000])
    return Tables(nodes.resources.idle.tolist(), nodes.resources.free.tolist(), now, later)


def _by_slot(used: dict[int, list[int]]) -> Counter[tuple[int, int]]:
    found = Counter(
        {
            (node, slot): n % 10**12 if node == 0 and slot in CLOSED else n
            for node, of in used.items()
            for slot, n in enumerate(of)
        }
    )
    assert all(not found[0, slot] or used[0][slot] > 10**12 for slot in CLOSED)
    return Counter({at: amount for at, amount in found.items() if amount})


def computed(given: Snapshot, pods: Iterable[Pod], reserved: Iterable[Pod]) -> Tables:
    """Return the same from what is there, without any history."""
    devices, nodes = given.devices, given.nodes
    slots = [devices.node[:row].tolist().count(node) for row, node in enumerate(devices.node)]
    at = [*zip(devices.node.tolist(), slots, strict=True)]
    now = Counter(dict(zip(at, devices.used.tolist(), strict=True)))
    later = Counter(dict(zip(at, (devices.used - devices.releasing).tolist(), strict=True)))
    idle, free = nodes.idle.copy(), nodes.idle + nodes.releasing
    taken_now, taken_later = np.zeros_like(idle), np.zeros_like(free)
    for used, taken in ((now, taken_now), (later, taken_later)):
        _add_whole_gpus(used, at, taken, -1)
    for pod in (*pods, *(it._replace(is_now=False) for it in reserved)):
        request = np.array(given.signatures[pod.signature].request) * pod.number
        for is_there, used, taken in (
            (pod.is_now, now, taken_now),
            (pod.is_later, later, taken_later),
        ):
            taken[pod.node] += request * is_there
            if nodes.allocatable[pod.node, GPU]:
                share = _share(given, pod) * pod.number * is_there
                used.update({(pod.node, slot): share for slot in pod.slots})
    for used, taken in ((now, taken_now), (later, taken_later)):
        _add_whole_gpus(used, at, taken, 1)
    used_now, used_later = (Counter({at: n for at, n in it.items() if n}) for it in (now, later))
    return Tables((idle - taken_now).tolist(), (free - taken_later).tolist(), used_now, used_later)


def _add_whole_gpus(
    used: Counter[tuple[int, int]], known: list[tuple[int, int]], taken: Ints, sign: int
) -> None:
    """Count each GPU that is shared as a whole one; a new one takes a place for a pod as well."""
    for (node, slot), amount in used.items():
        if amount > 0:
            taken[node, GPU] += sign * 1000
            taken[node, PODS] += sign * ((node, slot) not in known)


def _share(given: Snapshot, pod: Pod) -> int:
    one = given.signatures[pod.signature]
    memory = int(given.nodes.gpu_memory[pod.node])
    return (
        one.device_share
        if memory == 0
        else one.device_share or -(-100 * one.device_memory // memory) * 10
    )


class Walk:
    def __init__(self, seed: int) -> None:
        self._random: Final = Random(seed)
        self.given: Final = snapshot()
        self.nodes: Final = working_nodes(self.given)
        self.pods: list[Pod] = []
        self.reserved: Final[list[Pod]] = []  # a roll back leaves it
        self.changes: Final = Counter[str]()
        self._checkpoints: Final[list[tuple[int, list[Pod], Tables, int]]] = []
        self._add_checkpoint()

    def step(self, number: int) -> None:
        kind = self._random.random()
        if kind < 0.03:
            self._add_checkpoint()
        elif kind < 0.08 or len(self.pods) > MOST_PODS:
            self._roll_back()
        else:
            self._change()
        if number % CHECKED_EACH == 0:
            self.check()

    def check(self) -> None:
        assert tables_of(self.nodes) == computed(self.given, self.pods, self.reserved)

    def _add_checkpoint(self) -> None:
        nodes, reserved = self.nodes, self.changes["reserve"] + self.changes["release"]
        self._checkpoints.append(
            (nodes.statement.checkpoint, [*self.pods], tables_of(nodes), reserved)
        )

    def _roll_back(self) -> None:
        at = max(len(self._checkpoints) - int(self._random.expovariate(0.5)) - 1, 0)
        checkpoint, pods, before, reserved = self._checkpoints[at]
        del self._checkpoints[at + 1 :]
        self.pods = [*pods]
        self.nodes.statement.roll_back(checkpoint)
        self.changes["roll back"] += 1
        if reserved == self.changes["reserve"] + self.changes["release"]:
            self.changes["exact"] += 1
            assert tables_of(self.nodes) == before
        self.check()

    def _change(self) -> None:
        random, nodes = self._random, self.nodes
        change = random.choices(CHANGES, WEIGHTS)[0]
        bound = [it for it in self.pods if it.is_now and it.is_later and it.number == 1]
        self.changes[change] += 1
        if change == "allocate":
            pod = self._new_pod()
            nodes.statement.allocate(
                pod.node,
                pod.signature,
                on_idle=pod.is_now,
                count=pod.number,
                held=held_shares(pod.slots),
            )
            self.pods.append(pod)
        elif change in {"deallocate", "evict", "pipeline"} and bound:
            pod = random.choice(bound)
            self.pods.remove(pod)
            self._remove(change, pod)
        elif change == "reserve" and len(self.reserved) < MOST_PODS:
            self._reserve(self._new_pod()._replace(number=1), 1)
        elif change == "release" and self.reserved:
            self._reserve(self.reserved[random.randrange(len(self.reserved))], -1)

    def _new_pod(self) -> Pod:
        random = self._random
        row = random.randrange(len(SIGNATURES))
        one = SIGNATURES[row]
        if not one.shared_devices:
            node, count = random.randrange(len(NODES)), random.choice((1, 1, 1, 3))
            return Pod(node, row, (), count, is_now=random.random() < 0.7)
        node = random.choice(SHARING)
        choice = self.nodes.devices.choose(node, row)
        slots = tuple(random.sample(SLOTS, one.shared_devices))
        if choice is not None and random.random() < 0.5:
            (slots,) = choice[0]
        return Pod(node, row, slots, is_now=random.random() < 0.7)

    def _remove(self, change: str, pod: Pod) -> None:
        node, row, slots = pod[:3]
        if change == "deallocate":
            self.nodes.statement.deallocate(node, row, held_shares(slots))
        elif change == "evict":
            self.nodes.statement.evict(node, row, held_shares(slots))
            self.pods.append(pod._replace(is_later=False))
        else:
            self.nodes.statement.pipeline(node, row, held=held_shares(slots))
            self.pods.append(pod._replace(is_now=False))

    def _reserve(self, pod: Pod, sign: int) -> None:
        request = np.array([self.given.signatures[pod.signature].request], dtype=np.int64)
        self.nodes.resources.reserve(np.array([pod.node]), sign * request)
        if pod.slots:
            self.nodes.devices.reserve(pod.node, pod.signature, held_shares(pod.slots), sign)
        if sign > 0:
            self.reserved.append(pod)
        else:
            self.reserved.remove(pod)


@pytest.mark.parametrize(
    "steps", [8_000, pytest.param(1_000_000, marks=(pytest.mark.soak, pytest.mark.timeout(3600)))]
)
def test_a_statement_is_what_is_there(steps: int) -> None:
    """Resources and GPUs, and a roll back leaves no trace of what was between."""
    walk = Walk(seeds(1).start)
    for number in range(steps):
        walk.step(number)
    walk.check()
    assert min(walk.changes[it] for it in (*CHANGES, "roll back", "exact")) > steps // 250
