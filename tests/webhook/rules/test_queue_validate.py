"""Changes and deletions of Queues."""

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import Obj, denied, request, told
from trainer_kai.api.kai_kinds import (
    QueueResource,
    QueueResources,
    QueueSpec,
    QueueStatus,
    TopologyLevel,
    TopologySpec,
)
from trainer_kai.api.meta import Key, Meta, OwnerReference
from webhook.rules.queue_validate import (
    DeletedQueue,
    KnownQueues,
    QueueUse,
    SlimPodGroup,
    SlimPodGroupSpec,
    is_deletion_allowed,
    queues_below,
    read_queue,
    validate_deletion,
    validate_queue,
)

QUEUE = {"group": "scheduling.run.ai", "version": "v2", "kind": "Queue"}
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
NONE = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
PATH = "spec.parentQueue"


def queue(name: str = "team-a", parent: str = "", /, **shares: Obj) -> Obj:
    """Return a queue that owns no GPUs, or with these shares of resources."""
    resources = {"gpu": NONE, "cpu": FREE, "memory": FREE, **shares}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}} | {
        "spec": spec
    }


def spec(parent: str = "") -> QueueSpec:
    shares = msgspec.convert(NONE, QueueResource), msgspec.convert(FREE, QueueResource)
    resources = QueueResources(gpu=shares[0], cpu=shares[1], memory=shares[1])
    return QueueSpec(parent_queue=parent, resources=resources)


KNOWN = KnownQueues(
    {
        "research": spec(),
        "team-a": spec("research"),
        "team-a1": spec("team-a"),
        "busy": spec(),
        "idle": spec(),
        "was-busy": spec(),
    },
    {
        "busy": QueueStatus(allocated={"nvidia.com/gpu": "8"}),
        "idle": QueueStatus(),
        "was-busy": QueueStatus(allocated={"cpu": "0", "memory": "0"}, requested={"cpu": "0"}),
        "research": QueueStatus(allocated={"nvidia.com/gpu": "8"}),
    },
)


def reviewed(obj: Obj, old: Obj | None = None, known: KnownQueues = KNOWN) -> str:
    review = read_queue(request(obj, QUEUE, old))
    assert review is not None
    return told(validate_queue(review, known).response())


CYCLE = (
    f"{PATH}: queue research would be below itself (research → team-a → research), and queues of a "
    "cycle take no pods. Name a parent that is not below this queue"
)
PARENTS: list[Case[tuple[Obj, Obj | None], str]] = [
    Case("a parent with children", (queue("new", "research"), None), ""),
    Case("at the top", (queue("new"), None), ""),
    Case("below its own child", (queue("research", "team-a"), queue("research")), denied(CYCLE)),
    Case("it was there before", (queue("research", "team-a"), queue("research", "team-a")), ""),
    Case(
        "far below itself",
        (queue("research", "team-a1"), queue("research")),
        denied(
            f"{PATH}: queue research would be below itself (research → team-a1 → team-a → "
            "research), and queues of a cycle take no pods. Name a parent that is not below this "
            "queue"
        ),
    ),
    Case(
        "no such parent",
        (queue("new", "nowhere"), None),
        (
            f"{PATH}: queue nowhere does not exist, and this queue takes no pods until it "
            "does. Create it"
        ),
    ),
    Case(
        "a parent with a typo",
        (queue("new", "resaerch"), None),
        (
            f"{PATH}: queue resaerch does not exist, and this queue takes no pods until it "
            "does. Did you mean research? Otherwise create it"
        ),
    ),
    Case(
        "the first child of a queue with pods",
        (queue("new", "busy"), None),
        (
            f"{PATH}: pods use queue busy, which has no child queues yet. With this one it "
            "takes no more pods: pods that name it wait. Let these workloads name a child "
            "queue"
        ),
    ),
    Case("the first child of a queue without pods", (queue("new", "idle"), None), ""),
    Case("the first child of a queue that had pods", (queue("new", "was-busy"), None), ""),
]


