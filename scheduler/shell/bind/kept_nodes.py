"""What keeps the nodes of running gangs: annotations for autoscalers, and when they are removed.

An autoscaler that removes a node for cost takes one pod of a gang, and the others wait for it. So
the pods of PodGroups that need more than one pod get two annotations together with their bind, at
no further write; other pods can be moved, and have none. A third annotation lists what was written,
so that nothing of a user is removed. They are removed where the node goes in any case, because it
is cordoned or has a termination notice: else Karpenter would wait for the pods for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.podgroups.podgroup import min_members
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import DO_NOT_DISRUPT, KEEPS_NODE, SAFE_TO_EVICT
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, NotFound
from trainer_kai.policy.leaving_nodes import DEFAULT_SIGNS, LeavingSigns

_KEEPING: Final[Mapping[str, str]] = {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false"}
_LIFT: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")
_TICK_S: Final = 3.0
_MAX_RETRY_S: Final = 300.0
_GANG: Final = 2  # pods that need each other


def is_gang(group: PodGroup | None) -> bool:
    return group is not None and sum(min_members(group).values()) >= _GANG


def keeping_annotations(meta: Meta) -> Mapping[str, str]:
    """Return what a pod gets with its bind; what its user has written stays."""
    added = {name: it for name, it in _KEEPING.items() if name not in meta.annotations}
    return {**added, KEEPS_NODE: ",".join(added)} if added else {}


class NodeKeeping:
    """Which pods keep their nodes; `run` lets nodes go that are drained."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        log: FilteringBoundLogger,
        signs: LeavingSigns = DEFAULT_SIGNS,
    ) -> None:
        self._client = client
        self._cache = cache
        self._log = log
        self._signs = signs
        self._released: set[str] = set()  # nodes that go, and that no pod keeps any more
        self._retries: dict[str, tuple[float, float]] = {}  # by node: when, and the next delay

    def annotations(self, pod: Key, group: Key) -> Mapping[str, str]:
        """Return the annotations of a pod that is about to be bound."""
        cluster = self._cache.cluster
        known = cluster.pods.get(pod)
        if known is None or not is_gang(cluster.pod_groups.get(group)):
            return {}
        return keeping_annotations(known.metadata)

    async def run(self) -> None:
        """Remove the annotations on nodes that go, once for each time that one does."""
        while True:
            await self._client.clock.sleep(_TICK_S)
            going = {name for name, it in self._cache.cluster.nodes.items() if self._goes(it)}
            self._released &= going
            self._retries = {name: it for name, it in self._retries.items() if name in going}
            now_s = self._client.clock.monotonic_s()
            new = going - self._released
            due = {it for it in new if self._retries.get(it, (0.0, 0.0))[0] <= now_s}
            for name, pods in self._kept_on(due).items():
                results = [await self._lift(it) for it in pods]
                if all(results):
                    self._released.add(name)
                    self._retries.pop(name, None)
                else:
                    _, delay_s = self._retries.get(name, (0.0, _TICK_S))
                    again = now_s + delay_s, min(2 * delay_s, _MAX_RETRY_S)
                    self._retries[name] = again

    def _goes(self, node: Node) -> bool:
        sign = self._signs.of(node)
        return node.spec.unschedulable or (sign is not None and sign.is_notice)

    def _kept_on(self, nodes: set[str]) -> Mapping[str, Sequence[Meta]]:
        """Return pods of ours by node; a user may write the annotation on any other pod."""
        found: dict[str, list[Meta]] = {name: [] for name in nodes}
        is_ours = self._cache.members.is_ours
        for pod in self._cache.cluster.pods.values() if nodes else ():
            is_there = pod.spec.node_name in nodes
            if is_there and KEEPS_NODE in pod.metadata.annotations and is_ours(pod):
                found[pod.spec.node_name].append(pod.metadata)
        return found

    async def _lift(self, meta: Meta) -> bool:
        written = meta.annotations[KEEPS_NODE].split(",")
        names = [name for name in _KEEPING if name in written]
        annotations = dict.fromkeys((*names, KEEPS_NODE))
        fields = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        try:
            await self._client.merge_patch(PODS, meta.key, fields, _LIFT)
        except NotFound:
            return True
        except ApiError as error:
            self._log.warning("pod still keeps its node", pod=str(meta.key), error=str(error))
            return False
        self._log.info("pod no longer keeps its node", pod=str(meta.key))
        return True
