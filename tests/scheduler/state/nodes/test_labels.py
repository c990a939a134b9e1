"""Node selectors of pods as sets of codes (rule 22)."""

from typing import Any

import numpy as np
import pytest

from scheduler.core.model.podgroup import LabelRequirement
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, node, pod, signature_of

_NODES = [
    node("a", labels={"zone": "x", "size": "5"}),
    node("b", labels={"zone": "y", "size": "10"}),
    node("c", labels={"size": "-3"}),
    node("d", labels={"zone": "x", "size": "large"}),
]


def _nodes_passing(encoded: EncodedSnapshot) -> str:
    """Return the nodes that satisfy what a pod asks for, by brute force."""
    nodes = encoded.snapshot.nodes
    passed = np.ones(len(nodes.names), dtype=np.bool_)
    for alternatives in signature_of(encoded, "p").node_affinity:
        some = np.zeros_like(passed)
        for needs in alternatives:
            every = np.ones_like(passed)
            for key, codes, _, is_not in needs:
                values = nodes.labels[:, key].tolist() if codes else [0] * len(every)
                every &= [(code in codes) != is_not for code in values]
            some |= every
        passed &= some
    return "".join(name for name, is_fine in zip(nodes.names, passed, strict=True) if is_fine)


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _field(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


# node selector and affinity of a pod → the nodes that it may go to
SELECTIONS = [
    Case("a pod that selects nothing may go anywhere", {}, "abcd"),
    Case("a label selects the nodes that have it", {"nodeSelector": {"zone": "x"}}, "ad"),
    Case("two labels must both be there", {"nodeSelector": {"zone": "x", "size": "5"}}, "a"),
    Case("a value that no node has", {"nodeSelector": {"zone": "z"}}, ""),
    Case("a label that no node has", {"nodeSelector": {"rack": "1"}}, ""),
    Case("In selects each of the values", _affinity(_term("zone", "In", "y", "z")), "b"),
    Case("NotIn, which one without it passes", _affinity(_term("zone", "NotIn", "x")), "bc"),
    Case("NotIn a value that no node has", _affinity(_term("zone", "NotIn", "z")), "abcd"),
    Case("Exists selects nodes with the label", _affinity(_term("zone", "Exists")), "abd"),
    Case(
        "DoesNotExist selects nodes without the label",
        _affinity(_term("zone", "DoesNotExist")),
        "c",
    ),
    Case("Gt, of numbers only", _affinity(_term("size", "Gt", "4")), "ab"),
    Case("Lt compares numbers", _affinity(_term("size", "Lt", "5")), "c"),
    Case("Gt what is no number", _affinity(_term("size", "Gt", "four")), ""),
    Case("a label that no node has, NotIn", _affinity(_term("rack", "NotIn", "1")), "abcd"),
    Case(
        "DoesNotExist of an unknown label selects all",
        _affinity(_term("rack", "DoesNotExist")),
        "abcd",
    ),
    Case("Exists where it does not", _affinity(_term("rack", "Exists")), ""),
    Case("In where it does not", _affinity(_term("rack", "In", "1")), ""),
    Case("Gt where it does not", _affinity(_term("rack", "Gt", "1")), ""),
    Case("Gt what is no number where it does not", _affinity(_term("rack", "Gt", "x")), ""),
    Case(
        "NotIn where it does not, or what cannot be meant",
        _affinity(_term("rack", "Near", "1"), _term("rack", "NotIn", "1")),
        "abcd",
    ),
    Case(
        "a label that no node has beside one that some have",
        _affinity(
            {
                "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["x"]},
                    {"key": "rack", "operator": "NotIn", "values": ["1"]},
                ]
            }
        ),
        "ad",
    ),
    Case("Gt two numbers", _affinity(_term("size", "Gt", "1", "2")), ""),
    Case("an unknown operator selects nothing", _affinity(_term("zone", "Near", "x")), ""),
    Case("one of two terms", _affinity(_term("zone", "In", "y"), _term("size", "In", "5")), "ab"),
    Case(
        "one of two cannot be meant",
        _affinity(_term("zone", "In", "y"), _term("size", "Gt", "x")),
        "b",
    ),
    Case("an empty term is no node", _affinity({}), ""),
    Case("no terms are no node", _affinity(), ""),
    Case(
        "a field selects nodes by name",
        _affinity(_field("metadata.name", "In", "b", "missing")),
        "b",
    ),
    Case("not a name", _affinity(_field("metadata.name", "NotIn", "b")), "acd"),
    Case(
        "a field other than the name selects nothing",
        _affinity(_field("metadata.uid", "In", "b")),
        "",
    ),
    Case("another operator on a name", _affinity(_field("metadata.name", "Exists")), ""),
    Case(
        "selector and affinity",
        {"nodeSelector": {"zone": "x"}, **_affinity(_term("size", "In", "5", "10"))},
        "a",
    ),
    Case(
        "all of a term",
        _affinity({**_term("zone", "In", "x"), **_field("metadata.name", "In", "d")}),
        "d",
    ),
]


