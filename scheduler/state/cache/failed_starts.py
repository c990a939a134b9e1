"""Pods that a kubelet cannot start: it reports by Events that it can create no sandbox for them.

A sandbox comes before images, configuration and programs: it fails for what its node lacks. The
kubelet reports each attempt, at times several in one Event. Few pods are known here: one that is
forgotten is reported again.
"""

from typing import Final

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.node_refusals import NodeRefusals
from scheduler.state.inputs import Cluster
from trainer_kai.api.cluster_kinds import Event
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS

FIELD_SELECTOR: Final = "involvedObject.kind=Pod,reason=FailedCreatePodSandBox"
_REASON: Final = "FailedCreatePodSandBox"
_MOST_PODS: Final = 500
_MOST_EVENTS: Final = 10  # of one pod
_ATTEMPTS: Final = 3  # after which the node is avoided
_MOST_TEXT: Final = 300  # characters


class FailedStarts:
    def __init__(self, cluster: Cluster, refusals: NodeRefusals) -> None:
        self._cluster: Final = cluster
        self._refusals: Final = refusals
        # By the uid of a pod, by the name of an Event: attempts.
        self._attempts: Final[dict[str, dict[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def is_stuck(self, pod: Pod) -> bool:
        """Say whether a pod is on its node, and that cannot start it."""
        attempts = self._attempts.get(pod.metadata.uid, {})
        is_placed = bool(pod.spec.node_name) and pod.status.phase == "Pending"
        return is_placed and sum(attempts.values()) >= _ATTEMPTS

    def update(self, key: Key, event: Event | None) -> ClusterEvent:
        """Note an attempt; a pod that was started since needs no other node."""
        if event is None or event.reason != _REASON or event.involved_object.kind != PODS.kind:
            return NO_EVENT
        involved = event.involved_object
        pod_key = Key(key.namespace, involved.name)
        pod = self._cluster.pods.get(pod_key)
        if pod is None or not pod.spec.node_name or pod.metadata.uid != involved.uid:
            return NO_EVENT
        if pod.status.phase != "Pending":
            self._attempts.pop(pod.metadata.uid, None)
            return NO_EVENT
        attempts = self._attempts.setdefault(pod.metadata.uid, {})
        if key.name in attempts or len(attempts) < _MOST_EVENTS:
            attempts[key.name] = max(event.count or 1, 1)
        if len(self._attempts) > _MOST_PODS:
            del self._attempts[next(iter(self._attempts))]
        if self.is_stuck(pod):
            text = " ".join(event.message.split())[:_MOST_TEXT]
            self._refusals.note_stuck_pod(pod_key, pod, text)
        return NO_EVENT
