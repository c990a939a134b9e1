"""Nodes that refused pods: each is avoided at once, until it is written on the PodGroup of the pod.

A kubelet may refuse a pod that was bound to its node: it lets the pod fail before any container
starts. Only what a kubelet writes in the status of a pod counts, or that a node gave a reservation
pod no GPU; and it counts for the PodGroup of that pod alone. A pod that was refused stays there as
an object. So it counts once: when it is refused, or, where that was not seen, if it was bound after
the node refused the last one.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.members import PodGroupMembers, podgroup_key
from scheduler.state.inputs import Cluster, StateOptions, epoch_s
from scheduler.state.podgroups.attributes import scheduled_at
from trainer_kai.api.meta import Key
from trainer_kai.api.names import AVOIDED_NODES, DISRUPTION_TARGET
from trainer_kai.api.pod import Pod, kubelet_refusal
from trainer_kai.policy.podgroups.avoided_nodes import (
    AvoidedNodeRecord,
    ends_at,
    kept_records,
    read_avoided_nodes,
    refused_at,
    with_refusal,
    write_avoided_nodes,
)

_UNFINISHED_S: Final = 60  # after a refusal its gang has been suspended, or goes on


class NodeRefusal(NamedTuple):
    node: str
    cause: str  # as a sentence
    record: AvoidedNodeRecord
    is_of_pod: bool = False  # that was bound, and does not run
    is_stuck: bool = False  # it is on its node all the same
    is_known: bool = False  # the node is avoided by now: nothing is to be written


class NodeRefusals:
    def __init__(
        self,
        cluster: Cluster,
        members: PodGroupMembers,
        assumed: AssumedChanges,
        options: Callable[[], StateOptions],
    ) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._assumed: Final = assumed
        self._options: Final = options
        self._is_leading = self._is_starting = False
        self._to_report: dict[Key, list[NodeRefusal]] = {}
        self._to_mark: dict[Key, dict[Key, None]] = {}
        self.on_change: Callable[[Key], None] | None = None
        """Called with a PodGroup when a pod of it was refused, or it avoids another node."""

    def start(self) -> None:
        """Note all pods that were refused: another leader may have written nothing about them."""
        self._is_leading = self._is_starting = True
        for key, pod in self._cluster.pods.items():
            if kubelet_refusal(pod):
                self.note_pod(key, pod)
        self._is_starting = False

    def note_pod(self, key: Key, pod: Pod, *, is_refused_now: bool = False) -> None:
        """Note a refused pod; *is_refused_now* counts also if it was bound, and ran, long ago."""
        group, options = podgroup_key(key, pod), self._options()
        bound_at = scheduled_at(pod) or epoch_s(pod.metadata.creation_timestamp) or options.now
        bound_at = options.now if is_refused_now else bound_at
        is_old = bound_at <= options.now - options.avoid_times.most_s  # it may be forgotten
        if group is None or is_old or not self._members.is_ours(pod):
            return
        if not any(it.type == DISRUPTION_TARGET for it in pod.status.conditions):
            self._to_mark.setdefault(group, {})[key] = None
            self._notify(group)
        node, reason = pod.spec.node_name, kubelet_refusal(pod)
        cause = f"Node {node} refused pod {key.name} ({reason})"
        found = NodeRefusal(node, cause, AvoidedNodeRecord(reason=reason), is_of_pod=True)
        self._note(group, found, bound_at)

    def note_stuck_pod(self, key: Key, pod: Pod, reason: str) -> None:
        """Note a pod that its kubelet cannot start, and that waits on its node."""
        group, node = podgroup_key(key, pod), pod.spec.node_name
        if group is not None and self._members.is_ours(pod):
            cause = f"Node {node} cannot start pod {key.name}: {reason}"
            record = AvoidedNodeRecord(reason=reason)
            found = NodeRefusal(node, cause, record, is_of_pod=True, is_stuck=True)
            self._note(group, found, self._options().now)

    def note_node(self, group: Key, node: str, reason: str) -> None:
        cause = f"Node {node} is of no use: {reason}"
        found = NodeRefusal(node, cause, AvoidedNodeRecord(reason=reason))
        self._note(group, found, self._options().now)

    def _note(self, group: Key, refusal: NodeRefusal, bound_at: int) -> None:
        times, now, node = self._options().avoid_times, self._options().now, refusal.node
        if not self._is_leading:
            return
        podgroup, known_node = self._cluster.pod_groups.get(group), self._cluster.nodes.get(node)
        if podgroup is None or known_node is None or not times.first_s:
            return
        uid, reason = known_node.metadata.uid, refusal.record.reason
        records = read_avoided_nodes(podgroup.metadata.annotations.get(AVOIDED_NODES, ""))
        before = records.get(node)
        is_known = before is not None and before.uid == uid
        if before and is_known and (ends_at(before) > now or bound_at <= refused_at(before)):
            # Its PodGroup may lack too many pods only now, or another leader had no time to act.
            if refusal.is_stuck or (self._is_starting and now - refused_at(before) < _UNFINISHED_S):
                self._add(group, refusal._replace(is_known=True))
            return
        record = with_refusal(before, uid, reason, now, times)
        text = write_avoided_nodes(kept_records({**records, node: record}, now, times))
        self._assumed.avoid_nodes(group, text)
        self._add(group, refusal._replace(record=record))

    def _add(self, group: Key, refusal: NodeRefusal) -> None:
        self._to_report.setdefault(group, []).append(refusal)
        self._notify(group)

    def _notify(self, group: Key) -> None:
        if self.on_change is not None:
            self.on_change(group)

    def take(self, group: Key) -> list[NodeRefusal]:
        """Return what is to be reported of a PodGroup, once."""
        return self._to_report.pop(group, [])

    def take_unmarked(self, group: Key) -> list[Key]:
        """Return the refused pods of a PodGroup of which no condition says so, once."""
        return [*self._to_mark.pop(group, ())]

    def clear(self) -> None:
        self._to_report, self._to_mark, self.on_change = {}, {}, None
        self._is_leading = False
