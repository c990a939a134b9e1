"""A webhook in a process of its own, so that its memory and its time are nothing else's.

`follow URL` lists and follows what an API server has, reads the runtimes anew once, and says what
that took. `serve` answers reviews until standard input ends; it knows one TrainJob.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Final

import structlog

from tests.webhook.serving import serving, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.clock import SystemClock
from trainer_kai.health import Health
from trainer_kai.kube import loop
from trainer_kai.kube.access import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.observed import ClientObserver
from trainer_kai.kube.pooled import PooledTransport
from trainer_kai.kube.runner import Runner
from trainer_kai.log import configure
from trainer_kai.metrics import Metrics
from webhook.__main__ import follow, relist_runtimes
from webhook.cache import AdmissionCache

_MAX_BYTES: Final = 6 << 30  # a hole must not take the machine with it
VICTIM: Final = Key("red", "job")  # small, and of a team that did nothing wrong


def _peak_mib() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(it.split()[1]) // 1024 for it in lines if it.startswith("VmHWM:"))


async def _follow(url: str) -> None:
    clock, cache, log = SystemClock(), AdmissionCache(), structlog.get_logger()
    access = RestConfig(url, StaticToken(""), origin="the test")
    client = Client(access, PooledTransport(access), clock, NoRequestObserver())
    run = Runner(clock, log)

    async def program(it: Runner) -> None:
        follow(it, client, cache, ClientObserver(Metrics()), Health())

    running = asyncio.create_task(run.run(program))
    reading = asyncio.create_task(relist_runtimes(client, cache, 1.0, log))
    await asyncio.to_thread(sys.stdin.read)  # until all was listed
    known = cache.trainjob(VICTIM), cache.runtime(VICTIM), cache.cluster.runtime(VICTIM)
    print(json.dumps([_peak_mib(), time.process_time(), None not in known]), flush=True)
    reading.cancel()
    run.stop()
    await running
    await client.close()


async def _serve() -> None:
    async with serving() as asked:
        asked.cache.put_trainjob(trainjob())
        print(asked.server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(_peak_mib(), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    configure(SystemClock(), layout="console", level="error")
    loop.run(_follow(sys.argv[2]) if sys.argv[1] == "follow" else _serve())
