"""Somebody with few rights at the API server, and all that it tells him, warnings too."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import aiohttp

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import TRAINJOBS, Obj
from e2e.front.install import apply

__all__ = ["ApiAnswer", "ApiUser", "api_user", "grant", "grant_namespace", "grant_queue"]

_RBAC: Final = "rbac.authorization.k8s.io"
_MERGE: Final = "application/merge-patch+json"
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class ApiAnswer(NamedTuple):
    """What came back."""

    status: int
    message: str  # of a refusal
    warnings: list[str]


class ApiUser:
    """Somebody by his name, through the administrator's connection."""

    def __init__(self, name: str, url: str, session: aiohttp.ClientSession) -> None:
        self.name = name
        self._url = url
        self._session = session

    async def create(self, job: Obj, *, dry: bool = True) -> ApiAnswer:
        """Make a TrainJob, or see what would be said."""
        path = TRAINJOBS.path(job["metadata"]["namespace"])
        return await self._send("POST", path, job, dry=dry, content_type="application/json")

    async def change(
        self, namespace: str, name: str, fields: Obj, *, dry: bool = False
    ) -> ApiAnswer:
        """Merge something into a TrainJob."""
        path = TRAINJOBS.path(namespace, name)
        return await self._send("PATCH", path, fields, dry=dry, content_type=_MERGE)

    async def _send(
        self, method: str, path: str, body: Obj, *, dry: bool, content_type: str
    ) -> ApiAnswer:
        query = {"dryRun": "All"} if dry else {}
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, self._url + path, data=json.dumps(body), params=query, headers=headers
        ) as response:
            answer: Mapping[str, Any] = await response.json()
            output = response.headers.getall("Warning", [])
            warnings = [
                json.loads(f'"{text}"') for line in output for text in _WARNING.findall(line)
            ]
            message = "" if response.status < 400 else str(answer.get("message"))
            return ApiAnswer(response.status, message, warnings)


@asynccontextmanager
async def api_user(cluster: Cluster, name: str, *namespaces: str) -> AsyncIterator[ApiUser]:
    """Yield somebody who may write TrainJobs in some namespaces, and nothing else."""
    rules = [
        {
            "apiGroups": [TRAINJOBS.group],
            "resources": [TRAINJOBS.plural],
            "verbs": ["create", "get", "patch", "update"],
        }
    ]
    await grant(cluster, "e2e-trainjobs", name, rules, namespaces)
    headers = {"Authorization": f"Bearer {cluster.api.token}", "Impersonate-User": name}
    connector = aiohttp.TCPConnector(ssl=cluster.api.tls)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield ApiUser(name, cluster.api.url, session)


async def grant_queue(cluster: Cluster, queue: str, who: str, namespace: str) -> None:
    """Let a user use a queue in one namespace, as the README of the webhook says it."""
    await grant(cluster, f"use-{queue}", who, _use_of(queue), [namespace])


async def grant_namespace(cluster: Cluster, queue: str, namespace: str) -> None:
    """Let a namespace use a queue: all of its service accounts."""
    group = f"system:serviceaccounts:{namespace}"
    await grant(cluster, f"use-{queue}", group, _use_of(queue), [namespace], kind="Group")


def _use_of(queue: str) -> list[Obj]:
    return [
        {
            "apiGroups": ["scheduling.run.ai"],
            "resources": ["queues"],
            "resourceNames": [queue],
            "verbs": ["use"],
        }
    ]


async def grant(
    cluster: Cluster,
    role: str,
    who: str,
    rules: list[Obj],
    namespaces: Sequence[str],
    kind: str = "User",
) -> None:
    """Bind a role for the cluster to a user or a group, in namespaces."""
    made = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": rules,
    }
    await apply(cluster, made)
    for namespace in namespaces:
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{who.replace(':', '-')}", "namespace": namespace},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": kind, "name": who}],
        }
        await apply(cluster, binding)
