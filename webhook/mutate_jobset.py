"""What is written into the JobSet of a TrainJob, when it is made and while it is suspended.

`read_jobset` says whether a review is ours to answer, and about which TrainJob; `mutate_jobset` is
handed what is known of that one and answers. At creation: scheduler name, queue, marks. Later only
the queue and marks that were lost; a scheduler name never, for JobSet would refuse it. A value that
a user wrote is left alone, except that a queue that is named higher is written over it, and that
the mark of admission is ours: it is set on what is ours and taken from all else, whatever was sent.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key, Meta, OwnerReference, PartialObject
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    GANG,
    JOBSET_CONTROLLER,
    QUEUE,
    SKIP_PODGROUPER,
)
from trainer_kai.api.owners import trainjob_owner
from trainer_kai.api.resources import JOBSETS
from trainer_kai.api.syntax import dns_subdomain_fault
from trainer_kai.api.wishes import annotation_wish_faults, label_wish_faults
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.queues import Asked, Choice, Source, choose
from trainer_kai.policy.units import Outline, outline
from webhook.cache import CARRIED_ANNOTATIONS, CARRIED_LABELS, TrainJob
from webhook.owned import Owned
from webhook.patch import Draft, Steps
from webhook.refusals import (
    asks_for_us,
    other_schedulers,
    refuse_both,
    refuse_exclusive,
    refuse_left_out,
    refuse_queue,
    refuse_size,
)
from webhook.restore import has_lost, keep_claims, pod_template, put_back
from webhook.review import UNTOUCHED, Answer, Refusal, Request, size_fault, unreadable

__all__ = ["Facts", "Reviewed", "mutate_jobset", "read_jobset"]

_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_INVALID: Final = 422
_LABELS: Final[Steps] = ("metadata", "labels")
_ANNOTATIONS: Final[Steps] = ("metadata", "annotations")
_TRUE: Final = "true"


class Facts(NamedTuple):
    """What else is known: the TrainJob, unless it is gone; what its runtime and namespace say."""

    trainjob: TrainJob | None
    runtime_queue: str = ""
    namespace: Mapping[str, str] = {}


class Reviewed(NamedTuple):
    """A JobSet that is ours to answer for."""

    is_create: bool
    jobset: JobSet
    old: JobSet | None
    tree: Any
    trainjob: Key
    owner: OwnerReference
    ours: Mapping[int, ReplicatedJob]  # by their place in the list


def read_jobset(request: Request, rules: Rules) -> Reviewed | Answer:
    """Read the JobSet of a review; an answer where there is nothing to decide."""
    if not _is_asked(request):
        return UNTOUCHED
    try:
        too_large = size_fault(request.object) or size_fault(request.old_object)
        if too_large:
            return _unread(request, too_large)
        jobset = decode(JobSet, request.object)
        tree = decode(dict, request.object)
    except DecodeError as error:
        return UNTOUCHED if _is_foreign(request) else unreadable(error)
    is_create = request.operation == _CREATE
    owner = _trainjob_of(jobset.metadata)
    managed_here = jobset.spec.managed_by in {"", JOBSET_CONTROLLER}
    if owner is None or not managed_here or jobset.metadata.deletion_timestamp:
        return _not_ours(tree) if is_create else UNTOUCHED
    old = None if is_create else _admitted(request)
    if not is_create and (old is None or not (_is_suspended(jobset, old) or has_lost(jobset, old))):
        return UNTOUCHED
    ours = {
        number: job
        for number, job in enumerate(jobset.spec.replicated_jobs)
        if job.template.spec.template.spec.scheduler_name in {"", rules.scheduler_name}
    }
    if not ours and not (is_create and other_schedulers(jobset)):
        return _not_ours(tree) if is_create else UNTOUCHED
    key = Key(request.namespace or jobset.metadata.namespace, owner.name)
    return Reviewed(is_create, jobset, old, tree, key, owner, ours)


def mutate_jobset(case: Reviewed, facts: Facts, rules: Rules) -> Answer:
    """Decide what to write."""
    too_many = refuse_size(case.jobset)
    if too_many:
        return Answer(refusal=too_many) if case.is_create else Answer(warnings=(too_many.message,))
    owned = Owned(case.tree["metadata"])
    asked = _asked(case, facts, owned)
    if case.old is not None and not _is_suspended(case.jobset, case.old):
        return put_back(case.jobset, case.old, case.tree)
    choice = choose(asked, rules.default_queue)
    if case.is_create:
        verdict = _refused(case, asked, choice, rules)
        if verdict is not None:
            return verdict
    return _written(case, facts, rules, owned, choice)


def _written(case: Reviewed, facts: Facts, rules: Rules, owned: Owned, choice: Choice) -> Answer:
    """Write all that is ours on a JobSet that is made, or suspended."""
    draft = Draft(case.tree)
    if case.old is not None:
        keep_claims(draft, case.jobset, case.old)
    warnings = list(_write_queue(draft, case, choice, owned))
    if case.is_create:
        _carry(draft, facts)
    alone = _groups_itself(case, facts, rules, owned)
    if rules.mode == "external" and not alone:
        _fill(draft, (*_ANNOTATIONS, SKIP_PODGROUPER), _TRUE)
    draft.set((*_ANNOTATIONS, ADMITTED), ADMITTED_MARK)
    plan = _outline(case, draft, rules)
    if case.is_create:
        left_out = refuse_left_out(plan)
        if left_out and not alone:
            return Answer(refusal=left_out)
        for number in case.ours:
            _fill(draft, (*pod_template(number), "spec", "schedulerName"), rules.scheduler_name)
    for number, job in enumerate(case.jobset.spec.replicated_jobs):
        steps = (*pod_template(number), *_LABELS, GANG)
        unit = plan.unit_of(job.name) if number in case.ours and not alone else None
        if unit is None:
            draft.remove(steps)  # whoever wrote it: only what is in a group of ours has one
        else:
            draft.set(steps, unit.suffix)
    return Answer(draft.operations, (*warnings, *_warnings(draft, case, plan)))


def _is_asked(request: Request) -> bool:
    kind = request.kind
    return (
        (kind.group, kind.version, kind.kind) == (JOBSETS.group, JOBSETS.version, JOBSETS.kind)
        and request.operation in {_CREATE, _UPDATE}
        and not request.sub_resource
    )


def _is_foreign(request: Request) -> bool:
    """Say whether a JobSet that cannot be read is no care of ours: no TrainJob's, not marked."""
    try:
        meta = decode(PartialObject, request.object).metadata
    except DecodeError:
        return False
    return _trainjob_of(meta) is None and ADMITTED not in meta.annotations


