"""A webhook that judges TrainJobs, and the API server that it asks: it can be away, or slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.webhook.objects import BUNDLED, Obj
from tests.webhook.serving import Asked, serving
from tests.webhook.trainjobs import ANN, body, slim
from trainer_kai.api.meta import Key
from trainer_kai.kube.errors import NotFound, Refusal, Unavailable
from webhook.judge import Elsewhere, Strictness
from webhook.permission import Wish
from webhook.shape import Runtime

__all__ = ["PATH", "Elsewheres", "Said", "ask", "judging"]

PATH = "/validate/trainjob"
AWAY = Unavailable(Refusal("POST /reviews", 0, "", "nobody there"))


class Elsewheres:
    """An API server in which ann and team may use the queue a; it can be away, or slow."""

    def __init__(self) -> None:
        self.runtimes: dict[Key, Runtime] = {}
        self.wishes: list[Wish] = []
        self.reads: list[Key] = []
        self.queues = {"new"}
        self.allowed = {"a"}
        self.granted = {"a", "b"}  # to namespaces
        self.is_away = False
        self.takes_s = 0.0

    async def runtime(self, key: Key) -> Runtime:
        """Read a runtime."""
        self.reads.append(key)
        await self._answer()
        if key not in self.runtimes:
            raise NotFound(Refusal(f"GET {key}", 404, "NotFound", "not found"))
        return self.runtimes[key]

    async def may_use(self, wish: Wish) -> bool:
        """Say whether a user or a namespace may use a queue."""
        self.wishes.append(wish)
        await self._answer()
        return wish.queue in (self.allowed if wish.user else self.granted)

    async def has_queue(self, name: str) -> bool:
        """Say whether a queue is there."""
        await self._answer()
        return name in self.queues

    @property
    def live(self) -> Elsewhere:
        """Return what asks it."""
        return Elsewhere(self.runtime, self.may_use, self.has_queue)

    async def _answer(self) -> None:
        await asyncio.sleep(self.takes_s)
        if self.is_away:
            raise AWAY


@asynccontextmanager
async def judging(
    there: Elsewheres | None = None, access: str | None = "closed", **strictness: Any
) -> AsyncIterator[tuple[Asked, Elsewheres]]:
    """Run a webhook that knows a runtime of the cluster, and annotated queues a and b."""
    there = there or Elsewheres()
    strict = Strictness(BUNDLED, **strictness)
    async with serving(live=there.live, strictness=strict) as asked:
        asked.cache.put_runtime(slim({"spec": {"replicatedJobs": [{"name": "node"}]}}))
        for queue in ("a", "b"):
            asked.cache.queues.put(queue, "", access)
        yield asked, there


class Said(NamedTuple):
    """What came back."""

    code: int  # 0: it is let through
    message: str
    warnings: list[str]


async def ask(
    asked: Asked, obj: Obj, old: Obj | None = None, who: Obj = ANN, **fields: Any
) -> Said:
    """Send a review."""
    response = await asked.review(PATH, body(obj, old, who, **fields))
    assert "patch" not in response
    status = response.get("status", {})
    assert response["allowed"] == (not status)
    return Said(status.get("code", 0), status.get("message", ""), response.get("warnings", []))
