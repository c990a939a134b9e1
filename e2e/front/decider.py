"""The scheduling core in the place of a scheduler: it reads a chain, and what it says is done.

There is no process yet that watches, assumes and reports; this is the shortest way from what the
API server has to what the core makes of it, and back.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    JOBSETS,
    NODES,
    PODS,
    PVCS,
    PVS,
    STORAGE_CLASSES,
    Obj,
    Resource,
)
from e2e.cluster.timeline import State, Timeline
from e2e.front.install import PODGROUPS, PRIORITY_CLASSES, QUEUES
from scheduler.core.check import violations
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.cluster import Cluster as Objects
from scheduler.state.encode import Terms, encode
from scheduler.state.orders import Orders, read_orders
from trainer_kai.api.decode import decode
from trainer_kai.api.decode import encode as to_bytes
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import Queue
from trainer_kai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

__all__ = ["WATCHED", "Decider"]

WATCHED: Final = (JOBSETS, PODGROUPS, PODS, PVCS)
_STRUCTS: Final[dict[Resource, tuple[str, Any]]] = {
    NODES: ("nodes", Node),
    QUEUES: ("queues", Queue),
    PRIORITY_CLASSES: ("priority_classes", PriorityClass),
    PVS: ("volumes", PersistentVolume),
    STORAGE_CLASSES: ("storage_classes", StorageClass),
    JOBSETS: ("jobsets", JobSet),
    PODGROUPS: ("pod_groups", PodGroup),
    PODS: ("pods", Pod),
    PVCS: ("claims", PersistentVolumeClaim),
}
_POLICIES: Final = choose(Choice())


@dataclass
class Decider:
    """What was bound and reserved so far, in order."""

    cluster: Cluster
    bound: dict[Key, str] = field(default_factory=dict)
    reserved: list[str] = field(default_factory=list)  # the annotations that were written
    held: dict[Key, str] = field(default_factory=dict)  # the last of them, by group
    refused: set[str] = field(default_factory=set)  # verdicts seen

    async def carry(
        self, seen: Timeline, done: Callable[[State], bool], timeout_s: float = 60.0
    ) -> None:
        """Do what the core says, until it is *done*; the timeline must record what is watched."""
        still = [kind for kind in _STRUCTS if kind not in WATCHED]
        listed = {kind: (await self.cluster.api.list(kind))[0] for kind in still}
        async for state in seen.follow(done, timeout_s):
            objects = Objects()
            for kind, found in listed.items():
                self._add(objects, kind, found)
            for kind in WATCHED:
                some = [obj for key, obj in state.items() if key.resource == kind]
                self._add(objects, kind, some)
            await self._do(self._decide(objects))

    def _add(self, objects: Objects, kind: Resource, listed: Iterable[Obj]) -> None:
        name, struct = _STRUCTS[kind]
        known = getattr(objects, name)
        for obj in listed:
            key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            there = self._as_written(kind, key, obj)
            known[key if kind.namespaced else key.name] = decode(struct, to_bytes(there))

    def _as_written(self, kind: Resource, key: Key, obj: Obj) -> Obj:
        """Return an object with what was written on it, which a watch may show later."""
        if kind == PODS and key in self.bound:
            return {**obj, "spec": {**obj["spec"], "nodeName": self.bound[key]}}
        if kind == PODGROUPS and key in self.held:
            meta = obj["metadata"]
            annotations = {**meta.get("annotations", {}), RESERVED: self.held[key]}
            return {**obj, "metadata": {**meta, "annotations": annotations}}
        return obj

    def _decide(self, objects: Objects) -> Orders:
        encoded = encode(objects, Terms(now=int(time.time())))
        made = plan(encoded.snapshot, _POLICIES)
        assert not [*violations(encoded.snapshot, made)]
        return read_orders(encoded, made)

    async def _do(self, orders: Orders) -> None:
        """Write down what is held before anything is bound that relies on it."""
        self.refused |= {it.verdict.title for it in orders.unschedulable}
        for group, text in orders.reserved.items():
            annotations = {RESERVED: text or None}
            await self.cluster.api.merge(
                PODGROUPS, group.namespace, group.name, {"metadata": {"annotations": annotations}}
            )
            self.reserved.append(text)
            self.held[group] = text
        for pod, node in orders.binds:
            await self.cluster.api.bind(pod.namespace, pod.name, node)
            self.bound[pod] = node
