"""Ports of nodes that pods take (rule 22)."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.clusters import encoded, node, pod, shape_of


def _on(port: int, **said: Any) -> dict[str, Any]:
    return {"containers": [{"ports": [{"containerPort": 80, "hostPort": port, **said}]}]}


# what a pod has, beside one that runs with port 80 of all addresses → whether it avoids that
PORTS = [
    Case("the same", _on(80), True),
    Case("another number", _on(81), False),
    Case("another protocol", _on(80, protocol="UDP"), False),
    Case("one address of all", _on(80, hostIP="10.0.0.1"), True),
    Case("no port of the node", _on(0), False),
    Case("the network of the node", {**_on(0), "hostNetwork": True}, True),
    Case(
        "a sidecar",
        {"initContainers": [{**_on(80)["containers"][0], "restartPolicy": "Always"}]},
        True,
    ),
    Case(
        "a container that goes before the others come",
        {"initContainers": _on(80)["containers"]},
        False,
    ),
]


@pytest.mark.parametrize("case", PORTS, ids=ids)
def test_ports(case: Case[dict[str, Any], bool]) -> None:
    """A port of all addresses is a port of each."""
    found = encoded(node("a"), node("b"), pod("r", node="b", **_on(80)), pod("p", **case.given))

    nodes, shape = found.snapshot.nodes, shape_of(found, "p")
    taken = {column for column in range(nodes.ports.shape[1]) if nodes.ports[1, column]}
    assert bool(taken & set(shape.avoids)) == case.want
    assert bool(shape.takes) == bool(set(shape.takes) & set(shape.avoids)) == bool(shape.avoids)
    assert not nodes.ports[0].any()


def test_two_addresses() -> None:
    """They keep nobody from each other, but both from all addresses."""
    found = encoded(
        node("a"),
        pod("x", **_on(80, hostIP="10.0.0.1")),
        pod("y", **_on(80, hostIP="10.0.0.2")),
        pod("z", **_on(80)),
    )

    shapes = {name: shape_of(found, name) for name in "xyz"}
    assert {
        one + other
        for one, avoiding in shapes.items()
        for other, taking in shapes.items()
        if set(avoiding.avoids) & set(taking.takes)
    } == {"xx", "yy", "zz", "xz", "yz", "zx", "zy"}


def test_many_addresses() -> None:
    """No two are compared: a port has at most one column more than addresses."""
    ports = [{"containerPort": 1, "hostPort": 1, "hostIP": f"10.0.0.{n}"} for n in range(200)]
    found = encoded(node("a"), pod("x", containers=[{"ports": ports}]), pod("z", **_on(1)))

    assert len(found.ports) == 202
    assert [len(shape_of(found, name).avoids) for name in "xz"] == [201, 1]
    assert [len(shape_of(found, name).takes) for name in "xz"] == [201, 2]
