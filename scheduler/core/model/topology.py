"""Topologies: the domains of the nodes, level by level, and the domains that pods are bound to."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.resources import NONE

# Of a domain, the values of the labels from the widest level down to its own.
DomainPath: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SnapshotTopology:
    """The domains of one topology: nodes with equal labels down to a level are one domain of it.

    The domains of a level are numbered in the order of their paths. A node that lacks the label of
    any level is in no domain of any level.
    """

    name: str
    levels: tuple[str, ...]  # node labels, the widest first
    domains: NDArray[np.int32]  # [level, node] the domain, or NONE
    paths: tuple[tuple[DomainPath, ...], ...]  # [level][domain]


class DomainConstraint(NamedTuple):
    """Pods must be in one domain of the *required* level, and should be in one of the preferred."""

    topology: int
    required: int = NONE  # level; NONE is the whole cluster
    preferred: int = NONE  # level, not wider than the required one
    is_default: bool = False  # of the queue

    @property
    def base(self) -> int:
        """The level of the domains that are tried first."""
        return self.required if self.preferred == NONE else self.preferred
