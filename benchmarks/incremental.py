"""How long one change takes to a plan when everything else is known: one core, no cluster.

The cluster is that of `encode`; ten jobs wait and the rest run. What changes is a pod that is
decoded anew, as a watch would bring it. The floor is what it costs to begin with nothing, in the
same run. Memory is what `tracemalloc` counts from the start of the state on: the objects themselves
were decoded earlier and are not in it.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from itertools import chain, cycle, islice
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.large_cluster import JOBS, NODES, PODS, PODS_EACH, large_cluster, pod_bytes
from benchmarks.rounds import rounds
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.machine_speed import MachineSpeed
from trainer_kai.api import resources
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod

_OPTIONS: Final = StateOptions(now=1_800_000_000)
_POLICIES: Final = build_policies(PolicySelection())
_FEW: Final = 10  # jobs that wait
_MANY: Final = 10_000
_ROUNDS: Final = 30
_BURST: Final = 1_000
_BURSTS: Final = 7
_LEAST_S: Final = 10.0
_MOST_MS: Final = 50
_MOST_US: Final = 60
_MOST_BYTES: Final = 1_000


async def main() -> None:
    """Change one pod at a time."""
    cluster = large_cluster(PODS - _FEW * PODS_EACH)
    gc.collect()
    gc.freeze()  # the garbage collector skips these objects
    state, rebuilt_s = _rebuild(cluster)
    changed_s, planned_s = _measure(state, _changed_pods())
    speed = MachineSpeed()
    each_s = _burst(state, speed)
    pod_bytes_kept = _bytes_per_pod(cluster)
    state.check(_OPTIONS.now)
    gc.unfreeze()
    crowded, crowded_rebuilt_s = _rebuild(large_cluster(PODS - _MANY * PODS_EACH))
    gc.collect()
    gc.freeze()
    crowded_s, _ = _measure(crowded, _changed_pods(), is_planned=False)
    gc.unfreeze()
    table = Table(title=f"{PODS:,} pods on {NODES:,} nodes, {JOBS:,} groups, this run")
    for heading in ("work", "best", "median", "of a rebuild"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    both = [one + other for one, other in zip(changed_s, planned_s, strict=True)]
    table.add_row("rebuild", f"{rebuilt_s:.2f} s", "", "")
    for work, seconds in (
        ("one change, snapshot", changed_s),
        ("plan", planned_s),
        ("both", both),
    ):
        table.add_row(work, *_shown(seconds, rebuilt_s))
    table.add_row("one change of many", f"{each_s * 1e6:.0f} us", "", "")
    table.add_row("memory of a pod", f"{pod_bytes_kept:.0f} bytes", "", "")
    table.add_row(f"{_MANY:,} gangs wait: rebuild", f"{crowded_rebuilt_s:.2f} s", "", "")
    table.add_row("one change, snapshot", *_shown(crowded_s, crowded_rebuilt_s))
    Console(width=115).print(table)
    most_ms, most_us = _MOST_MS * speed.slowdown, _MOST_US * speed.slowdown
    assert min(both) * 1000 <= most_ms, f"{min(both) * 1000:.0f} ms, at most {most_ms:.0f} ms"
    assert each_s * 1e6 <= most_us, f"{each_s * 1e6:.0f} us, at most {most_us:.0f} us"
    assert pod_bytes_kept <= _MOST_BYTES, f"{pod_bytes_kept:.0f} bytes, at most {_MOST_BYTES}"


def _shown(seconds: list[float], rebuilt_s: float) -> tuple[str, str, str]:
    best = min(seconds)
    part = f"1/{rebuilt_s / best:.0f}"
    return f"{best * 1000:.1f} ms", f"{statistics.median(seconds) * 1000:.1f} ms", part


def _changed_pods(phase: str = "Succeeded") -> Iterator[tuple[Key, Pod]]:
    """Yield pods that have reached a phase, each of another job."""
    for job in range(JOBS - _MANY):
        pod = decode(Pod, pod_bytes(job * PODS_EACH, phase))
        yield pod.metadata.key, pod


def _rebuild(cluster: Cluster) -> tuple[ClusterState, float]:
    state = ClusterState(_OPTIONS)
    began = time.perf_counter()
    state.put_all(cluster)
    state.snapshot(_OPTIONS.now)
    return state, time.perf_counter() - began


def _measure(
    state: ClusterState, pods: Iterator[tuple[Key, Pod]], *, is_planned: bool = True
) -> tuple[list[float], list[float]]:
    """Return how long it takes from a change to a snapshot, and from there to a plan."""
    changed_s, planned_s = [], []
    for number, (key, pod) in zip(range(1, _ROUNDS + 1), pods, strict=False):
        began = time.perf_counter()
        state.put(resources.PODS, key, pod)
        encoded = state.snapshot(_OPTIONS.now)
        changed_s.append(time.perf_counter() - began)
        if is_planned:
            began = time.perf_counter()
            result = plan(encoded.snapshot, _POLICIES)
            planned_s.append(time.perf_counter() - began)
            _check(encoded, result, number)
    return changed_s, planned_s


def _check(encoded: EncodedSnapshot, result: Plan, finished: int) -> None:
    nodes, pods = encoded.snapshot.nodes, encoded.snapshot.resources.pods
    used = nodes.allocatable[:, pods] - nodes.idle[:, pods]
    assert int(used.sum()) == PODS - _FEW * PODS_EACH - finished
    assert len(result.allocations) == _FEW
    assert sum(len(it.binds) for it in result.allocations) == _FEW * PODS_EACH


def _burst(state: ClusterState, speed: MachineSpeed) -> float:
    """Return how long one change takes of many that come between two snapshots; the best burst."""
    changes = chain.from_iterable(map(_changed_pods, cycle(("Succeeded", "Running"))))
    state.snapshot(_OPTIONS.now)
    began = time.perf_counter()
    state.snapshot(_OPTIONS.now)
    idle_s = time.perf_counter() - began
    bursts_s: list[float] = []
    most_s = _MOST_US * _BURST / 1e6
    for _ in rounds(_BURSTS, _LEAST_S, lambda: min(bursts_s) - idle_s <= most_s * speed.slowdown):
        speed.measure()
        pods = [*islice(changes, _BURST)]
        began = time.perf_counter()
        for key, pod in pods:
            state.put(resources.PODS, key, pod)
        state.snapshot(_OPTIONS.now)
        bursts_s.append(time.perf_counter() - began)
    return max(min(bursts_s) - idle_s, 0) / _BURST


def _bytes_per_pod(cluster: Cluster) -> float:
    """Return how many bytes a state keeps of each pod."""
    gc.collect()
    tracemalloc.start()
    state, _ = _rebuild(cluster)
    gc.collect()
    pod_bytes_kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del state
    return pod_bytes_kept / PODS
