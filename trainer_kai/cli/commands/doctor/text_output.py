"""The doctor's findings as text and as JSON."""

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from trainer_kai.api.text import counted
from trainer_kai.cli.commands.doctor.checks.dry_runs import TRAINJOB_CHECK
from trainer_kai.cli.commands.doctor.facts import CheckFinding, CheckState, warning

_SCHEMA: Final = "trainer-kai/doctor/v1"
_GAP: Final = "   "
_REMEDY: Final = "fix: "
_NOUNS: Final = {CheckState.FAULT, CheckState.WARNING}
_UNTRIED: Final = warning(
    "not made: you may not create TrainJobs there, or not list ClusterTrainingRuntimes",
    "to submit TrainJobs, get a role that may create them in the namespace, and the ClusterRole"
    " trainer-kai-user",
)._replace(check=TRAINJOB_CHECK)


def as_text(findings: Sequence[CheckFinding], width: int) -> str:
    """Return the findings with their remedies, and the number of findings by state."""
    states = max(len(it.state.value) for it in findings)
    checks = max(len(it.check) for it in findings)
    lines: list[str] = []
    for it in findings:
        head = f"{it.state.value.ljust(states)}{_GAP}{it.check.ljust(checks)}{_GAP}"
        lines += _indented(head, it.observed, width)
        if it.remedy:
            lines += _indented(f"{' ' * len(head)}{_REMEDY}", it.remedy, width)
    return "\n".join([*lines, "", _summary(findings)])


def as_json(findings: Sequence[CheckFinding]) -> dict[str, Any]:
    """Return the JSON document; a missing remedy is null."""
    return {
        "schema": _SCHEMA,
        "counts": {state.value: _count(findings, state) for state in CheckState},
        "findings": [
            {
                "check": it.check,
                "state": it.state.value,
                "is": it.observed,
                "right": it.remedy or None,
            }
            for it in findings
        ],
    }


def for_user(findings: Sequence[CheckFinding], deciding: str) -> list[CheckFinding]:
    """Return the findings that a user without rights in the cluster can act on or rely on.

    A check that needs other rights says nothing about the installation: such checks are counted.
    """
    known = [it for it in findings if it.state is not CheckState.UNKNOWN or it.check == deciding]
    left_out = len(findings) - len(known)
    if not deciding:
        known.append(_UNTRIED)
    if not left_out:
        return known
    observed = f"{counted(left_out, 'check')} left out: they need the rights of an administrator"
    return [*known, CheckFinding(CheckState.OK, observed, check="checks of administrators")]


def exit_code(findings: Sequence[CheckFinding], deciding: str = TRAINJOB_CHECK) -> int:
    """Return 1 for a fault, 2 if it is unknown whether TrainJobs are admitted, else 0."""
    if _count(findings, CheckState.FAULT):
        return 1
    unknown = {it.check for it in findings if it.state is CheckState.UNKNOWN}
    return 2 if deciding in unknown else 0


def _indented(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _summary(findings: Sequence[CheckFinding]) -> str:
    counts = ((_count(findings, state), state) for state in reversed(CheckState))
    parts = (
        counted(number, state.value, "" if state in _NOUNS else state.value)
        for number, state in counts
        if number
    )
    return f"{len(findings)} checks: {', '.join(parts)}"


def _count(findings: Sequence[CheckFinding], state: CheckState) -> int:
    return sum(it.state is state for it in findings)
