"""The reasons why a PodGroup waits: their names, and that each is documented."""

import ast
import re
import sys
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason

DOCUMENT: Final = ROOT / "docs" / "reasons.md"
MODULE: Final = ROOT / "trainer_kai" / "api" / "reasons.py"


def test_the_scheduler_finds_reasons_and_ranks_them() -> None:
    found = sorted(SCHEDULER_REASONS, key=lambda it: it.rank)
    assert found == [it for it in UnschedulableReason if it in SCHEDULER_REASONS]
    assert (found[0], found[-1]) == ("Misconfigured", "WaitingForVictims")


def test_each_reason_has_a_meaning_and_a_remedy() -> None:
    """Whole sentences, which users read in the documentation."""
    for reason in UnschedulableReason:
        assert reason.isalpha()
        for sentence in (reason.meaning, reason.remedy):
            assert sentence[0].isupper()
            assert sentence.endswith(".")


def test_the_documentation_has_each_reason() -> None:
    """A section each, in the order of the module, that begins with meaning and remedy."""
    sections = [f"## {it}\n\n{it.meaning} {it.remedy}\n" for it in UnschedulableReason]
    document = DOCUMENT.read_text()
    assert [it for it in sections if it not in document] == []
    assert document.count("\n## ") == len(sections)


def test_each_reason_is_found_by_something() -> None:
    """By the scheduler's core, its shell or `why`: no reason is only documented."""
    files = [*(ROOT / "scheduler").rglob("*.py"), *(ROOT / "trainer_kai" / "cli").rglob("*.py")]
    used = set(re.findall(r"UnschedulableReason\.([A-Z_]+)", _text(files)))
    assert {it.name for it in UnschedulableReason} <= used


def _text(files: list[Path]) -> str:
    return "".join(it.read_text() for it in files)


def test_the_module_imports_only_the_standard_library() -> None:
    """So the scheduler's core may import it, and `why` need not wait for it."""
    tree = ast.parse(MODULE.read_text())
    imported = {it.module for it in ast.walk(tree) if isinstance(it, ast.ImportFrom)}
    assert {(it or "").partition(".")[0] for it in imported} <= sys.stdlib_module_names
    assert not [it for it in ast.walk(tree) if isinstance(it, ast.Import)]
