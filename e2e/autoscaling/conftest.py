"""A chain with all our processes, where an autoscaler adds the nodes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import CRDS, Resource
from e2e.conftest import failed
from e2e.fixtures.gpu_agents import install_runtime_class
from e2e.fixtures.install import MANIFESTS, apply, install
from e2e.fixtures.installation import Installation, namespace_in
from e2e.fixtures.processes import (
    NAMESPACE,
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    running,
    webhook_port,
)

WAIT_S: Final = 20  # after which what does not come is given up; and the first pause
PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
_COMPONENT: Final = MANIFESTS / "components" / "provisioning-requests" / "kustomization.yaml"
_SETTINGS: Final = {
    "TRAINER_KAI_AUTOSCALING_ENABLED": "true",
    "TRAINER_KAI_AUTOSCALING_WAIT_S": str(WAIT_S),
    "TRAINER_KAI_AUTOSCALING_PAUSE_S": str(WAIT_S),
    "TRAINER_KAI_AUTOSCALING_PROVISIONING_REQUESTS": "true",
    "TRAINER_KAI_AUTOSCALING_STARTUP_TAINTS": "node.kubernetes.io/,example.org/starting",
}


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def autoscaled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with one node without GPUs, which serves ProvisioningRequests."""
    folder = tmp_path_factory.mktemp("autoscaled")
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(Options(name="test-autoscaled")))
        await cluster.add_nodes(1, NodeShape(gpus=0))
        await install_runtime_class(cluster)
        await install(cluster, port=webhook_port(cluster))
        await apply(cluster, _definition())
        for it in _rights():
            await apply(cluster, it)
        await cluster.until_found(
            CRDS, None, f"{PROVISIONING_REQUESTS.plural}.autoscaling.x-k8s.io"
        )
        webhook = await stack.enter_async_context(running(cluster, WEBHOOK, folder))
        await stack.enter_async_context(running(cluster, PODGROUPER, folder))
        proxy = await stack.enter_async_context(cluster.proxy())
        scheduler = running(cluster, SCHEDULER, folder, _SETTINGS, proxy.url)
        ours = await stack.enter_async_context(scheduler)
        yield Installation(cluster, ours, proxy, webhook)
        if failed(request.config):
            cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def autoscaled_namespace(autoscaled: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own."""
    async with namespace_in(autoscaled) as name:
        yield name


def _definition() -> dict[str, Any]:
    """Return the kind as the autoscaler project defines it, with fields of any kind.

    Its module has no released Go module on the proxy, from which the definition could be read.
    """
    fields = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": PROVISIONING_REQUESTS.kind, "plural": PROVISIONING_REQUESTS.plural}
    version = {
        "name": PROVISIONING_REQUESTS.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": fields},
        "subresources": {"status": {}},
    }
    group = PROVISIONING_REQUESTS.group
    # Groups of *.k8s.io need an approval, or the note that there is none.
    approval = {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {
            "name": f"{PROVISIONING_REQUESTS.plural}.{group}",
            "annotations": approval,
        },
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _rights() -> list[dict[str, Any]]:
    """Return what the component gives the scheduler, as a role of its own."""
    patches = yaml.safe_load(_COMPONENT.read_text())["patches"]
    (patch,) = [it["patch"] for it in patches if it["target"]["kind"] == "ClusterRole"]
    rules = [it["value"] for it in yaml.safe_load(patch)]
    rbac = "rbac.authorization.k8s.io"
    account = {
        "kind": "ServiceAccount",
        "name": "trainer-kai-scheduler",
        "namespace": NAMESPACE,
    }
    meta = {"name": "e2e-provisioning"}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [account],
    }
    return [role, binding]
