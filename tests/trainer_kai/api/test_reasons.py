"""The reasons why a PodGroup waits: their names, and that each is documented."""

import ast
import re
import sys
from pathlib import Path
from typing import Final

from scheduler.core.model.rejections import UnschedulableReason
from tests.support.repository import ROOT
from trainer_kai.api.reasons import REASONS, SCHEDULER_REASONS, ReasonName

DOCUMENT: Final = ROOT / "docs" / "reasons.md"
MODULE: Final = ROOT / "trainer_kai" / "api" / "reasons.py"


def test_the_reasons_of_the_scheduler_are_those_of_its_core() -> None:
    """The core orders them by number; `why` must know them without loading the core."""
    assert {it.title for it in UnschedulableReason} == SCHEDULER_REASONS
    assert [it.title for it in sorted(UnschedulableReason)] == [
        it for it in ReasonName if it in SCHEDULER_REASONS
    ]


def test_each_reason_has_a_meaning_and_a_remedy() -> None:
    """Whole sentences, which users read in the documentation."""
    assert list(REASONS) == list(ReasonName)
    for name, text in REASONS.items():
        assert name.isalpha()
        for sentence in text:
            assert sentence[0].isupper()
            assert sentence.endswith(".")


def test_the_documentation_has_each_reason() -> None:
    """A section each, in the order of the module, that begins with meaning and remedy."""
    sections = [f"## {name}\n\n{text.meaning} {text.remedy}\n" for name, text in REASONS.items()]
    document = DOCUMENT.read_text()
    assert [it for it in sections if it not in document] == []
    assert document.count("\n## ") == len(sections)


def test_each_reason_is_found_by_something() -> None:
    """By the scheduler's core, its shell or `why`: no reason is only documented."""
    files = [*(ROOT / "scheduler").rglob("*.py"), *(ROOT / "trainer_kai" / "cli").rglob("*.py")]
    used = set(re.findall(r"(?:UnschedulableReason|ReasonName)\.([A-Z_]+)", _text(files)))
    assert {it.name for it in ReasonName} <= used


def _text(files: list[Path]) -> str:
    return "".join(it.read_text() for it in files)


def test_the_module_imports_only_the_standard_library() -> None:
    """So the scheduler's core may import it, and `why` need not wait for it."""
    tree = ast.parse(MODULE.read_text())
    imported = {it.module for it in ast.walk(tree) if isinstance(it, ast.ImportFrom)}
    assert {(it or "").partition(".")[0] for it in imported} <= sys.stdlib_module_names
    assert not [it for it in ast.walk(tree) if isinstance(it, ast.Import)]
