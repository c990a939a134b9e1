"""Another mutating webhook that is called after ours and changes the object.

It is called `zz-second`, for webhooks are asked in the order of their names, and looks at one
namespace. It writes a queue of its own liking on JobSets, and adds a container and a label to pods.
"""

import asyncio
import base64
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import MUTATING_WEBHOOKS, PODS, Obj

LABEL: Final = "second.example.com/was-here"
SIDECAR: Final = "sidecar"
_NAME: Final = "zz-second"
_QUEUE: Final = "kai.scheduler/queue"
_LATE: Final = {"op": "add", "path": "/metadata/labels/second.example.com~1pod", "value": "yes"}


@asynccontextmanager
async def second_webhook(
    cluster: Cluster, namespace: str, queue: str
) -> AsyncIterator[Counter[str]]:
    """Install it until the end of the block; yield how often it was asked, by kind."""
    asked: Counter[str] = Counter()

    async def review(request: web.Request) -> web.Response:
        given = (await request.json())["request"]
        kind, obj = given["kind"]["kind"], given["object"]
        asked[kind] += 1
        patch = [*_on_jobset(obj, queue)] if kind == "JobSet" else [*_on_pod(obj, ""), _LATE]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {"uid": given["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        return web.json_response(body)

    port = cluster.free_port()
    application = web.Application(client_max_size=16 << 20)
    application.router.add_post("/", review)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving = cluster.layout.serving
    tls.load_cert_chain(serving.certificate, serving.key)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    await cluster.api.create(_configuration(cluster, namespace, port))
    try:
        await _until_called(cluster, namespace, asked)
        yield asked
    finally:
        await cluster.api.delete(MUTATING_WEBHOOKS, None, _NAME)
        await runner.cleanup()


async def _until_called(cluster: Cluster, namespace: str, asked: Counter[str]) -> None:
    """Wait until the API server knows the webhook; what was asked until then does not count."""
    pod = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": namespace, "name": "probe"},
        "spec": {"containers": [{"name": "node", "image": "none"}]},
    }
    async with patience(20):
        while not asked:
            await cluster.api.create(pod, dryRun="All")
            await asyncio.sleep(0.05)
    asked.clear()


def _configuration(cluster: Cluster, namespace: str, port: int) -> Obj:
    authority = base64.b64encode(cluster.layout.authority.read_bytes()).decode()
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "resources": [kinds], "operations": ["CREATE"]}
        for group, kinds in (("jobset.x-k8s.io", "jobsets"), ("", "pods"))
    ]
    names = {"kubernetes.io/metadata.name": namespace}
    webhook = {
        "name": "second.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": rules,
        "namespaceSelector": {"matchLabels": names},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": _NAME},
        "webhooks": [webhook],
    }


def _on_jobset(jobset: Obj, queue: str) -> Any:
    """Yield what it changes of a JobSet."""
    if "labels" not in jobset["metadata"]:
        yield {"op": "add", "path": "/metadata/labels", "value": {}}
    yield {"op": "add", "path": f"/metadata/labels/{_escaped(_QUEUE)}", "value": queue}
    for i, job in enumerate(jobset["spec"]["replicatedJobs"]):
        path = f"/spec/replicatedJobs/{i}/template/spec/template"
        yield from _on_pod(job["template"]["spec"]["template"], path)


def _on_pod(pod: Obj, path: str) -> Any:
    """Yield what it changes of a pod, or of the template of one."""
    meta = pod.get("metadata") or {}
    if not meta:
        yield {"op": "add", "path": f"{path}/metadata", "value": {}}
    if not meta.get("labels"):
        yield {"op": "add", "path": f"{path}/metadata/labels", "value": {}}
    yield {"op": "add", "path": f"{path}/metadata/labels/{_escaped(LABEL)}", "value": "yes"}
    if not any(it["name"] == SIDECAR for it in pod["spec"]["containers"]):
        container = {"name": SIDECAR, "image": "none"}
        yield {"op": "add", "path": f"{path}/spec/containers/-", "value": container}


def _escaped(name: str) -> str:
    return name.replace("/", "~1")
