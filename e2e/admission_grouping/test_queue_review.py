"""Queues and workloads as kubectl writes and deletes them: what it prints, and what is kept."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS, QUEUES, CommandResult, run_kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.processes import WEBHOOK, running
from e2e.fixtures.queues import deployment, grant_queue_use, queue


@pytest.fixture
def cluster(webhook_installation: WebhookInstallation) -> Cluster:
    """Return the shared chain."""
    return webhook_installation.cluster


async def run(cluster: Cluster, *arguments: str, given: tuple[Obj, ...] = ()) -> CommandResult:
    """Run kubectl; *given* is what it reads."""
    return await run_kubectl(
        "--kubeconfig", str(cluster.kubeconfig), *arguments, given=yaml.safe_dump_all(given)
    )


async def warnings(cluster: Cluster, *objects: Obj, dry_run: str = "server") -> list[str]:
    """Apply objects; return what kubectl warns of."""
    applied = await run(cluster, "apply", f"--dry-run={dry_run}", "-f", "-", given=objects)
    assert applied.status == 0, applied.err
    return [it.removeprefix("Warning: ") for it in applied.err.splitlines()]


async def test_a_queue_in_use_is_deleted_only_with_the_annotation(
    cluster: Cluster, own_namespace: str
) -> None:
    """The refusal names the user and the command; a queue above is in use as well."""
    tree = queue("kept", 8), queue("kept-team", 8, parent="kept")
    assert await warnings(cluster, *tree, dry_run="none") == []
    await grant_queue_use(cluster, "kept-team", own_namespace)
    job = Submission("job", "torch-distributed", own_namespace, labels={QUEUE: "kept-team"})
    await cluster.api.create(job.trainjob())
    async with patience(20):
        while not (await cluster.api.list(PODGROUPS, own_namespace))[0]:
            await asyncio.sleep(0.05)

    refused = await run(cluster, "delete", "queue", "kept-team")
    above = await run(cluster, "delete", "queue", "kept", "--dry-run=server")
    command = "kubectl annotate queue kept-team trainer-kai.dev/allow-delete=true"
    assert refused.status == 1
    assert f"queue kept-team is in use: 1 PodGroup names it (of {own_namespace}/job)" in refused.err
    assert command in refused.err
    assert "(queues below it: kept-team)" in above.err

    assert (await run(cluster, *command.split()[1:])).err == ""
    deleted = await run(cluster, "delete", "queue", "kept-team")
    assert (deleted.status, deleted.err) == (0, "")
    deleted = await run(cluster, "delete", "queue", "kept")
    assert (deleted.status, deleted.err) == (0, "")


async def test_pods_without_a_podgroup_use_a_queue(cluster: Cluster) -> None:
    """As the status of the queue says; nothing else knows them."""
    await warnings(cluster, queue("of-pods", 8), dry_run="none")
    used: Obj = {"status": {"allocated": {"nvidia.com/gpu": "4"}}}
    await cluster.api.merge(QUEUES, None, "of-pods", used, subresource="status")
    refused = await run(cluster, "delete", "queue", "of-pods")
    assert "status.allocated still has 4 nvidia.com/gpu" in refused.err

    unused: Obj = {"status": {"allocated": None}}
    await cluster.api.merge(QUEUES, None, "of-pods", unused, subresource="status")
    assert (await run(cluster, "delete", "queue", "of-pods")).err == ""


async def test_an_unused_tree_is_deleted_as_it_was_applied(cluster: Cluster) -> None:
    """The parent first, as it is in the file; and several queues at once."""
    tree = queue("tree", 8), queue("tree-a", 4, parent="tree"), queue("tree-b", 4, parent="tree")
    for made in tree:  # siblings that own GPUs are warned of unlimited quotas of CPU
        owned = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
        made["spec"]["resources"] |= {"cpu": owned, "memory": owned}
    assert await warnings(cluster, *tree, dry_run="none") == []
    deleted = await run(cluster, "delete", "-f", "-", given=tree)
    assert deleted.status == 0
    assert deleted.err.strip() == (
        "Warning: metadata.name: the queues below tree take no pods until it exists again: delete "
        "them too, or give them another parent (tree-a, tree-b)"
    )
    await warnings(cluster, *tree, dry_run="none")
    deleted = await run(cluster, "delete", "queues", "tree-b", "tree-a", "tree")
    assert (deleted.status, deleted.err) == (0, "")


async def test_numbers_are_warned_about_as_kubectl_prints_them(cluster: Cluster) -> None:
    """Once: not when the same is applied again, or only a label."""
    obj = queue("told", 16, 8, parent="nowhere")
    obj["spec"]["resources"]["cpu"] = {"limit": 4}
    del obj["spec"]["resources"]["memory"]
    found = await warnings(cluster, obj, dry_run="none")
    assert [it.partition(":")[0] for it in found] == [
        "spec.parentQueue",
        "spec.resources.gpu.quota",
        "spec.resources.cpu.limit",
        "spec.resources.memory",
    ]
    assert found[2].endswith("4 millicores are 0.004 CPU. Write 4000 for 4 CPU")
    assert await warnings(cluster, obj) == []
    obj["metadata"]["labels"] = {"team": "a"}
    assert await warnings(cluster, obj) == []
    obj["spec"]["resources"]["cpu"]["limit"] = 5
    assert await warnings(cluster, obj) == [found[2].replace("4", "5")]
    assert (await run(cluster, "delete", "queue", "told")).err == ""


async def test_a_cycle_is_refused(cluster: Cluster) -> None:
    """The queues that are in it are named."""
    tree = queue("round", 0), queue("round-a", 0, parent="round")
    await warnings(cluster, *tree, dry_run="none")
    patch = '{"spec": {"parentQueue": "round-a"}}'
    refused = await run(cluster, "patch", "queue", "round", "--type=merge", "-p", patch)
    assert refused.status == 1
    assert "queue round would be below itself (round → round-a → round)" in refused.err
    await run(cluster, "delete", "queues", "round-a", "round")


async def test_labels_of_a_deployment_are_checked(cluster: Cluster, own_namespace: str) -> None:
    """Kueue's label names no queue, and none counts for the pods of another scheduler."""
    mine = deployment("server", own_namespace, 1)
    mine["spec"]["template"]["metadata"]["labels"]["kai.scheduler/preemptibility"] = "preemptible"
    assert await warnings(cluster, mine) == []
    mine["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    [found] = await warnings(cluster, mine)
    assert "the label has no effect here: the pods use queue default-queue" in found
    mine["metadata"]["labels"] = {QUEUE: "default-queue"}
    assert await warnings(cluster, mine) == []
    mine["spec"]["template"]["spec"].pop("schedulerName")
    [found] = await warnings(cluster, mine)
    assert "the pods go to the scheduler default-scheduler" in found


@pytest_asyncio.fixture(loop_scope="session")
async def of_kai(
    webhook_installation: WebhookInstallation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Return the chain with a webhook beside a KAI."""
    await webhook_installation.webhook.stop()
    folder, settings = tmp_path_factory.mktemp("of-kai"), {"TRAINER_KAI_MODE": "external"}
    try:
        async with running(webhook_installation.cluster, WEBHOOK, folder, settings):
            yield webhook_installation.cluster
    finally:
        await webhook_installation.webhook.start()


async def test_a_deployment_without_a_label_is_warned_about_beside_kai(
    of_kai: Cluster, own_namespace: str
) -> None:
    """KAI makes it non-preemptible, and its queue has no quota; each way out ends the warning."""
    mine = deployment("server", own_namespace, 1, replicas=4)
    async with patience(20):
        while not (found := await warnings(of_kai, mine)):
            await asyncio.sleep(0.1)  # until the webhook has listed the queues
    what, how = found
    assert what == (
        "spec.template: the pods are non-preemptible (PriorityClass inference, the default of a "
        "Deployment, has value 125) and request 4 GPU; queue default-queue has a quota of 0 GPU, "
        "0 GPU in use. Pods beyond the quota wait"
    )
    assert "kai.scheduler/preemptibility: preemptible at metadata.labels" in how
    assert "or name a queue with enough quota there (kai.scheduler/queue)" in how
    await warnings(of_kai, queue("enough", 4), dry_run="none")
    labels = {"kai.scheduler/preemptibility": "preemptible"}, {QUEUE: "enough"}
    async with patience(20):
        for label in labels:
            mine["metadata"]["labels"] = label
            while await warnings(of_kai, mine):
                await asyncio.sleep(0.1)  # until the webhook has seen the new queue
    await run(of_kai, "delete", "queue", "enough")
