"""Selectors as rows, and which pods they match (rule 22)."""

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.state.constraints.selectors import PodSelector, SelectorTable
from tests.support.case import Case, ids
from tests.support.instruction_count import instruction_growth
from trainer_kai.api.matching import UNSATISFIABLE, LabelRule, accepted_values


def _rule(key: str, operator: str, *values: str) -> LabelRule:
    accepted = accepted_values(operator, values)
    return UNSATISFIABLE if accepted is None else LabelRule(key, accepted)


_ALL: tuple[LabelRule, ...] = (
    _rule("app", "In", "a", "b"),
    _rule("app", "In"),
    _rule("app", "Exists"),
    _rule("app", "DoesNotExist"),
    _rule("app", "NotIn", "a"),
    _rule("app", "Near", "a"),
    _rule("team", "In", "x"),
)

# the labels of pods → which of the selectors above match, alone and with the last one
MATCHES = [
    Case("no labels match what asks for absence", {}, ([3, 4], [])),
    Case("a value matches its selectors", {"app": "a"}, ([0, 2], [])),
    Case("another value matches the others", {"app": "b", "team": "x"}, ([0, 2, 4, 6], [0, 2, 4])),
    Case("a value that no selector names", {"app": "c", "team": "y"}, ([2, 4], [])),
]


@pytest.mark.parametrize("case", MATCHES, ids=ids)
def test_matches(case: Case[dict[str, str], tuple[list[int], list[int]]]) -> None:
    """Each matches once, wherever it is indexed."""
    standalone, both = SelectorTable(), SelectorTable()
    for need in _ALL:
        standalone.row(PodSelector(None, frozenset({need})))
    for need in _ALL[:-1]:
        both.row(PodSelector(None, frozenset({need, _ALL[-1]})))

    assert list(standalone.matching("ns", case.given)) == case.want[0]
    assert list(both.matching("ns", case.given)) == case.want[1]


# one of many selectors
MANY: list[Case[Any, None]] = [
    Case("one label of many finds its selector", lambda i: _rule(f"k{i}", "In", f"v{i}"), None),
    Case("one of several labels", lambda i: _rule("k", "In", f"v{i}", f"w{i}"), None),
    Case("one key of many finds its selector", lambda i: _rule(f"k{i}", "Exists"), None),
    Case("a selector of no value finds no pod", lambda _: _rule("k", "In"), None),
]


@pytest.mark.parametrize("case", MANY, ids=ids)
def test_many(case: Case[Any, None]) -> None:
    """The time of a match does not grow with the selectors that do not match."""

    def work(number: int) -> Callable[[], None]:
        table = SelectorTable()
        for i in range(number):
            table.row(PodSelector(frozenset({"ns", f"ns{i}"}), frozenset({case.given(i)})))

        def match() -> None:
            for i in range(10):
                table.matching("ns", {f"k{i}": f"v{i}", "k": f"w{i}"})

        return match

    assert instruction_growth(work, 500) < 1.2
