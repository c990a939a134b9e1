"""Why a JobSet is denied at its creation: two schedulers, exclusive placement, queue name, size.

Without the denial its pods would wait for ever, or never be created.
"""

from collections.abc import Iterator, Mapping

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    VOLCANO_GROUP,
)
from trainer_kai.api.syntax import label_value_fault
from trainer_kai.policy.podgroups.grouping import PodGroupPlan, size_fault
from trainer_kai.policy.queueing.queue_resolution import QueueChoice, RequestedQueues
from webhook.admission.review import INVALID, AdmissionDenial


def other_schedulers(jobset: JobSet) -> tuple[str, ...]:
    """Trainer marks all pods of a runtime with a podGroupPolicy that chooses another scheduler."""
    templates = [job.template.spec.template.metadata for job in jobset.spec.replicated_jobs]
    chosen = {
        "coscheduling": any(COSCHEDULING_GROUP in it.labels for it in templates),
        "volcano": any(VOLCANO_GROUP in it.annotations for it in templates),
    }
    return tuple(name for name, is_chosen in chosen.items() if is_chosen)


def requests_our_scheduler(
    jobset: JobSet, sources: RequestedQueues, scheduler_name: str
) -> tuple[str, ...]:
    """Return where TrainJob, runtime and JobSet request our scheduler."""
    places = {
        f"the label {QUEUE} of the TrainJob": QUEUE in sources.trainjob,
        "podGroupPolicy.kaiScheduler.queue of the runtime": bool(sources.runtime_queue),
        f"the label {QUEUE} of the JobSet": QUEUE in sources.jobset,
        f"the label {QUEUE} of a pod template": any(QUEUE in it for it in sources.templates),
        f"schedulerName: {scheduler_name} in a pod template": any(
            job.template.spec.template.spec.scheduler_name == scheduler_name
            for job in jobset.spec.replicated_jobs
        ),
    }
    return tuple(place for place, names_us in places.items() if names_us)


def deny_size(jobset: JobSet) -> AdmissionDenial | None:
    """Deny a JobSet that takes long to plan; any user can create one with a TrainJob as owner."""
    fault = size_fault(jobset)
    return AdmissionDenial(INVALID, f"spec.replicatedJobs: {fault}") if fault else None


def deny_oversized_podgroup(plan: PodGroupPlan) -> AdmissionDenial | None:
    """Deny a JobSet with a PodGroup that is too large: its pods would be placed one by one."""
    if not plan.too_large:
        return None
    return AdmissionDenial(INVALID, "; ".join(str(it) for it in plan.findings if it.blocks))


def deny_two_schedulers(others: tuple[str, ...], our_places: tuple[str, ...]) -> AdmissionDenial:
    their_policies = " and ".join(f"podGroupPolicy.{name}" for name in others)
    our_reasons = ", ".join(our_places)
    message = (
        f"two schedulers are requested: another one by {their_policies} of the runtime, KAI by "
        f"{our_reasons}. Remove {their_policies} from the runtime to use KAI, or "
        f"remove {our_reasons} to use the other scheduler"
    )
    return AdmissionDenial(INVALID, message)


def deny_exclusive_placement(
    jobset: JobSet, our_jobs: Mapping[int, ReplicatedJob]
) -> AdmissionDenial | None:
    """Deny exclusive placement without a node selector: a gang could never start."""
    path = next(_exclusive_placement_paths(jobset, our_jobs), None)
    if path is None:
        return None
    message = (
        f"{path}.annotations[{EXCLUSIVE_TOPOLOGY}]: a gang with this annotation never starts, "
        "because JobSet creates only the first pod of each Job until that pod is bound. Remove the "
        f"annotation and request a topology, or also set {NODE_SELECTOR_STRATEGY}"
    )
    return AdmissionDenial(INVALID, message)


def _exclusive_placement_paths(
    jobset: JobSet, our_jobs: Mapping[int, ReplicatedJob]
) -> Iterator[str]:
    """Yield the paths of the annotation; as in JobSet, the strategy counts only beside it."""
    annotations = jobset.metadata.annotations
    if EXCLUSIVE_TOPOLOGY in annotations:
        if NODE_SELECTOR_STRATEGY not in annotations and our_jobs:
            yield "metadata"
        return
    for number, job in our_jobs.items():
        job_annotations = job.template.metadata.annotations
        if EXCLUSIVE_TOPOLOGY in job_annotations and NODE_SELECTOR_STRATEGY not in job_annotations:
            yield f"spec.replicatedJobs[{number}].template.metadata"


def deny_queue_name(choice: QueueChoice) -> AdmissionDenial | None:
    """Deny a queue name that is no label value; the API server does not check a runtime's field."""
    fault = label_value_fault(choice.queue)
    if fault is None:
        return None
    message = f"the queue name from {choice.source.value} is invalid: {fault}"
    return AdmissionDenial(INVALID, message)
