"""Node: its resources, labels and taints."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.quantity import Quantity


class Taint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A taint: pods must tolerate it to run on the node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The desired state of the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The state that the node reports."""

    allocatable: Mapping[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
