"""What an older version leaves in a cluster: read, written down, and put into another cluster.

The objects are as they were stored, with status, uids, owners and field managers. So they are put
where the API server stores them, as when a backup of etcd is restored: a request would give them
new uids. Times are moved, so that the newest is now.

Limits: neither Secrets (Trainer makes those of a TrainJob anew) nor Events, nor what the chain
makes in every namespace.
"""

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    CONFIG_MAPS,
    JOBS,
    JOBSETS,
    LEASES,
    PODS,
    SERVICES,
    TRAINJOBS,
    Obj,
    Resource,
)
from e2e.fixtures.install import PODGROUPS, QUEUES, documents
from e2e.fixtures.processes import NAMESPACE
from e2e.upgrade.before_upgrade import TRAINJOB_NAMESPACE

FOLDER: Final = Path(__file__).parent / "515b908"
_MANIFESTS: Final = "manifests.yaml"
_OBJECTS: Final = "objects.jsonl"
_NOTE: Final = "# Built by `python -m e2e.upgrade.record`; not for editing.\n"
# Where they are, in the order in which they are written down: owners first.
_KINDS: Final = (
    (QUEUES, None),
    (LEASES, NAMESPACE),
    *(
        (kind, TRAINJOB_NAMESPACE)
        for kind in (TRAINJOBS, JOBSETS, PODGROUPS, SERVICES, CONFIG_MAPS, JOBS, PODS)
    ),
)
_BY_KIND: Final = {kind.kind: kind for kind, _ in _KINDS}
_OF_THE_CHAIN: Final = "kube-root-ca.crt"
_CONTROLLERS: Final = ("kube-controller-manager", "jobset", "trainer")
_ANYWHERE: Final = "a-pod"  # for the host name in a Lease
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?=Z|\.\d+Z|\+00:00)")
_SECONDS: Final = "%Y-%m-%dT%H:%M:%S"


class Leftovers(NamedTuple):
    """What was applied, and what is there besides."""

    manifests: list[Obj]
    objects: list[Obj]


async def collected(cluster: Cluster) -> list[Obj]:
    """Return the objects of the scene, and what our processes keep of their own."""
    found: list[Obj] = []
    for kind, namespace in _KINDS:
        listed, _ = await cluster.api.list(kind, namespace)
        found += [_stored(kind, it) for it in listed if it["metadata"]["name"] != _OF_THE_CHAIN]
    return found


def _stored(kind: Resource, obj: Obj) -> Obj:
    """Return an object as it is stored: its version is the store's."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    stored = {"apiVersion": kind.api_version, "kind": kind.kind, **obj, "metadata": metadata}
    if holder := obj["spec"].get("holderIdentity") if kind is LEASES else "":
        stored["spec"]["holderIdentity"] = _ANYWHERE + holder[holder.rindex("_") :]
    return stored


def write(left: Leftovers) -> None:
    """Write the fixture, an object a line."""
    FOLDER.mkdir(exist_ok=True)
    manifests = yaml.safe_dump_all(left.manifests, sort_keys=True, width=100)
    (FOLDER / _MANIFESTS).write_text(_NOTE + manifests)
    lines = [json.dumps(it, sort_keys=True, separators=(",", ":")) for it in left.objects]
    (FOLDER / _OBJECTS).write_text("".join(f"{line}\n" for line in lines))


def read(now: datetime) -> Leftovers:
    """Read the fixture, as if it had been written now."""
    text = (FOLDER / _OBJECTS).read_text()
    newest = max(map(_parsed, _MOMENT.findall(text)))
    later = now.astimezone(UTC).replace(microsecond=0) - newest
    moved = _MOMENT.sub(lambda it: _moved(it[0], later), text)
    objects = [json.loads(line) for line in moved.splitlines()]
    return Leftovers(documents((FOLDER / _MANIFESTS).read_text()), objects)


def _parsed(text: str) -> datetime:
    return datetime.strptime(text, _SECONDS).replace(tzinfo=UTC)


def _moved(text: str, later: timedelta) -> str:
    return (_parsed(text) + later).strftime(_SECONDS)


async def put_back(cluster: Cluster, objects: Sequence[Obj]) -> None:
    """Put objects into the store while no controller runs.

    One that learned of a Job before its pods would make them a second time.
    """
    controllers = [cluster.process(name) for name in _CONTROLLERS]
    for process in controllers:
        await process.kill()
    etcd = cluster.layout.url("etcd")
    for obj in objects:
        pair = {"key": _encoded(_key(obj)), "value": _encoded(json.dumps(obj))}
        await cluster.api.request("POST", f"{etcd}/v3/kv/put", pair)
    for process in controllers:
        process.start()
    for name in _CONTROLLERS:
        await cluster.ready(name)


def _key(obj: Obj) -> str:
    """Return where the API server stores an object: a defined kind by its group too."""
    kind, metadata = _BY_KIND[obj["kind"]], obj["metadata"]
    folder = f"{kind.group}/{kind.plural}" if "." in kind.group else kind.plural
    folder = {SERVICES: "services/specs", LEASES: "leases"}.get(kind, folder)
    parts = ("/registry", folder, metadata.get("namespace"), metadata["name"])
    return "/".join(part for part in parts if part)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
