"""What the webhook reads at its start."""

import asyncio
import gc

import structlog

from tests.support.clock import VirtualClock
from tests.support.fakes.fake_kube import FakeKube
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.service.health import Health
from trainer_kai.service.metrics import Metrics
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache_watches import start_watches


async def test_what_was_read_is_not_looked_through_for_garbage_again() -> None:
    """No review waits for that."""
    clock, seen = VirtualClock(), ClientObserver(Metrics())
    access = RestConfig("https://fake", StaticToken(""), origin="the test")
    client = Client(access, FakeKube(), clock, NoRequestObserver())
    run = Runner(clock, structlog.get_logger())
    before = gc.get_freeze_count()

    async def program(it: Runner) -> None:
        start_watches(it, client, AdmissionCache(), seen, Health())

    running = asyncio.create_task(run.run(program))
    try:
        await clock.advance(0)
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
        run.stop()
        await running
