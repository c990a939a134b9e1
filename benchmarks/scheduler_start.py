"""How long our scheduler needs on a large cluster until it is ready, and until it has bound.

4,000 full nodes with 40,000 pods in 5,000 PodGroups, and one free node for a pending gang of four.
Nodes and pods are only objects here: KWOK and the controllers are stopped, so that the API server
has nothing else to do. The floor is a client that lists the same and parses the JSON, nothing more.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.cluster_pods import (
    all_pods,
    create_podgroup,
    is_bound,
    make_namespace,
    podgroup_pod,
)
from benchmarks.process_usage import most_memory_mib
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape, make_nodes
from e2e.cluster.resources import NODES, PODS, Obj
from e2e.cluster.together import together
from e2e.fixtures.install import PODGROUPS, install
from e2e.fixtures.processes import SCHEDULER, ProductProcess, running, webhook_port

_NODES: Final = 4_000
_PODS_EACH: Final = 10
_GPUS: Final = 8
_PODGROUPS: Final = 5_000
_ROUNDS: Final = 3
_GANG: Final = 4
_FULL_NAMESPACE: Final = "crowd"
_GANG_NAMESPACE: Final = "room"  # of the gangs that wait
_SETTLED_S: Final = 5.0  # until its Lease is a while old; else it is not released
_MOST_S: Final = 20.0
_MOST_MIB: Final = 600


class _Measurement(NamedTuple):
    """What was measured in one round."""

    listed_s: float
    ready_s: float
    bound_s: float
    memory_mib: int


async def main() -> None:
    """Fill a cluster, and start the scheduler on it a few times."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_cluster(Options(name="bench-arrive")) as cluster:
            await install(cluster, port=webhook_port(cluster))
            for namespace in (_FULL_NAMESPACE, _GANG_NAMESPACE):
                await make_namespace(cluster, namespace)
            async with running(cluster, SCHEDULER, Path(folder)) as ours:
                await asyncio.sleep(_SETTLED_S)
                await ours.stop()
                await _fill(cluster)
                measurements = [await _round(cluster, ours, number) for number in range(_ROUNDS)]
                await ours.start()  # a process that is missing at the end counts as crashed
    _print_table(measurements)


async def _fill(cluster: Cluster) -> None:
    for name in ("kwok", "kube-controller-manager"):
        await cluster.process(name).kill()
    began = time.monotonic()
    await cluster.api.create_all(_nodes())
    await together(_untaint(cluster, number) for number in range(_NODES + 1))
    for number in range(_PODGROUPS):
        await create_podgroup(
            cluster, _FULL_NAMESPACE, f"g{number}", _NODES * _PODS_EACH // _PODGROUPS
        )
    await cluster.api.create_all(_pods())
    print(f"{_NODES:,} nodes and {_NODES * _PODS_EACH:,} pods: {time.monotonic() - began:.0f} s")


async def _untaint(cluster: Cluster, number: int) -> None:
    """Do what the controllers would: the API server marks each node as not ready."""
    await cluster.api.merge(NODES, None, f"node-{number}", {"spec": {"taints": []}})


def _nodes() -> Iterable[Obj]:
    for node in make_nodes(_NODES + 1, NodeShape(gpus=_GPUS)):
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        yield node


def _pods() -> Iterator[Obj]:
    each = _NODES * _PODS_EACH // _PODGROUPS
    for number in range(_NODES * _PODS_EACH):
        created = podgroup_pod(_FULL_NAMESPACE, f"g{number // each}", number % each)
        created["spec"]["nodeName"] = f"node-{1 + number // _PODS_EACH}"
        if number % _PODS_EACH >= _GPUS:
            created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        yield created


async def _round(cluster: Cluster, ours: ProductProcess, number: int) -> _Measurement:
    """Start it while a gang waits."""
    name = f"late-{number}"
    await create_podgroup(cluster, _GANG_NAMESPACE, name, _GANG)
    await cluster.api.create_all(podgroup_pod(_GANG_NAMESPACE, name, i) for i in range(_GANG))
    began = time.monotonic()
    for kind in (NODES, PODGROUPS, PODS):
        await cluster.api.list(kind)
    listed_s = time.monotonic() - began
    began = time.monotonic()
    async with all_pods(cluster, _GANG_NAMESPACE, _GANG, is_bound):
        await ours.start()
        ready_s = time.monotonic() - began
    measurement = _Measurement(listed_s, ready_s, time.monotonic() - began, most_memory_mib(ours))
    await ours.stop()
    for i in range(_GANG):
        await cluster.api.delete(PODS, _GANG_NAMESPACE, f"{name}-{i}", gracePeriodSeconds=0)
    return measurement


def _print_table(measurements: list[_Measurement]) -> None:
    title = f"the scheduler starts: {_NODES:,} nodes, {_NODES * _PODS_EACH:,} pods, this run"
    table = Table(title=title)
    for heading in ("work", "min / median / max s", "times listing"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    listed_s = [it.listed_s for it in measurements]
    for work, took_s in (
        ("list it all and parse it", listed_s),
        ("start → ready", [it.ready_s for it in measurements]),
        ("start → a gang that waits is bound", [it.bound_s for it in measurements]),
    ):
        times = statistics.median(took_s) / statistics.median(listed_s)
        spread = f"{min(took_s):.1f} / {statistics.median(took_s):.1f} / {max(took_s):.1f}"
        table.add_row(work, spread, f"{times:.1f}")
    memory = max(it.memory_mib for it in measurements)
    table.add_row("most memory of the process", f"{memory} MiB", "")
    Console(width=105).print(table)
    ready_s = statistics.median(it.ready_s for it in measurements)
    assert ready_s <= _MOST_S, f"ready after {ready_s:.1f} s, at most {_MOST_S:g} s"
    assert memory <= _MOST_MIB, f"{memory} MiB, at most {_MOST_MIB}"
