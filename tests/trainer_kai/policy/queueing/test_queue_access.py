"""Which namespaces may use a queue, by its annotation."""

import shlex

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    close_command,
    closed_reason,
    effective_queue_access,
    grant_command,
    is_closed,
)

OPEN, CLOSED = QueueAccessMode.OPEN, QueueAccessMode.CLOSED
PARENTS = {"leaf": "team", "team": "top", "top": "", "round": "about", "about": "round"}

CASES: list[Case[tuple[str, dict[str, str]], EffectiveQueueAccess]] = [
    Case("no queue says anything", ("leaf", {}), EffectiveQueueAccess(None)),
    Case("the queue itself", ("leaf", {"leaf": "closed"}), EffectiveQueueAccess(CLOSED, "leaf")),
    Case(
        "a parent closes its children",
        ("leaf", {"team": "closed"}),
        EffectiveQueueAccess(CLOSED, "team"),
    ),
    Case("the one above that", ("leaf", {"top": "open"}), EffectiveQueueAccess(OPEN, "top")),
    Case(
        "the nearest annotation counts",
        ("leaf", {"team": "open", "top": "closed"}),
        EffectiveQueueAccess(OPEN, "team"),
    ),
    Case(
        "a child says nothing for its parent",
        ("top", {"leaf": "closed"}),
        EffectiveQueueAccess(None),
    ),
    Case(
        "a misspelt annotation closes",
        ("leaf", {"leaf": "Open", "top": "open"}),
        EffectiveQueueAccess(CLOSED, "leaf"),
    ),
    Case("an empty value", ("leaf", {"leaf": ""}), EffectiveQueueAccess(CLOSED, "leaf")),
    Case("a queue above itself", ("round", {}), EffectiveQueueAccess(None)),
    Case(
        "a queue above itself that says it",
        ("round", {"about": "open"}),
        EffectiveQueueAccess(OPEN, "about"),
    ),
    Case("a queue that does not exist", ("else", {"top": "closed"}), EffectiveQueueAccess(None)),
    Case("no queue has no access", ("", {"": "closed"}), EffectiveQueueAccess(None)),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_nearest_queue_that_says_anything_decides(
    case: Case[tuple[str, dict[str, str]], EffectiveQueueAccess],
) -> None:
    """Whatever does not say open is closed: a slip lets no namespace in."""
    queue, effective = case.given

    assert (
        effective_queue_access(queue, lambda name: PARENTS.get(name, ""), effective.get)
        == case.want
    )


@pytest.mark.parametrize(
    ("effective", "unannotated", "want"),
    [
        (EffectiveQueueAccess(None), "open", False),
        (EffectiveQueueAccess(None), "closed", True),
        (EffectiveQueueAccess(OPEN, "q"), "closed", False),
        (EffectiveQueueAccess(CLOSED, "q"), "open", True),
    ],
)
def test_a_site_decides_of_queues_that_say_nothing(
    effective: EffectiveQueueAccess, unannotated: str, want: bool
) -> None:
    assert is_closed(effective, unannotated) is want


def test_by_what_a_queue_is_closed() -> None:
    """So that its owner knows what to change."""
    assert (
        closed_reason(EffectiveQueueAccess(CLOSED, "team"))
        == "annotation trainer-kai.dev/access of queue team"
    )
    assert closed_reason(EffectiveQueueAccess(None)) == (
        "the setting queue_access.unannotated is closed, and the queue has no annotation"
    )


def test_the_commands_are_whole() -> None:
    """They are copied from a message into a shell, whatever a user is called."""
    user = "it's me; rm -rf /"

    assert grant_command("q", "ns") == "trainer-kai queue allow q -n ns"
    own = grant_command("q", "ns", user="system:serviceaccount:ns:b")
    assert own == "trainer-kai queue allow q -n ns"
    assert grant_command("q", "ns", user="system:serviceaccount:a:b", groups=("g", "h")) == (
        "trainer-kai queue allow q -n ns --user system:serviceaccount:a:b --group g --group h"
    )
    assert shlex.split(grant_command("q", "ns", user=user))[-1] == user
    assert close_command("q") == "trainer-kai queue close q --from-usage"
