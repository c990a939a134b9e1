"""Reads objects from the API server that the cache may not have: each read has a time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from trainer_kai.api.meta import Key
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.kube.client import AccessRequest, Client, RetryPolicy, review_access
from trainer_kai.kube.rest.errors import ErrorDetails, NotFound, Unavailable
from trainer_kai.kube.rest.request import ListTarget, Selection
from webhook.cache.runtimes import CLUSTER_RUNTIMES, RUNTIMES, RuntimeSummary
from webhook.cache.trainjobs import TRAINJOBS, TrainJobSummary, summarize_trainjob
from webhook.rules.queues.permission import VERB, QueueAccessRequest

ReadTrainJob: TypeAlias = Callable[
    [Key], Awaitable[TrainJobSummary | None]
]  # None: it does not exist
ReadRuntime: TypeAlias = Callable[[Key], Awaitable[RuntimeSummary | None]]
MayUseQueue: TypeAlias = Callable[[QueueAccessRequest], Awaitable[bool]]
HasQueue: TypeAlias = Callable[[str], Awaitable[bool]]
_LOOKUP_RETRY_POLICY: Final = RetryPolicy(timeout_s=0.8, total_s=0.8)
_TRAINJOB_RETRY_POLICY: Final = RetryPolicy(
    timeout_s=1.5, total_s=2.0
)  # the API server waits 5 s for a review
_TRAINJOB_READ_S: Final = 3.5  # including the wait for the read limit


class LiveLookups(NamedTuple):
    """Questions that only the API server answers for sure; each raises `ApiError`."""

    runtime: ReadRuntime
    may_use_queue: MayUseQueue
    has_queue: HasQueue


def trainjob_reader(client: Client, read_limit: asyncio.Semaphore) -> ReadTrainJob:
    """Return a function that reads a TrainJob within the time and read limits."""
    bounded_client = client.with_retry_policy(_TRAINJOB_RETRY_POLICY)

    async def read(key: Key) -> TrainJobSummary | None:
        try:
            async with asyncio.timeout(_TRAINJOB_READ_S), read_limit:
                return summarize_trainjob(await bounded_client.get(TRAINJOBS, key))
        except NotFound:
            return None
        except TimeoutError as error:
            message = f"no answer within {_TRAINJOB_READ_S:g} s"
            raise Unavailable(ErrorDetails(f"read {key}", 0, "", message)) from error

    return read


def live_lookups(client: Client, read_limit: asyncio.Semaphore) -> LiveLookups:
    """Return functions that ask the API server within a time limit."""
    bounded_client = client.with_retry_policy(_LOOKUP_RETRY_POLICY)

    async def runtime(key: Key) -> RuntimeSummary | None:
        resource = RUNTIMES if key.namespace else CLUSTER_RUNTIMES
        # A list with a selection: our role allows lists, and no single reads.
        named = Selection(fields=f"metadata.name={key.name}")
        async with read_limit:
            runtimes = await bounded_client.list(
                ListTarget(resource, key.namespace, selection=named)
            )
        return runtimes[0].summary if runtimes else None

    async def has_queue(name: str) -> bool:
        named = Selection(fields=f"metadata.name={name}")
        return bool(await bounded_client.list(ListTarget(QUEUES, selection=named)))

    async def may_use_queue(access_request: QueueAccessRequest) -> bool:
        subject_access = AccessRequest(
            VERB,
            RUN_AI,
            QUEUES.plural,
            access_request.queue,
            access_request.namespace,
            access_request.user,
            access_request.groups,
            uid=access_request.uid,
            extra=access_request.extra,
        )
        return (await review_access(bounded_client, subject_access)).allowed

    return LiveLookups(runtime, may_use_queue, has_queue)
