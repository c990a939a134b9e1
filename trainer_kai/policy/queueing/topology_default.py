"""The topology of a queue: the default of its PodGroups that have no constraint of their own.

A queue has it as annotations. Of a queue and its ancestors the nearest one counts that names a
Topology, with all that it says.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.names import TOPOLOGY, TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED

TOPOLOGY_ANNOTATIONS: Final = (TOPOLOGY, TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED)


class TopologyDefault(NamedTuple):
    annotations: Mapping[str, str]
    decided_by: str  # the queue with the annotations: itself or an ancestor


def own_topology_default(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a queue says itself; nothing if it names no Topology."""
    if TOPOLOGY not in annotations:
        return {}
    return {name: annotations[name] for name in TOPOLOGY_ANNOTATIONS if name in annotations}


def topology_default(
    queue: str, parent_of: Callable[[str], str], own: Mapping[str, Mapping[str, str]]
) -> TopologyDefault | None:
    """Return the default of the PodGroups of a queue; *own* is what queues say themselves.

    A queue without a parent, and one that does not exist, has the parent "".
    """
    visited: set[str] = set()
    while queue and queue not in visited:
        if own.get(queue):
            return TopologyDefault(own[queue], queue)
        visited.add(queue)
        queue = parent_of(queue)
    return None