def _unread(request: Request, fault: str) -> Answer:
    """Answer for a JobSet that is too large to be read: one that exists stays as it is."""
    if request.operation != _CREATE:
        return UNTOUCHED
    meta = decode(PartialObject, request.object).metadata
    if _trainjob_of(meta) is None:
        return _not_ours({"metadata": {"annotations": dict(meta.annotations)}})
    return Answer(refusal=Refusal(_INVALID, f"the JobSet {fault}"))


def _not_ours(tree: Any) -> Answer:
    """Answer for a JobSet that is made and left alone: nothing but admission marks one as ours."""
    draft = Draft(tree)
    draft.remove((*_ANNOTATIONS, ADMITTED))
    if not draft.operations:
        return UNTOUCHED
    what = "only trainer-kai writes it, on JobSets of TrainJobs that it schedules; it was removed"
    return Answer(draft.operations, (f"metadata.annotations[{ADMITTED}]: {what}",))


def _trainjob_of(meta: Meta) -> OwnerReference | None:
    owner = trainjob_owner(meta)
    if owner is None or dns_subdomain_fault(owner.name):
        return None  # the API server looks at names only afterwards: no TrainJob is called so
    return owner


def _admitted(request: Request) -> JobSet | None:
    """Return the JobSet before an update, if it was admitted by us."""
    try:
        old = decode(JobSet, request.old_object)
    except DecodeError:
        return None
    return old if old.metadata.annotations.get(ADMITTED) == ADMITTED_MARK else None


def _is_suspended(jobset: JobSet, old: JobSet) -> bool:
    """Say whether it is so before or after: then its labels may change, and its queue follows."""
    return jobset.spec.suspend or old.spec.suspend


def _asked(case: Reviewed, facts: Facts, owned: Owned) -> Asked:
    """Return what each place says of the queue, without what admission filled in."""
    jobs = case.jobset.spec.replicated_jobs
    return Asked(
        trainjob=facts.trainjob.labels if facts.trainjob else {},
        runtime_queue=facts.runtime_queue,
        jobset=case.jobset.metadata.labels if owned.label(QUEUE) else {},
        templates=tuple(
            job.template.spec.template.metadata.labels
            if owned.template_label(job.name, QUEUE)
            else {}
            for job in jobs
        ),
        namespace=facts.namespace,
    )


