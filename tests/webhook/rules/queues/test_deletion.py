"""Whether a queue is deleted: not while PodGroups or pods use it, and else with what it leaves."""

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import denied, told
from trainer_kai.api.meta import Key, Meta, OwnerReference
from trainer_kai.api.queue import QueueSpec, QueueStatus
from webhook.rules.queues.deletion import (
    DeletedQueue,
    QueueUse,
    SlimPodGroup,
    SlimPodGroupSpec,
    is_deletion_allowed,
    queues_below,
    validate_deletion,
)

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
    """Return the queue team-a."""
    return DeletedQueue("team-a", status, below, **fields)  # type: ignore[arg-type]


def group(
    name: str, queue: str = "team-a", owner: str = "", *, terminates: bool = False
) -> SlimPodGroup:
    """Return a PodGroup in the namespace vision."""
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
