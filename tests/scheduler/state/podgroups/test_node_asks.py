"""Since when PodGroups ask for nodes, when they give up, and when they ask again."""

import json

import pytest

from scheduler.state.inputs import format_timestamp
from scheduler.state.podgroups.node_asks import (
    ArrivingNode,
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
from scheduler.state.podgroups.provisioning import RequestState
from tests.support.state.objects import NOW, Fields, decode_object, group, node
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ASKED_FOR_NODES

_KEY = Key("ns", "g")
_LIMITS = AskLimits(900, 600)
_FOUR = AskedPods("4 x 8 GPU", 4)
_STARTUP = ("node.kubernetes.io/", "karpenter.sh/unregistered")


def after(
    ask: NodeAsk | None, seconds: int, missing: int = 4, arriving: tuple[ArrivingNode, ...] = ()
) -> NodeAsk:
    """Return the ask some seconds after it began, with so many pods without a node."""
    known = {} if ask is None else {_KEY: ask}
    asked = {_KEY: AskedPods(f"{missing} x 8 GPU", missing)}
    return next_asks(known, asked, {_KEY}, NOW + seconds, _LIMITS, AskNews(arriving))[_KEY]


def test_it_asks_once_and_gives_up_when_nothing_comes() -> None:
    first = after(None, 0)

    assert first == NodeAsk(NOW, "4 x 8 GPU", 4)
    assert after(first, 899) == first
    released = after(first, 900)
    assert (released.is_released, released.again_at) == (True, NOW + 1500)
    assert after(released, 1499) == released
    assert after(released, 1500) == NodeAsk(NOW + 1500, "4 x 8 GPU", 4, attempts=2)


def test_each_pause_is_twice_as_long_up_to_four_hours() -> None:
    pauses, ask, now = [], after(None, 0), 0
    for _ in range(8):
        ask = after(ask, now := now + 900)
        pauses.append(ask.again_at - ask.released_at)
        ask = after(ask, now := ask.again_at - NOW)

    assert pauses == [600, 1200, 2400, 4800, 9600, 14400, 14400, 14400]


def test_a_node_that_comes_gives_the_others_more_time_but_not_for_ever() -> None:
    ask = after(None, 0)
    three = after(after(ask, 600, missing=2), 800, missing=1)

    assert (three.came, three.came_at) == (3, NOW + 800)
    assert not after(three, 1699, missing=1).is_released
    released = after(three, 1700, missing=1)
    assert ask_text(_KEY, released, AskNews()) == (
        "Room for 3 of 4 pods came (4 x 8 GPU asked for); released after 28 minutes, nodes are "
        "asked for again at 2026-01-05T08:38:20Z"
    )
    slow = three._replace(came_at=NOW + 1700)
    assert after(slow, 1800, missing=1).is_released


def test_a_node_that_is_not_ready_is_waited_for_for_a_bounded_time() -> None:
    arriving = (ArrivingNode("n", NOW + 60, "not Ready"),)
    ask = after(None, 0)

    assert not after(ask, 1000, arriving=arriving).is_released
    assert after(ask, 1800, arriving=arriving).is_released
    older = (ArrivingNode("n", NOW - 60, "not Ready"),)
    assert after(ask, 900, arriving=older).is_released


def test_what_is_given_up_stays_so_while_the_podgroup_waits_for_something_else() -> None:
    """A pod that is recreated would otherwise have the nodes bought at once."""
    ask = after(None, 0)
    released = after(ask, 900)

    assert next_asks({_KEY: released}, {}, {_KEY}, NOW + 901, _LIMITS, AskNews()) == {
        _KEY: released
    }
    assert next_asks({_KEY: released}, {}, (), NOW + 901, _LIMITS, AskNews()) == {}
    assert next_asks({_KEY: ask}, {}, {_KEY}, NOW + 1, _LIMITS, AskNews()) == {}


def test_what_others_took_is_asked_for_as_well() -> None:
    grown = after(after(None, 0, missing=1), 60, missing=3)

    assert (grown.since, grown.pods, grown.text) == (NOW, 3, "3 x 8 GPU")


def test_the_record_says_again_what_was_asked() -> None:
    released = after(after(None, 0), 900)
    for ask in (after(None, 0), released):
        kept = group("g", meta={"annotations": {ASKED_FOR_NODES: ask_annotation(ask)}})
        _, _, podgroup = decode_object(kept)

        assert read_asks([podgroup], NOW + 900) == {_KEY: ask}
        assert is_same_ask(ask_annotation(ask), ask)
    assert not is_same_ask(ask_annotation(after(None, 0)), released)
    late = released._replace(released_at=NOW + 10**6, again_at=NOW + 10**6 + 600)
    assert is_same_ask(ask_annotation(late), late)
    assert is_same_ask(ask_annotation(after(None, 0)), after(None, 0)._replace(came=2))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"since":"yesterday"}',
        '{"since":"2026-01-05T08:00:00Z","attempts":0}',
        '{"since":"2026-01-05T08:00:00Z","attempts":99999}',
        '{"since":"2026-01-05T08:00:00Z","pods":"many"}',
        "[" * 2000,
    ],
)
def test_a_bad_record_is_none(text: str) -> None:
    _, _, podgroup = decode_object(group("g", meta={"annotations": {ASKED_FOR_NODES: text}}))

    assert read_asks([podgroup], NOW) == {}


