"""Show the main job on a local real chain: `make demo`.

First form: what Trainer makes of two TrainJobs, and that their pods wait: nobody schedules them.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.cluster.api import ApiError
from e2e.cluster.binaries import ensure_chain
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.process import ProgramDied
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS
from e2e.cluster.timeline import Gap, State, Timeline
from e2e.cluster.toolchain import BuildError
from e2e.cluster.trainjobs import Submission
from e2e.demo.tree import rows_of, waiting_pods

_SUBMISSIONS: Final = (
    Submission("llm", "torch-distributed", num_nodes=4, gpus=8),
    Submission("moe", "deepspeed-distributed", num_nodes=3, gpus=8),
)
_PODS_THAT_CAN_EXIST: Final = 6  # 4 of torch, 2 workers of DeepSpeed; its launcher comes after them
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
        async with cluster.timeline(TRAINJOBS, JOBSETS, JOBS, PODS) as seen:
            for submission in _SUBMISSIONS:
                await cluster.api.create(submission.trainjob())
                console.print(f"       TrainJob {submission.name} of runtime {submission.runtime}")
            if console.is_terminal:
                await _watch_live(console, seen)
            else:
                async for _ in _until_quiet(seen):
                    pass
                console.print(_table(seen.state, plain=True))
            _conclude(console, seen.state)


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


def _conclude(console: Console, state: State) -> None:
    console.print(
        f"\n{waiting_pods(state)} pods wait: no scheduler runs here, and ours is not built yet. "
        "All 4 pods of llm must start together, or none. moe has its launcher still to come: it is "
        "created when both workers are Ready, so whoever counts it now waits for it for ever. "
        "Starting both, all or nothing and without that deadlock, is what trainer-kai is for.",
        highlight=False,
    )


def main() -> int:
    """Run the demo; Ctrl-C ends it and everything it started."""
    try:
        ensure_chain()  # outside the event loop, which would keep Ctrl-C from it
        asyncio.run(show(Console()))
    except KeyboardInterrupt:
        return 130
    except (ApiError, BuildError, Gap, ProgramDied, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
