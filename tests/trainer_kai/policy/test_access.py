"""Who may use a queue, as the queues say it."""

import shlex

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.access import (
    Access,
    Said,
    close_command,
    grant_command,
    is_closed,
    said_of,
    why_closed,
)

OPEN, CLOSED = Access.OPEN, Access.CLOSED
PARENTS = {"leaf": "team", "team": "top", "top": "", "round": "about", "about": "round"}

CASES: list[Case[tuple[str, dict[str, str]], Said]] = [
    Case("no queue says anything", ("leaf", {}), Said(None)),
    Case("the queue itself", ("leaf", {"leaf": "closed"}), Said(CLOSED, "leaf")),
    Case("its parent", ("leaf", {"team": "closed"}), Said(CLOSED, "team")),
    Case("the one above that", ("leaf", {"top": "open"}), Said(OPEN, "top")),
    Case("the nearest", ("leaf", {"team": "open", "top": "closed"}), Said(OPEN, "team")),
    Case("a child says nothing for its parent", ("top", {"leaf": "closed"}), Said(None)),
    Case("another value", ("leaf", {"leaf": "Open", "top": "open"}), Said(CLOSED, "leaf")),
    Case("an empty value", ("leaf", {"leaf": ""}), Said(CLOSED, "leaf")),
    Case("a queue above itself", ("round", {}), Said(None)),
    Case("a queue above itself that says it", ("round", {"about": "open"}), Said(OPEN, "about")),
    Case("a queue that does not exist", ("else", {"top": "closed"}), Said(None)),
    Case("no queue", ("", {"": "closed"}), Said(None)),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_nearest_queue_that_says_anything_decides(
    case: Case[tuple[str, dict[str, str]], Said],
) -> None:
    """Whatever does not say open is closed: a slip lets no namespace in."""
    queue, said = case.given

    assert said_of(queue, lambda name: PARENTS.get(name, ""), said.get) == case.want


@pytest.mark.parametrize(
    ("said", "unannotated", "want"),
    [
        (Said(None), "open", False),
        (Said(None), "closed", True),
        (Said(OPEN, "q"), "closed", False),
        (Said(CLOSED, "q"), "open", True),
    ],
)
def test_a_site_decides_of_queues_that_say_nothing(
    said: Said, unannotated: str, want: bool
) -> None:
    """And of no others."""
    assert is_closed(said, unannotated) is want


def test_by_what_a_queue_is_closed() -> None:
    """So that its owner knows what to change."""
    assert why_closed(Said(CLOSED, "team")) == "annotation trainer-kai.dev/access of queue team"
    assert why_closed(Said(None)) == (
        "queue_access.unannotated is closed, and it has no annotation"
    )


def test_the_commands_are_whole() -> None:
    """They are copied from a message into a shell, whatever a user is called."""
    user = "it's me; rm -rf /"

    assert grant_command("q", "ns") == "trainer-kai queue allow q -n ns"
    assert grant_command("q", "ns", user="system:serviceaccount:a:b", groups=("g", "h")) == (
        "trainer-kai queue allow q -n ns --user system:serviceaccount:a:b --group g --group h"
    )
    assert shlex.split(grant_command("q", "ns", user=user))[-1] == user
    assert close_command("q") == "trainer-kai queue close q --from-usage"
