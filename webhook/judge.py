"""Judges TrainJobs: looks up what a rule has to know, and asks who may use a queue.

Of all that an answer may wait for there is one read of a runtime, one of a queue that is not known,
and the questions together, each bounded; and no other TrainJob waits meanwhile. What cannot be
found out keeps a TrainJob back only where queues are closed, and then only one that could get into
such a queue unseen.
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
from trainer_kai.policy.access import is_closed
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Unannotated
from webhook.cache import CLUSTER_RUNTIMES, RUNTIMES, Cache, kept_runtime
from webhook.linted import Strength, linted
from webhook.permission import VERB, Answers, UserInfo, Wish, forbidden
from webhook.resolved import LABEL, RUNTIME, Wanted
from webhook.review import Answer, Request
from webhook.shape import Runtime
from webhook.validate_trainjob import (
    Judged,
    Known,
    Submitted,
    judge_trainjob,
    read_trainjob,
)
from webhook.verdict import NOTHING, Verdict, refused

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
    unannotated: Unannotated = "open"  # what a queue is that says nothing
    refuses_unknown_queues: bool = False
    lint: Strength = Strength()


class Elsewhere(NamedTuple):
    """What only the API server knows for sure; each raises `ApiError`."""

    runtime: ReadRuntime
    may_use: MayUse
    has_queue: IsThere


def elsewhere(client: Client, turns: asyncio.Semaphore) -> Elsewhere:
    """Return what asks the API server in bounded time; a runtime, which may be large, in turn."""
    patient = client.with_patience(_READING)

    async def runtime(key: Key) -> Runtime | None:
        resource = RUNTIMES if key.namespace else CLUSTER_RUNTIMES
        named = Selection(fields=f"metadata.name={key.name}")  # we may list them in any case
        async with turns:
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

    def is_needed(self) -> bool:
        """Say whether no TrainJob may be made unseen, for it could get into a closed queue."""
        return self._cache.queues.has_closed or self._strictness.unannotated == "closed"

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
            verdict = verdict.beside(await self._access(asked, case, judged, trouble))
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

        What the cache knows will do, except of a runtime that the same user may have changed a
        moment ago, when that decides which queue the user must be allowed to use.
        """
        found = self._cache.runtime(case.runtime)
        if not case.may_change_queue:
            return found, "it is not known yet"
        if found is not None and not (self.is_needed() and case.may_hide_queue):
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

    async def _access(
        self, asked: Request, case: Submitted, judged: Judged, trouble: str
    ) -> Verdict:
        """Say of which closed queue user or namespace lack the use."""
        if judged.is_unsure and self.is_needed():
            return _unknown(RUNTIME, f"it cannot be read which queue it names: {trouble}")
        wanted = [it for it in judged.wanted if self._is_closed(it.queue)]
        who = UserInfo()
        if any(it.is_chosen for it in wanted):
            try:
                who = decode(UserInfo, asked.user_info)
            except DecodeError as error:
                return _unknown("request.userInfo", error.fault.message)
        too_late_s = asyncio.get_running_loop().time() + _LONGEST_S
        for one in wanted:
            verdict = await self._use(who, case.namespace, one, too_late_s)
            if verdict != NOTHING:
                return verdict  # of one its author learns what is needed
        return NOTHING

    def _is_closed(self, queue: str) -> bool:
        return is_closed(self._cache.queues.access(queue), self._strictness.unannotated)

    async def _use(
        self, who: UserInfo, namespace: str, wanted: Wanted, too_late_s: float
    ) -> Verdict:
        queue, refusals = wanted.queue, []
        wishes = [Wish.of(who, namespace, queue)] if wanted.is_chosen else []
        for wish in (*wishes, Wish.of_namespace(namespace, queue)):
            try:
                async with asyncio.timeout_at(too_late_s):
                    may_use = await self._may_use(wish)
            except (ApiError, TimeoutError) as error:
                self._metrics.admission_permissions.labels("failed").inc()
                self._log.warning("permission not asked", queue=queue, error=_said(error))
                message = f"it cannot be asked whether {wish.name} may use {queue!r}"
                return _unknown(wanted.path or LABEL, f"{message}: {_said(error)}")
            self._metrics.admission_permissions.labels("allowed" if may_use else "refused").inc()
            if not may_use:
                refusals.append(wish)
        if not refusals:
            return NOTHING
        said = self._cache.queues.access(queue)
        return refused(forbidden(refusals, said, wanted.path or LABEL), _FORBIDDEN)

    async def _may_use(self, wish: Wish) -> bool:
        """Return what was answered lately, or ask; equal wishes meanwhile wait for that answer."""
        turn = self._turns.setdefault(wish, asyncio.Lock())
        async with turn:
            known = self._answers.recall(wish, self._clock.monotonic_s())
            if known is None:
                known = await self._live.may_use(wish)
                self._answers.keep(wish, self._clock.monotonic_s(), is_allowed=known)
        return known


def _unknown(path: str, message: str) -> Verdict:
    """Let no TrainJob into a closed queue unseen; its author tries again."""
    return refused(FieldError(path, f"{message}; try again"), _LATER)


def _said(error: Exception) -> str:
    return str(error) or f"no answer within {_LONGEST_S:g} s"
