"""What lint holds against a TrainJob, as warnings, or refusals where a site wants them.

Only what is made is refused. A TrainJob that exists runs or waits already, and nobody who suspends
it, or gives it another queue, answers for a node that has gone.
"""

from typing import Final, NamedTuple

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import FieldError
from trainer_kai.policy.finding import Code, Finding
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.lint import is_refusable, lint_trainjob
from webhook.bounds import LONGEST_TEXT, Surroundings
from webhook.review import Request
from webhook.verdict import NOTHING, Verdict, all_refused, warned

__all__ = ["Strength", "linted"]

_CREATE: Final = "CREATE"


class Strength(NamedTuple):
    """What a site wants of lint."""

    is_on: bool = True
    refuses: bool = False
    grows: bool = False  # nodes come when there is too little room


def linted(
    asked: Request, runtime: Key, queue: str, around: Surroundings, by: tuple[Rules, Strength]
) -> Verdict:
    """Judge a TrainJob that will go to a queue; what cannot be read is judged by others."""
    rules, strength = by
    found = around.runtime(runtime)
    if not strength.is_on or found is None or len(bytes(asked.object)) > LONGEST_TEXT:
        return NOTHING
    try:
        job = decode(TrainJob, asked.object)
    except DecodeError:
        return NOTHING
    bounds = around.bounds(grows=strength.grows)
    findings = [it for it in lint_trainjob(job, found, queue, rules, bounds) if not _is_told(it)]
    refuses = strength.refuses and asked.operation == _CREATE
    bad = [it for it in findings if refuses and is_refusable(it)]
    told = warned(*(_fault(it) for it in findings if it not in bad))
    return all_refused(map(_fault, bad)).beside(told)


def _is_told(finding: Finding) -> bool:
    """Say whether others tell it: what a TrainJob itself says that cannot be meant."""
    return finding.code == Code.NOT_UNDERSTOOD and finding.path.startswith("metadata.")


def _fault(finding: Finding) -> FieldError:
    return FieldError(finding.path, finding.message)
