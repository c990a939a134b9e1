"""Record what the API server really sends to the webhook: run this as a module.

A ReviewRouter of ours answers on a chain and keeps each body: a TrainJob that is made, and moved to
another queue later; a JobSet that is made, the same one while it is suspended; a pod; a queue that
is made, changed and deleted; a Deployment; a pod of it with a share of a GPU. They lie in
`tests/webhook/reviews`, byte for byte.
"""

import asyncio
import base64
import ssl
import sys
from pathlib import Path
from typing import Final

import msgspec

from e2e.cluster.binaries import ensure_built
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import MUTATING_WEBHOOKS, TRAINJOBS, VALIDATING_WEBHOOKS
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace
from e2e.fixtures.install import QUEUES, apply, install
from e2e.fixtures.processes import webhook_port
from e2e.fixtures.product_client import client_of
from e2e.fixtures.queues import deployment, queue
from tests.support.repository import ROOT
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import WebhookServerSettings
from webhook.cache.admission_cache import AdmissionCache
from webhook.reviews.answer_jobs import JobsHandler
from webhook.reviews.answer_queue import QueueHandler, queue_lookups
from webhook.reviews.answer_trainjob import (
    AdmissionPolicy,
    TrainJobHandler,
    live_lookups,
    trainjob_reader,
)
from webhook.reviews.router import GpuAccessRules, HttpReply, NewPodHandler, ReviewRouter, Route
from webhook.rules.pod_gpu_share import ShareRules
from webhook.server import WebhookServer

REVIEWS: Final = ROOT / "tests" / "webhook" / "reviews"
_RULES: Final = GroupingRules("bundled", "kai-scheduler", "default-queue")
_QUEUE: Final = "kai.scheduler/queue"


class _Recorder(ReviewRouter):
    """Keeps the first body of each kind of review."""

    bodies: dict[str, bytes]

    async def answer(self, path: str, body: bytes) -> HttpReply:
        request = msgspec.json.decode(body)["request"]
        name = f"{path.rpartition('/')[2]}-{request['operation'].lower()}"
        if name == "jobset-update":
            is_told = (
                request["object"]["spec"]["suspend"] != request["oldObject"]["spec"]["suspend"]
            )
            name = name if is_told else "no change"
        elif name == "jobset-create" and len(request["object"]["spec"]["replicatedJobs"]) > 2:
            name = "jobset-create-staged"
        self.bodies.setdefault(name, body)
        return await super().answer(path, body)


async def record(cluster: Cluster) -> dict[str, bytes]:
    """Return the body of a review of each kind, by name."""
    port = webhook_port(cluster)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*cluster.layout.serving)
    clock = SystemClock()
    async with client_of(cluster.kubeconfig) as client:
        log = logger(__name__)
        router = _Recorder(_RULES.mode, clock, Metrics(), log)
        handler = TrainJobHandler(
            AdmissionCache(),
            AdmissionPolicy(_RULES),
            live_lookups(client, asyncio.Semaphore(1)),
            clock,
            Metrics(),
            log,
        )
        router.add_route(
            "/validate/trainjob", Route("trainjob", handler.answer, handler.fails_closed)
        )
        reader = trainjob_reader(client, asyncio.Semaphore(1))
        policy, access = AdmissionPolicy(_RULES), handler.queue_access
        jobs = JobsHandler(AdmissionCache(), policy, reader, access, Metrics(), log)
        router.add_route("/mutate/jobset", Route("jobset", jobs.answer_jobset, lambda: True))
        router.add_route("/mutate/job", Route("job", jobs.answer_job))
        queues = QueueHandler(
            AdmissionCache(), _RULES.default_queue, queue_lookups(client), Metrics(), log
        )
        router.add_route("/validate/queue", Route("queue", queues.answer))
        pods = NewPodHandler(GpuAccessRules(_RULES.scheduler_name, ShareRules()))
        router.add_route("/mutate/gpu-share", Route("gpu-share", pods.answer))
        router.bodies = {}
        settings = WebhookServerSettings(address="127.0.0.1", port=port, drain_s=0)
        async with WebhookServer(router, settings, tls, clock, lambda: None):
            await install(cluster, port=port)
            await _trust(cluster)
            await make_namespace(cluster, "team")
            await _play(cluster, router.bodies)
    return router.bodies


async def _trust(cluster: Cluster) -> None:
    bundle = base64.b64encode(cluster.layout.authority.read_bytes()).decode()
    for kind, number in ((MUTATING_WEBHOOKS, 6), (VALIDATING_WEBHOOKS, 4)):
        path = kind.path(None, "kai-trainer")
        patch = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": bundle}
            for i in range(number)
        ]
        await cluster.api.request("PATCH", path, patch, content_type="application/json-patch+json")


async def _play(cluster: Cluster, bodies: dict[str, bytes]) -> None:
    """Make a TrainJob, suspend it, let it go on."""
    job = Submission("deepspeed", "deepspeed-distributed", "team", 4, 8, labels={_QUEUE: "team-b"})
    await cluster.api.create(job.trainjob())
    staged = Submission("torchtune", "torchtune-llama3.2-1b", "team", gpus=2).trainjob()
    uris = {"dataset": "hf://tatsu-lab/alpaca", "model": "hf://meta-llama/Llama-3.2-1B-Instruct"}
    staged["spec"]["initializer"] = {name: {"storageUri": uri} for name, uri in uris.items()}
    env = [{"name": f"SETTING_{i}", "value": f"https://example.org/{i}"} for i in range(25)]
    staged["spec"]["trainer"]["env"] = env  # as much as people write
    await cluster.api.create(staged)
    while not {"pod-create", "jobset-create", "jobset-create-staged"} <= bodies.keys():
        await asyncio.sleep(0.05)
    await cluster.api.merge(TRAINJOBS, "team", "deepspeed", {"spec": {"suspend": True}})
    move = {"metadata": {"labels": {_QUEUE: "team-a"}}}
    await cluster.api.merge(TRAINJOBS, "team", "deepspeed", move)
    while not {"jobset-update", "trainjob-update"} <= bodies.keys():
        await asyncio.sleep(0.05)
    await apply(cluster, queue("team-c", 8, 16, "default-parent-queue"))
    share = {"quota": 12, "limit": 4, "overQuotaWeight": -1}
    changed = {"spec": {"resources": {"gpu": share, "cpu": {"limit": 4}}}}
    await cluster.api.merge(QUEUES, None, "team-c", changed)
    await cluster.api.delete(QUEUES, None, "team-c")
    await apply(cluster, deployment("inference", "team", gpus=1, replicas=4))
    sharing = deployment("shares", "team", gpus=0, replicas=1)
    sharing["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    await apply(cluster, sharing)
    while "gpu-share-create" not in bodies:
        await asyncio.sleep(0.05)


async def main() -> None:
    """Replace the recorded reviews."""
    async with running_cluster(Options(name="record-reviews")) as cluster:
        await cluster.add_nodes(1)
        bodies = await record(cluster)
    bodies.pop("no change", None)
    for name, body in bodies.items():
        Path(REVIEWS / f"{name}.json").write_bytes(body)  # noqa: ASYNC240 - nobody else waits
        print(f"{name}: {len(body)} bytes")


if __name__ == "__main__":
    try:
        ensure_built()  # outside the event loop, which would keep Ctrl-C from it
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
