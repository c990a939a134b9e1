"""What is handed out: a snapshot, and what its rows are called."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.core.model import Snapshot
from scheduler.state.selectors import Selector
from scheduler.state.terms import Stray
from trainer_kai.api.meta import Key
from trainer_kai.policy.ports import NodePort

__all__ = ["Encoded"]


@dataclass(frozen=True)
class Encoded:
    """Nothing in it changes any more."""

    snapshot: Snapshot
    pods: tuple[Key, ...]  # by row; rows of nobody are in no unit
    units: tuple[Key, ...]  # by row: namespace, and the name of the group
    strays: tuple[Stray, ...]  # what was left aside
    reserved: Mapping[int, str] = field(default_factory=dict)  # by unit: the annotation that it has
    selectors: tuple[Selector, ...] = ()  # by row of neighbours
    ports: tuple[NodePort, ...] = ()  # by column of nodes
    claims: tuple[Key, ...] = ()  # by row of neighbours
