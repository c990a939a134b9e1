"""The queue that is named highest wins, and it is said who named it."""

from itertools import combinations
from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.queues import Asked, Choice, Source, choose

QUEUE = "kai.scheduler/queue"

# The highest first.
LEVELS = {
    Source.TRAINJOB: Asked(trainjob={QUEUE: "of-trainjob"}),
    Source.RUNTIME: Asked(runtime_queue="of-runtime"),
    Source.JOBSET: Asked(jobset={QUEUE: "of-jobset"}),
    Source.POD_TEMPLATE: Asked(templates=({QUEUE: "of-template"},)),
    Source.NAMESPACE: Asked(namespace={QUEUE: "of-namespace"}),
}
QUEUES = dict(
    zip(
        LEVELS,
        ("of-trainjob", "of-runtime", "of-jobset", "of-template", "of-namespace"),
        strict=True,
    )
)


def both(one: Asked, other: Asked) -> Asked:
    """Ask for what two places ask for."""
    said: dict[str, Any] = {
        place: a or b for place, a, b in zip(Asked._fields, one, other, strict=True)
    }
    return Asked(**said)


@pytest.mark.parametrize(("higher", "lower"), tuple(combinations(LEVELS, 2)))
def test_of_two_the_higher_wins(higher: Source, lower: Source) -> None:
    """For every pair, and whatever the default is."""
    others = ("of-template",) if lower is Source.POD_TEMPLATE else ()

    choice = choose(both(LEVELS[higher], LEVELS[lower]), "default-queue")

    assert choice == Choice(QUEUES[higher], higher, others)


@pytest.mark.parametrize("source", tuple(LEVELS))
def test_one_alone_wins_over_the_default(source: Source) -> None:
    """Whoever it is."""
    assert choose(LEVELS[source], "default-queue") == Choice(QUEUES[source], source)


CASES = [
    Case("nobody names one", Asked(), Choice("default-queue", Source.DEFAULT)),
    Case(
        "empty labels name none, and other labels neither",
        Asked({QUEUE: ""}, "", {QUEUE: ""}, ({QUEUE: ""}, {"team": "a"}), {QUEUE: ""}),
        Choice("default-queue", Source.DEFAULT),
    ),
    Case(
        "of templates the first that names one",
        Asked(templates=({}, {QUEUE: ""}, {QUEUE: "b"}, {QUEUE: "a"}, {QUEUE: "b"}, {QUEUE: "c"})),
        Choice("b", Source.POD_TEMPLATE, ("a", "c")),
    ),
    Case(
        "templates that differ from a higher one are told, each once",
        Asked({QUEUE: "a"}, templates=({QUEUE: "a"}, {QUEUE: "b"}, {QUEUE: "b"})),
        Choice("a", Source.TRAINJOB, ("b",)),
    ),
    Case(
        "a namespace loses against its templates",
        Asked(templates=({QUEUE: "a"},), namespace={QUEUE: "n"}),
        Choice("a", Source.POD_TEMPLATE),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_queues(case: Case[Asked, Choice]) -> None:
    """Who is asked, and what stands beside the answer."""
    assert choose(case.given, "default-queue") == case.want