@pytest.mark.parametrize("case", PARENTS, ids=ids)
def test_the_parent_of_a_queue(
    case: Case[tuple[Obj, Obj | None], str],
) -> None:
    """Only a cycle is denied."""
    obj, old = case.given
    assert reviewed(obj, old) == case.want


def test_an_outdated_cache_denies_nothing() -> None:
    """A cycle becomes a warning, and a parent that is not cached may exist."""
    cached = KNOWN._replace(is_current=False)
    assert reviewed(queue("research", "team-a"), queue("research"), cached) == CYCLE
    assert reviewed(queue("new", "nowhere"), None, cached) == ""


CORES = "spec.resources.cpu.limit: 4 millicores are 0.004 CPU. Write 4000 for 4 CPU"
FEW = {**FREE, "limit": 4}


def test_numbers_are_reported_when_they_are_new() -> None:
    """Of an update only the numbers that it changes."""
    assert reviewed(queue(cpu=FEW)) == CORES
    assert reviewed(queue(cpu=FEW), queue()) == CORES
    assert reviewed(queue(cpu=FEW, memory=NONE), queue(cpu=FEW)) == ""
    before = queue("team-a", "research")
    above = queue("team-a", "research", gpu={"quota": 8, "limit": -1})
    assert reviewed(above, before).startswith(
        "spec.resources.gpu.quota: the child queues of parent queue research"
    )
    assert reviewed({**above, "metadata": {"name": "team-a", "labels": {"a": "b"}}}, above) == ""


def test_a_misspelled_annotation_is_reported_at_creation() -> None:
    """It has no effect, and no error."""
    obj = queue()
    obj["metadata"]["annotations"] = {"trainer-kai.dev/acces": "closed"}
    assert "trainer-kai.dev/access" in reviewed(obj)
    assert reviewed(obj, queue()) == ""


NAMES = "metadata.annotations[kai.scheduler/topology"
RACKS: Obj = {
    "kai.scheduler/topology": "racks",
    "kai.scheduler/topology-required-placement": "rack",
    "kai.scheduler/topology-preferred-placement": "host",
}
TOPOLOGIES: list[Case[Obj, str]] = [
    Case("levels that exist", RACKS, ""),
    Case(
        "no such Topology",
        {**RACKS, "kai.scheduler/topology": "rack"},
        (
            f"{NAMES}]: Topology 'rack' does not exist, so it has no effect. Name an existing one: "
            "racks"
        ),
    ),
    Case(
        "no such level",
        {**RACKS, "kai.scheduler/topology-required-placement": "row"},
        (
            f"{NAMES}-required-placement]: Topology 'racks' has no level 'row', so it has no "
            "effect. Name one of its levels: rack, host"
        ),
    ),
    Case(
        "no Topology",
        {"kai.scheduler/topology-required-placement": "rack"},
        f"{NAMES}-required-placement]: can only be set together with kai.scheduler/topology",
    ),
]


@pytest.mark.parametrize("case", TOPOLOGIES, ids=ids)
def test_the_default_topology_of_a_queue(case: Case[Obj, str]) -> None:
    """A warning, because the scheduler ignores it; an update that leaves it as it was has none."""
    levels = (TopologyLevel(node_label="rack"), TopologyLevel(node_label="host"))
    known = KNOWN._replace(topologies={"racks": TopologySpec(levels=levels)})
    obj = queue()
    obj["metadata"]["annotations"] = case.given

    assert reviewed(obj, known=known) == case.want
    assert reviewed(obj, queue(), known) == case.want
    assert reviewed(obj, obj, known) == ""


def test_topologies_that_are_not_listed_do_not_count_as_missing() -> None:
    obj = queue()
    obj["metadata"]["annotations"] = RACKS
    assert reviewed(obj) == ""