@pytest.mark.parametrize("case", SELECTIONS, ids=ids)
def test_selections(case: Case[dict[str, Any], str]) -> None:
    """The same nodes match as in Kubernetes."""
    assert _nodes_passing(encode_objects(*_NODES, pod("p", **case.given))) == case.want


def test_only_labels_that_nodes_have_and_pods_ask_for_have_a_column() -> None:
    """A label with the name of the field is something else."""
    pod_fields = {
        "nodeSelector": {"metadata.name": "x", "rack": "1"},
        **_affinity(_field("metadata.name", "In", "a")),
    }
    objects = node("a", labels={"zone": "x", "metadata.name": "y"}), node("b")

    nodes = encode_objects(*objects, pod("p", **pod_fields)).snapshot.nodes

    assert nodes.key_names == ("metadata.name", "metadata.name")
    assert nodes.labels.tolist() == [[0, 0], [-1, 1]]


def test_a_label_that_no_node_has_is_named() -> None:
    """It has no column, so the requirement carries its name, and what the pod wants."""
    encoded = encode_objects(*_NODES, pod("p", nodeSelector={"rack": "1", "zone": "x"}))

    assert signature_of(encoded, "p").node_affinity == (
        ((LabelRequirement(-1, frozenset(), "rack=1"), LabelRequirement(0, frozenset({0}))),),
    )


def test_what_all_nodes_satisfy_is_not_asked() -> None:
    """Neither a value that no node has, nor one that all have."""
    pod_fields = _affinity(_term("zone", "NotIn", "z"), _term("rack", "In", "1"))

    encoded = encode_objects(
        node("a", labels={"zone": "x"}), pod("p", nodeSelector={"zone": "x"}, **pod_fields)
    )

    assert signature_of(encoded, "p").node_affinity == ()


def test_a_label_value_that_no_node_has_is_still_required() -> None:
    """So that a message can name it, the first of many and what nodes have."""
    wanted = ["z" * 99, "q", "v", "w"]
    encoded = encode_objects(
        *_NODES,
        pod("p", **_affinity(_term("zone", "In", "z"))),
        pod("many", **_affinity(_term("zone", "In", *wanted))),
        pod("long", **_affinity(_term("rack", "In", "z" * 99))),
        pod("present", **_affinity(_term("rack", "Exists"))),
    )
    names = ("p", "many", "long", "present")
    labels = [signature_of(encoded, it).node_affinity[0][0][0].label for it in names]

    assert labels == ["zone=z", "zone=q or v or w, …", f"rack={'z' * 63}", "rack"]
    assert [*encoded.snapshot.nodes.key_values[0]] == ["x", "y"]


_WORKERS = [
    node("a", labels={"node-role.kubernetes.io/gpu-worker": ""}),
    node("b", labels={"node-role.kubernetes.io/cpu-worker": "true"}),
    node("c"),
    node("d", labels={f"node-role.kubernetes.io/{it}-worker": "" for it in ("cpu", "gpu")}),
]
# what a pod requests -> the nodes that it may go to where nodes are restricted
RESTRICTED = [
    Case("a GPU", {"nvidia.com/gpu": "1"}, "ad"),
    Case("a MIG profile", {"nvidia.com/mig-1g.5gb": "1"}, "ad"),
    Case("a replica by time slicing", {"nvidia.com/gpu.shared": "1"}, "ad"),
    Case("CPU only", {"cpu": "1"}, "bd"),
]


@pytest.mark.parametrize("case", RESTRICTED, ids=ids)
def test_restricted_nodes_are_for_pods_of_their_kind(case: Case[dict[str, str], str]) -> None:
    """By labels of any value; a node without either takes none, and without the setting all do."""
    asking = pod("p", asks=case.given)

    assert _nodes_passing(encode_objects(*_WORKERS, asking, restricts_nodes=True)) == case.want
    assert _nodes_passing(encode_objects(*_WORKERS, asking)) == "abcd"
    assert _nodes_passing(encode_objects(_WORKERS[2], asking, restricts_nodes=True)) == ""
