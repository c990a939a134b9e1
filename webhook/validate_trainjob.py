"""What is held against a TrainJob while its author is still there to read it.

`read_trainjob` says whether a review is ours to answer; `judge_trainjob` is handed what is known of
runtime, namespace and queues. What exists keeps what it has: of an update only that is judged which
it changes, so nobody who suspends, resumes or annotates a TrainJob answers for its author, and no
rule of ours that is stricter than yesterday's stops what was let in. Whether user and namespace may
use the queues is for others to find out: `Judged.wanted` says when, and of which.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import EXCLUSIVE_TOPOLOGY, KUEUE_QUEUE, QUEUE, TRAINJOB_CONTROLLER
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.api.runtime import Named
from trainer_kai.api.syntax import dns_subdomain_fault, label_value_fault
from trainer_kai.api.trainjob import RuntimeRef
from trainer_kai.api.wishes import annotation_wish_faults, label_wish_faults
from trainer_kai.errors import FieldError
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.misspelt import TRAINJOBS as READ
from trainer_kai.policy.misspelt import misspelt
from trainer_kai.policy.queues import Source
from trainer_kai.policy.units import MOST_JOBS
from webhook.cache import runtime_key
from webhook.queuetree import QueueTree
from webhook.refusals import asks_for_us, other_schedulers, refuse_both, refuse_exclusive
from webhook.resolved import RUNTIME, Resolved, Wanted, resolve
from webhook.review import UNTOUCHED, Answer, Refusal, Request, size_fault, unreadable
from webhook.shape import (
    PATCHES,
    Patch,
    Runtime,
    annotated_by,
    queue_of_jobset,
    queues_of_pods,
)
from webhook.verdict import NOTHING, Verdict, all_refused, refused, warned

__all__ = ["Judged", "Known", "Submitted", "judge_trainjob", "read_trainjob"]

_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_INVALID: Final = 422


class _Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What a rule reads of it."""

    runtime_ref: RuntimeRef = RuntimeRef()
    trainer: Named | None = None
    initializer: Named | None = None
    runtime_patches: tuple[Patch, ...] = ()
    suspend: bool = False
    managed_by: str = ""


class _TrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: _Spec = _Spec()