POD = {"group": "", "version": "v1", "kind": "Pod"}
DELETING = {**queue(), "metadata": {"name": "team-a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
UNREAD: list[Case[tuple[Obj, Obj], None]] = [
    Case("another kind is not read", (queue(), {"kind": POD}), None),
    Case("a change of the status is not read", (queue(), {"subResource": "status"}), None),
    Case("another operation is not read", (queue(), {"operation": "CONNECT"}), None),
    Case("it is being deleted", (DELETING, {}), None),
    Case("a spec that is a word", ({**queue(), "spec": "x"}, {}), None),
    Case("a review without an object is not read", ({}, {"object": None}), None),
    Case("an update of what cannot be read", (queue(), {"operation": "UPDATE"}), None),
]


@pytest.mark.parametrize("case", UNREAD, ids=ids)
def test_what_is_not_reviewed(case: Case[tuple[Obj, Obj], None]) -> None:
    """The schema rejects what cannot be read."""
    obj, fields = case.given
    assert read_queue(request(obj, **{"kind": QUEUE, **fields})) is None


def test_a_queue_without_metadata_is_read() -> None:
    """With generateName it has no name yet."""
    assert reviewed({"spec": queue()["spec"]}) == ""


GPUS = {"nvidia.com/gpu": "4", "cpu": "0"}
HOW = (
    "Delete these workloads or let them use another queue (label kai.scheduler/queue) first. If "
    "you just did, try again in a few seconds"
)
COMMAND = (
    ". To delete the queue all the same, run: kubectl annotate queue team-a "
    "trainer-kai.dev/allow-delete=true"
)
HOW += COMMAND


def deleted(*below: str, status: QueueStatus = QueueStatus(), **fields: object) -> DeletedQueue:  # noqa: B008 - frozen
    return DeletedQueue("team-a", status, below, **fields)  # type: ignore[arg-type]


def group(
    name: str, queue: str = "team-a", owner: str = "", *, terminates: bool = False
) -> SlimPodGroup:
    kind, _, owner_name = owner.rpartition("/")
    owners = (OwnerReference(kind=kind or "JobSet", name=owner_name),) if owner else ()
    at = "2026-01-01T00:00:00Z" if terminates else ""
    meta = Meta(namespace="vision", name=name, owner_references=owners, deletion_timestamp=at)
    return SlimPodGroup(metadata=meta, spec=SlimPodGroupSpec(queue))


def use(
    *groups: SlimPodGroup, queues: tuple[str, ...] = ("team-a",), problem: str = ""
) -> QueueUse:
    """Return the use of a queue; the workload `done` has finished."""
    found = QueueUse(frozenset(queues), problem=problem)
    found.add(groups, lambda it: it == Key("vision", "done"))
    return found


# The queue, and what uses it -> the denial, the warnings.
DELETIONS: list[Case[tuple[DeletedQueue, QueueUse], str]] = [
    Case("nothing uses it", (deleted(), use()), ""),
    Case("PodGroups of other queues", (deleted(), use(group("a", "team-b"))), ""),
    Case(
        "PodGroups that terminate, or of a TrainJob that has finished",
        (deleted(), use(group("a", terminates=True), group("b", owner="done"))),
        "",
    ),
    Case(
        "a PodGroup of another workload with the name of that TrainJob",
        (deleted(), use(group("pg", owner="Deployment/done"))),
        denied(
            "metadata.name: queue team-a is in use: 1 PodGroup names it (of vision/done). " + HOW
        ),
    ),
    Case(
        "one PodGroup",
        (deleted(), use(group("pg-job-1-2", owner="job"))),
        denied(
            "metadata.name: queue team-a is in use: 1 PodGroup names it (of vision/job). " + HOW
        ),
    ),
    Case(
        "many PodGroups",
        (deleted(), use(*(group(f"pg-{i}", owner=f"job-{i // 2}") for i in range(16)))),
        denied(
            "metadata.name: queue team-a is in use: 16 PodGroups name it (of vision/job-0, "
            "vision/job-1, vision/job-2, vision/job-3, vision/job-4 and 3 more). " + HOW
        ),
    ),
    Case(
        "a PodGroup in a queue below",
        (deleted("a", "b"), use(group("pg", "b"), queues=("team-a", "a", "b"))),
        denied(
            "metadata.name: queue team-a is in use: 1 PodGroup names queue team-a or a queue below "
            "it (of vision/pg). " + HOW + " (queues below it: a, b)"
        ),
    ),
    Case(
        "only a part was read",
        (deleted(), use(group("pg"), problem="no answer within 1.6 s")),
        denied(
            "metadata.name: queue team-a is in use: at least 1 PodGroup names it (of vision/pg). "
            + HOW
        ),
    ),
    Case(
        "pods without a PodGroup",
        (deleted(status=QueueStatus(allocated=GPUS, requested=GPUS)), use()),
        denied(
            "metadata.name: queue team-a is in use: status.allocated still has 4 nvidia.com/gpu "
            "(pods without a PodGroup, or pods that are terminating). "
            + HOW.removesuffix(COMMAND)
            + "; if the amount stays, check that the scheduler runs (trainer-kai doctor)"
            + COMMAND
        ),
    ),
    Case(
        "amounts that are zero, or no amounts",
        (deleted(status=QueueStatus(allocated={"cpu": "0", "memory": "much"})), use()),
        "",
    ),
    Case(
        "unused queues below",
        (deleted("a", "b"), use(queues=("team-a", "a", "b"))),
        (
            "metadata.name: the queues below team-a take no pods until it exists again: delete "
            "them too, or give them another parent (a, b)"
        ),
    ),
    Case(
        "namespaces name it",
        (deleted(namespaces=("nlp", "vision")), use()),
        (
            "metadata.name: the label kai.scheduler/queue of namespaces names queue team-a, "
            "and TrainJobs that name no queue wait there: change the label (nlp, vision)"
        ),
    ),
    Case(
        "the default queue",
        (deleted(is_default=True), use()),
        (
            "metadata.name: team-a is the default queue: workloads that name no queue wait "
            "until it exists again"
        ),
    ),
    Case(
        "not found out in time",
        (deleted(), use(problem="no answer within 1.6 s")),
        (
            "metadata.name: queue team-a is deleted without a complete check of the PodGroups "
            "that name it (no answer within 1.6 s). If some do, their pods wait until the "
            "queue exists again"
        ),
    ),
]


@pytest.mark.parametrize("case", DELETIONS, ids=ids)
def test_the_deletion_of_a_queue(
    case: Case[tuple[DeletedQueue, QueueUse], str],
) -> None:
    """The denial names the users, and says how to delete it all the same."""
    response = validate_deletion(*case.given).response()

    assert told(response) == case.want
    assert response.denial is None or response.denial.code == 403
    assert all(len(it) <= 256 for it in response.warnings)


def test_a_long_denial_keeps_the_command() -> None:
    """The names of workloads and of queues below have the length that is usual at most."""
    below = [f"{i}-{'q' * 250}" for i in range(9)]
    groups = (group(f"pg-{i}", owner=f"{i}-{'j' * 60}") for i in range(9))
    denial = validate_deletion(deleted(*below), use(*groups)).response().denial
    assert denial is not None
    assert "trainer-kai.dev/allow-delete=true" in denial.message[:1024]


def test_queues_below_are_found_level_by_level() -> None:
    """A cycle ends; a queue is not below itself."""
    parents = {"a": "", "b": "a", "c": "a", "d": "b", "x": "y", "y": "x", "self": "self"}
    specs = {name: QueueSpec(parent_queue=parent) for name, parent in parents.items()}

    assert queues_below("a", specs) == ("b", "c", "d")
    assert queues_below("x", specs) == ("y",)
    assert queues_below("self", specs) == ()
    assert queues_below("d", specs) == ()


@pytest.mark.parametrize(("value", "allowed"), [("true", True), ("false", False), ("True", False)])
def test_the_annotation_allows_a_deletion(value: str, allowed: bool) -> None:
    """Only with the value `true`."""
    assert is_deletion_allowed(Meta(annotations={"trainer-kai.dev/allow-delete": value})) is allowed
