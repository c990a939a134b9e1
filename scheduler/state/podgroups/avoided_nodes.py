"""Which nodes PodGroups avoid now: those that refused pods of them, until their time is over.

A node that was made anew has another uid, and is not avoided.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.core.model.podgroup import AvoidedNode
from scheduler.core.model.resources import NONE
from scheduler.state.nodes.node_table import NodeTable
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import AVOIDED_NODES
from trainer_kai.policy.podgroups.avoided_nodes import (
    MOST_TRIED_NODES,
    AvoidedNodeRecord,
    ends_at,
    read_avoided_nodes,
)


class AvoidedNodes:
    def __init__(self, groups: Mapping[Key, PodGroup], nodes: NodeTable) -> None:
        self._groups: Final = groups
        self._nodes: Final = nodes
        self._records: Final[dict[Key, dict[str, AvoidedNodeRecord]]] = {}
        self._now = 0  # it may go back
        self._next_end: float = math.inf  # when the first of them is over, in seconds since 1970
        self.by_podgroup: Final[dict[Key, tuple[AvoidedNode, ...]]] = {}

    def read(self, changed: Iterable[Key], now: int, *, has_nodes_changed: bool) -> set[Key]:
        """Read changed PodGroups; return those that avoid other nodes than before."""
        to_read = self._read_records(changed)
        if has_nodes_changed or now >= self._next_end or now < self._now:
            to_read |= self._records.keys()
        self._now = now
        found = {key for key in to_read if self._update(key, now)}
        if to_read:
            ends = (it.until for avoided in self.by_podgroup.values() for it in avoided)
            self._next_end = min(ends, default=math.inf)
        return found

    def _read_records(self, changed: Iterable[Key]) -> set[Key]:
        found = set()
        for key in changed:
            group = self._groups.get(key)
            text = group.metadata.annotations.get(AVOIDED_NODES, "") if group else ""
            if text:
                self._records[key] = read_avoided_nodes(text)
                found.add(key)
            elif self._records.pop(key, None) is not None:
                found.add(key)
        return found

    def _update(self, key: Key, now: int) -> bool:
        avoided = []
        for name, record in sorted(self._records.get(key, {}).items()):
            row, until = self._nodes.row_of(name), ends_at(record)
            if row != NONE and until > now and record.uid == self._nodes.nodes[row].metadata.uid:
                avoided.append(AvoidedNode(row, until))
        if len(avoided) >= MOST_TRIED_NODES:
            avoided.append(AvoidedNode(NONE, min([it.until for it in avoided])))
        before = self.by_podgroup.pop(key, ())
        if avoided:
            self.by_podgroup[key] = tuple(avoided)
        return before != tuple(avoided)
