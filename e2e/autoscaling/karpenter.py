"""Karpenter with its KWOK provider, built from the Go module proxy: its kinds and its process."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.go_build import module_folders
from e2e.cluster.nodes import GPU
from e2e.cluster.process import Process
from e2e.cluster.programs import Program
from e2e.cluster.recipe import all_recipes
from e2e.cluster.resources import Resource
from e2e.fixtures.install import apply
from e2e.fixtures.processes import ProductProcess

PROGRAM: Final = "karpenter"
NODE_CLAIMS: Final = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
_NODE_POOLS: Final = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
_NODE_CLASSES: Final = Resource(
    "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False
)
_MODULE: Final = "sigs.k8s.io/karpenter"
_DEFINITIONS: Final = ("pkg/apis/crds", "kwok/apis/crds")
_WHERE: Final = {
    "karpenter.sh/capacity-type": "on-demand",
    "topology.kubernetes.io/zone": "zone-a",
}
_REQUIREMENTS: Final = [
    {"key": name, "operator": "In", "values": [value]} for name, value in _WHERE.items()
]
_OFFERINGS: Final = [{"Price": 1.0, "Available": True, "Requirements": _REQUIREMENTS}]
_TYPE: Final = {
    "name": "gpu-8",
    "offerings": _OFFERINGS,
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {
        "cpu": "96",
        "memory": "1Ti",
        "ephemeral-storage": "600Gi",
        "pods": "250",
        GPU: "8",
    },
}


@asynccontextmanager
async def karpenter(cluster: Cluster, program: str, folder: Path) -> AsyncIterator[None]:
    """Run it, with a pool of nodes of eight GPUs."""
    module = all_recipes()[PROGRAM].module
    source = module_folders({_MODULE: module})[_MODULE]
    for file in (it for name in _DEFINITIONS for it in sorted((source / name).glob("*.yaml"))):
        await apply(cluster, yaml.safe_load(file.read_text()))
    for kind in (_NODE_POOLS, NODE_CLAIMS, _NODE_CLASSES):
        await cluster.api.until_found(kind.path())
    types = folder / "types.json"
    types.write_text(json.dumps([_TYPE]))
    port = cluster.free_port()
    environment = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "HEALTH_PROBE_PORT": str(port),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "BATCH_MAX_DURATION": "3s",
    }
    process = Process(Program(PROGRAM, [program], environment), folder / "karpenter.log")
    try:
        await ProductProcess(process, f"http://127.0.0.1:{port}/readyz").start()
        await cluster.api.request("POST", _NODE_CLASSES.path(), _object(_NODE_CLASSES, "default"))
        await set_pool(cluster, 64)
        yield
        process.check()
    finally:
        await process.kill()


async def set_pool(cluster: Cluster, gpus: int) -> None:
    """Let it have nodes with so many GPUs together; empty ones go after some seconds."""
    requirements = [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    reference = {"group": _NODE_CLASSES.group, "kind": _NODE_CLASSES.kind, "name": "default"}
    template = {"spec": {"requirements": requirements, "nodeClassRef": reference}}
    disruption = {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "5s",
        "budgets": [{"nodes": "100%"}],
    }
    spec = {"template": template, "limits": {GPU: str(gpus)}, "disruption": disruption}
    pool = {**_object(_NODE_POOLS, "default"), "spec": spec}
    await cluster.api.request(
        "PATCH",
        f"{_NODE_POOLS.path()}/default",
        pool,
        query={"fieldManager": "e2e", "force": "true"},
        content_type="application/apply-patch+yaml",
    )


def _object(kind: Resource, name: str) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
