"""Findings as people read them, and as programs do."""

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from trainer_kai.cli.doctor.finding import Finding, State
from trainer_kai.cli.doctor.tried import TRAINJOB

__all__ = ["as_json", "as_text", "exit_code"]

_SCHEMA: Final = "trainer-kai/doctor/v1"
_GAP: Final = "   "
_RIGHT: Final = "right: "


def as_text(findings: Sequence[Finding], width: int) -> str:
    """Return a line for each finding, what would be right below, and the sum of it."""
    states = max(len(it.state.value) for it in findings)
    checks = max(len(it.check) for it in findings)
    lines: list[str] = []
    for it in findings:
        head = f"{it.state.value.ljust(states)}{_GAP}{it.check.ljust(checks)}{_GAP}"
        lines += _hanging(head, it.is_so, width)
        if it.right:
            lines += _hanging(f"{' ' * len(head)}{_RIGHT}", it.right, width)
    return "\n".join([*lines, "", _sum(findings)])


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return plain values; nothing that would be right is null."""
    return {
        "schema": _SCHEMA,
        "counts": {state.value: _count(findings, state) for state in State},
        "findings": [
            {
                "check": it.check,
                "state": it.state.value,
                "is": it.is_so,
                "right": it.right or None,
            }
            for it in findings
        ],
    }


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if anything does not work, 2 if nobody can say whether TrainJobs are injected."""
    if any(it.state is State.FAULT for it in findings):
        return 1
    return 2 if any((it.check, it.state) == (TRAINJOB, State.UNKNOWN) for it in findings) else 0


def _hanging(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _sum(findings: Sequence[Finding]) -> str:
    counts = [(_count(findings, state), state.value) for state in reversed(State)]
    said = [f"{number} {_many(word, number)}" for number, word in counts if number]
    return f"{len(findings)} checks: {', '.join(said)}"


def _many(word: str, number: int) -> str:
    return f"{word}s" if number > 1 and word in {"fault", "warning"} else word


def _count(findings: Sequence[Finding], state: State) -> int:
    return sum(it.state is state for it in findings)
