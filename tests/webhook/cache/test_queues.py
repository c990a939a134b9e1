"""Which queues there are, and which of them hold workloads."""

import pytest

from tests.support.case import Case, ids
from tests.webhook.trainjobs import queue_tree
from trainer_kai.policy.queueing.queue_access import EffectiveQueueAccess, QueueAccessMode
from webhook.cache.admission_cache import QueueTree

CREATE = "create the queue, or name an existing one"
ABSENT = f"does not exist. {CREATE.capitalize()}"
BELOW = "has child queues and cannot hold workloads. Name one of the children:"


def changed() -> QueueTree:
    """Return queues that were moved, lost a child, and lost their parent."""
    found = queue_tree("old", "new", "parent", moved="old", leaving="parent", orphan="gone")
    found.put("moved", "new")
    found.drop("leaving")
    found.drop("leaving")
    return found


LACKS = [
    Case("one at the top", (queue_tree("a"), "a"), None),
    Case("one below another", (queue_tree("a", b="a"), "b"), None),
    Case("none", (queue_tree("a"), "b"), ABSENT),
    Case("one above another", (queue_tree("a", b="a"), "a"), f"{BELOW} b"),
    Case(
        "one above many",
        (queue_tree("a", **dict.fromkeys("fdbce", "a")), "a"),
        f"{BELOW} b, c, d, …",
    ),
    Case("one that lost its child to another", (changed(), "old"), None),
    Case("one that a child came to", (changed(), "new"), f"{BELOW} moved"),
    Case("one with a deleted child", (changed(), "parent"), None),
    Case("one with a missing parent", (changed(), "orphan"), None),
    Case("one that is only named as a parent", (changed(), "gone"), ABSENT),
    Case("before they are listed", (QueueTree(), "a"), None),
    Case(
        "one letter off",
        (queue_tree("team-b", "team-vision"), "team-vison"),
        f"does not exist. Did you mean 'team-vision'? Otherwise {CREATE}",
    ),
    Case("only a parent is similar", (queue_tree("teams", sub="teams"), "team1"), ABSENT),
    Case("too short to tell", (queue_tree("abcd"), "abcc"), ABSENT),
]


@pytest.mark.parametrize("case", LACKS, ids=ids)
def test_why_a_queue_is_unusable(case: Case[tuple[QueueTree, str], str | None]) -> None:
    """And what would be right."""
    found, name = case.given

    assert found.unusable_reason(name) == case.want


def test_who_may_use_a_queue() -> None:
    """As the nearest queue with an annotation says; a deleted queue has none."""
    found = QueueTree()
    found.put("top", "", "closed")
    found.put("team", "top")
    found.put("open", "team", "open")

    closed = EffectiveQueueAccess(QueueAccessMode.CLOSED, "top")
    accesses = [found.access(it) for it in ("top", "team", "open", "none")]
    assert accesses == [
        closed,
        closed,
        EffectiveQueueAccess(QueueAccessMode.OPEN, "open"),
        EffectiveQueueAccess(None),
    ]
    assert found.has_closed_queue
    found.put("top", "")
    assert (found.access("team"), found.has_closed_queue) == (EffectiveQueueAccess(None), False)
    found.put("team", "top", "what")
    assert found.has_closed_queue
    found.drop("team")
    assert (found.access("team"), found.has_closed_queue) == (EffectiveQueueAccess(None), False)
