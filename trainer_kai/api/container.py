"""What a container asks of its node."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.quantity import Quantity

__all__ = ["Container", "ContainerPort", "ResourceClaimUse", "Resources"]


class ResourceClaimUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which of the pod's claims a container uses."""

    name: str
    request: str = ""


class Resources(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What must be there and what may be used; a stored pod has its requests filled from limits."""

    requests: Mapping[str, Quantity] = {}
    limits: Mapping[str, Quantity] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A port; only one with a host port sets two pods against each other."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One container; an init container that restarts Always is a sidecar and stays."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
