"""Queues as a site with several teams has them: closed, and who may use them is granted."""

import asyncio
from collections.abc import Iterator
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.front.install import CLUSTER_ROLES, QUEUES, apply

__all__ = ["CLOSED", "grant_queue_use", "grants", "may_use", "queue"]

CLOSED: Final = {"trainer-kai.dev/access": "closed"}
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_AUTHORIZED_S: Final = 20.0


def queue(name: str, quota: int, limit: int = -1, parent: str = "") -> Obj:
    """Return a closed queue that owns so many GPUs; -1 is no bound, as of CPU and memory."""
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec: Obj = {"resources": {"cpu": _FREE, "memory": _FREE, "gpu": gpu}}
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name, "annotations": CLOSED},
        "spec": spec,
    }


def grants(name: str, namespace: str) -> Iterator[Obj]:
    """Yield a role and its binding, by which what runs in a namespace may use a queue."""
    metadata = {"name": f"use-{name}", "namespace": namespace}
    rule = {
        "apiGroups": [QUEUES.group],
        "resources": [QUEUES.plural],
        "resourceNames": [name],
        "verbs": ["use"],
    }
    group = f"system:serviceaccounts:{namespace}"
    yield {**_rbac("Role"), "metadata": metadata, "rules": [rule]}
    yield {
        **_rbac("RoleBinding"),
        "metadata": metadata,
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "Role", "name": metadata["name"]},
        "subjects": [{"apiGroup": CLUSTER_ROLES.group, "kind": "Group", "name": group}],
    }


async def grant_queue_use(cluster: Cluster, name: str, *namespaces: str) -> None:
    """Grant a queue to namespaces, and wait until the API server says that they may use it."""
    for namespace in namespaces:
        for obj in grants(name, namespace):
            await apply(cluster, obj)
        async with asyncio.timeout(_AUTHORIZED_S):
            while not await may_use(cluster, name, namespace):
                await asyncio.sleep(0.05)


async def may_use(cluster: Cluster, name: str, namespace: str) -> bool:
    """Say whether a namespace may use a queue: the authorizer hears of bindings by a watch."""
    attributes = {
        "verb": "use",
        "group": QUEUES.group,
        "resource": QUEUES.plural,
        "name": name,
        "namespace": namespace,
    }
    groups = [f"system:serviceaccounts:{namespace}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"groups": groups, "resourceAttributes": attributes},
    }
    answer = await cluster.api.request("POST", _REVIEWS, review)
    return bool(answer["status"]["allowed"])


def _rbac(kind: str) -> Obj:
    return {"apiVersion": CLUSTER_ROLES.api_version, "kind": kind}
