"""Show the main job on a local real chain: `make demo`.

Two teams share four nodes, and guests use them over their quota while they are idle. A TrainJob
that fits starts; one that does not fit waits, and shows why; the guests are evicted; a place is
reserved for the launcher of a DeepSpeed job. Two TrainJobs share the GPU of a fifth node, and a
third one waits for its part of it. The demo ends by itself, with everything Complete. With `--hold`
the chain then stays until Ctrl-C, or until the demo is terminated. A process of ours that ends
meanwhile is started again.
"""

import argparse
import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from rich.console import Console

from e2e.cluster.api import ApiError
from e2e.cluster.binaries import ensure_built
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU
from e2e.cluster.patience import patience, slowdown
from e2e.cluster.process import ProgramDied
from e2e.cluster.resources import NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Gap, Timeline
from e2e.cluster.toolchain import BuildError
from e2e.demo.intervals import intervals
from e2e.demo.restarts import while_restarting
from e2e.demo.scenario import (
    ACTS,
    LATE,
    NAMESPACE,
    NODE_BATCHES,
    TEAMS,
    TENANTS,
    DemoTrainJob,
    prolonged,
)
from e2e.demo.screen import Screen, show_ended
from e2e.demo.status_rows import Ended, ended, is_over, nodes_of, rows_of
from e2e.demo.timeline_svg import timeline_svg
from e2e.fixtures.gpu_agents import install_runtime_class, running_gpu_agents
from e2e.fixtures.install import PODGROUPS, apply, install
from e2e.fixtures.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from e2e.fixtures.queues import grant_queue_use

_PIPED_WIDTH: Final = 110
_PATIENCE_S: Final = 90.0
_BEGUN: Final = ("grouping begins", "scheduling begins")  # a first leader waits for others
_SCENE: Final = """\
       4 nodes with 8 GPUs each. Queue team-a has a quota of 16 GPU and the same limit; queue
       team-b has a quota of 16 GPU and no limit; queue guests has a quota of 0 and no limit.
       A fifth node has 1 GPU, which TrainJobs of queue serving share.
"""
_TO_TRY: Final = """
Everything stays up until Ctrl-C, or `kill {pid}`. In another shell:

  export KUBECONFIG={kubeconfig}
  .venv/bin/trainer-kai why {waits}
  .venv/bin/trainer-kai queue list
  {kubectl} get podgroups
  {kubectl} describe podgroup -l jobset.sigs.k8s.io/jobset-name={waits}

A TrainJob of your own, and what the scheduler would do with all TrainJobs:

  {kubectl} apply -f e2e/demo/yours.yaml
  .venv/bin/trainer-kai why yours
  token=$({kubectl} config view --raw -o jsonpath='{{.users[0].user.token}}')
  curl -s -H "Authorization: Bearer $token" {snapshot} >now.json
  .venv/bin/trainer-kai simulate -f now.json --relocate allowed

What our processes log (also webhook and podgrouper):

  .venv/bin/python -m e2e.cluster logs demo scheduler

A process that ends is started again, and running TrainJobs go on. A process that ends three times
within a minute ends the demo:

  kill -9 {scheduler}
"""
_PICTURE: Final = Path(".reports/demo.svg")  # git ignores it


class Wishes(NamedTuple):
    """What the caller of the demo wants besides."""

    hold: bool = False
    recording: Path = _PICTURE


async def show(console: Console, wishes: Wishes) -> bool:
    """Bring the chain up and perform on it; whether all TrainJobs are Complete."""
    _end_on_signal()
    console.print("[bold]A real Kubeflow Trainer control plane on this machine[/]")
    _say(console, f"slowdown of this machine: {slowdown():.1f}; the pods run as much longer")
    options = Options(name="demo", say=lambda line: console.print(line, highlight=False))
    async with running_cluster(options) as cluster:
        for prefix, count, shape in NODE_BATCHES:
            await cluster.add_nodes(count, shape, prefix=prefix)
        async with _run_processes(cluster) as processes:
            names = ", ".join(f"{it.process.name} (process {it.pid})" for it in processes)
            _say(console, f"running: {names}")
            return await while_restarting(
                _perform(cluster, console, processes, wishes),
                processes,
                lambda line: _say(console, line),
            )


def _say(console: Console, line: str) -> None:
    """Print a line below the steps of the start."""
    console.print(f"       {line}", highlight=False, soft_wrap=True)


async def _perform(
    cluster: Cluster, console: Console, processes: Sequence[ProductProcess], wishes: Wishes
) -> bool:
    """Submit, watch and show the result, until all is over and nothing is held."""
    for queue in TEAMS:
        await apply(cluster, queue)
    for name in TENANTS:
        await grant_queue_use(cluster, name, NAMESPACE)
    console.print(_SCENE, highlight=False)
    async with cluster.timeline(TRAINJOBS, PODS, PODGROUPS) as seen:
        took_s = await _play(cluster, seen, console)
    is_well = _conclude(console, ended(seen.history()), took_s)
    if is_well:
        nodes, _ = await cluster.api.list(NODES)
        _write_picture(seen, nodes, wishes.recording)
        console.print(f"The run as a picture: {wishes.recording}", soft_wrap=True)
    else:
        cluster.keep_logs()
    if wishes.hold:
        await _hold(cluster, console, processes[-1])
    return is_well


