"""Which ports of its node a pod takes.

Those of sidecars and containers; in the network of the node each port is one of the node, also
where nobody filled it in.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from trainer_kai.api.pod import PodSpec

__all__ = ["EVERYWHERE", "TCP", "NodePort", "node_ports"]

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - an address in an object, which nobody binds to
TCP: Final = "TCP"


class NodePort(NamedTuple):
    """A port with its address."""

    protocol: str
    number: int
    address: str


def node_ports(spec: PodSpec) -> Iterator[NodePort]:
    """Yield the ports, one that is named twice twice."""
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                yield NodePort(port.protocol or TCP, number, port.host_ip or EVERYWHERE)
