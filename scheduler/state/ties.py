"""What ties pods to nodes beyond what the nodes are: other pods, ports and volumes."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from scheduler.state.charges import Lying
from scheduler.state.claims import Claims
from scheduler.state.cluster import Cluster
from scheduler.state.neighbours import NeighbourRows
from scheduler.state.nodes import NodeRows
from scheduler.state.ports import Ports
from scheduler.state.roll import DONE, Roll
from scheduler.state.selectors import Namespaces

__all__ = ["Present", "Ties", "read_ties"]


class Present(NamedTuple):
    """The kin that matter, and how many pods of them may yet be made."""

    numbers: tuple[int, ...]
    to_come: Mapping[int, int]


class Ties(NamedTuple):
    """All of them, by kin."""

    neighbours: NeighbourRows
    ports: Ports
    claims: Claims


def read_ties(cluster: Cluster, roll: Roll, nodes: NodeRows, on: Lying, kins: Present) -> Ties:
    """Read what the kin that are present say of others."""
    present = kins.numbers
    namespaces = Namespaces(cluster.namespaces, {kin.namespace for kin in roll.kins})
    neighbours = NeighbourRows(roll.kins, nodes.labels, namespaces)
    neighbours.read(present)
    claims = Claims(cluster, roll.kins, nodes.labels)
    numbers, heads = np.unique(roll.kin[roll.state < DONE], return_counts=True)
    users = Counter(kins.to_come)
    users.update(dict(zip(numbers.tolist(), heads.tolist(), strict=True)))
    claims.read((pair for pair in users.items() if roll.kins[pair[0]].spec.volumes), on)
    return Ties(neighbours, Ports(roll.kins, present), claims)
