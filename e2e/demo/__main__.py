"""Show the main job on a local real chain: `make demo`.

Second form: what Trainer makes of three TrainJobs with our webhook and podgrouper beside it. The
pods are in the right queue and in groups that can be satisfied; nobody binds them yet.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.cluster.api import ApiError
from e2e.cluster.binaries import ensure_chain
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.process import ProgramDied
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS
from e2e.cluster.timeline import Gap, State, Timeline
from e2e.cluster.toolchain import BuildError
from e2e.cluster.trainjobs import Submission
from e2e.demo.tree import groups_of, rows_of, waiting_pods
from e2e.front.install import PODGROUPS, install
from e2e.front.ours import QUEUE
from e2e.front.processes import PODGROUPER, WEBHOOK, running, webhook_port

_SUBMISSIONS: Final = (
    Submission("llm", "torch-distributed", num_nodes=4, gpus=8, labels={QUEUE: "team-a"}),
    Submission("moe", "deepspeed-distributed", num_nodes=3, gpus=8, labels={QUEUE: "team-b"}),
    Submission("tune", "torchtune-llama3.2-1b", num_nodes=2, gpus=2),
)
# 4 of torch; 2 workers of DeepSpeed, its launcher comes after them; 2 initializers
_PODS_THAT_CAN_EXIST: Final = 8
_PIPED_WIDTH: Final = 150
_QUIET_S: Final = 3.0  # so long nothing may happen before we say that nothing will
_PATIENCE_S: Final = 40.0
_STYLES: Final = {"TrainJob": "bold", "JobSet": "cyan", "Job": "blue", "Pod": "yellow"}


async def show(console: Console) -> None:
    """Bring the chain up, submit, watch, and say what was seen."""
    console.print("[bold]A real Kubeflow Trainer control plane on this machine[/]")
    options = Options(name="demo", say=lambda line: console.print(line, highlight=False))
    async with running_cluster(options) as cluster:
        await cluster.add_nodes(4, NodeShape(gpus=8))
        console.print("       4 nodes with 8 GPUs each are Ready", highlight=False)
        async with _our_processes(cluster):
            console.print("       our manifests are applied, webhook and podgrouper are ready")
            async with cluster.timeline(TRAINJOBS, JOBSETS, JOBS, PODS, PODGROUPS) as seen:
                for job in _SUBMISSIONS:
                    await cluster.api.create(job.trainjob())
                    console.print(f"       TrainJob {job.name} of runtime {job.runtime}")
                await _watch(console, seen)
                _conclude(console, seen.state)


@asynccontextmanager
async def _our_processes(cluster: Cluster) -> AsyncIterator[None]:
    """Install our manifests and run webhook and podgrouper under their own accounts."""
    await install(cluster, port=webhook_port(cluster))
    with TemporaryDirectory(prefix="trainer-kai-demo-") as folder:
        async with (
            running(cluster, WEBHOOK, Path(folder)),
            running(cluster, PODGROUPER, Path(folder)),
        ):
            yield


async def _watch(console: Console, seen: Timeline) -> None:
    """Show what happens until nothing does any more."""
    if console.is_terminal:
        await _watch_live(console, seen)
    else:
        async for _ in _until_quiet(seen):
            pass
        console.print(_table(seen.state, plain=True))
    console.print(_groups(seen.state, plain=not console.is_terminal))


async def _watch_live(console: Console, seen: Timeline) -> None:
    with Live(_table(seen.state), console=console, refresh_per_second=10) as live:
        async for state in _until_quiet(seen):
            live.update(_table(state))


async def _until_quiet(seen: Timeline) -> AsyncIterator[State]:
    """Yield the state until every pod that can exist does, and nothing moves any more."""
    began = moved = time.monotonic()
    moments = 0
    while waiting_pods(seen.state) != _PODS_THAT_CAN_EXIST or time.monotonic() - moved < _QUIET_S:
        if time.monotonic() - began > _PATIENCE_S:
            message = f"the chain did not come to rest within {_PATIENCE_S:g} s; {seen.describe()}"
            raise TimeoutError(message)
        await asyncio.sleep(0.1)
        if len(seen.moments) != moments:
            moments, moved = len(seen.moments), time.monotonic()
            yield seen.state


def _table(state: State, *, plain: bool = False) -> Table:
    table = Table(title="TrainJob → JobSet → Jobs → pods", box=None if plain else box.ROUNDED)
    for heading in ("object", "name", "state"):
        table.add_column(heading, no_wrap=True)
    for row in rows_of(state):
        kind = f"{'  ' * row.depth}{row.kind}"
        table.add_row(kind, row.name, row.state, style=_STYLES[row.kind])
    return table


def _groups(state: State, *, plain: bool) -> Table:
    table = Table(title="kubectl get podgroups", box=None if plain else box.ROUNDED)
    for heading in ("name", "queue", "stage", "members"):
        table.add_column(heading, overflow="fold")
    for row in groups_of(state):
        table.add_row(*row)
    return table


def _conclude(console: Console, state: State) -> None:
    console.print(
        f"\n{waiting_pods(state)} pods wait: our scheduler is not built yet. Nobody wrote a "
        "scheduler name, a queue or a group: admission did. All 4 pods of llm start together, or "
        "none. moe has its launcher still to come: its group keeps a place for it, and does not "
        "wait for it. The initializers of tune are groups of their own, before its nodes.",
        highlight=False,
    )


def main() -> int:
    """Run the demo; Ctrl-C ends it and everything it started."""
    try:
        ensure_chain()  # outside the event loop, which would keep Ctrl-C from it
        asyncio.run(show(Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)))
    except KeyboardInterrupt:
        return 130
    except (ApiError, BuildError, Gap, ProgramDied, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
