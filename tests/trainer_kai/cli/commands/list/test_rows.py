"""The rows of `trainer-kai list`, from the requests to the table."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.readonly_server import ReadOnlyApiServer
from trainer_kai.api.resources import (
    JOBS,
    JOBSETS,
    MPI_JOBS,
    MPI_V1_JOBS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.cli.commands.list.fetch import Listing, fetch_listing
from trainer_kai.cli.commands.list.output import as_document, as_names, as_sentences, as_table
from trainer_kai.cli.commands.list.rows import WorkloadRow, workload_rows
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMIT: Final = "Queue a has a limit of 16 GPU and uses 16 GPU; the PodGroup requests 8 GPU more. It"


class ListedCluster:
    """TrainJobs and their PodGroups, in the namespace `ns`."""

    def __init__(self) -> None:
        self.store = ReadOnlyApiServer()
        self.put(PRIORITY_CLASSES, "high", "", {"value": 90})

    def put(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "ns",
        fields: Any = (),
        **meta: Any,
    ) -> None:
        metadata = {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T11:00:00Z",
            **({"namespace": namespace} if namespace else {}),
            **meta,
        }
        self.store.put(resource, {"metadata": metadata, **dict(fields)})

    def trainjob(
        self, name: str, queue: str = "a", *, suspend: bool = False, **status: Any
    ) -> None:
        spec = {"runtimeRef": {"name": "r"}, "suspend": suspend}
        labels = {"kai.scheduler/queue": queue}
        self.put(TRAINJOBS, name, fields={"spec": spec, "status": status}, labels=labels)
        owner = {
            "apiVersion": TRAINJOBS.api_version,
            "kind": "TrainJob",
            "name": name,
            "uid": f"uid-{name}",
            "controller": True,
        }
        self.put(JOBSETS, name, ownerReferences=[owner])

    def podgroup(
        self,
        name: str,
        queue: str = "a",
        reason: tuple[str, str] | None = None,
        kind: Resource[Any] = JOBSETS,
        **more: Any,
    ) -> None:
        owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
        conditions = []
        if reason is not None:
            conditions = [
                {
                    "reasons": [{"reason": reason[0], "message": reason[1]}],
                    "lastTransitionTime": "2026-01-01T11:50:00Z",
                }
            ]
        gpus = {"nvidia.com/gpu": str(more.get("gpus", 8))}
        usage = {"requested": gpus} if reason else {"requested": gpus, "allocated": gpus}
        self.put(
            PODGROUPS,
            f"pg-{name}",
            more.get("namespace", "ns"),
            {
                "spec": {"queue": queue, "priorityClassName": more.get("priority", "")},
                "status": {"schedulingConditions": conditions, "resourcesStatus": usage},
            },
            ownerReferences=[owner],
            annotations=more.get("annotations", {}),
            creationTimestamp=more.get("created", "2026-01-01T11:00:00Z"),
        )

    def pod(self, podgroup: str, node: str, phase: str = "Running") -> None:
        self.put(
            PODS,
            f"{podgroup}-{node}",
            fields={"spec": {"nodeName": node}, "status": {"phase": phase}},
            labels={"trainer-kai.dev/gang": "Main"},
            annotations={"pod-group-name": f"pg-{podgroup}"},
        )

    async def listing(self, namespace: str = "ns", *, with_nodes: bool = True) -> Listing:
        access = RestConfig("https://h", StaticToken(""), origin="the test")
        client = Client(access, self.store, VirtualClock(), NoRequestObserver())
        return await fetch_listing(client, namespace, with_nodes=with_nodes, with_places=True)

    async def rows(self, namespace: str = "ns") -> dict[str, WorkloadRow]:
        return {it.title: it for it in workload_rows((await self.listing(namespace)).objects)}


def ended(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "message": "over"}]}


async def test_a_table_has_one_row_for_each_workload() -> None:
    """By queue and name, with positions of those that wait for room, and nodes of the others."""
    cluster = ListedCluster()
    cluster.trainjob("runs")
    cluster.podgroup(
        "runs", annotations={"kai.scheduler/last-start-timestamp": "2026-01-01T11:30:00Z"}
    )
    cluster.pod("runs", "n1")
    cluster.pod("runs", "n2")
    cluster.pod("runs", "n3", "Succeeded")
    cluster.trainjob("waits")
    cluster.podgroup("waits", reason=("ExceedsLimit", LIMIT), gpus=16)
    cluster.trainjob("stopped", "b", suspend=True)
    cluster.trainjob("over", **ended("Complete"))
    rows = workload_rows((await cluster.listing()).objects)

    lines = as_table(rows, NOW, with_namespace=False).splitlines()
    assert [line[:72].rstrip() for line in lines] == [
        "WORKLOAD           QUEUE   STATE       SINCE   POSITION   GPUS   NODES",
        "trainjob/over      a       complete    -       -          -      -",
        "trainjob/runs      a       runs        30m     -          8      2",
        "trainjob/waits     a       waits       1h      1/1        16     -",
        "trainjob/stopped   b       suspended   -       -          0      -",
    ]
    assert [line[72:].strip() for line in lines] == [
        "REASON",
        "-",
        "-",
        "ExceedsLimit: limit 16 GPU, uses 16, needs 8",
        "Suspended: by its user: spec.suspend is true",
    ]
    assert as_names(rows[:2]) == "trainjob/over\ntrainjob/runs"


@pytest.mark.parametrize("served", [MPI_V1_JOBS, MPI_JOBS], ids=lambda it: it.version)
async def test_a_kind_of_which_the_api_server_serves_one_of_two_versions(
    served: Resource[Any],
) -> None:
    cluster = ListedCluster()
    cluster.put(served, "it")
    cluster.podgroup("it", reason=("NoCapacity", "A pod requests"), kind=served)
    assert {name: it.podgroups for name, it in (await cluster.rows()).items()} == {
        "mpijob/it": ("pg-it",)
    }


async def test_the_position_follows_priority_and_age() -> None:
    """Of all namespaces; what no node matches comes last, and what lacks pods has no place."""
    cluster = ListedCluster()
    room = ("NoCapacity", "A pod requests")
    for name, created in (("old", "2026-01-01T09:00:00Z"), ("new", "2026-01-01T10:00:00Z")):
        cluster.trainjob(name)
        cluster.podgroup(name, reason=room, created=created)
    cluster.trainjob("high")
    cluster.podgroup("high", reason=room, priority="high")
    cluster.trainjob("never")
    cluster.podgroup("never", reason=("NoNodeMatches", "A pod"), created="2026-01-01T01:00:00Z")
    cluster.trainjob("gated")
    cluster.podgroup("gated", reason=("PodsMissing", "Pods are missing"))
    cluster.podgroup("alien", reason=room, namespace="other", created="2026-01-01T09:30:00Z")
    rows = await cluster.rows()

    assert {name: str(it.place) for name, it in rows.items()} == {
        "trainjob/high": "1/5",
        "trainjob/old": "2/5",
        "trainjob/new": "4/5",
        "trainjob/never": "5/5",
        "trainjob/gated": "None",
    }


# what is so -> the state of the only workload, and how its reason begins
STATES: list[Case[dict[str, Any], tuple[str, str]]] = [
    Case("without a PodGroup", {}, ("waits", "PodsMissing")),
    Case("a PodGroup without a status", {"annotations": {"x": "y"}}, ("runs", "")),
    Case(
        "a later stage waits", {"reason": ("WaitingForStage", "0 of 1")}, ("waits", "WaitingForSt")
    ),
    Case("another scheduler's reason", {"reason": ("OverLimit", "no")}, ("waits", "OverLimit")),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
async def test_the_state_of_a_workload(case: Case[dict[str, Any], tuple[str, str]]) -> None:
    """Its PodGroups say it."""
    cluster = ListedCluster()
    cluster.trainjob("it")
    if case.given:
        cluster.podgroup("it", **case.given)
    row = (await cluster.rows())["trainjob/it"]

    state, reason = case.want
    assert row.state == state
    assert (row.reason.title if row.reason else "").startswith(reason)


async def test_podgroups_of_others_are_rows_and_jobs_of_others_are_not() -> None:
    """A Job that admission did not mark is not ours."""
    cluster = ListedCluster()
    cluster.podgroup("ray", kind=Resource("ray.io", "v1", "rayjobs", "RayJob", True, object))
    cluster.put(JOBS, "foreign", fields={"spec": {}})

    assert list(await cluster.rows()) == ["podgroup/pg-ray"]


async def test_what_a_tenant_may_not_read_is_said_with_its_remedy() -> None:
    """The rest is listed."""
    cluster = ListedCluster()
    cluster.trainjob("it")
    cluster.podgroup("it", reason=("NoCapacity", "A pod"))
    cluster.store.forbidden |= {"pods", "priorityclasses"}
    listing = await cluster.listing()

    (row,) = workload_rows(listing.objects)
    assert row.place is None
    assert listing.notes == (
        (
            "positions in queues are not shown: you may not list priorityclasses.scheduling.k8s.io "
            "(cluster-scoped). An administrator grants it: `kubectl create clusterrolebinding NAME "
            "--clusterrole=trainer-kai-user --user=USER`"
        ),
        (
            "nodes are not shown: you may not list pods in namespace ns. An administrator "
            "grants it: `kubectl create rolebinding NAME --clusterrole=view --user=USER -n ns`"
        ),
    )


async def test_a_program_gets_all_values() -> None:
    """Under a schema with a version."""
    cluster = ListedCluster()
    cluster.trainjob("it")
    cluster.podgroup("it", reason=("ExceedsLimit", LIMIT))
    listing = await cluster.listing()

    document = as_document(workload_rows(listing.objects), listing.notes)
    assert document["schema"] == "trainer-kai/list/v1"
    (it,) = document["workloads"]
    assert it == {
        "kind": "TrainJob",
        "namespace": "ns",
        "name": "it",
        "queue": "a",
        "state": "waits",
        "reason": {
            "title": "ExceedsLimit",
            "short": "limit 16 GPU, uses 16, needs 8",
            "message": LIMIT,
            "since": "2026-01-01T11:50:00Z",
        },
        "since": "2026-01-01T11:00:00Z",
        "position": 1,
        "waitingInQueue": 1,
        "gpus": 8.0,
        "nodes": [],
        "podGroups": ["pg-it"],
    }


async def test_why_without_a_name_has_whole_sentences() -> None:
    """Of all that waits."""
    cluster = ListedCluster()
    cluster.trainjob("it")
    cluster.podgroup("it", reason=("NoCapacity", "A pod requests 8 GPU. It can start"))
    rows = workload_rows((await cluster.listing()).objects)

    assert as_sentences(rows, NOW, "ns", 100) == (
        "TrainJob ns/it   waits   queue a   position 1/1   for 1h\n"
        "  NoCapacity: A pod requests 8 GPU. It can start"
    )
    assert as_sentences([], NOW, "ns", 100) == "Nothing waits in namespace ns."


async def test_states_are_coloured_on_a_terminal() -> None:
    """Only the word; the columns stay where they are."""
    cluster = ListedCluster()
    cluster.trainjob("it")
    cluster.podgroup("it", reason=("NoCapacity", "A pod"))
    rows = workload_rows((await cluster.listing()).objects)

    plain = as_table(rows, NOW, with_namespace=True)
    coloured = as_table(rows, NOW, with_namespace=True, is_coloured=True)
    assert "\x1b[33mwaits\x1b[0m" in coloured
    assert coloured.replace("\x1b[33m", "").replace("\x1b[0m", "") == plain
