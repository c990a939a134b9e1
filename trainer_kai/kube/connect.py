"""The client for a process, and the client for a command."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trainer_kai.clock import Clock, SystemClock
from trainer_kai.kube.access import RestConfig
from trainer_kai.kube.client import Client, NoRequestObserver, RequestObserver, RetryPolicy
from trainer_kai.kube.locate import find_rest_config
from trainer_kai.kube.single import CommandTransport
from trainer_kai.kube.transport import Transport

__all__ = ["command_client", "process_client"]

_INTERACTIVE: Final = RetryPolicy(total_s=5.0)  # somebody waits for the answer


@asynccontextmanager
async def process_client(
    rest_config: RestConfig, clock: Clock, observer: RequestObserver | None = None
) -> AsyncIterator[Client]:
    """Return a client that many tasks use at once, for as long as a process runs."""
    client = Client(
        rest_config, _pooled_transport(rest_config), clock, observer or NoRequestObserver()
    )
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def command_client(*, kubeconfig: str = "", context: str = "") -> AsyncIterator[Client]:
    """Return a client for a few requests of a command, as soon as can be."""
    clock = SystemClock()
    rest_config = await find_rest_config(os.environ, clock, kubeconfig=kubeconfig, context=context)
    needs_pooled = rest_config.proxy or rest_config.trust.server_name
    transport = _pooled_transport(rest_config) if needs_pooled else CommandTransport(rest_config)
    client = Client(rest_config, transport, clock, NoRequestObserver(), retry_policy=_INTERACTIVE)
    try:
        yield client
    finally:
        await client.close()


def _pooled_transport(rest_config: RestConfig) -> Transport:
    from trainer_kai.kube.pooled import PooledTransport  # noqa: PLC0415 - it imports aiohttp

    return PooledTransport(rest_config)
