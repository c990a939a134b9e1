"""What lint says on the real chain: a warning that kubectl shows, or a refusal."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import CommandResult, run_kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.processes import WEBHOOK, running

GPU: Final = "nvidia.com/gpu"
LARGE: Final = (
    f"spec.trainer.resourcesPerNode.limits[{GPU}]: each pod of node requests 99 {GPU}, and the "
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def denying_installation(
    webhook_installation: WebhookInstallation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return the shared chain with a webhook that refuses what could never start."""
    settings = {"TRAINER_KAI_ADMISSION_LINT": "deny"}
    await webhook_installation.webhook.stop()
    try:
        folder = tmp_path_factory.mktemp("denying")
        async with running(webhook_installation.cluster, WEBHOOK, folder, settings) as webhook:
            yield webhook_installation._replace(webhook=webhook)
    finally:
        await webhook_installation.webhook.start()


async def created(cluster: Cluster, namespace: str, gpus: int) -> CommandResult:
    """Return what kubectl says of a TrainJob whose pods ask for so many GPUs, without making it."""
    job = Submission("job", "torch-distributed", namespace).trainjob()
    job["spec"]["trainer"] = {"resourcesPerNode": {"limits": {GPU: gpus}}}
    of = ("--kubeconfig", str(cluster.kubeconfig), "create", "--dry-run=server", "-f", "-")
    return await run_kubectl(*of, given=json.dumps(job))


async def until_warned(cluster: Cluster, namespace: str) -> CommandResult:
    """Ask until the webhook knows nodes and runtime."""
    async with patience(30):
        while LARGE not in (output := await created(cluster, namespace, 99)).err:
            await asyncio.sleep(0.2)
    return output


async def test_kubectl_shows_what_could_never_start(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """It is made all the same, and of one that could start nothing is said."""
    large = await until_warned(webhook_installation.cluster, own_namespace)
    small = await created(webhook_installation.cluster, own_namespace, 8)

    assert large.err.startswith(f"Warning: {LARGE}")
    assert [(it.status, it.out) for it in (large, small)] == [
        (0, "trainjob.trainer.kubeflow.org/job created (server dry run)\n")
    ] * 2
    assert small.err == ""


async def test_a_site_may_refuse_it(
    denying_installation: WebhookInstallation, own_namespace: str
) -> None:
    """One that could start is made."""
    large = await until_warned(denying_installation.cluster, own_namespace)
    small = await created(denying_installation.cluster, own_namespace, 8)

    assert large.status == 1
    assert f"denied the request: {LARGE}" in large.err
    assert (small.status, small.err) == (0, "")
