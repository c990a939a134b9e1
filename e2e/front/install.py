"""Install an overlay of `manifests/` on a chain: built by kubectl, applied server-side.

Applying twice does nothing. The webhook configurations are left out unless a port is given, because
their first webhook refuses the JobSets of all TrainJobs while nobody answers at that port.
"""

import asyncio
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import yaml

from e2e.cluster.binaries import ensure_built
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from tests.support.tree import ROOT

__all__ = [
    "BUDGETS",
    "CLUSTER_ROLES",
    "DEPLOYMENTS",
    "MANAGER",
    "MANIFESTS",
    "NETWORK_POLICIES",
    "PODGROUPS",
    "POLICIES",
    "PRIORITY_CLASSES",
    "QUEUES",
    "RULES",
    "RULE_BINDINGS",
    "TOPOLOGIES",
    "WEBHOOKS",
    "CommandResult",
    "apply",
    "apply_all",
    "build",
    "documents",
    "install",
    "kubectl",
    "resource_of",
    "run_kubectl",
    "with_port",
]

MANIFESTS: Final = ROOT / "manifests"
MANAGER: Final = "install"
_BUILT: Final[dict[Path, list[Obj]]] = {}  # what is in a checkout stays while we run

PODGROUPS: Final = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
QUEUES: Final = Resource("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
TOPOLOGIES: Final = Resource(
    "kai.scheduler", "v1alpha1", "topologies", "Topology", namespaced=False
)
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POLICIES: Final = Resource(
    MUTATING_WEBHOOKS.group,
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)
RULES: Final = POLICIES._replace(
    plural="validatingadmissionpolicies", kind="ValidatingAdmissionPolicy"
)
RULE_BINDINGS: Final = RULES._replace(
    plural="validatingadmissionpolicybindings", kind=f"{RULES.kind}Binding"
)
_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
# In the order in which they are applied: each needs only what stands before it.
_INSTALLED: Final = (
    CRDS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    CLUSTER_ROLES,
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    SERVICES,
    DEPLOYMENTS,
    BUDGETS,
    NETWORK_POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    TOPOLOGIES,
    PODGROUPS,
    POLICIES,
    POLICIES._replace(plural="mutatingadmissionpolicybindings", kind=f"{POLICIES.kind}Binding"),
    RULES,
    RULE_BINDINGS,
    Resource("cert-manager.io", "v1", "issuers", "Issuer"),
    Resource("cert-manager.io", "v1", "certificates", "Certificate"),
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
WEBHOOKS: Final = frozenset({MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind})
_BY_KIND: Final = {resource.kind: resource for resource in _INSTALLED}
_APPLY: Final = "application/apply-patch+yaml"


class CommandResult(NamedTuple):
    """What came of a command."""

    status: int
    out: str
    err: str


async def install(
    cluster: Cluster, *, overlay: str = "local", port: int | None = None
) -> list[Obj]:
    """Install an overlay and return its objects as they are stored."""
    return await apply_all(cluster, await build(MANIFESTS / "overlays" / overlay), port)


async def apply_all(cluster: Cluster, objects: list[Obj], port: int | None = None) -> list[Obj]:
    """Apply objects in the order in which each needs only what is there.

    *port* is where the webhook listens on loopback. Its certificate is the business of the process.
    """
    if port is None:
        objects = [obj for obj in objects if obj["kind"] not in WEBHOOKS]
    else:
        objects = [with_port(obj, port) for obj in objects]
    objects.sort(key=lambda obj: list(_BY_KIND).index(obj["kind"]))
    definitions = [obj for obj in objects if obj["kind"] == CRDS.kind]
    stored = [await apply(cluster, obj) for obj in definitions]
    await cluster.while_alive(_until_served(cluster, definitions))
    return stored + [await apply(cluster, obj) for obj in objects[len(definitions) :]]


async def build(folder: Path) -> list[Obj]:
    """Return the objects of a kustomization, built by the chain's own kubectl, and only once."""
    if folder not in _BUILT:
        _BUILT[folder] = documents(await kubectl("kustomize", str(folder)))
    return copy.deepcopy(_BUILT[folder])


async def kubectl(*arguments: str, given: str = "") -> str:
    """Return what the chain's kubectl writes; raise for a failure what it says."""
    ran = await run_kubectl(*arguments, given=given)
    if ran.status:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {ran.err.strip()}")
    return ran.out


async def run_kubectl(*arguments: str, given: str = "") -> CommandResult:
    """Run the chain's kubectl, whatever comes of it."""
    program = str(ensure_built().folder / "bin" / "kubectl")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate(given.encode())
    return CommandResult(process.returncode or 0, out.decode(), err.decode())


def documents(text: str) -> list[Obj]:
    """Read the objects in a text of YAML documents."""
    return [document for document in yaml.safe_load_all(text) if document]


async def apply(cluster: Cluster, obj: Obj, **query: str) -> Obj:
    """Apply one object server-side, strictly, taking over nothing that others own."""
    resource, metadata = resource_of(obj), obj["metadata"]
    path = resource.path(metadata.get("namespace"), metadata["name"])
    wishes = {"fieldManager": MANAGER, "fieldValidation": "Strict", **query}
    applied: Obj = await cluster.api.request("PATCH", path, obj, query=wishes, content_type=_APPLY)
    return applied


def resource_of(obj: Obj) -> Resource:
    """Return the kind of an object that we install; a kind that is not listed is an oversight."""
    resource = _BY_KIND[obj["kind"]]
    assert resource.api_version == obj["apiVersion"]
    return resource


def with_port(obj: Obj, port: int) -> Obj:
    """Return an object whose webhooks, if it has some, are called at a port on loopback."""
    if obj["kind"] not in WEBHOOKS:
        return obj
    return {**obj, "webhooks": [_called_at(webhook, port) for webhook in obj["webhooks"]]}


def _called_at(webhook: Obj, port: int) -> Obj:
    config = webhook["clientConfig"]
    path = config["service"]["path"] if "service" in config else urlsplit(config["url"]).path
    return {**webhook, "clientConfig": {"url": f"https://127.0.0.1:{port}{path}"}}


async def _until_served(cluster: Cluster, definitions: Iterable[Obj]) -> None:
    served = [
        (crd["spec"], version["name"]) for crd in definitions for version in crd["spec"]["versions"]
    ]
    wanted = {(spec["group"], spec["names"]["plural"]) for spec, _ in served}
    while not wanted <= await cluster.api.discover():
        await asyncio.sleep(0.05)
    for spec, version in served:
        await cluster.api.until_found(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
