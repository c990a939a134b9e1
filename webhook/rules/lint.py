"""What lint finds in a TrainJob, as warnings, or as denials where the site wants them.

Only creations are denied. An existing TrainJob runs or waits already, and an update of it does not
answer for a node that is gone.
"""

from typing import Final, NamedTuple

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import FieldError
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint import is_refusable, lint_trainjob
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import AdmissionRequest
from webhook.admission.validation_result import NO_OBJECTIONS, ValidationResult, all_denied, warned
from webhook.cache.cluster import LONGEST_TEXT, ClusterObjects

__all__ = ["LintPolicy", "lint_result"]

_CREATE: Final = "CREATE"


class LintPolicy(NamedTuple):
    """What a site wants of lint."""

    is_on: bool = True
    denies: bool = False
    grows: bool = False  # nodes come when there is too little room


def lint_result(
    request: AdmissionRequest,
    runtime: Key,
    queue: str,
    cluster: ClusterObjects,
    policies: tuple[GroupingRules, LintPolicy],
) -> ValidationResult:
    """Judge a TrainJob that will go to a queue; what cannot be read is judged by others."""
    rules, lint_policy = policies
    found = cluster.runtime(runtime)
    if not lint_policy.is_on or found is None or len(bytes(request.object)) > LONGEST_TEXT:
        return NO_OBJECTIONS
    try:
        job = decode(TrainJob, request.object)
    except DecodeError:
        return NO_OBJECTIONS
    bounds = cluster.lint_bounds(grows=lint_policy.grows)
    findings = [
        it
        for it in lint_trainjob(job, found, queue, rules, bounds)
        if not _is_reported_elsewhere(it)
    ]
    denies = lint_policy.denies and request.operation == _CREATE
    denied = [it for it in findings if denies and is_refusable(it)]
    warnings = warned(*(_fault(it) for it in findings if it not in denied))
    return all_denied(map(_fault, denied)).combined_with(warnings)


def _is_reported_elsewhere(finding: Finding) -> bool:
    """Say whether others tell it: what a TrainJob itself says that cannot be meant."""
    return finding.code == FindingCode.INVALID_VALUE and finding.path.startswith("metadata.")


def _fault(finding: Finding) -> FieldError:
    return FieldError(finding.path, finding.message)
