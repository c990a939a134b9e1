"""Words agree with their numbers, lists name a few objects, and no text gets too long."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.text import (
    capitalized,
    counted,
    first_listed,
    joined_by_or,
    listed_names,
    noun_form,
    one_line,
    truncated_message,
    verb_form,
)

COUNTS: list[Case[tuple[int, str, str], str]] = [
    Case("none", (0, "node", "are"), "0 nodes are"),
    Case("one", (1, "node", "are"), "1 node is"),
    Case("two", (2, "node", "are"), "2 nodes are"),
    Case("one has", (1, "pod", "have"), "1 pod has"),
    Case("one does", (1, "pod", "do"), "1 pod does"),
    Case("two do", (2, "pod", "do"), "2 pods do"),
    Case("one fits", (1, "pod", "fit"), "1 pod fits"),
    Case("two fit", (2, "pod", "fit"), "2 pods fit"),
]


@pytest.mark.parametrize("case", COUNTS, ids=ids)
def test_noun_and_verb_agree_with_a_number(case: Case[tuple[int, str, str], str]) -> None:
    number, noun, verb = case.given
    assert f"{counted(number, noun)} {verb_form(number, verb)}" == case.want


def test_a_noun_may_have_its_own_plural() -> None:
    assert [counted(it, "entry", "entries") for it in (1, 2)] == ["1 entry", "2 entries"]
    assert [noun_form(it, "GPU-hour") for it in (0.5, 1.0)] == ["GPU-hours", "GPU-hour"]


NAMES: list[Case[list[str], tuple[str, str]]] = [
    Case("none", [], ("", "")),
    Case("one", ["a"], ("a", "a")),
    Case("as many as are named", ["a", "b"], ("a, b", "a, b")),
    Case("more", ["a", "b", "c", "d"], ("a, b and 2 more", "a, b, …")),
]


@pytest.mark.parametrize("case", NAMES, ids=ids)
def test_two_are_named(case: Case[list[str], tuple[str, str]]) -> None:
    assert (listed_names(case.given, 2), first_listed(case.given, 2)) == case.want


def test_parts_may_have_commas_of_their_own() -> None:
    assert first_listed(iter(["a, b", "c", "d", "e"]), between="; ") == "a, b; c; d, …"


ALTERNATIVES: list[Case[list[str], str]] = [
    Case("one", ["a"], "a"),
    Case("two", ["a", "b"], "a, or b"),
    Case("three", ["a", "b", "c"], "a, b, or c"),
]


@pytest.mark.parametrize("case", ALTERNATIVES, ids=ids)
def test_alternatives_are_joined(case: Case[list[str], str]) -> None:
    assert joined_by_or(case.given) == case.want


def test_a_sentence_begins_with_a_capital() -> None:
    assert [capitalized(it) for it in ("", "queue A uses", "PodGroup")] == [
        *("", "Queue A uses", "PodGroup")
    ]


def test_lines_and_control_characters_become_spaces() -> None:
    assert one_line(" a\n\tb\x00c\u2028d ") == "a b c d"


MESSAGES: list[Case[str, str]] = [
    Case("short", "x", "x"),
    Case("at the limit", "x" * 1024, "x" * 1024),
    Case("above", "x" * 1025, "x" * 1021 + "…"),
    Case("no character is cut in two", "x" * 1020 + "äää", "x" * 1020 + "…"),
    Case("half a character that came from elsewhere", "\udce4", "?"),
]


@pytest.mark.parametrize("case", MESSAGES, ids=ids)
def test_long_messages_are_cut(case: Case[str, str]) -> None:
    """The limit is in bytes."""
    assert truncated_message(case.given) == case.want
    assert len(truncated_message(case.given).encode()) <= 1024
