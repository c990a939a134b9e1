"""Topology constraints of PodGroups: rules 27l, 27p and 27r."""

from typing import Any, Final

import pytest

from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.topology import DomainConstraint
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, group, make_object, node, pod, queue
from trainer_kai.api.meta import Key

DC: Final = make_object(
    "Topology", "dc", spec={"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack", "alias": "r"}]}
)
OTHER: Final = make_object("Topology", "a", spec={"levels": [{"nodeLabel": "zone"}]})
ROW: Final = 1  # of the Topology dc, after a


def constraint(required: str = "", preferred: str = "", topology: str = "dc") -> dict[str, str]:
    """Return the constraint of a PodGroup or sub-group."""
    found = {"topology": topology}
    found.update({"requiredTopologyLevel": required} if required else {})
    found.update({"preferredTopologyLevel": preferred} if preferred else {})
    return found


def tree_of(encoded: EncodedSnapshot, name: str = "g") -> Any:
    """Return the tree of a PodGroup."""
    return encoded.snapshot.podgroups[encoded.podgroup_keys.index(Key("ns", name))].tree


# the constraint of a PodGroup → what its PodSet has, and warnings
CONSTRAINTS: list[Case[dict[str, str], tuple[DomainConstraint | None, bool]]] = [
    Case("a required level", constraint("rack"), (DomainConstraint(ROW, 1), False)),
    Case("by its alias", constraint("r"), (DomainConstraint(ROW, 1), False)),
    Case("a preferred level", constraint("", "rack"), (DomainConstraint(ROW, -1, 1), False)),
    Case("both", constraint("block", "rack"), (DomainConstraint(ROW, 0, 1), False)),
    Case("the same twice", constraint("rack", "rack"), (DomainConstraint(ROW, 1, 1), False)),
    Case("wider preferred", constraint("rack", "block"), (DomainConstraint(ROW, 1), True)),
    Case("an unknown preferred level", constraint("rack", "row"), (DomainConstraint(ROW, 1), True)),
    Case("an unknown preference alone", constraint("", "row"), (None, True)),
    Case("a preference in an unknown Topology", constraint("", "rack", "x"), (None, True)),
    Case("an unknown required level", constraint("row"), (None, False)),
    Case("no level", constraint(), (None, False)),
    Case("another Topology", constraint("zone", "", "a"), (DomainConstraint(0, 0), False)),
]


@pytest.mark.parametrize("case", CONSTRAINTS, ids=ids)
def test_constraints(case: Case[dict[str, str], tuple[DomainConstraint | None, bool]]) -> None:
    """What is only preferred lets no pod wait."""
    encoded = encode_objects(
        DC, OTHER, node("n"), group("g", topologyConstraint=case.given), pod("p", "g")
    )

    has_warning = any("preferred topology level" in it.message for it in encoded.warnings)
    assert (tree_of(encoded).domains, has_warning) == case.want


def test_constraints_of_sub_groups_are_nested() -> None:
    """The PodGroup, a sub-group and its sub-groups have one each."""
    subgroups = [
        {"name": "w", "topologyConstraint": constraint("", "block")},
        {"name": "w-0", "parent": "w", "minMember": 1, "topologyConstraint": constraint("rack")},
        {"name": "l", "minMember": 1},
    ]
    encoded = encode_objects(
        DC,
        node("n"),
        group("g", subGroups=subgroups, topologyConstraint=constraint("block")),
        pod("p", "g", "w-0"),
        pod("q", "g", "l"),
    )

    tree = tree_of(encoded)

    assert tree.domains == DomainConstraint(0, 0)
    assert [it.domains for it in tree.children] == [DomainConstraint(0, -1, 0), None]
    assert [it.domains for it in podsets_of(tree)] == [DomainConstraint(0, 1), None]


NOTES: Final = {
    "kai.scheduler/topology": "dc",
    "kai.scheduler/topology-required-placement": "rack",
    "kai.scheduler/topology-preferred-placement": "r",
}
OF_QUEUE: Final = DomainConstraint(0, 1, 1, is_default=True)
# annotations of a queue and of its parent, the spec of a PodGroup of two pods → its constraint
DEFAULTS: list[Case[tuple[Any, Any, dict[str, Any]], DomainConstraint | None]] = [
    Case("of its queue", (NOTES, {}, {"minMember": 2}), OF_QUEUE),
    Case("of the parent of its queue", ({}, NOTES, {"minMember": 2}), OF_QUEUE),
    Case(
        "the nearest one counts, with all that it says",
        ({"kai.scheduler/topology": "dc"}, NOTES, {"minMember": 2}),
        None,
    ),
    Case("two pods are enough", (NOTES, {}, {"minMember": 1}), OF_QUEUE),
    Case(
        "its own counts first",
        (NOTES, {}, {"minMember": 2, "topologyConstraint": constraint("block")}),
        DomainConstraint(0, 0),
    ),
    Case(
        "that of a Topology which does not exist is ignored",
        ({**NOTES, "kai.scheduler/topology": "x"}, {}, {"minMember": 2}),
        None,
    ),
]


@pytest.mark.parametrize("case", DEFAULTS, ids=ids)
def test_defaults_of_queues(
    case: Case[tuple[Any, Any, dict[str, Any]], DomainConstraint | None],
) -> None:
    """They are inherited."""
    own, above, spec = case.given
    encoded = encode_objects(
        DC,
        node("n"),
        queue("top", meta={"annotations": above}),
        queue("q", meta={"annotations": own}, parentQueue="top"),
        group("g", **spec),
        pod("p", "g"),
        pod("q", "g"),
    )

    assert tree_of(encoded).domains == case.want
    assert encoded.snapshot.podgroups[0].prefilter_failure is None


def test_a_single_pod_has_no_default() -> None:
    """It is in one domain anyway."""
    encoded = encode_objects(
        DC, node("n"), queue("q", meta={"annotations": NOTES}), group("g"), pod("p", "g")
    )

    assert tree_of(encoded).domains is None


def test_pods_are_in_the_order_of_their_jobs_and_indexes() -> None:
    """Indexes are numbers; without a constraint the older pod is first."""
    pods = [
        pod(
            f"p{job}-{index}",
            "g",
            labels={
                "jobset.sigs.k8s.io/job-index": job,
                "batch.kubernetes.io/job-completion-index": index,
            },
        )
        for job, index in (("1", "0"), ("0", "10"), ("0", "9"), ("0", "wrong"))
    ]
    near = encode_objects(DC, node("n"), group("g", topologyConstraint=constraint("rack")), *pods)

    (podset,) = podsets_of(tree_of(near))

    names = [near.pod_keys[row].name for row in podset.pending]
    assert names == ["p0-wrong", "p0-9", "p0-10", "p1-0"]


def test_a_default_that_does_not_exist_is_reported() -> None:
    """About the queue: its users cannot change it."""
    of_x = {**NOTES, "kai.scheduler/topology": "x"}
    at_y = {**NOTES, "kai.scheduler/topology-required-placement": "y"}
    queues = [
        queue(name, meta={"annotations": it})
        for name, it in zip("abc", (of_x, at_y, NOTES), strict=True)
    ]

    assert [it.text for it in encode_objects(DC, *queues).warnings] == [
        "queue a: annotation kai.scheduler/topology is ignored: Topology x does not exist",
        "queue b: annotation kai.scheduler/topology is ignored: Topology dc has no level y",
    ]
