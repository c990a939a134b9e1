"""The warnings and denials for a user that writes a Queue: about its parent and its numbers."""

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import Obj, denied, request, told
from trainer_kai.api.queue import QueueResource, QueueResources, QueueSpec, QueueStatus
from webhook.rules.queues.changes import KnownQueues, read_queue, validate_queue

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
    """Return a queue without own limits."""
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
    """Return the denial and the warnings."""
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
