"""A webhook in a process of its own, to measure its time and memory.

`follow URL` lists and follows what an API server has, reads the runtimes anew once, and says what
that took. `serve SECONDS` answers reviews until standard input ends, and waits so long for each to
be read; it knows one TrainJob.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Final
from unittest.mock import patch

import structlog

from tests.webhook.served_webhook import serving, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.runner import Runner, run_loop
from trainer_kai.kube.rest.pooled_transport import PooledTransport
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.health import Health
from trainer_kai.service.log import configure
from trainer_kai.service.metrics import Metrics
from webhook import server
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache_watches import relist_runtimes, start_watches

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
        start_watches(it, client, cache, ClientObserver(Metrics()), Health())

    running = asyncio.create_task(run.run(program))
    reading = asyncio.create_task(relist_runtimes(client, cache, 1.0, log))
    await asyncio.to_thread(sys.stdin.read)  # until all was listed
    known = cache.trainjob(VICTIM), cache.runtimes.summary(VICTIM), cache.runtimes.whole(VICTIM)
    print(json.dumps([_peak_mib(), time.process_time(), None not in known]), flush=True)
    reading.cancel()
    run.stop()
    await running
    await client.close()


async def _serve(read_s: float) -> None:
    request_s = max(read_s, server._LIMITS.request_s)
    with patch.object(server, "_LIMITS", server._LIMITS._replace(request_s=request_s)):
        async with serving(read_s=read_s) as asked:
            asked.cache.put_trainjob(trainjob())
            print(asked.server.port, flush=True)
            await asyncio.to_thread(sys.stdin.read)
            print(_peak_mib(), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    configure(SystemClock(), layout="console", level="error")
    run_loop(_follow(sys.argv[2]) if sys.argv[1] == "follow" else _serve(float(sys.argv[2])))
