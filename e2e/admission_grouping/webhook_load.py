"""Sends reviews to the webhook as API servers do, and trusts only the configured authority."""

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp

from e2e.admission_grouping.record_reviews import REVIEWS
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience_s, slowdown
from e2e.cluster.resources import MUTATING_WEBHOOKS

_LOOPBACK: Final = "127.0.0.1"
_POLL_S: Final = 0.2  # how late an API server hears of a change
_NEW_CONNECTION_EVERY: Final = 5  # each so-manieth review comes by a connection of its own
_TIMEOUT_S: Final = 10.0


class ReviewLoad:
    """Reviews at a fixed rate, and what became of them."""

    def __init__(self, cluster: Cluster, ports: Sequence[int]) -> None:
        self.answered: Final[Counter[int]] = Counter()  # by port
        self.failures: Final[list[str]] = []
        self.bundles: Final[list[str]] = []  # that were trusted, one after the other
        self._cluster = cluster
        self._ports = ports
        self._body = (REVIEWS / "pod-create.json").read_bytes()
        self._sessions: list[aiohttp.ClientSession] = []

    async def trust(self, stack: AsyncExitStack) -> None:
        """Follow the configuration; whom it names newly is trusted by new connections only."""
        while True:
            bundle = await trusted_bundle(self._cluster)
            if bundle and bundle not in self.bundles[-1:]:
                sessions = [await _session(stack, bundle, is_fresh=it) for it in (False, True)]
                self._sessions = sessions
                self.bundles.append(bundle)
            await asyncio.sleep(_POLL_S)

    async def run(self, per_s: int) -> None:
        """Ask so often, less on a slow machine, whatever becomes of it."""
        loop = asyncio.get_running_loop()
        while not self._sessions:
            await asyncio.sleep(_POLL_S)
        began_s, number = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._ask(number))
                number += 1
                await asyncio.sleep(began_s + number * slowdown() / per_s - loop.time())

    async def _ask(self, number: int) -> None:
        port = self._ports[number % len(self._ports)]
        kept, fresh = self._sessions
        session = kept if number // len(self._ports) % _NEW_CONNECTION_EVERY else fresh
        try:
            async with session.post(
                f"https://{_LOOPBACK}:{port}/mutate/pod", data=self._body
            ) as answer:
                text = await answer.text()
                if answer.status != 200 or '"allowed":true' not in text:
                    self.failures.append(f"{port}: {answer.status} {text}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failures.append(f"{port}: {type(error).__name__} {error}")
        self.answered[port] += 1


@asynccontextmanager
async def review_load(
    cluster: Cluster, ports: Sequence[int], per_s: int
) -> AsyncIterator[ReviewLoad]:
    """Ask until the end of the block."""
    load = ReviewLoad(cluster, ports)
    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(load.trust(stack)), asyncio.create_task(load.run(per_s))]
        try:
            yield load
            for task in tasks:
                assert not task.done() or task.exception() is None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def trusted_bundle(cluster: Cluster) -> str:
    """Return whom the API server trusts, in base64."""
    found = await cluster.api.get(MUTATING_WEBHOOKS, None, "kai-trainer")
    bundles = {it["clientConfig"].get("caBundle", "") for it in found["webhooks"]}
    return str(bundles.pop()) if len(bundles) == 1 else ""


async def certificate_shown_at(port: int) -> str:
    """Return the certificate that is shown there, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(_LOOPBACK, port, ssl=context)
    shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
    der = shown.getpeercert(binary_form=True)
    writer.close()
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


async def _session(stack: AsyncExitStack, bundle: str, *, is_fresh: bool) -> aiohttp.ClientSession:
    pem = base64.b64decode(bundle).decode()
    connector = aiohttp.TCPConnector(
        ssl=ssl.create_default_context(cadata=pem), force_close=is_fresh, limit=0
    )
    timeout = aiohttp.ClientTimeout(total=patience_s(_TIMEOUT_S))
    return await stack.enter_async_context(
        aiohttp.ClientSession(connector=connector, timeout=timeout)
    )
