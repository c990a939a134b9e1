"""Judges TrainJobs: looks up what a rule has to know, and asks who may use a queue.

Of all that an answer may wait for there is one read of a runtime, one of a queue that is not known,
and the questions together, each bounded; and nobody else waits meanwhile. What cannot be found out
keeps a TrainJob back only where queues are enforced, and then only one that could get into a queue
unseen.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
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
from webhook.permission import VERB, Answers, UserInfo, Wish, forbidden
from webhook.resolved import RUNTIME, Wanted
from webhook.review import Answer, Request
from webhook.shape import Runtime
from webhook.validate_trainjob import (
    Judged,
    Known,
    Submitted,
    judge_trainjob,
    read_trainjob,
)
from webhook.verdict import NOTHING, Verdict, refused, warned

__all__ = ["Elsewhere", "Judge", "Strictness", "elsewhere"]

ReadRuntime: TypeAlias = Callable[[Key], Awaitable[Runtime | None]]
MayUse: TypeAlias = Callable[[Wish], Awaitable[bool]]
IsThere: TypeAlias = Callable[[str], Awaitable[bool]]

_LONGEST_S: Final = 0.9  # of each read, and of the questions: a person waits for all of them
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
    """What only the API server knows for sure; each raises `ApiError`."""

    runtime: ReadRuntime
    may_use: MayUse
    has_queue: IsThere


def elsewhere(client: Client) -> Elsewhere:
    """Return what asks the API server in bounded time."""
    patient = client.with_patience(_READING)

    async def runtime(key: Key) -> Runtime | None:
        resource = RUNTIMES if key.namespace else CLUSTER_RUNTIMES
        named = Selection(fields=f"metadata.name={key.name}")  # we may list them in any case
        found = await patient.list(Target(resource, key.namespace, selection=named))
        return kept_runtime(found[0]) if found else None

    async def has_queue(name: str) -> bool:
        named = Selection(fields=f"metadata.name={name}")
        return bool(await patient.list(Target(QUEUES, selection=named)))

    async def may_use(wish: Wish) -> bool:
        question = Question(
            VERB,
            RUN_AI,
            QUEUES.plural,
            wish.queue,
            wish.namespace,
            wish.user,
            wish.groups,
            uid=wish.uid,
            extra=wish.extra,
        )
        return (await is_allowed(patient, question)).allowed

    return Elsewhere(runtime, may_use, has_queue)


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

    @property
    def is_needed(self) -> bool:
        """Say whether no TrainJob may be made unseen."""
        return self._strictness.queue_permission == "enforce"

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
        if judged.missing and await self._has_come(judged.missing):
            known = known._replace(just_made=judged.missing)
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
        if found is not None and not (self.is_needed and case.may_hide_queue):
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

    async def _has_come(self, queue: str) -> bool:
        """Say whether a queue is there of which we have not heard: made just before its job."""
        reads = self._metrics.admission_live_reads
        try:
            async with asyncio.timeout(_LONGEST_S):
                is_there = await self._live.has_queue(queue)
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            self._log.warning("queue not read", queue=queue, error=_said(error))
            return False
        reads.labels("found" if is_there else "gone").inc()
        return is_there

    async def _permission(
        self, asked: Request, case: Submitted, judged: Judged, trouble: str
    ) -> Verdict:
        """Say what is held against somebody's choice of a queue."""
        if self._strictness.queue_permission == "off":
            return NOTHING
        if judged.is_unsure:
            message = f"it cannot be read which queue it names: {trouble}"
            return self._unknown(FieldError(RUNTIME, message))
        if not judged.wanted:
            return NOTHING
        try:
            who = decode(UserInfo, asked.user_info)
        except DecodeError as error:
            return self._unknown(FieldError("request.userInfo", error.fault.message))
        too_late_s = asyncio.get_running_loop().time() + _LONGEST_S
        for wanted in judged.wanted:
            verdict = await self._use(who, case.namespace, wanted, too_late_s)
            if verdict != NOTHING:
                return verdict  # of one whoever reads it learns what he needs
        return NOTHING

    async def _use(
        self, who: UserInfo, namespace: str, wanted: Wanted, too_late_s: float
    ) -> Verdict:
        wish = Wish.of(who, namespace, wanted.queue)
        try:
            async with asyncio.timeout_at(too_late_s):
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
        if self.is_needed:
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
        if self.is_needed:
            return refused(FieldError(fault.path, f"{fault.message}; try again"), _LATER)
        return warned(fault)


def _said(error: Exception) -> str:
    return str(error) or f"no answer within {_LONGEST_S:g} s"
