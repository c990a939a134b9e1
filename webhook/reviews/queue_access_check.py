"""Checks access to queues: of the user that names a queue, and of the namespace.

A review waits for all its checks together no longer than one lookup may take. If one fails, an
object is denied that could enter a closed queue unchecked; its author can try again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from structlog.typing import FilteringBoundLogger

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.errors import FieldError
from trainer_kai.kube.rest.response import ApiError
from trainer_kai.policy.queueing.queue_access import is_closed
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import UnannotatedAccess
from webhook.admission.review import (
    FORBIDDEN,
    NO_OBJECTIONS,
    SERVICE_UNAVAILABLE,
    ValidationResult,
    denied,
)
from webhook.cache.admission_cache import QueueTree
from webhook.rules.access_requests import (
    AccessCache,
    QueueAccessRequest,
    UserInfo,
    forbidden_fault,
)
from webhook.rules.trainjob_queue_sources import QUEUE_LABEL_PATH, RequestedQueue

MayUseQueue: TypeAlias = Callable[[QueueAccessRequest], Awaitable[bool]]  # raises `ApiError`
LOOKUP_TIMEOUT_S: Final = 0.9  # of each read, and of all access checks: the user waits for them


class QueueAccessChecker:
    def __init__(
        self,
        queues: QueueTree,
        unannotated: UnannotatedAccess,
        may_use_queue: MayUseQueue,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._queues = queues
        self._unannotated: Final = unannotated
        self._ask_api_server = may_use_queue
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._cache = AccessCache()
        self._locks: WeakValueDictionary[QueueAccessRequest, asyncio.Lock] = WeakValueDictionary()

    def fails_closed(self) -> bool:
        """Say whether a creation is denied after an error: it could enter a closed queue."""
        return self._queues.has_closed_queue or self._unannotated == "closed"

    async def check(
        self, user_text: msgspec.Raw, namespace: str, requested_queues: Iterable[RequestedQueue]
    ) -> ValidationResult:
        """Return a denial where the user or the namespace may not use a closed queue."""
        closed_queues = [it for it in requested_queues if self._is_closed(it.queue)]
        user_info = UserInfo()
        if any(it.is_user_choice for it in closed_queues):
            try:
                user_info = decode(UserInfo, user_text)
            except DecodeError as error:
                return retry_later("request.userInfo", error.fault.message)
        deadline_s = asyncio.get_running_loop().time() + LOOKUP_TIMEOUT_S
        for requested in closed_queues:
            result = await self._check_queue(user_info, namespace, requested, deadline_s)
            if result != NO_OBJECTIONS:
                return result  # one denial is enough for the author
        return NO_OBJECTIONS

    def _is_closed(self, queue: str) -> bool:
        return is_closed(self._queues.access(queue), self._unannotated)

    async def _check_queue(
        self, user_info: UserInfo, namespace: str, requested: RequestedQueue, deadline_s: float
    ) -> ValidationResult:
        queue, path = requested.queue, requested.path or QUEUE_LABEL_PATH
        access_requests = [QueueAccessRequest.for_namespace(namespace, queue)]
        if requested.is_user_choice:
            access_requests.insert(0, QueueAccessRequest.for_user(user_info, namespace, queue))
        denied_requests = []
        for access_request in access_requests:
            try:
                async with asyncio.timeout_at(deadline_s):
                    may_use = await self._may_use_queue(access_request)
            except (ApiError, TimeoutError) as error:
                reason = error_text(error)
                self._metrics.admission_permissions.labels("failed").inc()
                self._log.warning("queue access not checked", queue=queue, error=reason)
                message = f"access of {access_request.subject} to queue {queue!r} cannot be checked"
                return retry_later(path, f"{message}: {reason}")
            self._metrics.admission_permissions.labels("allowed" if may_use else "refused").inc()
            if not may_use:
                denied_requests.append(access_request)
        if not denied_requests:
            return NO_OBJECTIONS
        access = self._queues.access(queue)
        return denied(forbidden_fault(denied_requests, access, path), FORBIDDEN)

    async def _may_use_queue(self, access_request: QueueAccessRequest) -> bool:
        """Return the cached answer, or ask the API server; equal requests share one answer."""
        lock = self._locks.setdefault(access_request, asyncio.Lock())
        async with lock:
            is_allowed = self._cache.get(access_request, self._clock.monotonic_s())
            if is_allowed is None:
                is_allowed = await self._ask_api_server(access_request)
                now_s = self._clock.monotonic_s()
                self._cache.put(access_request, now_s, is_allowed=is_allowed)
        return is_allowed


def retry_later(path: str, message: str) -> ValidationResult:
    """Deny an object that could enter a closed queue unchecked; its author can try again."""
    return denied(FieldError(path, f"{message}. Try again"), SERVICE_UNAVAILABLE)


def error_text(error: Exception) -> str:
    return str(error) or f"no answer within {LOOKUP_TIMEOUT_S:g} s"
