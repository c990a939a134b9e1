"""Containers, and what they request from a node."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.quantity import Quantity


class ResourceClaimUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A resource claim of the pod that the container uses."""

    name: str
    request: str = ""


class Resources(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Requests and limits; the API server sets missing requests of a stored pod to its limits."""

    requests: Mapping[str, Quantity] = {}
    limits: Mapping[str, Quantity] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A port; ports without a host port do not conflict."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A container; an init container with restartPolicy Always is a sidecar and keeps running."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
