"""The lint findings about a TrainJob, as warnings or, with `admission.lint: deny`, as denials.

Only creations are denied. An existing TrainJob runs or waits already; an update of it is not denied
because a node was removed.
"""

from typing import Final, NamedTuple

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import FieldError
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.trainjob import is_refusable, lint_trainjob
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import AdmissionRequest
from webhook.admission.validation_result import NO_OBJECTIONS, ValidationResult, all_denied, warned
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache.runtime_cache import MAX_TEXT_BYTES

_CREATE: Final = "CREATE"


class LintPolicy(NamedTuple):
    """The settings of lint."""

    is_enabled: bool = True
    denies: bool = False
    autoscales: bool = False  # the cluster adds nodes when capacity is missing
    shares_gpus: bool = True  # our scheduler binds pods with shares of GPUs


def lint_result(
    request: AdmissionRequest,
    runtime_key: Key,
    queue: str,
    cache: AdmissionCache,
    policies: tuple[GroupingRules, LintPolicy],
) -> ValidationResult:
    """Lint a TrainJob for its queue; another rule reports one that cannot be decoded."""
    rules, lint_policy = policies
    runtime = cache.runtimes.whole(runtime_key)
    if not lint_policy.is_enabled or runtime is None or len(bytes(request.object)) > MAX_TEXT_BYTES:
        return NO_OBJECTIONS
    try:
        job = decode(TrainJob, request.object)
    except DecodeError:
        return NO_OBJECTIONS
    known_cluster = cache.cluster.known_cluster(
        autoscales=lint_policy.autoscales, shares_gpus=lint_policy.shares_gpus
    )
    findings = [
        it
        for it in lint_trainjob(job, runtime, queue, rules, known_cluster)
        if not _is_reported_elsewhere(it)
    ]
    denies = lint_policy.denies and request.operation == _CREATE
    denied = [it for it in findings if denies and is_refusable(it)]
    warnings = warned(*(_fault(it) for it in findings if it not in denied))
    return all_denied(map(_fault, denied)).combined_with(warnings)


def _is_reported_elsewhere(finding: Finding) -> bool:
    """Say whether another rule reports a finding: an invalid value in the TrainJob's metadata."""
    return finding.code == FindingCode.INVALID_VALUE and finding.path.startswith("metadata.")


def _fault(finding: Finding) -> FieldError:
    return FieldError(finding.path, finding.message)