class _Managed(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    managed_by: str = ""


class _ManagedTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    spec: _Managed = _Managed()


class Submitted(NamedTuple):
    """A TrainJob that may be ours to judge, as it shall be and as it was."""

    job: _TrainJob
    old: _TrainJob | None  # None: it is made
    namespace: str

    @property
    def runtime(self) -> Key:
        """Return which runtime it names; no update changes that."""
        return runtime_key(self.job.spec.runtime_ref, self.namespace)

    @property
    def may_change_queue(self) -> bool:
        """Say whether anything is new that could name a queue."""
        if self.old is None:
            return True
        return _says(self.job) != _says(self.old)

    @property
    def may_hide_queue(self) -> bool:
        """Say whether its runtime could name a queue that nobody was asked about.

        In the runtimes of a cluster none can be hidden that somebody may not use; and beside a
        label only the pods of a TrainJob that is made may name another.
        """
        is_hidden = self.old is None or not self.job.metadata.labels.get(QUEUE)
        return bool(self.runtime.namespace) and self.may_change_queue and is_hidden


class Known(NamedTuple):
    """What else is known: the runtime, unless it cannot be read; what its namespace says."""

    runtime: Runtime | None
    namespace: Mapping[str, str]
    queues: QueueTree
    is_unknown_refused: bool = False  # a queue that is not there
    just_made: str = ""  # a queue that is there all the same


class Judged(NamedTuple):
    """What is held against it; the queues that are new, which its namespace must be allowed to use.

    A chosen one its author must be allowed to use as well.
    """

    verdict: Verdict
    wanted: tuple[Wanted, ...] = ()
    is_unsure: bool = False  # the runtime might name a queue, and cannot be read
    queue: str = ""  # it goes to, if that is new
    missing: str = ""  # a queue that it is refused for, as far as we have heard


_NO_KUEUE: Final = (
    "this site does not run Kueue (setting kueue), so the label keeps nothing: the TrainJob is "
    "evicted like any other when a queue takes back its quota. Leave the label out"
)
_UNJUDGED: Final = Judged(NOTHING)


def read_trainjob(request: Request) -> Submitted | Answer:
    """Read the TrainJob of a review; an answer where there is nothing to judge."""
    kind = request.kind
    is_trainjob = (kind.group, kind.kind) == (TRAINJOBS.group, TRAINJOBS.kind)
    if not is_trainjob or request.operation not in {_CREATE, _UPDATE} or request.sub_resource:
        return UNTOUCHED
    too_large = size_fault(request.object)
    if too_large:  # what grew so large before we looked stays as it is
        if request.operation == _UPDATE and size_fault(request.old_object):
            return UNTOUCHED
        return Answer(refusal=Refusal(_INVALID, f"the TrainJob {too_large}"))
    old = _old(request)
    try:
        job = decode(_TrainJob, request.object)
    except DecodeError as error:
        is_new = request.operation == _CREATE or old is not None
        return unreadable(error) if is_new and not _is_foreign(request) else UNTOUCHED
    if not _is_managed_here(job.spec.managed_by) or job.metadata.deletion_timestamp:
        return UNTOUCHED
    return Submitted(job, old, request.namespace or job.metadata.namespace)


def judge_trainjob(case: Submitted, known: Known, rules: Rules) -> Judged:
    """Judge what is new in a TrainJob; one that is left to another scheduler is not judged."""
    now = _resolved(case.job, known, rules)
    if known.runtime is not None and not _is_ours(now, rules):
        return _UNJUDGED
    before = _resolved(case.old, known, rules) if case.old else None
    verdict = _contradictory(case, now, before, rules).beside(_late(case))
    verdict = verdict.beside(_misunderstood(case, rules))
    if not case.may_change_queue:
        return Judged(verdict)
    is_unsure = known.runtime is None and case.may_hide_queue
    wanted = _wanted(case, now, before, is_known=known.runtime is not None)
    if before is not None and before.choice.queue == now.choice.queue and not is_unsure:
        return Judged(verdict, wanted)
    found = _queue(case, now, known)
    queue = now.choice.queue
    is_missing = known.is_unknown_refused and known.queues.misses(queue)
    missing = queue if is_missing and not dns_subdomain_fault(queue) else ""
    return Judged(verdict.beside(found), wanted, is_unsure, queue, missing)


def _old(request: Request) -> _TrainJob | None:
    """Return what it was; what cannot be read settles nothing, as if it had not been."""
    if request.operation == _CREATE:
        return None
    try:
        return decode(_TrainJob, request.old_object)
    except DecodeError:
        return None


def _says(job: _TrainJob) -> tuple[str | None, str | None, dict[str, str]]:
    """Return what a TrainJob says of queues, in all the places where it can."""
    patches = job.spec.runtime_patches
    return job.metadata.labels.get(QUEUE), queue_of_jobset(patches), queues_of_pods(patches)


def _is_foreign(request: Request) -> bool:
    try:
        found = decode(_ManagedTrainJob, request.object)
    except DecodeError:
        return False
    return not _is_managed_here(found.spec.managed_by)


def _is_managed_here(managed_by: str) -> bool:
    return managed_by in {"", TRAINJOB_CONTROLLER}


def _resolved(job: _TrainJob, known: Known, rules: Rules) -> Resolved:
    labels, patches = job.metadata.labels, job.spec.runtime_patches
    return resolve(labels, patches, known.runtime, known.namespace, rules.default_queue)


def _is_ours(found: Resolved, rules: Rules) -> bool:
    """Say whether admission will take the JobSet for ours, or refuse it for asking both."""
    if other_schedulers(found.jobset):
        return bool(asks_for_us(found.jobset, found.asked, rules.scheduler_name))
    names = {it.template.spec.template.spec.scheduler_name for it in _jobs(found.jobset)}
    return not names or bool(names & {"", rules.scheduler_name})


def _jobs(jobset: JobSet) -> tuple[ReplicatedJob, ...]:
    return jobset.spec.replicated_jobs


def _contradictory(
    case: Submitted, now: Resolved, before: Resolved | None, rules: Rules
) -> Verdict:
    """Refuse what cannot go together, unless it was let in like that."""
    had = dict(_contradictions(case.old, before, rules)) if case.old and before else {}
    faults = dict(_contradictions(case.job, now, rules))
    return all_refused(fault for what, fault in faults.items() if what not in had)


def _contradictions(
    job: _TrainJob, found: Resolved, rules: Rules
) -> Iterator[tuple[str, FieldError]]:
    """Yield what the JobSet would be refused for, as a fault of the TrainJob."""
    others = other_schedulers(found.jobset)
    ways = asks_for_us(found.jobset, found.asked, rules.scheduler_name)
    if others and ways:
        yield "both", FieldError(RUNTIME, refuse_both(others, ways).message)
    ours = {
        number: it
        for number, it in enumerate(_jobs(found.jobset))
        if it.template.spec.template.spec.scheduler_name in {"", rules.scheduler_name}
    }
    if found.runtime.left_out:
        jobs = len(_jobs(found.jobset)) + found.runtime.left_out
        message = f"{jobs} replicatedJobs are more than the {MOST_JOBS} that are planned"
        yield "size", FieldError(RUNTIME, message)
    exclusive = refuse_exclusive(found.jobset, ours)
    if exclusive:
        is_patched = annotated_by(job.spec.runtime_patches, EXCLUSIVE_TOPOLOGY)
        path = PATCHES if is_patched else RUNTIME
        yield "exclusive", FieldError(path, f"in the JobSet, {exclusive.message}")


def _late(case: Submitted) -> Verdict:
    """Refuse a part that comes or goes later; the API server only compares what is there twice."""
    return all_refused(_late_faults(case.old.spec, case.job.spec) if case.old else ())


def _late_faults(old: _Spec, new: _Spec) -> Iterator[FieldError]:
    for name, before, after in (
        ("trainer", old.trainer, new.trainer),
        ("initializer", old.initializer, new.initializer),
    ):
        if (before is None) != (after is None):
            done = "added to" if before is None else "taken from"
            message = (
                f"cannot be {done} a TrainJob that is there: its JobSet keeps the pods that it was "
                "made with, so from the next suspension on Trainer would fail to apply it, for "
                "good. Make a new TrainJob"
            )
            yield FieldError(f"spec.{name}", message)


def _misunderstood(case: Submitted, rules: Rules) -> Verdict:
    """Warn of what labels and annotations ask for that cannot be meant, or that nobody reads."""
    had = set(_wishes(case.old.metadata, rules)) if case.old else set()
    return warned(*(fault for fault in _wishes(case.job.metadata, rules) if fault not in had))


def _wishes(meta: Meta, rules: Rules) -> Iterator[FieldError]:
    if KUEUE_QUEUE in meta.labels and not rules.kueue:
        yield FieldError(f"metadata.labels[{KUEUE_QUEUE}]", _NO_KUEUE)
    labels = {name: meta.labels[name] for name in READ.labels if name in meta.labels}
    labels.pop(QUEUE, None)  # that is a rule of its own
    wishes = (name for name in READ.annotations if name in meta.annotations)
    annotations = {name: meta.annotations[name] for name in wishes}
    yield from label_wish_faults(labels, "metadata.labels")
    yield from annotation_wish_faults(annotations, "metadata.annotations")
    yield from misspelt(meta.labels, meta.annotations)


def _queue(case: Submitted, now: Resolved, known: Known) -> Verdict:
    """Judge a queue that is new: that it can be, that it may change now, that it is there."""
    queue, source = now.choice.queue, now.choice.source
    verdict = NOTHING
    old = case.old
    if old is not None and not (old.spec.suspend or case.job.spec.suspend):
        message = (
            "the queue changes only while the TrainJob is suspended: set spec.suspend to true "
            "before, or in the same update"
        )
        verdict = refused(FieldError(now.path, message))
    fault = (label_value_fault(queue) or dns_subdomain_fault(queue)) if now.is_said else None
    if fault:
        what = "" if source is Source.TRAINJOB else f"{source.value}: "
        return verdict.beside(refused(FieldError(now.path, f"{what}{fault}")))
    lack = known.queues.lack(queue)
    if lack is None or queue == known.just_made:
        return verdict
    missing = FieldError(now.path, f"{source.value} is {queue!r}, and {lack}")
    return verdict.beside(refused(missing) if known.is_unknown_refused else warned(missing))


def _wanted(
    case: Submitted, now: Resolved, before: Resolved | None, *, is_known: bool
) -> tuple[Wanted, ...]:
    """Return the queues that are new; while the runtime is not known, only what is named."""
    had = {before.choice.queue, *before.choice.others} if before else set()
    is_own = bool(case.runtime.namespace)
    return tuple(
        it._replace(is_chosen=bool(it.path) and (is_own or it.path != RUNTIME))
        for it in now.queues
        if it.queue not in had and (is_known or it.path)
    )
