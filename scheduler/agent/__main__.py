"""The agent in a reservation pod: `python -m scheduler.agent`.

It annotates its own pod with the UUID of the only device that its container sees, and then runs
until it is stopped: its container holds the device for as long as it runs. There is one agent for
each shared device, so it has no settings, no server and no watch, and imports little.
"""

import asyncio
import os
import signal
import sys

from structlog.typing import FilteringBoundLogger

from scheduler.agent.device import only_device
from scheduler.agent.reserve import own_pod, reserve
from trainer_kai.errors import ConfigError, TrainerKaiError
from trainer_kai.kube.client import command_client
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.log import configure, logger

_NAME = "scheduler.agent"


async def _agent(log: FilteringBoundLogger) -> None:
    """Reserve the device, and hold it until a stop signal cancels this."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    pod = own_pod(os.environ)
    device = only_device(os.environ.get("NVIDIA_VISIBLE_DEVICES"))
    async with command_client() as client:
        await reserve(client, pod, device, log)
    await asyncio.Event().wait()


def main() -> int:
    """Run until a stop signal (0) or a failure: 2 if the environment is incomplete, else 1."""
    configure(SystemClock())
    log = logger(_NAME)
    try:
        asyncio.run(_agent(log))
    except asyncio.CancelledError:
        log.info("process ends", code=0)
    except TrainerKaiError as error:
        log.error("no device reserved", reason=str(error))  # noqa: TRY400 - the reason says it all
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
