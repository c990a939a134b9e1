"""The client for a process, and the client for a command."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trainer_kai.clock import Clock, SystemClock
from trainer_kai.kube.access import Access
from trainer_kai.kube.client import Client, Observer, Patience, Unobserved
from trainer_kai.kube.locate import find_access
from trainer_kai.kube.single import SingleTransport
from trainer_kai.kube.transport import Transport

__all__ = ["command_client", "process_client"]

_IN_PERSON: Final = Patience(total_s=5.0)  # somebody waits for the answer


@asynccontextmanager
async def process_client(
    access: Access, clock: Clock, observer: Observer | None = None
) -> AsyncIterator[Client]:
    """Return a client that many tasks use at once, for as long as a process runs."""
    client = Client(access, _pooled(access), clock, observer or Unobserved())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def command_client(*, kubeconfig: str = "", context: str = "") -> AsyncIterator[Client]:
    """Return a client for a few requests of a command, as soon as can be."""
    clock = SystemClock()
    access = await find_access(os.environ, clock, kubeconfig=kubeconfig, context=context)
    roundabout = access.proxy or access.trust.server_name
    transport = _pooled(access) if roundabout else SingleTransport(access)
    client = Client(access, transport, clock, Unobserved(), patience=_IN_PERSON)
    try:
        yield client
    finally:
        await client.close()


def _pooled(access: Access) -> Transport:
    from trainer_kai.kube.pooled import PooledTransport  # noqa: PLC0415 - it imports aiohttp

    return PooledTransport(access)
