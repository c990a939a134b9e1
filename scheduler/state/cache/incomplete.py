"""PodGroups that have started and lack pods: which they lack, and the places kept for new ones."""

from typing import Final

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.cache.members import PodGroupMembers, podgroup_key
from scheduler.state.commands import PodGroupCommands
from scheduler.state.inputs import Cluster, ObjectStore
from scheduler.state.podgroups.attributes import owning_workload
from scheduler.state.podgroups.missing_pods import (
    Shortage,
    replaces_lost_pods,
    reserve_lost_places,
    shortage_of,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod


class IncompletePodGroups:
    """The started PodGroups that may lack pods, and since when their missing pods wait."""

    def __init__(
        self,
        cluster: Cluster,
        members: PodGroupMembers,
        stale_since: ObjectStore[Key, int],
    ) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._stale_since: Final = stale_since
        self._groups: dict[Key, None] = {}

    def incomplete_groups(self) -> list[Key]:
        return [*self._groups]

    def note(self, group: Key) -> None:
        self._groups[group] = None

    def note_all(self) -> None:
        """Note all PodGroups: another leader may have left some of them without pods.

        Each leader counts every grace by itself.
        """
        self._groups = dict.fromkeys(self._cluster.pod_groups)
        for group in [*self._stale_since.objects]:
            self._stale_since.put(group, None)

    def mark_complete(self, group: Key) -> None:
        self._groups.pop(group, None)

    def set_stale_since(self, group: Key, since: int | None) -> ClusterEvent:
        """Note since when a PodGroup lacks pods that exist, in epoch seconds; None if it does not.

        The next plan learns when its grace ends.
        """
        before = self._stale_since.put(group, since)
        return NO_EVENT if since is None or before == since else ClusterEvent.ANY

    def shortage(self, group: Key) -> Shortage | None:
        """Return which pods a PodGroup lacks; None if none, or it has not started, or it ends."""
        podgroup = self._cluster.pod_groups.get(group)
        if podgroup is None or _is_namespace_terminating(self._cluster, group.namespace):
            return None
        members = [self._cluster.pods[key] for key in self._members.pods_of(group)]
        return shortage_of(podgroup, members, owning_workload(podgroup, self._cluster.workloads))


class LostPods:
    """Pods that were lost, and their places: these are reserved for the pods that replace them."""

    def __init__(
        self,
        cluster: Cluster,
        members: PodGroupMembers,
        assumed: AssumedChanges,
    ) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._assumed: Final = assumed
        self._lost_pods: dict[Key, dict[Key, Pod]] = {}  # by PodGroup: places to reserve
        self._annotations_to_write: dict[Key, str] = {}  # by PodGroup

    def note(self, key: Key, lost: Pod) -> bool:
        """Note a lost pod, if a new pod may need its place; say whether."""
        name = podgroup_key(key, lost)
        group = self._cluster.pod_groups.get(name) if name else None
        if name is None or group is None or not self._members.is_ours(lost):
            return False
        if _is_namespace_terminating(self._cluster, key.namespace) or not replaces_lost_pods(
            group, owning_workload(group, self._cluster.workloads)
        ):
            return False
        self._lost_pods.setdefault(name, {})[key] = lost
        return True

    def reserve(self) -> None:
        lost_pods, self._lost_pods = self._lost_pods, {}
        for name, lost in lost_pods.items():
            group = self._cluster.pod_groups.get(name)
            if group is None:
                continue
            others = (self._cluster.pods[it] for it in self._members.pods_of(name) - lost.keys())
            workload = owning_workload(group, self._cluster.workloads)
            text = reserve_lost_places(lost.values(), others, group, workload)
            if text is not None:
                self._annotations_to_write[name] = text
                self._assumed.reserve(name, text)

    def annotations_to_write(self) -> list[PodGroupCommands]:
        self.reserve()
        annotations, self._annotations_to_write = self._annotations_to_write, {}
        return [PodGroupCommands(group, text, (), (), None) for group, text in annotations.items()]

    def retry_annotation(self, group: Key, text: str) -> None:
        self._annotations_to_write.setdefault(group, text)

    def clear(self) -> None:
        self._lost_pods, self._annotations_to_write = {}, {}


def _is_namespace_terminating(cluster: Cluster, namespace: str) -> bool:
    """Say whether a namespace is being deleted: no pods are created in it."""
    known = cluster.namespaces.get(namespace)
    return known is not None and bool(known.metadata.deletion_timestamp)
