"""Reads the objects of a system from the live cluster, with the permissions of the user.

Nothing is written. A kind that the cluster lacks has no objects; a kind that the user may not list
is named on standard error.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.names import (
    BATCH,
    JOBSET,
    KAI,
    KUEUE,
    KUEUE_QUEUE,
    RUN_AI,
    SCHEDULER_NAME,
    TRAINER,
)
from trainer_kai.api.resources import Resource
from trainer_kai.cli.commands.migrate.workloads import CLUSTER
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.options import Connection
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, Discovery, command_client
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection, list_page
from trainer_kai.kube.rest.response import Forbidden

_PAGE: Final = 500
_OURS: Final = Selection(fields=f"spec.schedulerName={SCHEDULER_NAME}")
_OF_KUEUE: Final = Selection(labels=KUEUE_QUEUE)
_RUNTIMES: Final = (
    f"trainingruntimes.{TRAINER}",
    f"clustertrainingruntimes.{TRAINER}",
)
_KUEUE_PLURALS: Final = (
    *("clusterqueues", "cohorts", "localqueues", "workloadpriorityclasses", "resourceflavors"),
    *("topologies", "admissionchecks", "provisioningrequestconfigs", "multikueueconfigs"),
    "multikueueclusters",
)
_TRAINJOBS: Final = f"trainjobs.{TRAINER}"


class _Page(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = {}
    items: tuple[dict[str, Any], ...] = ()


class _Kinds(NamedTuple):
    """The kinds of a system; without the first one the cluster does not have the system."""

    own: tuple[str, ...]
    others: Mapping[str, Selection]


_SYSTEMS: Final[Mapping[str, _Kinds]] = {
    "kai": _Kinds(
        (
            *(f"{kind}.{RUN_AI}" for kind in ("queues", "podgroups", "bindrequests")),
            *(f"{kind}.{KAI}" for kind in ("configs", "schedulingshards", "topologies")),
        ),
        {f"jobsets.{JOBSET}": ALL, "pods": _OURS},
    ),
    "kueue": _Kinds(
        tuple(f"{kind}.{KUEUE}" for kind in _KUEUE_PLURALS),
        {
            **dict.fromkeys(_RUNTIMES, ALL),
            **dict.fromkeys((_TRAINJOBS, f"jobsets.{JOBSET}", f"jobs.{BATCH}"), _OF_KUEUE),
            **dict.fromkeys(("deployments.apps", "statefulsets.apps"), _OF_KUEUE),
        },
    ),
    "volcano": _Kinds(
        (
            *("queues.scheduling.volcano.sh", "jobs.batch.volcano.sh"),
            *("jobflows.flow.volcano.sh", "hypernodes.topology.volcano.sh"),
        ),
        dict.fromkeys((*_RUNTIMES, _TRAINJOBS), ALL),
    ),
}


async def fetch_documents(system: str, where: Connection) -> list[Document]:
    """Return the objects of a system in the cluster; raise if the cluster does not have it."""
    kinds = _SYSTEMS[system]
    documents: list[Document] = []
    async with command_client(**where) as client:
        discovery = Discovery(client)
        await discovery.refresh()
        for name, selection in (dict.fromkeys(kinds.own, ALL) | {**kinds.others}).items():
            resource = await discovery.find(name)
            if resource is not None:
                documents += await _list(client, ListTarget(resource, "", selection))
            elif name == kinds.own[0]:
                message = "the cluster does not have this kind; set -f FILE to read files"
                raise ConfigError([FieldError(name, message)])
    return documents


async def _list(client: Client, target: ListTarget[Any]) -> list[Document]:
    documents: list[Document] = []
    token = ""
    while True:
        try:
            page = await client.call(_Page, list_page(target, _PAGE, token))
        except Forbidden:
            message = "not included, because you may not list them"
            print(f"trainer-kai: {target.resource}: {message}", file=sys.stderr)
            return []
        documents += (_document(target.resource, it) for it in page.items)
        token = str(page.metadata.get("continue") or "")
        if not token:
            return documents


def _document(resource: Resource[Any], fields: dict[str, Any]) -> Document:
    """Return an object with its kind; a pod without the fields that no rule reads."""
    if resource.kind == "Pod":
        spec = fields.get("spec") or {}
        kept = {it: spec[it] for it in ("schedulerName", "nodeName") if it in spec}
        phase = (fields.get("status") or {}).get("phase", "")
        fields = {**fields, "spec": kept, "status": {"phase": phase}}
        fields["metadata"] = {**fields["metadata"], "managedFields": None}
    return Document(CLUSTER, {"apiVersion": resource.api_version, "kind": resource.kind, **fields})
