"""A webhook that reviews TrainJobs, and fake lookups, which can fail or be slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.webhook.objects import BUNDLED, Obj
from tests.webhook.served_webhook import ServedWebhook, serving
from tests.webhook.trainjobs import ANN, ONE_JOB, body, watched_runtime
from trainer_kai.api.meta import Key
from trainer_kai.kube.rest.response import ErrorDetails, NotFound, Unavailable
from webhook.cache.runtimes import RuntimeSummary
from webhook.reviews.answer_trainjob import AdmissionPolicy, LiveLookups
from webhook.rules.access_requests import QueueAccessRequest

PATH = "/validate/trainjob"
AWAY = Unavailable(ErrorDetails("POST /reviews", 0, "", "no connection"))


class FakeLookups:
    """An API server in which ann and team may use the queue a; it can be away, or slow."""

    def __init__(self) -> None:
        self.runtimes: dict[Key, RuntimeSummary] = {}
        self.access_requests: list[QueueAccessRequest] = []
        self.reads: list[Key] = []
        self.queues = {"new"}
        self.allowed = {"a"}
        self.granted = {"a", "b"}  # to namespaces
        self.is_away = False
        self.takes_s = 0.0

    async def runtime(self, key: Key) -> RuntimeSummary:
        self.reads.append(key)
        await self._answer()
        if key not in self.runtimes:
            raise NotFound(ErrorDetails(f"GET {key}", 404, "NotFound", "not found"))
        return self.runtimes[key]

    async def may_use(self, access_request: QueueAccessRequest) -> bool:
        self.access_requests.append(access_request)
        await self._answer()
        return access_request.queue in (self.allowed if access_request.user else self.granted)

    async def has_queue(self, name: str) -> bool:
        await self._answer()
        return name in self.queues

    @property
    def live(self) -> LiveLookups:
        return LiveLookups(self.runtime, self.may_use, self.has_queue)

    async def _answer(self) -> None:
        await asyncio.sleep(self.takes_s)
        if self.is_away:
            raise AWAY


@asynccontextmanager
async def reviewing_webhook(
    lookups: FakeLookups | None = None, access: str | None = "closed", **admission_policy: Any
) -> AsyncIterator[tuple[ServedWebhook, FakeLookups]]:
    """Run a webhook that knows a runtime of the cluster, and annotated queues a and b."""
    lookups = lookups or FakeLookups()
    strict = AdmissionPolicy(BUNDLED, **admission_policy)
    async with serving(live=lookups.live, admission_policy=strict) as served:
        served.cache.runtimes.put(watched_runtime(ONE_JOB))
        for queue in ("a", "b"):
            served.cache.queues.put(queue, "", access)
        yield served, lookups


class ReviewResult(NamedTuple):
    code: int  # 0: it is let through
    message: str
    warnings: list[str]


async def ask(
    served: ServedWebhook, obj: Obj, old: Obj | None = None, user_info: Obj = ANN, **fields: Any
) -> ReviewResult:
    response = await served.review(PATH, body(obj, old, user_info, **fields))
    assert "patch" not in response
    status = response.get("status", {})
    assert response["allowed"] == (not status)
    return ReviewResult(
        status.get("code", 0), status.get("message", ""), response.get("warnings", [])
    )
