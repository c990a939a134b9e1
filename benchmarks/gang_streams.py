"""Gangs that arrive and end, with `binpack` and `fragmentation`: how many start, and how late.

Random clusters of nodes with 4 or 8 GPUs; gangs of 2 to 32 pods with whole GPUs, all of them
requesting a little more than there is. Each arrival and each end is followed by a plan. Where a few
pods lie decides when the next large gang fits, and so all that follows: how far two streams differ
by luck is what `binpack` on the same nodes in reverse order shows.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import mean
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from trainer_kai.api.scheduler_names import Action

_CLUSTERS: Final = 20
_GANGS: Final = 250
_LEAST_STARTED: Final = 0.98  # of those with binpack
_MOST_WAIT: Final = 1.02
_HEADINGS: Final = ("fragmentation: started", "wait", "nodes in reverse: started", "wait")
_ALLOCATE_ONLY: Final = {it.value: it is Action.ALLOCATE for it in Action}


class _Gang(NamedTuple):
    arrives: float
    lasts: float
    pods: int
    signature: SchedulingSignature


class _Stream(NamedTuple):
    nodes: list[SnapshotNode]
    gangs: list[_Gang]
    ends: float


async def main() -> None:
    """Print what `fragmentation` does to each cluster, and what luck does: `binpack` once more."""
    table = Table(title=f"{_GANGS} gangs on each cluster, this run")
    for heading in ("cluster", "GPUs", "started", "wait", *_HEADINGS):
        table.add_column(heading, justify="right")
    waits: dict[str, list[float]] = {"fragmentation": [], "binpack, nodes in reverse": []}
    worse = dict.fromkeys(waits, 0)
    for seed in range(_CLUSTERS):
        stream = _stream(Random(seed))  # noqa: S311 - the same streams each time
        packed = _played(stream, _policies("binpack"))
        others = (
            _played(stream, _policies("fragmentation")),
            _played(stream._replace(nodes=stream.nodes[::-1]), _policies("binpack")),
        )
        gpus, wait = sum([it.gpu for it in stream.nodes]), _wait(stream, packed)
        cells = [f"{seed}", f"{gpus}", f"{len(packed)}", f"{wait:.2f}"]
        for name, other in zip(waits, others, strict=True):
            started, ratio = len(other) / len(packed), _wait(stream, other) / wait
            waits[name].append(ratio)
            worse[name] += started < _LEAST_STARTED or ratio > _MOST_WAIT
            cells += [f"{started:.3f}", f"{ratio:.3f}"]
        table.add_row(*cells)
    console = Console(width=115)
    console.print(table)
    for name, ratios in waits.items():
        bounds = f"{_LEAST_STARTED} of the gangs started and {_MOST_WAIT} of the wait"
        console.print(f"{name}: {mean(ratios):.3f} of the wait with binpack, in the mean;")
        console.print(f"    {worse[name]} of {_CLUSTERS} clusters are beyond {bounds}")


def _policies(placement: str) -> Policies:
    return build_policies(
        PolicySelection(gpu_placement=placement, cpu_placement=placement, actions=_ALLOCATE_ONLY)
    )


def _stream(random: Random) -> _Stream:
    nodes = [
        SnapshotNode(gpu=random.choice((4, 8, 8)), cpu=random.choice((64, 96, 128)))
        for _ in range(random.randint(12, 32))
    ]
    gpus, at, gangs = sum([it.gpu for it in nodes]), 0.0, list[_Gang]()
    while len(gangs) < _GANGS:
        each, pods = (
            random.choice((1, 1, 2, 4, 8)),
            random.choice((2, 2, 3, 4, 4, 6, 8, 12, 16, 32)),
        )
        if each * pods > gpus // 3:
            continue
        lasts = random.expovariate(1)
        one = signature(gpu=each, cpu=each * random.choice((2, 6, 8, 8, 12)))
        gangs.append(_Gang(at, lasts, pods, one))
        at += lasts * each * pods / gpus / 1.05  # a little more than there is
    return _Stream(nodes, gangs, at)


def _wait(stream: _Stream, started: dict[int, float]) -> float:
    """Return the mean wait; what has not started has waited until the end."""
    ends = stream.ends
    return mean([min(started.get(i, ends), ends) - it.arrives for i, it in enumerate(stream.gangs)])


def _played(stream: _Stream, policies: Policies) -> dict[int, float]:
    """Return when each gang that starts does, by its number."""
    builder = Builder(stream.nodes)
    rows = [builder.signature_row(it.signature) for it in stream.gangs]
    empty = builder.snapshot()
    idle, waiting = empty.nodes.idle.copy(), list[int]()
    started: dict[int, float] = {}
    nodes_of: dict[int, list[int]] = {}
    events = [(it.arrives, i, False) for i, it in enumerate(stream.gangs)]
    heapq.heapify(events)
    while events and events[0][0] < stream.ends:
        now, gang, is_end = heapq.heappop(events)
        if is_end:
            for node in nodes_of.pop(gang):
                idle[node] += empty.signatures[rows[gang]].request
        else:
            waiting.append(gang)
        running = [rows[it] for it, nodes in nodes_of.items() for _ in nodes]
        snapshot = _snapshot(empty, idle, [stream.gangs[it] for it in waiting], running)
        for allocation in plan(snapshot, policies).allocations:
            begun = waiting[allocation.podgroup]
            nodes_of[begun] = [it.node for it in allocation.binds]
            for node in nodes_of[begun]:
                idle[node] -= empty.signatures[rows[begun]].request
            assert (idle >= 0).all()
            started[begun] = now
            heapq.heappush(events, (now + stream.gangs[begun].lasts, begun, True))
        waiting = [it for it in waiting if it not in started]
    return started


def _snapshot(
    empty: Snapshot, idle: Ints, waiting: Sequence[_Gang], running: list[int]
) -> Snapshot:
    builder = Builder()
    builder.signatures += empty.signatures
    builder._known.update({it: row for row, it in enumerate(empty.signatures)})  # noqa: SLF001
    for it in waiting:
        builder.uniform_podgroup(it.pods, it.signature)
    made = builder.snapshot()
    count, pods = len(running), made.pods
    return replace(
        made,
        nodes=replace(empty.nodes, idle=idle.copy()),
        pod_relations=empty.pod_relations,
        total=empty.total,
        pods=replace(
            pods,
            signature=np.concatenate((pods.signature, np.array(running, dtype=np.int32))),
            node=np.concatenate((pods.node, np.full(count, NONE, dtype=np.int32))),
            podgroup=np.concatenate((pods.podgroup, np.full(count, NONE, dtype=np.int32))),
            state=np.concatenate((pods.state, np.full(count, PodState.RUNNING, dtype=np.int8))),
        ),
    )
