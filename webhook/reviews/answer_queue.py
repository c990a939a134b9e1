"""Answers reviews of Queues: looks up the other queues and the PodGroups that use a queue.

Queues are written by people and rarely, so a review may wait for two reads, within the three
seconds that the API server waits. Both are read live, because a cache would be behind a tree that
is applied or deleted queue by queue. If a read fails, the queue is allowed, with a warning where
the check was not complete.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.decode import Page
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import QUEUES
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import ApiError, NotFound
from trainer_kai.service.metrics import Metrics
from webhook.admission.review import UNCHANGED, AdmissionRequest, AdmissionResponse
from webhook.cache.admission_cache import AdmissionCache
from webhook.rules.queue_validate import (
    PODGROUPS,
    DeletedQueue,
    KnownQueues,
    QueueReview,
    QueueUse,
    SlimPodGroup,
    is_deletion_allowed,
    queues_below,
    read_queue,
    validate_deletion,
    validate_queue,
)

ListQueues: TypeAlias = Callable[[], Awaitable[Mapping[str, Queue]]]
PodGroupPages: TypeAlias = Callable[[], AsyncIterator[Page[SlimPodGroup]]]
_QUEUES_S: Final = 0.8
_PODGROUPS_S: Final = 1.6  # with the queues less than the API server waits
_PAGE_SIZE: Final = 200  # PodGroups in a page: one of 3,000 sub-groups has some 300 KiB
_MAX_LISTS: Final = 2  # concurrent lists of queues, and of PodGroups


class QueueLookups(NamedTuple):
    """All queues, and all PodGroups page by page, from the API server; each raises `ApiError`."""

    queues: ListQueues
    podgroup_pages: PodGroupPages


def queue_lookups(client: Client) -> QueueLookups:
    """Return functions that list queues and PodGroups, without a second attempt."""
    of_queues = client.with_retry_policy(RetryPolicy(timeout_s=_QUEUES_S, total_s=_QUEUES_S))
    of_groups = client.with_retry_policy(RetryPolicy(timeout_s=_PODGROUPS_S, total_s=_PODGROUPS_S))

    async def queues() -> Mapping[str, Queue]:
        return {it.metadata.name: it for it in await of_queues.list(ListTarget(QUEUES))}

    def podgroup_pages() -> AsyncIterator[Page[SlimPodGroup]]:
        return of_groups.pages(ListTarget(PODGROUPS), limit=_PAGE_SIZE)

    return QueueLookups(queues, podgroup_pages)


class QueueHandler:
    def __init__(
        self,
        cache: AdmissionCache,
        default_queue: str,
        live: QueueLookups,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._default_queue = default_queue
        self._live = live
        self._metrics = metrics
        self._log = log
        self._queue_lists = asyncio.Semaphore(_MAX_LISTS)
        self._podgroup_lists = asyncio.Semaphore(_MAX_LISTS)

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        review = read_queue(request)
        if review is None:
            return UNCHANGED
        if review.operation == "DELETE":
            return await self._review_deletion(review)
        return validate_queue(review, await self._known_queues()).response()

    async def _review_deletion(self, review: QueueReview) -> AdmissionResponse:
        if is_deletion_allowed(review.queue.metadata):
            return UNCHANGED
        name, known = review.name, await self._known_queues()
        below = queues_below(name, known.specs)
        deleted = DeletedQueue(
            name,
            review.queue.status,
            below,
            self._cache.namespaces_with_queue(name),
            name == self._default_queue,
        )
        use = await self._use_of(frozenset((name, *below)))
        return validate_deletion(deleted, use).response()

    async def _known_queues(self) -> KnownQueues:
        """Return all queues as they are now, or else as they were watched last."""
        reads = self._metrics.admission_live_reads
        watched = self._cache.cluster.known_cluster(autoscales=False)
        try:
            async with asyncio.timeout(_QUEUES_S), self._queue_lists:
                queues = await self._live.queues()
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            self._log.warning("queues not listed", error=_error_text(error, _QUEUES_S))
            specs = dict(watched.queues or {})
            return KnownQueues(specs, topologies=watched.topologies, is_current=False)
        reads.labels("found").inc()
        return KnownQueues(
            {name: it.spec for name, it in queues.items()},
            {name: it.status for name, it in queues.items()},
            watched.topologies,
        )

    async def _use_of(self, queues: frozenset[str]) -> QueueUse:
        """Count the PodGroups that name one of some queues, as far as the time allows."""
        use, reads = QueueUse(queues), self._metrics.admission_live_reads
        try:
            async with asyncio.timeout(_PODGROUPS_S), self._podgroup_lists:
                async for page in self._live.podgroup_pages():
                    use.add(page.items, self._is_finished)
        except NotFound:
            pass  # the CRD does not exist
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            use.problem = _error_text(error, _PODGROUPS_S)
            self._log.warning("podgroups not listed", error=use.problem)
            return use
        reads.labels("found" if use.podgroups else "gone").inc()
        return use

    def _is_finished(self, workload: Key) -> bool:
        trainjob = self._cache.trainjob(workload)
        return trainjob is not None and trainjob.is_finished


def _error_text(error: Exception, limit_s: float) -> str:
    return str(error) or f"no answer within {limit_s:g} s"
