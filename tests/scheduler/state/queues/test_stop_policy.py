"""Annotations for a queue and those below: of stop policies the strictest counts, at once."""

import pytest

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from scheduler.state.queues.queue_table import QueueTable
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    decode_object,
    encode_objects,
    group,
    pod,
    prefilter_failure_of,
    queue,
)
from trainer_kai.api.names import QUEUE_ORDER, STOP_POLICY


def policy(value: str | None) -> dict[str, dict[str, str]]:
    return {} if value is None else {"annotations": {STOP_POLICY: value}}


# the annotation of a queue and of its parent -> what counts, who says so, whether it is drained
POLICIES: list[Case[tuple[str | None, str | None], tuple[str, str, bool]]] = [
    Case("nothing is said", (None, None), ("None", "", False)),
    Case("held by itself", ("Hold", None), ("Hold", "q", False)),
    Case("held by its parent", ("None", "Hold"), ("Hold", "top", False)),
    Case("the nearest of equal ones", ("Hold", "Hold"), ("Hold", "q", False)),
    Case("the strictest", ("Hold", "HoldAndDrain"), ("HoldAndDrain", "top", True)),
    Case("another value holds", ("hold", None), ("Hold", "q", False)),
]


@pytest.mark.parametrize("case", POLICIES, ids=ids)
def test_the_effective_stop_policy(
    case: Case[tuple[str | None, str | None], tuple[str, str, bool]],
) -> None:
    """Of a queue and its ancestors."""
    own, above = case.given
    cluster = cluster_cache(
        queue("q", meta=policy(own), parentQueue="top"), queue("top", meta=policy(above))
    )
    table = QueueTable(cluster.queues)
    found = table.stop_policy("q")
    nothing = [[[0] * 3 for _ in table.names] for _ in range(3)]

    drained = table.row_of("q") in table.table(*nothing).drained
    assert (str(found.policy), found.decided_by, drained) == case.want
    assert (table.held_failure("q") is None) is (case.want[0] == "None")


def test_an_unknown_value_is_reported() -> None:
    """With those that exist."""
    (warning,) = QueueTable(cluster_cache(queue("q", meta=policy("hold"))).queues).warnings
    assert warning.text.endswith("is 'hold', but must be Hold, None or HoldAndDrain; Hold is used")


def test_an_unknown_order_counts_below_as_well() -> None:
    """Queue a has the order of its parent, and queue b its own."""
    orders = {"top": "strct", "b": "strict"}
    notes = {name: {"annotations": {QUEUE_ORDER: it}} for name, it in orders.items()}
    below = [queue(name, meta=notes.get(name), parentQueue="top") for name in ("a", "b")]
    found = encode_objects(queue("top", meta=notes["top"]), *below)

    (message,) = [one.message for one in found.warnings]
    assert message == (
        "queue top: annotation trainer-kai.dev/queue-order is 'strct', but must be best-effort, "
        "reserve or strict; best-effort is used, also by the queues below that have no such "
        "annotation"
    )
    queues = found.snapshot.queues
    assert [queues.names[row] for row in queues.strict] == ["b"]


def test_a_hold_counts_at_once_for_what_has_not_started() -> None:
    """And a release lets it start; nothing else of the cluster has changed."""
    cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q"))
    for it in (queue(), group("g", minMember=1, queue="q"), pod("p", "g")):
        cache.update(*decode_object(it))
    assert prefilter_failure_of(cache.snapshot(), "g") is None
    cache.update(*decode_object(queue(meta=policy("Hold"))))

    found = prefilter_failure_of(cache.snapshot(), "g")
    assert found is not None
    assert found[0] == "QueueHeld"
    assert found[1].endswith("It can start when the queue is released: trainer-kai queue release q")
    cache.check()
    cache.update(*decode_object(queue()))
    assert prefilter_failure_of(cache.snapshot(), "g") is None
    cache.check()