def _end_on_signal() -> None:
    """Let SIGTERM end us as Ctrl-C does; a second one ends us no sooner."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None

    def end(task: asyncio.Task[object]) -> None:
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end, this)


@asynccontextmanager
async def _run_processes(cluster: Cluster) -> AsyncIterator[list[ProductProcess]]:
    """Install our manifests and run our processes, each under its own account."""
    await install(cluster, port=webhook_port(cluster))
    await install_runtime_class(cluster)
    async with AsyncExitStack() as stack:
        logs = cluster.layout.run / "logs"
        await stack.enter_async_context(running_gpu_agents(cluster, logs))
        parts = (WEBHOOK, PODGROUPER, SCHEDULER)
        processes = [
            await stack.enter_async_context(running(cluster, part, logs)) for part in parts
        ]
        async with patience(_PATIENCE_S):
            while not _have_begun(processes):
                _check(processes)
                await asyncio.sleep(0.1)
        yield processes


def _have_begun(processes: Iterable[ProductProcess]) -> bool:
    output = "\n".join(line for process in processes for line in process.lines())
    return all(phrase in output for phrase in _BEGUN)


def _check(processes: Iterable[ProductProcess]) -> None:
    """Fail with the words of a process that has ended."""
    for process in processes:
        process.process.check()


async def _play(cluster: Cluster, seen: Timeline, console: Console) -> float:
    """Submit one act after the other and show it, until all is over; return after how long."""
    acts = [*ACTS]
    count = sum(len(act.tasks) for act in acts)
    with Screen(console, time.monotonic()) as screen:
        with suppress(TimeoutError):  # the result then shows what is not Complete
            async for state in seen.follow(lambda now: is_over(now, count), _PATIENCE_S):
                while acts and all(nodes_of(state, job) for job in acts[0].after_scheduled):
                    await _submit(cluster, console, acts.pop(0).tasks)
                screen.show(rows_of(state))
        screen.show(rows_of(seen.state))
    return screen.after_s


async def _submit(cluster: Cluster, console: Console, tasks: Sequence[DemoTrainJob]) -> None:
    for job, words in tasks:
        await cluster.api.create(prolonged(job.trainjob(), slowdown()))
        _say(console, f"TrainJob {job.name}: {words}")


def _conclude(console: Console, rows: Sequence[Ended], took_s: float) -> bool:
    """Show what became of the TrainJobs; whether all are Complete."""
    show_ended(console, rows)
    missing = [f"{row.job} ({row.state})" for row in rows if row.state != "Complete"]
    if missing:
        message = f"after {took_s:.0f} s these are not Complete: {', '.join(missing)}"
        print(f"demo: {message}", file=sys.stderr)
        return False
    console.print(
        f"\nAll {len(rows)} TrainJobs are Complete after {took_s:.1f} s. No TrainJob names a "
        "scheduler or a PodGroup: the webhook and the podgrouper added them.",
        highlight=False,
    )
    return True


def _write_picture(seen: Timeline, nodes: Iterable[Obj], target: Path) -> None:
    gpus = {it["metadata"]["name"]: float(it["status"]["capacity"][GPU]) for it in nodes}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(timeline_svg(intervals(seen.history()), gpus, TEAMS))


async def _hold(cluster: Cluster, console: Console, scheduler: ProductProcess) -> NoReturn:
    """Leave everything up, with a TrainJob that waits, until we are to end."""
    await _submit(cluster, console, [LATE])
    snapshot = scheduler.ready_url.replace("/readyz", "/snapshot")
    words = _TO_TRY.format(
        pid=os.getpid(),
        kubeconfig=shlex.quote(str(cluster.kubeconfig)),
        kubectl=shlex.quote(str(ensure_built().program("kubectl"))),
        waits=LATE.submission.name,
        snapshot=snapshot,
        scheduler=scheduler.pid,
    )
    console.print(words, highlight=False, soft_wrap=True)
    while True:
        for program in cluster.processes:
            program.check()
        await asyncio.sleep(0.5)


def main(arguments: Sequence[str]) -> int:
    """Run the demo; Ctrl-C ends it and everything it started."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("--hold", action="store_true", help="stay up until Ctrl-C or SIGTERM")
    parser.add_argument(
        "--recording",
        type=Path,
        default=_PICTURE,
        help="write the picture of the run to this SVG file (default: %(default)s)",
    )
    wishes = Wishes(**vars(parser.parse_args(arguments)))
    try:
        ensure_built()  # outside the event loop, which would keep Ctrl-C from it
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        return 0 if asyncio.run(show(Console(width=width), wishes)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0 if wishes.hold else 130
    except (ApiError, BuildError, Gap, ProgramDied, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
