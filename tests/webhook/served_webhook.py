"""A webhook in this process, over real TLS, with a cache that a test fills."""

import io
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.certificates import authority_pem, server_tls
from tests.webhook.objects import BUNDLED, UID
from trainer_kai.api.decode import Page
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Meta
from trainer_kai.kube.rest.response import ErrorDetails, NotFound
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import WebhookServerSettings
from webhook.cache.admission_cache import AdmissionCache, SlimTrainJob, TrainJobSummary
from webhook.cache.runtimes import RuntimeSummary
from webhook.reviews.answer_jobs import JobsHandler
from webhook.reviews.answer_queue import QueueHandler, QueueLookups
from webhook.reviews.answer_trainjob import (
    AdmissionPolicy,
    LiveLookups,
    ReadTrainJob,
    TrainJobHandler,
)
from webhook.reviews.router import (
    GpuAccessRules,
    NewPodHandler,
    ReviewRouter,
    Route,
    WorkloadHandler,
    new_random_text,
)
from webhook.rules.access_requests import QueueAccessRequest
from webhook.rules.pod_gpu_share import ShareRules
from webhook.rules.queue_validate import SlimPodGroup
from webhook.server import WebhookServer

KEY = Key("team", "job")


def trainjob(uid: str = UID, **labels: str) -> SlimTrainJob:
    """Return a TrainJob; `queue` is its queue label."""
    named = {f"kai.scheduler/{name}": value for name, value in labels.items()}
    return SlimTrainJob(
        metadata=Meta(name=KEY.name, namespace=KEY.namespace, uid=uid, labels=named)
    )


async def _no_runtime(key: Key) -> RuntimeSummary:
    raise NotFound(ErrorDetails(f"GET {key}", 404, "NotFound", "not found"))


async def _allow_all(_: QueueAccessRequest) -> bool:
    return True


async def _no_queue(_: str) -> bool:
    return False


async def _no_queues() -> Mapping[str, Queue]:
    return {}


async def _no_podgroups() -> AsyncIterator[Page[SlimPodGroup]]:
    yield Page()


# No object is found live, and every access is allowed.
NOTHING_FOUND = LiveLookups(_no_runtime, _allow_all, _no_queue)
EMPTY_CLUSTER = QueueLookups(_no_queues, _no_podgroups)


class ServedWebhook:
    def __init__(self, server: WebhookServer, cache: AdmissionCache, metrics: Metrics) -> None:
        self.server = server
        self.cache = cache
        self.metrics = metrics
        self.reads: deque[Key] = deque(maxlen=100)  # a fuzz makes very many
        self.is_stopping = False
        self.session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        """Send a body; return the status and the text of the answer."""
        async with self.session.post(self.url + path, data=body) as response:
            return response.status, await response.text()

    async def review(self, path: str, body: bytes) -> dict[str, Any]:
        status, text = await self.post(path, io.BytesIO(body))
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)["response"]
        return response

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"trainer_kai_{name}", labels) or 0


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority_pem())


@asynccontextmanager
async def serving(
    read: ReadTrainJob | None = None,
    rules: GroupingRules = BUNDLED,
    live: LiveLookups = NOTHING_FOUND,
    admission_policy: AdmissionPolicy | None = None,
    queues: QueueLookups = EMPTY_CLUSTER,
    new_random: Callable[[], str] = new_random_text,
    **server_settings: Any,
) -> AsyncIterator[ServedWebhook]:
    """Run a server; without *read* and *live* nothing is found live."""
    cache, metrics, clock = AdmissionCache(), Metrics(), SystemClock()

    async def counted(key: Key) -> TrainJobSummary | None:
        served.reads.append(key)
        return await read(key) if read else None

    def stopping() -> None:
        served.is_stopping = True

    router = ReviewRouter(rules.mode, clock, metrics, logger(__name__))
    policy = admission_policy or AdmissionPolicy(rules)
    trainjob_handler = TrainJobHandler(cache, policy, live, clock, metrics, logger(__name__))
    router.add_route(
        "/validate/trainjob",
        Route("trainjob", trainjob_handler.answer, trainjob_handler.fails_closed),
    )
    queue_access = trainjob_handler.queue_access
    jobs = JobsHandler(cache, policy, counted, queue_access, metrics, logger(__name__))
    router.add_route("/mutate/jobset", Route("jobset", jobs.answer_jobset, lambda: True))
    router.add_route("/mutate/job", Route("job", jobs.answer_job, queue_access.fails_closed))
    queue_handler = QueueHandler(cache, rules.default_queue, queues, metrics, logger(__name__))
    router.add_route("/validate/queue", Route("queue", queue_handler.answer))
    workload_handler = WorkloadHandler(cache, policy)
    router.add_route("/validate/workload", Route("workload", workload_handler.answer))
    access_rules = GpuAccessRules(rules.scheduler_name, ShareRules(), restricts_devices=True)
    new_pods = NewPodHandler(access_rules, new_random)
    router.add_route("/mutate/gpu-share", Route("gpu-share", new_pods.answer, lambda: True))
    where = WebhookServerSettings(
        **{"address": "127.0.0.1", "port": 0, "drain_s": 0, **server_settings}
    )
    server = WebhookServer(router, where, server_tls(), clock, stopping)
    served = ServedWebhook(server, cache, metrics)
    connector = aiohttp.TCPConnector(ssl=client_tls())
    async with aiohttp.ClientSession(connector=connector) as served.session, server:
        yield served
