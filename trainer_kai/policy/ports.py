"""Which ports of its node a pod takes.

Those of sidecars and containers; in the network of the node each port is one of the node, also
where nobody filled it in.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from trainer_kai.api.pod import PodSpec

__all__ = ["ANY_ADDRESS", "TCP", "PodHostPort", "pod_host_ports"]

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - an address in an object, which nobody binds to
TCP: Final = "TCP"


class PodHostPort(NamedTuple):
    """A port with its address."""

    protocol: str
    number: int
    address: str


def pod_host_ports(spec: PodSpec) -> Iterator[PodHostPort]:
    """Yield the ports, one that is named twice twice."""
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                yield PodHostPort(port.protocol or TCP, number, port.host_ip or ANY_ADDRESS)
