"""Topology: the node labels that define how close two nodes are, from coarse to fine."""

import msgspec

from trainer_kai.api.meta import Meta


class TopologyLevel(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A node label; workloads may refer to it by its alias."""

    node_label: str
    alias: str = ""


class TopologySpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The levels, from the coarsest to the finest."""

    levels: tuple[TopologyLevel, ...] = ()


class Topology(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A topology of the cluster."""

    metadata: Meta
    spec: TopologySpec = TopologySpec()
