"""Domains of nodes: rule 27k; a node at a time they are the same as all at once."""

from random import Random
from typing import Any, Final

import pytest

from scheduler.core.model.resources import NONE
from scheduler.core.model.topology import SnapshotTopology
from scheduler.state.inputs import StateOptions
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.nodes.topologies import TopologyTable
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, decode_object, encode_objects, make_object, node
from trainer_kai.api.cluster_kinds import Node

LEVELS: Final = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]


def topology(name: str = "dc", levels: Any = LEVELS) -> dict[str, Any]:
    """Return a Topology."""
    return make_object("Topology", name, spec={"levels": levels})


def domains_of(found: SnapshotTopology) -> list[list[str]]:
    """Return for each level the domains of the nodes by name; of no domain nothing."""
    return [
        ["" if it == NONE else "/".join(paths[it]) for it in domains.tolist()]
        for paths, domains in zip(found.paths, found.domains, strict=True)
    ]


# labels of the nodes a, b and c → their domains on both levels
DOMAINS: list[Case[list[dict[str, str]], list[list[str]]]] = [
    Case(
        "by both labels",
        [{"block": "x", "rack": "1"}, {"block": "x", "rack": "2"}, {"block": "y", "rack": "1"}],
        [["x", "x", "y"], ["x/1", "x/2", "y/1"]],
    ),
    Case(
        "a node lacks the narrow label",
        [{"block": "x"}, {"block": "x", "rack": "2"}, {}],
        [["", "x", ""], ["", "x/2", ""]],
    ),
    Case("a node lacks the wide label", [{"rack": "1"}, {}, {}], [["", "", ""], ["", "", ""]]),
    Case(
        "an empty value is one",
        [{"block": "", "rack": "1"}, {"block": "x", "rack": "1"}, {"block": "", "rack": "1"}],
        [["", "x", ""], ["/1", "x/1", "/1"]],
    ),
]


@pytest.mark.parametrize("case", DOMAINS, ids=ids)
def test_domains(case: Case[list[dict[str, str]], list[list[str]]]) -> None:
    """Equal labels down to a level are one domain."""
    nodes = [node(name, labels=it) for name, it in zip("abc", case.given, strict=True)]

    (found,) = encode_objects(topology(), *nodes).snapshot.topologies

    assert domains_of(found) == case.want
    assert all([*paths] == sorted({*paths}) for paths in found.paths)


def test_an_invalid_topology_is_left_out_with_a_warning() -> None:
    """As if it did not exist."""
    twice = [{"nodeLabel": "rack"}, {"nodeLabel": "rack"}]

    encoded = encode_objects(topology("dc", twice), topology("ok"), node("a"))

    assert [it.name for it in encoded.snapshot.topologies] == ["ok"]
    assert any("Topology dc" in it.message for it in encoded.warnings)


def random_node(random: Random, name: str) -> Node:
    """Return a node with some of the labels."""
    labels = {it: random.choice("xyz") for it in ("block", "rack") if random.random() < 0.9}
    _, _, found = decode_object(node(name, labels=labels))
    assert isinstance(found, Node)
    return found


def test_changes_one_by_one_are_the_same_as_all_at_once() -> None:
    """Nodes come, change their labels and go; a snapshot never changes afterwards."""
    random, nodes, table = Random(1), NodeTable(), TopologyTable()
    _, _, dc = decode_object(topology())
    table.read_topologies({"dc": dc}, nodes)
    there: dict[str, Node] = {}
    kept: list[tuple[SnapshotTopology, list[list[str]]]] = []
    for _ in range(300):
        names = random.sample("abcdefghij", random.choice((1, 1, 2, 5)))
        changes = {it: random_node(random, it) if random.random() < 0.8 else None for it in names}
        nodes.read(changes)
        table.read_nodes(nodes)
        there = {name: it for name, it in {**there, **changes}.items() if it is not None}

        (found,) = table.table()

        fresh, all_nodes = TopologyTable(), NodeTable()
        all_nodes.read(there)
        fresh.read_topologies({"dc": dc}, all_nodes)
        (want,) = fresh.table()
        assert (found.paths, found.domains.tolist()) == (want.paths, want.domains.tolist())
        kept.append((found, domains_of(found)))
        assert all(domains_of(one) == before for one, before in kept[-5:])


def test_many_nodes_at_once() -> None:
    """They are read anew."""
    state = ClusterState(StateOptions(now=NOW))
    for fields in [
        topology(),
        *(node(f"n{i:03}", labels={"block": "x", "rack": f"{i % 7}"}) for i in range(100)),
    ]:
        resource, key, one = decode_object(fields)
        state.put(resource, key, one)
    assert len(state.snapshot(NOW).snapshot.topologies[0].paths[1]) == 7
    for i in range(100):
        resource, key, one = decode_object(
            node(f"n{i:03}", labels={"block": "x", "rack": f"{i % 3}"})
        )
        state.put(resource, key, one)
    assert len(state.snapshot(NOW).snapshot.topologies[0].paths[1]) == 3
    state.check(NOW)
