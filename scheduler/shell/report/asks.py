"""What PodGroups ask of an autoscaler after a plan, and the record of that on each PodGroup.

The marks themselves are the conditions of pods, which `status` writes. The record changes when an
ask begins, is given up, or begins again, and is removed when the PodGroup waits no longer.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from scheduler.core.messages.node_request_messages import lacking_pods_text, refusal_text
from scheduler.core.model.node_request import NodeRequest
from scheduler.core.model.rejections import Rejection
from scheduler.core.model.resources import NONE
from scheduler.core.node_requests import node_requests
from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.state.podgroups.node_asks import (
    AskedPods,
    AskLimits,
    AskNews,
    NodeAsk,
    arriving_nodes,
    ask_annotation,
    ask_text,
    is_same_ask,
    next_asks,
    read_asks,
)
from scheduler.state.podgroups.provisioning import ProvisioningClass
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ASKED_FOR_NODES
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions

_RECORD: Final = WriteOptions(field_manager=FIELD_MANAGER)
_CLAIMS: Final = (
    "Karpenter ignores pods with ResourceClaims unless it runs with --ignore-dra-requests=false"
)

NO_ASKS: Final[Mapping[Key, NodeAsk]] = MappingProxyType({})


class AskPolicy(NamedTuple):
    """What a site has set."""

    limits: AskLimits
    is_within_quota: bool
    startup_taints: tuple[str, ...]
    gpu_resources: tuple[str, ...]


class AskInput(NamedTuple):
    """What is known before a plan."""

    policy: AskPolicy
    known: Mapping[Key, NodeAsk]
    news: AskNews
    classes: Mapping[str, ProvisioningClass] = MappingProxyType({})  # by queue that has one

    @classmethod
    def of(
        cls, policy: AskPolicy, known: Mapping[Key, NodeAsk], nodes: Iterable[Node]
    ) -> "AskInput":
        """Read the nodes only if some are waited for: there may be thousands."""
        since = min((it.since for it in known.values() if not it.is_released), default=None)
        if since is None:
            return cls(policy, known, AskNews())
        arriving = arriving_nodes(nodes, since, policy.startup_taints, policy.gpu_resources)
        return cls(policy, known, AskNews(tuple(arriving)))


class Asks(NamedTuple):
    """What PodGroups ask for after a plan."""

    by_podgroup: Mapping[Key, NodeAsk]
    requests: Mapping[int, NodeRequest]
    faults: Mapping[int, str]  # of the class of their queue
    news: AskNews

    def marked_pods(self, key: Key, row: int) -> tuple[int, ...]:
        ask = self.by_podgroup.get(key)
        return () if ask is None or ask.by_class else self._pods(ask, row)

    def requested_pods(self, key: Key, row: int) -> tuple[int, ...]:
        """Return the pods that a ProvisioningRequest is for."""
        ask = self.by_podgroup.get(key)
        return self._pods(ask, row) if ask is not None and ask.by_class else ()

    def _pods(self, ask: NodeAsk, row: int) -> tuple[int, ...]:
        request = self.requests.get(row)
        return () if request is None or ask.is_released else request.pods

    def sentences(self, encoded: EncodedSnapshot, key: Key, row: int) -> list[str]:
        """Return what is added to the message of a PodGroup."""
        request, ask = self.requests.get(row), self.by_podgroup.get(key)
        if request is None:
            return []
        if request.refusal is not None:
            return [f"No nodes are asked for: {refusal_text(encoded.snapshot, request.refusal)}"]
        if row in self.faults:
            return [f"No nodes are asked for: {self.faults[row]}"]
        said = [] if ask is None else [ask_text(key, ask, self.news)]
        return [*said, _CLAIMS] if request.has_claims else said


def asks_after(encoded: EncodedSnapshot, rejections: Iterable[Rejection], given: AskInput) -> Asks:
    keys, rejections = encoded.podgroup_keys, [it for it in rejections if it.podgroup != NONE]
    known = {
        it.podgroup: ask
        for it in rejections
        if (ask := given.known.get(keys[it.podgroup])) is not None
    }
    asking = {row for row, it in known.items() if not it.is_released}
    paused = {row for row in known.keys() - asking if encoded.snapshot.now < known[row].again_at}
    requests = node_requests(
        encoded.snapshot, rejections, asking, paused, is_within_quota=given.policy.is_within_quota
    )
    classes = {row: it for row in requests if (it := _class(encoded, given, row)) is not None}
    faults = {row: it.fault for row, it in classes.items() if it.fault}
    asked = {
        keys[row]: AskedPods(
            lacking_pods_text(it.lacking),
            it.lacking_count,
            classes[row].name if row in classes else "",
        )
        for row, it in requests.items()
        if it.pods and row not in faults
    }
    waiting = {keys[it.podgroup] for it in rejections}
    asks = next_asks(
        given.known, asked, waiting, encoded.snapshot.now, given.policy.limits, given.news
    )
    return Asks(asks, requests, faults, given.news)


def _class(encoded: EncodedSnapshot, given: AskInput, row: int) -> ProvisioningClass | None:
    """Return the class of the queue; a pod without a PodGroup has no owner for a request."""
    podgroup = encoded.snapshot.podgroups[row]
    if not given.classes or podgroup.queue == NONE or not podgroup.can_reserve:
        return None
    return given.classes.get(encoded.snapshot.queues.names[podgroup.queue])


def restored_asks(podgroups: Iterable[PodGroup], now: int) -> Mapping[Key, NodeAsk]:
    return read_asks(podgroups, now)


async def record_ask(client: Client, group: PodGroup, ask: NodeAsk | None) -> None:
    """Keep an ask on its PodGroup, or remove it, unless that is so already."""
    current = group.metadata.annotations.get(ASKED_FOR_NODES)
    if current is None if ask is None else is_same_ask(current, ask):
        return
    text = None if ask is None else ask_annotation(ask)
    fields = {"metadata": {"uid": group.metadata.uid, "annotations": {ASKED_FOR_NODES: text}}}
    await client.merge_patch(PODGROUPS, group.metadata.key, fields, _RECORD)