def _refused(case: Reviewed, asked: Asked, choice: Choice, rules: Rules) -> Answer | None:
    """Answer for a JobSet that is left to another scheduler, or that cannot be."""
    others = other_schedulers(case.jobset)
    if others:
        ways = asks_for_us(case.jobset, asked, rules.scheduler_name)
        return Answer(refusal=refuse_both(others, ways)) if ways else _not_ours(case.tree)
    refusal = refuse_exclusive(case.jobset, case.ours) or refuse_queue(choice)
    return Answer(refusal=refusal) if refusal else None


def _write_queue(draft: Draft, case: Reviewed, choice: Choice, owned: Owned) -> Iterator[str]:
    """Write the queue; yield what is worth telling about it."""
    refusal = refuse_queue(choice)
    if refusal:  # only while suspended: at creation it is no warning
        yield f"the queue stays as it is: {refusal.message}"
        return
    draft.set((*_LABELS, QUEUE), choice.queue)
    for number, job in case.ours.items():
        given = job.template.spec.template.metadata.labels.get(QUEUE)
        named_above = choice.source in {Source.TRAINJOB, Source.RUNTIME}
        outranked = named_above or not owned.template_label(job.name, QUEUE)
        if not given or outranked:
            draft.set((*pod_template(number), *_LABELS, QUEUE), choice.queue)
    if choice.others:
        names = ", ".join(choice.others)
        yield f"pod templates name {names}; the whole goes to {choice.queue}: {choice.source.value}"


def _carry(draft: Draft, facts: Facts) -> None:
    """Write down what the TrainJob asks for, where the JobSet says nothing."""
    if facts.trainjob is None:
        return
    for at, names, given in (
        (_LABELS, CARRIED_LABELS, facts.trainjob.labels),
        (_ANNOTATIONS, CARRIED_ANNOTATIONS, facts.trainjob.annotations),
    ):
        for name in names:
            if name in given and draft.get((*at, name)) is None:
                draft.set((*at, name), given[name])


def _fill(draft: Draft, steps: Steps, value: str) -> None:
    if not draft.get(steps):
        draft.set(steps, value)


def _groups_itself(case: Reviewed, facts: Facts, rules: Rules, owned: Owned) -> bool:
    """Say whether the user, and not we, has the pods grouped; that is settled at creation.

    Beside an external KAI the annotation may be ours, and "false" asks for KAI's own grouping.
    """
    if case.old is not None:
        wish = None if _has_gangs(case.old) else case.old.metadata.annotations.get(SKIP_PODGROUPER)
    else:
        wish = facts.trainjob.annotations.get(SKIP_PODGROUPER) if facts.trainjob else None
        given = case.jobset.metadata.annotations.get(SKIP_PODGROUPER)
        if given is not None and (rules.mode == "bundled" or _is_users(case, owned)):
            wish = given
    return wish is not None and (wish == _TRUE or rules.mode == "external")


def _is_users(case: Reviewed, owned: Owned) -> bool:
    """Tell the user's annotation from ours, when a creation comes a second time."""
    if owned.is_noted:
        return owned.annotation(SKIP_PODGROUPER)
    is_marked = case.jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    return not (is_marked and _has_gangs(case.jobset))


def _has_gangs(jobset: JobSet) -> bool:
    jobs = jobset.spec.replicated_jobs
    return any(GANG in job.template.spec.template.metadata.labels for job in jobs)


def _outline(case: Reviewed, draft: Draft, rules: Rules) -> Outline:
    """Plan the JobSet as it will be; a scheduler name that is filled in changes no unit."""
    meta = replace(case.jobset.metadata, annotations=draft.labels(_ANNOTATIONS))
    jobset = replace(case.jobset, metadata=meta)
    return outline(jobset, rules.scheduler_name, staged=rules.mode == "external")


def _warnings(draft: Draft, case: Reviewed, plan: Outline) -> Iterator[str]:
    """Yield what a person should know, each place once."""
    told = {finding.path: str(finding) for finding in plan.findings}
    faults = [
        *label_wish_faults(draft.labels(_LABELS), "metadata.labels"),
        *annotation_wish_faults(draft.labels(_ANNOTATIONS), "metadata.annotations"),
    ]
    for number, job in case.ours.items():
        path = f"spec.replicatedJobs[{number}].template.metadata.annotations"
        faults += annotation_wish_faults(job.template.metadata.annotations, path)
    for fault in faults:
        told.setdefault(fault.path, str(fault))
    yield from told.values()
