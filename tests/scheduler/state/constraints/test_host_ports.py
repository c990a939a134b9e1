"""Host ports that pods take (rule 22)."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, node, pod, signature_of


def _pod_on(port: int, **given_fields: Any) -> dict[str, Any]:
    return {"containers": [{"ports": [{"containerPort": 80, "hostPort": port, **given_fields}]}]}


# the port of a pod, beside a running one with port 80 of all addresses → whether they conflict
PORTS = [
    Case("the same port conflicts", _pod_on(80), True),
    Case("another number does not conflict", _pod_on(81), False),
    Case("another protocol does not conflict", _pod_on(80, protocol="UDP"), False),
    Case("one address of all", _pod_on(80, hostIP="10.0.0.1"), True),
    Case("no port of the node", _pod_on(0), False),
    Case("the network of the node", {**_pod_on(0), "hostNetwork": True}, True),
    Case(
        "the port of a sidecar conflicts",
        {"initContainers": [{**_pod_on(80)["containers"][0], "restartPolicy": "Always"}]},
        True,
    ),
    Case(
        "a container that goes before the others come",
        {"initContainers": _pod_on(80)["containers"]},
        False,
    ),
]


@pytest.mark.parametrize("case", PORTS, ids=ids)
def test_ports(case: Case[dict[str, Any], bool]) -> None:
    """A port of all addresses is a port of each."""
    encoded = encode_objects(
        node("a"), node("b"), pod("r", node="b", **_pod_on(80)), pod("p", **case.given)
    )

    nodes, signature = encoded.snapshot.nodes, signature_of(encoded, "p")
    taken = {column for column in range(nodes.ports.shape[1]) if nodes.ports[1, column]}
    assert bool(taken & set(signature.conflicting_ports)) == case.want
    assert (
        bool(signature.host_ports)
        == bool(set(signature.host_ports) & set(signature.conflicting_ports))
        == bool(signature.conflicting_ports)
    )
    assert not nodes.ports[0].any()


def test_two_addresses() -> None:
    """They do not conflict with each other, but both conflict with all addresses."""
    encoded = encode_objects(
        node("a"),
        pod("x", **_pod_on(80, hostIP="10.0.0.1")),
        pod("y", **_pod_on(80, hostIP="10.0.0.2")),
        pod("z", **_pod_on(80)),
    )

    signatures = {name: signature_of(encoded, name) for name in "xyz"}
    assert {
        one + other
        for one, avoiding in signatures.items()
        for other, taking in signatures.items()
        if set(avoiding.conflicting_ports) & set(taking.host_ports)
    } == {"xx", "yy", "zz", "xz", "yz", "zx", "zy"}


def test_many_addresses() -> None:
    """No two are compared: a port has at most one column more than addresses."""
    ports = [{"containerPort": 1, "hostPort": 1, "hostIP": f"10.0.0.{n}"} for n in range(200)]
    encoded = encode_objects(
        node("a"), pod("x", containers=[{"ports": ports}]), pod("z", **_pod_on(1))
    )

    assert len(encoded.ports) == 202
    assert [len(signature_of(encoded, name).conflicting_ports) for name in "xz"] == [201, 1]
    assert [len(signature_of(encoded, name).host_ports) for name in "xz"] == [201, 2]
