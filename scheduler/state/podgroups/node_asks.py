"""What PodGroups have asked of an autoscaler: since when, what came, and when it is given up.

Neither cluster-autoscaler nor Karpenter adds all nodes of a gang or none. A gang that got some of
its nodes would keep them idle for ever, so after a while it asks no more: the autoscaler removes
what is idle, and the gang asks again later, each time after a longer pause. An ask is kept on the
PodGroup, so that a new leader neither asks twice for one need nor forgets that it gave up. A bad
annotation is none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from scheduler.state.inputs import epoch_s, format_timestamp
from scheduler.state.podgroups.provisioning import RequestState, request_name
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ASKED_FOR_NODES
from trainer_kai.api.quantity import QuantityError, milli
from trainer_kai.api.text import counted, verb_form

_MAX_PAUSE_S: Final = 4 * 3600
_MAX_ATTEMPTS: Final = 20  # that are told apart: the pause has reached its maximum long before
_MAX_TEXT: Final = 200
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
_GPU_HINTS: Final = ("gpu", "accelerator")  # in labels of nodes whose GPUs have yet to come


class AskLimits(NamedTuple):
    """Whole seconds: for how long nodes are waited for, and the first pause after that."""

    wait_s: int
    pause_s: int


class AskedPods(NamedTuple):
    """What a PodGroup asks for now, and how many of its pods lack a node."""

    text: str  # what they request
    missing: int
    by_class: str = ""  # of the ProvisioningRequest that asks; else marks of pods do


class NodeAsk(NamedTuple):
    """An ask of a PodGroup; times are seconds since 1970."""

    since: int
    text: str
    pods: int  # that lacked a node
    came: int = 0  # the most of them for which there was room
    came_at: int = 0
    released_at: int = 0  # 0: it is asked for
    again_at: int = 0
    attempts: int = 1
    by_class: str = ""  # of its ProvisioningRequest
    failure: str = ""  # why that was given up

    @property
    def is_released(self) -> bool:
        return self.released_at > 0


class ArrivingNode(NamedTuple):
    """A node that has joined, and takes no pods yet."""

    name: str
    created: int  # seconds since 1970
    why: str


class AskNews(NamedTuple):
    """What has become of what was asked for."""

    arriving: Collection[ArrivingNode] = ()
    requests: Mapping[Key, RequestState] = MappingProxyType({})  # by PodGroup


class _Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    since: str
    asked: str = ""
    pods: int = 0
    came: int = 0
    released: str = ""
    again: str = ""
    attempts: int = 1
    class_name: str = msgspec.field(default="", name="class")
    failure: str = ""


def next_asks(
    known: Mapping[Key, NodeAsk],
    asked: Mapping[Key, AskedPods],
    waiting: Collection[Key],
    now: int,
    limits: AskLimits,
    news: "AskNews",
) -> dict[Key, NodeAsk]:
    """Return the asks after a plan in which some PodGroups ask, and others wait for other things.

    One that was given up is remembered as long as its PodGroup waits: what else it lacks meanwhile
    does not shorten the pause.
    """
    kept = {key: it for key, it in known.items() if it.is_released and key in waiting}
    for key, pods in asked.items():
        ask = known.get(key)
        if ask is None:
            kept[key] = _new_ask(pods, now, 1)
        elif not ask.is_released and ask.by_class == pods.by_class:
            state = news.requests.get(key)
            kept[key] = (
                _continued_request(ask, pods, now, limits, state)
                if ask.by_class
                else _continued(ask, pods, now, limits, news.arriving)
            )
        elif now >= ask.again_at:
            kept[key] = _new_ask(pods, now, min(ask.attempts + 1, _MAX_ATTEMPTS))
    return kept


def _new_ask(pods: AskedPods, now: int, attempts: int) -> NodeAsk:
    return NodeAsk(now, pods.text, pods.missing, attempts=attempts, by_class=pods.by_class)


def _continued_request(
    ask: NodeAsk, pods: AskedPods, now: int, limits: AskLimits, state: RequestState | None
) -> NodeAsk:
    """Give up when the request has failed: until then all of its nodes may still come, or none."""
    came = max(ask.came, ask.pods - pods.missing)
    ask = ask._replace(came=came)
    if state is None or not state.failure or state.since != format_timestamp(ask.since):
        return ask
    return _released(ask, now, limits)._replace(failure=state.failure[:_MAX_TEXT])


def _continued(
    ask: NodeAsk,
    pods: AskedPods,
    now: int,
    limits: AskLimits,
    arriving: Collection[ArrivingNode],
) -> NodeAsk:
    """Note what came; give up when nothing has come for a while, and in any case after twice that.

    A node that has joined and takes no pods yet counts as coming.
    """
    if pods.missing > ask.pods:  # others took what was free, or the gang has grown
        ask = ask._replace(text=pods.text, pods=pods.missing)
    came = ask.pods - pods.missing
    if came > ask.came:
        ask = ask._replace(came=came, came_at=now)
    until = max(ask.since, ask.came_at) + limits.wait_s
    if any(it.created >= ask.since for it in arriving):
        until = max(until, now + 1)
    if now < min(until, ask.since + 2 * limits.wait_s):
        return ask
    return _released(ask, now, limits)


def _released(ask: NodeAsk, now: int, limits: AskLimits) -> NodeAsk:
    pause_s = min(limits.pause_s * 2 ** (ask.attempts - 1), _MAX_PAUSE_S)
    return ask._replace(released_at=now, again_at=now + pause_s)


def arriving_nodes(
    nodes: Iterable[Node],
    since: int,
    startup_taints: tuple[str, ...],
    gpu_resources: Collection[str],
) -> Iterator[ArrivingNode]:
    """Yield nodes that joined since then and are not usable yet."""
    for node in nodes:
        created = epoch_s(node.metadata.creation_timestamp)
        if created is not None and created >= since:
            why = _why_not_usable(node, startup_taints, gpu_resources)
            if why:
                yield ArrivingNode(node.metadata.name, created, why)


def _why_not_usable(
    node: Node, startup_taints: tuple[str, ...], gpu_resources: Collection[str]
) -> str:
    for taint in node.spec.taints:
        if taint.effect in _KEEPS_OUT and taint.key.startswith(startup_taints):
            return f"taint {taint.key}"
    if not any(it.type == "Ready" and it.status == "True" for it in node.status.conditions):
        return "not Ready"
    has_gpus = any(_has_any(node, it) for it in gpu_resources)
    if not has_gpus and any(hint in it for it in node.metadata.labels for hint in _GPU_HINTS):
        return "no GPUs yet"
    return ""


def _has_any(node: Node, resource: str) -> bool:
    try:
        return milli(node.status.allocatable.get(resource, 0)) > 0
    except QuantityError:
        return False


def ask_text(key: Key, ask: NodeAsk, news: AskNews) -> str:
    """Return the sentence about an ask for the message of its PodGroup."""
    if ask.is_released:
        return _released_text(key, ask)
    since = format_timestamp(ask.since)
    if ask.by_class:
        name = f"ProvisioningRequest {request_name(key.name, ask.attempts)}"
        text = f"It waits for nodes: {name} of class {ask.by_class} asks for {ask.text} since"
        state = news.requests.get(key)
        is_known = state is not None and state.since == since and state.state
        return f"{text} {since} ({state.state})" if state and is_known else f"{text} {since}"
    text = f"It waits for nodes: asked for {ask.text} at {since}"
    if ask.came:
        text += f", and there is room for {ask.came} of {counted(ask.pods, 'pod')}"
    coming = [it for it in news.arriving if it.created >= ask.since]
    if coming:
        first = min(coming)
        number = f"{counted(len(coming), 'node')} {verb_form(len(coming), 'have')} joined"
        text += f". {number} and cannot be used yet ({first.name}: {first.why})"
    return text


def _released_text(key: Key, ask: NodeAsk) -> str:
    again = f"nodes are asked for again at {format_timestamp(ask.again_at)}"
    if ask.by_class:
        name = f"ProvisioningRequest {request_name(key.name, ask.attempts)}"
        return f"{name} for {ask.text} has ended ({ask.failure}); {again}"
    minutes = counted(max(round((ask.released_at - ask.since) / 60), 1), "minute")
    came = f"Room for {ask.came} of {counted(ask.pods, 'pod')} came ({ask.text} asked for)"
    return f"{came}; released after {minutes}, {again}"


def ask_annotation(ask: NodeAsk) -> str:
    record = _Record(
        since=format_timestamp(ask.since),
        asked=ask.text,
        pods=ask.pods,
        came=ask.came if ask.is_released else 0,
        released=format_timestamp(ask.released_at) if ask.is_released else "",
        again=format_timestamp(ask.again_at) if ask.is_released else "",
        attempts=ask.attempts,
        class_name=ask.by_class,
        failure=ask.failure,
    )
    return msgspec.json.encode(record).decode()


def is_same_ask(annotation: str | None, ask: NodeAsk) -> bool:
    """Say whether an annotation is of this ask; new numbers alone are not written."""
    latest = max(ask.since, ask.released_at) + _MAX_PAUSE_S
    kept = _read_ask(annotation, latest) if annotation else None
    if kept is None:
        return False
    return (kept.since, kept.released_at, kept.attempts) == (
        ask.since,
        ask.released_at,
        ask.attempts,
    )


def read_asks(podgroups: Iterable[PodGroup], now: int) -> dict[Key, NodeAsk]:
    """Return the asks that an earlier leader has kept on PodGroups."""
    found = {}
    for it in podgroups:
        text = it.metadata.annotations.get(ASKED_FOR_NODES)
        ask = _read_ask(text, now) if text else None
        if ask is not None:
            found[it.metadata.key] = ask
    return found


def _read_ask(text: str, now: int) -> NodeAsk | None:
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    since, released = epoch_s(record.since) or 0, epoch_s(record.released) or 0
    if since <= 0 or not 1 <= record.attempts <= _MAX_ATTEMPTS:
        return None
    return NodeAsk(
        since=min(since, now),
        text=record.asked[:_MAX_TEXT],
        pods=max(record.pods, 0),
        came=max(record.came, 0),
        released_at=min(released, now),
        again_at=max(min(epoch_s(record.again) or 0, now + _MAX_PAUSE_S), 0),
        attempts=record.attempts,
        by_class=record.class_name[:_MAX_TEXT],
        failure=record.failure[:_MAX_TEXT],
    )
