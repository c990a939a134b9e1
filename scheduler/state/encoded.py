"""What is handed out: a snapshot, and what its rows are called."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.core.model import Snapshot
from scheduler.state.selectors import PodSelector
from scheduler.state.terms import ObjectWarning
from trainer_kai.api.meta import Key
from trainer_kai.policy.ports import PodHostPort

__all__ = ["EncodedSnapshot"]


@dataclass(frozen=True)
class EncodedSnapshot:
    """Nothing in it changes any more."""

    snapshot: Snapshot
    pod_keys: tuple[Key, ...]  # by row; rows of nobody are in no unit
    podgroup_keys: tuple[Key, ...]  # by row: namespace, and the name of the group
    warnings: tuple[ObjectWarning, ...]  # what was left aside
    reserved: Mapping[int, str] = field(default_factory=dict)  # by unit: the annotation that it has
    selectors: tuple[PodSelector, ...] = ()  # by row of neighbours
    ports: tuple[PodHostPort, ...] = ()  # by column of nodes
    claims: tuple[Key, ...] = ()  # by row of neighbours
