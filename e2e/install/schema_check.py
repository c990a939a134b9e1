"""One object, checked by the API server's schema and by `api.validate`."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.fixtures.install import PODGROUPS, QUEUES, TOPOLOGIES, resource_of
from trainer_kai.api.decode import DecodeError, decode, encode
from trainer_kai.api.kai_kinds import PodGroup, Queue, Topology
from trainer_kai.api.validate import podgroup_faults, queue_faults, topology_faults

BOTH: Final = "both"
SCHEMA: Final = "the schema alone"
_PRODUCT_CHECKS: Final = {
    PODGROUPS.kind: lambda data: podgroup_faults(decode(PodGroup, data)),
    QUEUES.kind: lambda data: queue_faults(decode(Queue, data)),
    TOPOLOGIES.kind: lambda data: topology_faults(decode(Topology, data)),
}


class RuleCase(NamedTuple):
    """A claim about one object: what the API server says of it, "" for nothing."""

    name: str
    obj: Obj
    message: str = ""
    found_by: str = BOTH  # who can see the fault


def row_id(row: RuleCase) -> str:
    """Name the test after the claim."""
    return row.name


def pod_group(spec: Mapping[str, Any] | None = None, name: str = "group") -> Obj:
    """Return a PodGroup in the namespace `default`."""
    return _object(PODGROUPS.api_version, "PodGroup", name, spec, namespace="default")


def queue(spec: Mapping[str, Any] | None = None, name: str = "queue") -> Obj:
    """Return a Queue."""
    return _object(QUEUES.api_version, "Queue", name, spec)


def topology(*levels: Mapping[str, Any], name: str = "topology") -> Obj:
    """Return a Topology."""
    return _object(TOPOLOGIES.api_version, "Topology", name, {"levels": list(levels)})


async def server_message(cluster: Cluster, obj: Obj) -> str:
    """Return what the API server says against an object, "" for nothing; it keeps none."""
    path = resource_of(obj).path(obj["metadata"].get("namespace"))
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        await cluster.api.request("POST", path, obj, query=query)
    except ApiError as error:
        if error.status != 422:
            raise
        return str(error)
    return ""


async def check_case(cluster: Cluster, row: RuleCase) -> None:
    """Assert what both judges say of one object."""
    answer = await server_message(cluster, row.obj)
    assert row.message in answer, answer
    assert bool(row.message) == bool(answer), answer
    assert is_refused(row.obj) == (bool(row.message) and row.found_by == BOTH)


def is_refused(obj: Obj) -> bool:
    """Say whether the product finds a fault in an object."""
    try:
        return bool(_PRODUCT_CHECKS[obj["kind"]](encode(obj)))
    except DecodeError:
        return True


def _object(
    api_version: str, kind: str, name: str, spec: Mapping[str, Any] | None, **metadata: str
) -> Obj:
    obj: Obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}
    return obj if spec is None else {**obj, "spec": dict(spec)}
