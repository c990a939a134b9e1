"""Warns about a workload with roles: a job of Kubeflow v1, a Ray object or a LeaderWorkerSet.

Nothing is written on these kinds and nothing is denied. What the podgrouper would say in an Event
is said when the workload is applied: values that it ignores, and a queue that takes no pods.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import DEFAULT_SCHEDULER, QUEUE
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.api.text import listed_names
from trainer_kai.errors import FieldError
from trainer_kai.policy.misspelled_keys import misspelled_keys
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.workloads.kinds import kind_of_owner
from trainer_kai.policy.workloads.workload import Workload, WorkloadKind
from webhook.admission.review import (
    NO_OBJECTIONS,
    AdmissionRequest,
    ReviewedKind,
    ValidationResult,
    size_fault,
    warned,
)
from webhook.rules.workload_validate import WorkloadContext

_OWN: Final = "metadata.labels"
_MOST_NAMED: Final = 3  # schedulers


def roles_kind_of(reviewed: ReviewedKind) -> WorkloadKind | None:
    """Return the kind of a workload that admission does not mark."""
    name = OwnerReference(api_version=f"{reviewed.group}/{reviewed.version}", kind=reviewed.kind)
    kind = kind_of_owner(name)
    return kind if kind is not None and not kind.has_mark else None


def validate_roles(
    request: AdmissionRequest, kind: WorkloadKind, context: WorkloadContext, rules: GroupingRules
) -> ValidationResult:
    """Return the warnings about a workload, of an update only about what it changes."""
    is_write = request.operation in {"CREATE", "UPDATE"} and not request.sub_resource
    workload = _read(kind, request.object) if is_write else None
    if workload is None:
        return NO_OBJECTIONS
    old = _read(kind, request.old_object) if request.operation == "UPDATE" else None
    before = set(_faults(old, context, rules)) if old is not None else set[FieldError]()
    return warned(*(it for it in _faults(workload, context, rules) if it not in before))


def _read(kind: WorkloadKind, text: msgspec.Raw) -> Workload | None:
    """Read a workload; one that cannot be read, or that another one controls, is not ours."""
    try:
        return None if size_fault(text) else kind.adapt(decode(kind.resource.struct, text))
    except DecodeError:
        return None


def _faults(
    workload: Workload, context: WorkloadContext, rules: GroupingRules
) -> Iterator[FieldError]:
    meta, path = workload.metadata, workload.kind.form.jobs_path
    queue = meta.labels.get(QUEUE)
    others = _other_schedulers(workload, rules)
    if others:
        if queue:
            message = (
                f"the pods go to the scheduler {others}, for which the label {QUEUE} has no "
                f"effect. Set schedulerName: {rules.scheduler_name} in the pod templates, or "
                "remove the label"
            )
            yield FieldError(path, message)
        return
    yield from requested_label_faults(meta.labels, _OWN)
    yield from requested_annotation_faults(meta.annotations, "metadata.annotations")
    yield from misspelled_keys(meta.labels, meta.annotations)
    yield from (FieldError(it.path, it.message) for it in workload.faults)
    reason = context.queues.unusable_reason(queue) if queue else None
    if reason is not None:
        yield FieldError(f"{_OWN}[{QUEUE}]", f"queue {queue!r} {reason}")


def _other_schedulers(workload: Workload, rules: GroupingRules) -> str:
    """Return the schedulers of the pods; "" if one of them is ours, or no pod is described."""
    specs = [it.template.spec.template.spec for it in workload.spec.replicated_jobs]
    names = {it.scheduler_name or DEFAULT_SCHEDULER for it in specs}
    return "" if rules.scheduler_name in names else listed_names(sorted(names), _MOST_NAMED)
