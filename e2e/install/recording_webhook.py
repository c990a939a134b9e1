"""A webhook that allows every object and records the reviews."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiohttp import web

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

_NAME: Final = "kai-trainer"


class ReceivedReview(NamedTuple):
    """One review: the path it came to, and what was done to which object."""

    path: str
    operation: str
    name: str


@asynccontextmanager
async def recording_webhook(cluster: Cluster, port: int) -> AsyncIterator[list[ReceivedReview]]:
    """Answer at a port on loopback; yields what was asked so far."""
    asked: list[ReceivedReview] = []

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        wanted = review["request"]
        asked.append(ReceivedReview(request.path, wanted["operation"], wanted["name"]))
        del review["request"]
        return web.json_response({**review, "response": {"uid": wanted["uid"], "allowed": True}})

    application = web.Application(client_max_size=16 << 20)
    application.router.add_post("/{path:.*}", answer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cluster.layout.serving.certificate, cluster.layout.serving.key)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield asked
    finally:
        await runner.cleanup()


async def trust(cluster: Cluster) -> None:
    """Write the authority of the chain into our webhooks, as the process writes its own."""
    bundle = base64.b64encode(cluster.layout.authority.read_bytes()).decode()
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        configuration = await cluster.api.get(kind, None, _NAME)
        patch = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": bundle}
            for i in range(len(configuration["webhooks"]))
        ]
        path = kind.path(None, _NAME)
        await cluster.api.request("PATCH", path, patch, content_type="application/json-patch+json")
