"""What keeps the nodes of running gangs: annotations for autoscalers, and when they are removed.

An autoscaler that removes a node for cost takes one pod of a gang, and the others wait for it. So
the pods of PodGroups that need more than one pod get two annotations together with their bind, at
no further write; other pods can be moved, and have none. A third annotation lists what was written,
so that nothing of a user is removed. They are removed where an administrator drains the node: else
Karpenter would never replace one that is cordoned.
"""

from collections.abc import Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.podgroups.podgroup import min_members
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import DO_NOT_DISRUPT, KEEPS_NODE, SAFE_TO_EVICT
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import ApiError, NotFound

_KEEPING: Final[Mapping[str, str]] = {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false"}
_LIFT: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")
_TICK_S: Final = 3.0
_GANG: Final = 2  # pods that need each other


def is_gang(group: PodGroup | None) -> bool:
    return group is not None and sum(min_members(group).values()) >= _GANG


def keeping_annotations(meta: Meta) -> Mapping[str, str]:
    """Return what a pod gets with its bind; what its user has written stays."""
    added = {name: it for name, it in _KEEPING.items() if name not in meta.annotations}
    return {**added, KEEPS_NODE: ",".join(added)} if added else {}


class NodeKeeping:
    """Which pods keep their nodes; `run` lets nodes go that are drained."""

    def __init__(self, client: Client, cache: ClusterCache, log: FilteringBoundLogger) -> None:
        self._client = client
        self._cache = cache
        self._log = log
        self._released: set[str] = set()  # cordoned nodes that no pod keeps any more

    def annotations(self, pod: Key, group: Key) -> Mapping[str, str]:
        """Return the annotations of a pod that is about to be bound."""
        cluster = self._cache.cluster
        known = cluster.pods.get(pod)
        if known is None or not is_gang(cluster.pod_groups.get(group)):
            return {}
        return keeping_annotations(known.metadata)

    async def run(self) -> None:
        """Remove the annotations on nodes that are cordoned, once for each time that one is."""
        while True:
            await self._client.clock.sleep(_TICK_S)
            nodes = self._cache.cluster.nodes
            cordoned = {name for name, node in nodes.items() if node.spec.unschedulable}
            self._released &= cordoned
            new = cordoned - self._released
            if new:
                failed = [it for it in self._kept_on(new) if not await self._lift(it)]
                self._released |= set() if failed else new

    def _kept_on(self, nodes: set[str]) -> list[Meta]:
        return [
            pod.metadata
            for pod in self._cache.cluster.pods.values()
            if pod.spec.node_name in nodes and KEEPS_NODE in pod.metadata.annotations
        ]

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
