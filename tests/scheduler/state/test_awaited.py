"""How many pods must exist before a group can be placed."""

import json
from typing import Any

import pytest

from scheduler.state.awaited import min_existing_pods
from tests.support.case import Case, ids
from tests.support.clusters import group
from trainer_kai.api.decode import decode
from trainer_kai.api.podgroup import PodGroup

_ANTICIPATED = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1, "requests": {}}
_STAGED = {"annotations": {"trainer-kai.dev/anticipated": json.dumps({"later": [_ANTICIPATED]})}}


def podset(name: str, count: int, **more: Any) -> dict[str, Any]:
    """Return a sub-group."""
    return {"name": name, "minMember": count, **more}


def staged(least: int | None) -> dict[str, Any]:
    """Return what the podgrouper makes of workers and their launcher."""
    subs = [podset("n-replica-0", 2), podset("l-replica-0", 1)]
    return {"subGroups": subs, "minSubGroup": least, "meta": _STAGED}


CASES: list[Case[dict[str, Any], int]] = [
    Case("as many as it says", {"minMember": 8}, 8),
    Case("one if it says nothing", {}, 1),
    Case("those of all leaves", {"subGroups": [podset("a", 2), podset("b", 3)]}, 5),
    Case("those that come later are not awaited", staged(None), 2),
    Case("also where it is said that all are needed", staged(2), 2),
    Case(
        "where some leaves are enough, those of the smallest",
        {"subGroups": [podset("a", 2), podset("b", 3), podset("c", 4)], "minSubGroup": 2},
        5,
    ),
    Case(
        "the same in between",
        {
            "subGroups": [
                {"name": "n", "minSubGroup": 1},
                podset("n-0", 4, parent="n"),
                podset("n-1", 4, parent="n"),
                podset("l", 1),
            ],
            "minSubGroup": 2,
        },
        5,
    ),
    Case("nothing is known of what is wrong", {"subGroups": [podset("a", 2), podset("a", 3)]}, 0),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_least_pods(case: Case[dict[str, Any], int]) -> None:
    """None of the group is placed with fewer."""
    found = decode(PodGroup, json.dumps(group("g", **case.given)).encode())
    assert min_existing_pods(found) == case.want
