"""The process that holds a cluster started by hand: it brings it up, stays, and ends it when told.

`up` starts it and reads what it says, line by line, until the first word is `ready`. Until then it
is tied to `up`, so an interrupted `up` leaves nothing; afterwards it stands alone until `down`.
"""

import asyncio
import os
import signal
import sys

from e2e.cluster.api import ApiError
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.process import ProgramDied
from e2e.cluster.tether import die_with_parent, outlive_parent
from e2e.cluster.toolchain import BuildError

READY = "ready"


async def supervise(name: str, nodes: int, gpus: int, *, kube_scheduler: bool) -> None:
    """Hold one cluster until SIGTERM."""
    holding = asyncio.current_task()
    assert holding is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, holding.cancel)
    options = Options(name=name, kube_scheduler=kube_scheduler, by_hand=True, say=_say)
    async with running_cluster(options) as cluster:
        if nodes:
            await cluster.add_nodes(nodes, NodeShape(gpus=gpus))
            _say(f"       {nodes} nodes with {gpus} GPUs each are Ready")
        outlive_parent()
        _say(f"{READY} {cluster.name}")  # fails, and ends the cluster, when `up` is gone
        sys.stdout.close()
        while cluster.layout.run.is_dir():  # a folder that somebody removed cannot be found again
            await asyncio.sleep(1)


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Run as `python -m e2e.cluster.supervise PARENT NAME NODES GPUS SCHEDULER`."""
    parent, name, nodes, gpus, scheduler = arguments
    die_with_parent(signal.SIGTERM, int(parent))
    os.setsid()  # Ctrl-C in the terminal is for `up`, which then tells us
    try:
        asyncio.run(
            supervise(name, int(nodes), int(gpus), kube_scheduler=scheduler == "kube-scheduler")
        )
    except asyncio.CancelledError:
        return 0
    except (ApiError, BuildError, ProgramDied, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
