"""Nodes that PodGroups avoid: which, how many, and since which reason."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import check_results, healthy_installation
from trainer_kai.cli.commands.doctor.facts import PodGroupQueue, Unread
from trainer_kai.policy.podgroups.avoided_nodes import AvoidedNodeRecord


def avoiding(name: str, queue: str, **until: str) -> PodGroupQueue:
    records = {
        node: AvoidedNodeRecord(
            at=f"2026-05-01T11:5{number}:00Z", until=f"2026-05-01T{it}:00Z", reason=f"OutOf{node}"
        )
        for number, (node, it) in enumerate(until.items())
    }
    return PodGroupQueue(name, queue, records)


_SEVERAL = (
    "node n2 is avoided by 3 PodGroups of 2 queues until 2026-05-01T12:20:00Z at the latest (last "
    "refusal: OutOfn2, PodGroup a/g), node n1 is avoided by 1 PodGroup of 1 queue until "
    "2026-05-01T12:05:00Z at the latest (last refusal: OutOfn1, PodGroup a/g)"
)
CASES: list[Case[list[PodGroupQueue], tuple[str, str]]] = [
    Case("none", [PodGroupQueue("a/g", "q")], ("ok", "no PodGroup avoids a node")),
    Case("no longer", [avoiding("a/g", "q", n1="12:00")], ("ok", "no PodGroup avoids a node")),
    Case(
        "several",
        [
            avoiding("a/g", "q", n1="12:05", n2="12:10"),
            avoiding("a/h", "q", n2="12:20"),
            avoiding("b/i", "r", n2="12:15"),
        ],
        ("warning", _SEVERAL),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_avoided_nodes(case: Case[list[PodGroupQueue], tuple[str, str]]) -> None:
    facts = healthy_installation()._replace(podgroup_queues=case.given)
    assert check_results(facts, "avoided nodes") == [case.want]


def test_without_the_right_to_list_podgroups() -> None:
    facts = healthy_installation()._replace(podgroup_queues=Unread("you may not list podgroups"))
    ((state, _),) = check_results(facts, "avoided nodes")
    assert state == "unknown"
