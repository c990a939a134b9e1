"""A webhook in this process, over real TLS, with a cache that a test fills."""

import io
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.authority import authority_pem, server_tls
from tests.webhook.objects import BUNDLED, UID
from trainer_kai.api.meta import Key, Meta
from trainer_kai.clock import SystemClock
from trainer_kai.kube.errors import NotFound, Refusal
from trainer_kai.log import logger
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Server as Place
from webhook.app import Desk, ReadTrainJob, Server, Way
from webhook.cache import Cache, SlimTrainJob, TrainJob
from webhook.judge import Elsewhere, Judge, Strictness
from webhook.permission import Wish
from webhook.shape import Runtime

__all__ = ["KEY", "NOWHERE", "Asked", "serving", "trainjob"]

KEY = Key("team", "job")


def trainjob(uid: str = UID, **labels: str) -> SlimTrainJob:
    """Return a TrainJob; `queue` is its queue label."""
    named = {f"kai.scheduler/{name}": value for name, value in labels.items()}
    return SlimTrainJob(
        metadata=Meta(name=KEY.name, namespace=KEY.namespace, uid=uid, labels=named)
    )


async def _no_runtime(key: Key) -> Runtime:
    raise NotFound(Refusal(f"GET {key}", 404, "NotFound", "not found"))


async def _anybody(_: Wish) -> bool:
    return True


async def _no_queue(_: str) -> bool:
    return False


# Nothing is found live, and everybody may anything.
NOWHERE = Elsewhere(_no_runtime, _anybody, _no_queue)


class Asked:
    """A server, and whoever asks it."""

    def __init__(self, server: Server, cache: Cache, metrics: Metrics) -> None:
        self.server = server
        self.cache = cache
        self.metrics = metrics
        self.reads: deque[Key] = deque(maxlen=100)  # a fuzz makes very many
        self.is_stopping = False
        self.session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"https://127.0.0.1:{self.server.port}"

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        """Send a body; return the status and the text of the answer."""
        async with self.session.post(self.url + path, data=body) as response:
            return response.status, await response.text()

    async def review(self, path: str, body: bytes) -> dict[str, Any]:
        """Send a review; return the response."""
        status, text = await self.post(path, io.BytesIO(body))
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)["response"]
        return response

    def count(self, name: str, **labels: str) -> float:
        """Return a metric."""
        return self.metrics.registry.get_sample_value(f"trainer_kai_{name}", labels) or 0


def client_tls() -> ssl.SSLContext:
    """Return who trusts the server."""
    return ssl.create_default_context(cadata=authority_pem())


@asynccontextmanager
async def serving(
    read: ReadTrainJob | None = None,
    rules: Rules = BUNDLED,
    live: Elsewhere = NOWHERE,
    strictness: Strictness | None = None,
    **place: Any,
) -> AsyncIterator[Asked]:
    """Run a server; without *read* and *live* nothing is found live."""
    cache, metrics, clock = Cache(), Metrics(), SystemClock()

    async def counted(key: Key) -> TrainJob | None:
        asked.reads.append(key)
        return await read(key) if read else None

    def stopping() -> None:
        asked.is_stopping = True

    desk = Desk(cache, rules, counted, clock, metrics, logger(__name__))
    judge = Judge(cache, strictness or Strictness(rules), live, clock, metrics, logger(__name__))
    desk.add("/validate/trainjob", Way("trainjob", judge.answer, judge.is_needed))
    where = Place(**{"address": "127.0.0.1", "port": 0, "drain_s": 0, **place})
    server = Server(desk, where, server_tls(), clock, stopping)
    asked = Asked(server, cache, metrics)
    connector = aiohttp.TCPConnector(ssl=client_tls())
    async with aiohttp.ClientSession(connector=connector) as asked.session, server:
        yield asked
