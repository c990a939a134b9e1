"""The queue that is named highest wins, and the choice says which object named it."""

from itertools import combinations
from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)

QUEUE = "kai.scheduler/queue"

# The highest first.
LEVELS = {
    QueueSource.TRAINJOB: RequestedQueues(trainjob={QUEUE: "of-trainjob"}),
    QueueSource.RUNTIME: RequestedQueues(runtime_queue="of-runtime"),
    QueueSource.JOBSET: RequestedQueues(jobset={QUEUE: "of-jobset"}),
    QueueSource.POD_TEMPLATE: RequestedQueues(templates=({QUEUE: "of-template"},)),
    QueueSource.NAMESPACE: RequestedQueues(namespace={QUEUE: "of-namespace"}),
}
QUEUES = dict(
    zip(
        LEVELS,
        ("of-trainjob", "of-runtime", "of-jobset", "of-template", "of-namespace"),
        strict=True,
    )
)


def both(one: RequestedQueues, other: RequestedQueues) -> RequestedQueues:
    requested: dict[str, Any] = {
        place: a or b for place, a, b in zip(RequestedQueues._fields, one, other, strict=True)
    }
    return RequestedQueues(**requested)


@pytest.mark.parametrize(("higher", "lower"), tuple(combinations(LEVELS, 2)))
def test_of_two_the_higher_wins(higher: QueueSource, lower: QueueSource) -> None:
    """For every pair, and whatever the default is."""
    others = ("of-template",) if lower is QueueSource.POD_TEMPLATE else ()

    choice = resolve_queue(both(LEVELS[higher], LEVELS[lower]), "default-queue")

    assert choice == QueueChoice(QUEUES[higher], higher, others)


@pytest.mark.parametrize("source", tuple(LEVELS))
def test_one_alone_wins_over_the_default(source: QueueSource) -> None:
    assert resolve_queue(LEVELS[source], "default-queue") == QueueChoice(QUEUES[source], source)


CASES = [
    Case(
        "no object names one", RequestedQueues(), QueueChoice("default-queue", QueueSource.DEFAULT)
    ),
    Case(
        "empty labels name none, and other labels neither",
        RequestedQueues({QUEUE: ""}, "", {QUEUE: ""}, ({QUEUE: ""}, {"team": "a"}), {QUEUE: ""}),
        QueueChoice("default-queue", QueueSource.DEFAULT),
    ),
    Case(
        "of templates the first that names one",
        RequestedQueues(
            templates=({}, {QUEUE: ""}, {QUEUE: "b"}, {QUEUE: "a"}, {QUEUE: "b"}, {QUEUE: "c"})
        ),
        QueueChoice("b", QueueSource.POD_TEMPLATE, ("a", "c")),
    ),
    Case(
        "templates that differ from a higher one are told, each once",
        RequestedQueues({QUEUE: "a"}, templates=({QUEUE: "a"}, {QUEUE: "b"}, {QUEUE: "b"})),
        QueueChoice("a", QueueSource.TRAINJOB, ("b",)),
    ),
    Case(
        "a namespace loses against its templates",
        RequestedQueues(templates=({QUEUE: "a"},), namespace={QUEUE: "n"}),
        QueueChoice("a", QueueSource.POD_TEMPLATE),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_queues(case: Case[RequestedQueues, QueueChoice]) -> None:
    assert resolve_queue(case.given, "default-queue") == case.want
