"""What the product logs are fixed phrases: they can be searched for and counted."""

import pytest

from tests.architecture.log_phrases import phrase_faults
from tests.support.case import Case, ids
from tests.support.repository import ROOT, project_files

PRODUCT = ("trainer_kai", "webhook", "scheduler")
MODULES = {
    name: path
    for path in project_files()
    if (name := path.relative_to(ROOT).as_posix()).endswith(".py") and name.split("/")[0] in PRODUCT
}

NOT_FIXED = "the event is no fixed text"

# the body of a module -> its faults
CASES: list[Case[str, list[str]]] = [
    Case("a phrase with key-values", 'log = logger("a")\nlog.info("pod bound", pod=key)', []),
    Case("a text that is put together", 'log.info(f"pod {key} bound")', [NOT_FIXED]),
    Case("a text by name", "log.warning(TEXT)", [NOT_FIXED]),
    Case("no text at all", "log.info(pod=key)", [NOT_FIXED]),
    Case("a sentence", 'log.error("Pod bound.")', ["'Pod bound.' is no lower-case phrase"]),
    Case(
        "a text to be filled in",
        'log.info("pod %s bound", key)',
        ["'pod %s bound' is no lower-case phrase", "a value without a key"],
    ),
    Case("a key of the line itself", 'log.info("it broke", level=3)', ["the key level is taken"]),
    Case("the logger of an object", 'self._log.debug(f"{x}")', [NOT_FIXED]),
    Case("a logger by another name", 'it = logger("a")\nit.info(x)', [NOT_FIXED]),
    Case("a logger with a bound value", "it = log.bind(a=1)\nit.info(x)", [NOT_FIXED]),
    Case("bound on the spot", "log.bind(a=1).info(x)", [NOT_FIXED]),
    Case(
        "a logger that was passed in",
        "def f(to: FilteringBoundLogger):\n    to.info(x)",
        [NOT_FIXED],
    ),
    Case("bound by an object", "self.said = self._log.bind(a=1)\nself.said.info(x)", [NOT_FIXED]),
    Case("an exception", 'log.exception("reconcile failed", key=key)', []),
    Case("what is no logger", "answer.info(x); self.error(f'{y}')", []),
    Case("what is no call of a level", "log.bind(pod=x)", []),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_phrases(case: Case[str, list[str]]) -> None:
    """Only a constant in lower case is a phrase; values have keys."""
    found = phrase_faults(case.given)

    assert [fault.split(": ", 1)[1] for fault in found] == case.want


def test_the_line_is_reported() -> None:
    """So that it can be found."""
    assert phrase_faults("\n\nlog.info(x)") == ["line 3: the event is no fixed text"]


def test_the_product_is_seen() -> None:
    """The test below would pass on nothing at all."""
    assert "trainer_kai/service/log.py" in MODULES


def test_everything_that_the_product_logs_is_a_fixed_phrase() -> None:
    """In every module of the product."""
    faults = {name: phrase_faults(path.read_text()) for name, path in MODULES.items()}

    assert {name: found for name, found in faults.items() if found} == {}
