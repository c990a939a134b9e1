"""Judges TrainJobs: looks up what a rule has to know, and asks who may use a queue.

Of all that an answer may wait for there is one read of a runtime and one question, each bounded,
and nobody else waits meanwhile. What cannot be found out keeps a TrainJob back only where queues
are enforced, and then only one that could get into a queue unseen.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RUN_AI
from trainer_kai.clock import Clock
from trainer_kai.errors import FieldError
from trainer_kai.kube.actions import Question, is_allowed
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.request import Selection, Target
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Permission
from webhook.cache import CLUSTER_RUNTIMES, RUNTIMES, Cache, kept_runtime
from webhook.linted import Strength, linted
from webhook.permission import QUEUES, VERB, Answers, UserInfo, Wish, forbidden
from webhook.resolved import RUNTIME
from webhook.review import Answer, Request
from webhook.shape import Runtime
from webhook.validate_trainjob import (
    Judged,
    Known,
    Submitted,
    Wanted,
    judge_trainjob,
    read_trainjob,
)
from webhook.verdict import NOTHING, Verdict, refused, warned

__all__ = ["Elsewhere", "Judge", "Strictness", "elsewhere"]

ReadRuntime: TypeAlias = Callable[[Key], Awaitable[Runtime | None]]
MayUse: TypeAlias = Callable[[Wish], Awaitable[bool]]

_LONGEST_S: Final = 0.9  # of the read, and of the question: a person waits for both
_READING: Final = Patience(timeout_s=0.8, total_s=0.8)
_FORBIDDEN: Final = 403
_LATER: Final = 503


class Strictness(NamedTuple):
    """What a site decides, and what it wants to be refused and not only told."""

    rules: Rules
    queue_permission: Permission = "warn"
    refuses_unknown_queues: bool = False
    lint: Strength = Strength()


class Elsewhere(NamedTuple):
    """What only the API server knows for sure; both raise `ApiError`."""

    runtime: ReadRuntime
    may_use: MayUse


def elsewhere(client: Client) -> Elsewhere:
    """Return what asks the API server in bounded time."""
    patient = client.with_patience(_READING)

    async def runtime(key: Key) -> Runtime | None:
        resource = RUNTIMES if key.namespace else CLUSTER_RUNTIMES
        named = Selection(fields=f"metadata.name={key.name}")  # we may list them in any case
        found = await patient.list(Target(resource, key.namespace, selection=named))
        return kept_runtime(found[0]) if found else None

    async def may_use(wish: Wish) -> bool:
        question = Question(
            VERB,
            RUN_AI,
            QUEUES,
            wish.queue,
            wish.namespace,
            wish.user,
            wish.groups,
            uid=wish.uid,
            extra=wish.extra,
        )
        return (await is_allowed(patient, question)).allowed

    return Elsewhere(runtime, may_use)


class Judge:
    """Answers the reviews of TrainJobs."""

    def __init__(
        self,
        cache: Cache,
        strictness: Strictness,
        live: Elsewhere,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._strictness = strictness
        self._live = live
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._answers = Answers()
        self._turns: WeakValueDictionary[Wish, asyncio.Lock] = WeakValueDictionary()

    async def answer(self, asked: Request) -> Answer:
        """Say what is held against a TrainJob."""
        case = read_trainjob(asked)
        if isinstance(case, Answer):
            return case
        runtime, trouble = await self._runtime(case)
        known = Known(
            runtime,
            self._cache.namespace_labels(case.namespace),
            self._cache.queues,
            self._strictness.refuses_unknown_queues,
        )
        judged = judge_trainjob(case, known, self._strictness.rules)
        verdict = judged.verdict
        if not verdict.refusals:
            verdict = verdict.beside(await self._permission(asked, case, judged, trouble))
        if judged.queue:
            verdict = verdict.beside(self._linted(asked, case, judged.queue))
        return verdict.answer()

    def _linted(self, asked: Request, case: Submitted, queue: str) -> Verdict:
        """Say what could never start; a mistake of ours in there lets nobody past the rest."""
        strictness, around = self._strictness, self._cache.around
        by = strictness.rules, strictness.lint
        try:
            return linted(asked, case.runtime, queue, around, by)
        except Exception as error:  # noqa: BLE001 - what else is held against it is told anyway
            self._log.error("trainjob not linted", namespace=case.namespace, exc_info=error)
            return NOTHING

    async def _runtime(self, case: Submitted) -> tuple[Runtime | None, str]:
        """Return the runtime, or why it is not known.

        What the cache knows will do, except of a runtime that the same person may have changed a
        moment ago, when that decides which queue he must be allowed to use.
        """
        found = self._cache.runtime(case.runtime)
        if not case.may_change_queue:
            return found, "it is not known yet"
        is_enforced = self._strictness.queue_permission == "enforce"
        may_hide = bool(case.runtime.namespace) and not case.names_its_queue
        if found is not None and not (is_enforced and may_hide):
            return found, ""
        reads = self._metrics.admission_live_reads
        try:
            async with asyncio.timeout(_LONGEST_S):
                found = await self._live.runtime(case.runtime)
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            self._log.warning("runtime not read", runtime=str(case.runtime), error=_said(error))
            return None, _said(error)
        reads.labels("gone" if found is None else "found").inc()
        return found, "" if found else f"there is no runtime {case.runtime}"

    async def _permission(
        self, asked: Request, case: Submitted, judged: Judged, trouble: str
    ) -> Verdict:
        """Say what is held against somebody's choice of a queue."""
        if self._strictness.queue_permission == "off":
            return NOTHING
        if judged.is_unsure:
            message = f"it cannot be read which queue it names: {trouble}"
            return self._unknown(FieldError(RUNTIME, message))
        if judged.wanted is None:
            return NOTHING
        try:
            who = decode(UserInfo, asked.user_info)
        except DecodeError as error:
            return self._unknown(FieldError("request.userInfo", error.fault.message))
        return await self._use(who, case.namespace, judged.wanted)

    async def _use(self, who: UserInfo, namespace: str, wanted: Wanted) -> Verdict:
        wish = Wish.of(who, namespace, wanted.queue)
        try:
            async with asyncio.timeout(_LONGEST_S):
                may_use = await self._may_use(wish)
        except (ApiError, TimeoutError) as error:
            self._metrics.admission_permissions.labels("failed").inc()
            self._log.warning("permission not asked", queue=wish.queue, error=_said(error))
            message = f"it cannot be asked whether {wish.user!r} may use {wish.queue!r}"
            return self._unknown(FieldError(wanted.path, f"{message}: {_said(error)}"))
        self._metrics.admission_permissions.labels("allowed" if may_use else "refused").inc()
        if may_use:
            return NOTHING
        said = {"namespace": namespace, "queue": wish.queue}
        self._log.warning("permission missing", user=wish.user, **said)
        fault = forbidden(wish, wanted.path)
        if self._strictness.queue_permission == "enforce":
            return refused(fault, _FORBIDDEN)
        return warned(fault)

    async def _may_use(self, wish: Wish) -> bool:
        """Return what was answered lately, or ask; who wants the same meanwhile waits for that."""
        turn = self._turns.setdefault(wish, asyncio.Lock())
        async with turn:
            known = self._answers.recall(wish, self._clock.monotonic_s())
            if known is None:
                known = await self._live.may_use(wish)
                self._answers.keep(wish, self._clock.monotonic_s(), is_allowed=known)
        return known

    def _unknown(self, fault: FieldError) -> Verdict:
        """Let nobody into a queue unseen where that is enforced; he tries again."""
        if self._strictness.queue_permission == "enforce":
            return refused(FieldError(fault.path, f"{fault.message}; try again"), _LATER)
        return warned(fault)


def _said(error: Exception) -> str:
    return str(error) or f"no answer within {_LONGEST_S:g} s"