def test_a_forged_record_delays_nothing_for_long() -> None:
    times = {"since": "2099-01-01T00:00:00Z", "released": "2099-01-01T00:00:00Z"}
    text = json.dumps({**times, "again": "2100-01-01T00:00:00Z", "pods": -4})
    _, _, podgroup = decode_object(group("g", meta={"annotations": {ASKED_FOR_NODES: text}}))
    ask = read_asks([podgroup], NOW)[_KEY]

    assert (ask.since, ask.again_at, ask.pods) == (NOW, NOW + 4 * 3600, 0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"conditions": []}, "not Ready"),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, "not Ready"),
        ({"gpu": 0, "labels": {"nvidia.com/gpu.present": "true"}}, "no GPUs yet"),
        ({"gpu": 0}, ""),
        (
            {"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}},
            "taint karpenter.sh/unregistered",
        ),
        ({"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}, ""),
        (
            {"spec": {"taints": [{"key": "node.kubernetes.io/x", "effect": "PreferNoSchedule"}]}},
            "",
        ),
    ],
)
def test_why_a_node_that_joined_cannot_be_used(more: Fields, why: str) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], **more}
    fields = node("n", **ready)
    fields["metadata"]["creationTimestamp"] = "2026-01-05T08:00:01Z"
    _, _, joined = decode_object(fields)
    found = [*arriving_nodes([joined], NOW, _STARTUP, ("nvidia.com/gpu",))]

    assert [it.why for it in found] == ([why] if why else [])
    assert [*arriving_nodes([joined], NOW + 2, _STARTUP, ("nvidia.com/gpu",))] == []


def test_times_before_all_dates_can_be_said() -> None:
    """A message that cannot be written would end every plan."""
    before, since = "0001-01-01T00:00:00+14:00", '"since": "2026-01-05T07:00:00Z"'
    texts = [
        f'{{"since": "{before}"}}',
        f'{{{since}, "released": "{before}", "again": "{before}"}}',
        f'{{{since}, "released": "2026-01-05T08:00:00Z", "again": "{before}"}}',
    ]
    groups = [group("g", meta={"annotations": {ASKED_FOR_NODES: it}}) for it in texts]
    found = [ask for it in groups for ask in read_asks([decode_object(it)[2]], NOW).values()]

    assert len(found) == 2
    for ask in found:
        assert ask_text(_KEY, ask, AskNews())
        assert ask_annotation(ask)


def test_the_message_names_a_node_that_has_joined() -> None:
    ask = after(after(None, 0), 60, missing=3)
    arriving = [ArrivingNode(it, NOW + 9, "not Ready") for it in ("n2", "n1")]

    assert ask_text(_KEY, ask, AskNews(arriving)) == (
        "It waits for nodes: asked for 4 x 8 GPU at 2026-01-05T08:00:00Z, and there is room for 1 "
        "of 4 pods. 2 nodes have joined and cannot be used yet (n1: not Ready)"
    )


_BY_CLASS = AskedPods("4 x 8 GPU", 4, "atomic")


def by_request(ask: NodeAsk, seconds: int, *states: RequestState) -> NodeAsk:
    news = AskNews(requests=dict.fromkeys([_KEY], *states) if states else {})
    return next_asks({_KEY: ask}, {_KEY: _BY_CLASS}, {_KEY}, NOW + seconds, _LIMITS, news)[_KEY]


def test_a_provisioning_request_is_waited_for_until_it_fails() -> None:
    """It may be in a line for days, and then brings all nodes or none."""
    ask = next_asks({}, {_KEY: _BY_CLASS}, {_KEY}, NOW, _LIMITS, AskNews())[_KEY]
    since = format_timestamp(NOW)

    assert by_request(ask, 86_400, RequestState(since, "accepted")) == ask
    old = RequestState("2026-01-01T00:00:00Z", "failed", "Failed: no capacity")
    assert by_request(ask, 60, old) == ask
    ended = by_request(ask, 60, RequestState(since, "failed", "Failed: no capacity"))
    assert (ended.is_released, ended.again_at) == (True, NOW + 660)
    assert ask_text(_KEY, ended, AskNews()) == (
        "ProvisioningRequest g-1 for 4 x 8 GPU has ended (Failed: no capacity); nodes are asked "
        "for again at 2026-01-05T08:11:00Z"
    )
    again = by_request(ended, 660)
    assert (again.attempts, again.is_released) == (2, False)
    news = AskNews(requests={_KEY: RequestState(format_timestamp(NOW + 660), "provisioned")})
    assert ask_text(_KEY, again, news) == (
        "It waits for nodes: ProvisioningRequest g-2 of class atomic asks for 4 x 8 GPU since "
        "2026-01-05T08:11:00Z (provisioned)"
    )
    kept = group("g", meta={"annotations": {ASKED_FOR_NODES: ask_annotation(ended)}})
    assert read_asks([decode_object(kept)[2]], NOW + 60) == {_KEY: ended}


def test_another_class_is_another_ask() -> None:
    """Marks and a request for one need would buy its nodes twice."""
    marks = after(None, 0)
    changed = by_request(marks, 60)

    assert (changed.since, changed.by_class, changed.attempts) == (NOW + 60, "atomic", 2)
