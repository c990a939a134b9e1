"""Warns that the pods of a Job, Deployment, StatefulSet or Notebook would wait in their queue.

The rules compute the queue and the preemptibility that the PodGroup of the workload will get, from
our podgrouper or from that of KAI: the labels of the workload come first, then those of its pods.
By its kind a PodGroup may be non-preemptible: the class is `inference` for a Deployment, `build`
for a Notebook. Nothing is denied, and nothing is read from the API server.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.gpu_requests import (
    charged_gpus,
    gpu_memory_mib,
    gpu_share_faults,
    reserved_label_faults,
    sharing_off_faults,
)
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import (
    APPS,
    BATCH,
    BATCH_MIN_MEMBER,
    DEFAULT_QUEUE,
    DEFAULT_SCHEDULER,
    GPU,
    GPU_FRACTION,
    GPU_MEMORY,
    GPU_MEMORY_MIB,
    KUBEFLOW,
    KUEUE_QUEUE,
    NODE_POOL,
    NOTEBOOK_STOPPED,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    PROJECT,
    QUEUE,
)
from trainer_kai.api.pod import PodTemplate
from trainer_kai.api.quantity import Quantity, QuantityError
from trainer_kai.api.requested_values import (
    PREEMPTIBILITIES,
    is_count,
    requested_annotation_faults,
    requested_label_faults,
)
from trainer_kai.api.resources import JOBS
from trainer_kai.errors import FieldError
from trainer_kai.policy.lint.field_values import deadline_faults
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.lint.queue_limits import quota_shortage
from trainer_kai.policy.misspelled_keys import POD_KEYS, misspelled_keys
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.pods.requests import ResourceAmounts, pod_requests
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    SelectablePriorityClasses,
)
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, is_closed
from webhook.admission.review import (
    NO_OBJECTIONS,
    AdmissionRequest,
    ValidationResult,
    size_fault,
    warned,
)
from webhook.cache.admission_cache import QueueTree

_REVIEWED: Final = frozenset(
    {(APPS, "Deployment"), (APPS, "StatefulSet"), (BATCH, JOBS.kind), (KUBEFLOW, "Notebook")}
)
_OWN: Final = "metadata.labels"
_OWN_ANNOTATIONS: Final = "metadata.annotations"
_TEMPLATE: Final = "spec.template.metadata.labels"
_TEMPLATE_ANNOTATIONS: Final = "spec.template.metadata.annotations"
_SCHEDULER: Final = "spec.template.spec.schedulerName"


class _WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    replicas: int = 1
    parallelism: int | None = None  # this and the next two of a Job
    completions: int | None = None
    active_deadline_seconds: int | None = msgspec.field(default=None, name="activeDeadlineSeconds")
    template: PodTemplate = PodTemplate()


class _Workload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta = Meta()
    spec: _WorkloadSpec = _WorkloadSpec()


class WorkloadContext(NamedTuple):
    queues: QueueTree
    cluster: KnownCluster
    non_preemptible: Mapping[str, Mapping[str, Quantity]]  # what is in use, by queue
    unannotated: str = QueueAccessMode.OPEN  # of queues without an access annotation


class _Pods(NamedTuple):
    queue: str
    labels_path: str  # of the labels that name the queue, or that could
    non_preemptible_reason: str  # "" if the pods are preemptible
    requests: ResourceAmounts  # of all replicas


class _Kind(NamedTuple):
    """A kind of workload, and where the labels of its pods come from."""

    name: str
    kai_class: str
    is_bundled: bool

    @property
    def label_paths(self) -> tuple[str, ...]:
        """Return the fields with labels that count, the first one first."""
        if self.name == "Notebook":  # the notebook controller copies them to the pod
            return (_OWN,)
        return (_OWN, _TEMPLATE)

    @property
    def is_job(self) -> bool:
        return self.name == JOBS.kind


def validate_workload(
    request: AdmissionRequest, context: WorkloadContext, rules: GroupingRules
) -> ValidationResult:
    """Return the warnings about a workload, of an update only about what it changes."""
    group, kind_name = request.kind.group, request.kind.kind
    is_write = request.operation in {"CREATE", "UPDATE"} and not request.sub_resource
    is_reviewed = is_write and (group, kind_name) in _REVIEWED
    workload = _read(request.object) if is_reviewed else None
    if workload is None or workload.metadata.controller:
        return NO_OBJECTIONS  # the labels of the top owner count
    default = rules.kind_defaults.of(group, kind_name)
    kind = _Kind(kind_name, default.priority_class, rules.mode == "bundled")
    old = _read(request.old_object) if request.operation == "UPDATE" else None
    before = set(_faults(old, kind, context, rules)) if old else set[FieldError]()
    faults = [it for it in _faults(workload, kind, context, rules) if it not in before]
    return warned(*faults, *_quota_faults((workload, old), kind, context, rules))


def _read(text: msgspec.Raw) -> _Workload | None:
    """Read a workload; one that cannot be read is not ours to report."""
    try:
        return None if size_fault(text) else decode(_Workload, text)
    except DecodeError:
        return None


def _labels(workload: _Workload, path: str) -> Mapping[str, str]:
    return workload.metadata.labels if path == _OWN else workload.spec.template.metadata.labels


def _is_ours(workload: _Workload, rules: GroupingRules) -> bool:
    return workload.spec.template.spec.scheduler_name == rules.scheduler_name


def _faults(
    workload: _Workload, kind: _Kind, context: WorkloadContext, rules: GroupingRules
) -> Iterator[FieldError]:
    yield from _label_faults(workload, kind, context, rules)
    template = workload.spec.template
    yield from reserved_label_faults(template.metadata.labels, _TEMPLATE)
    if _is_ours(workload, rules):
        annotations = template.metadata.annotations
        yield from gpu_share_faults(annotations, template.spec, "spec.template.")
        if kind.is_bundled and not context.cluster.shares_gpus:
            yield from sharing_off_faults(annotations, "spec.template.")
        labels = template.metadata.labels
        yield from misspelled_keys(labels, annotations, POD_KEYS, "spec.template.")
        yield from _misplaced_shares(workload, kind)
        if kind.is_job:
            yield from requested_label_faults(workload.metadata.labels, _OWN)
            yield from requested_annotation_faults(workload.metadata.annotations, _OWN_ANNOTATIONS)
            yield from _minimum_faults(workload, kind)
            deadline_s = workload.spec.active_deadline_seconds
            yield from deadline_faults(deadline_s, (template,), rules.scheduler_name)


def _minimum_faults(workload: _Workload, kind: _Kind) -> Iterator[FieldError]:
    """Yield a number of pods to start together that is misplaced or too large."""
    text = workload.metadata.annotations.get(BATCH_MIN_MEMBER)
    if text is None and BATCH_MIN_MEMBER in workload.spec.template.metadata.annotations:
        message = f"has no effect in a pod template: move it to {_OWN_ANNOTATIONS}"
        yield FieldError(f"{_TEMPLATE_ANNOTATIONS}[{BATCH_MIN_MEMBER}]", message)
    if text is None or not is_count(text):
        return
    pods = _pods_at_once(workload.spec)
    if int(text) > pods:
        result = f"{pods} counts" if kind.is_bundled else "no pod starts"
        message = f"{text} is more than the {pods} pods that run at the same time, so {result}"
        yield FieldError(f"{_OWN_ANNOTATIONS}[{BATCH_MIN_MEMBER}]", f"{message}. Lower it")


def _pods_at_once(spec: _WorkloadSpec) -> int:
    numbers = (1 if spec.parallelism is None else spec.parallelism, spec.completions)
    return max(min(it for it in numbers if it is not None), 0)


def _misplaced_shares(workload: _Workload, kind: _Kind) -> Iterator[FieldError]:
    """Yield requests for shares on the workload itself; only a Notebook passes them to its pods."""
    own, of_pods = workload.metadata.annotations, workload.spec.template.metadata.annotations
    for name in (GPU_FRACTION, GPU_MEMORY) if kind.name != "Notebook" else ():
        if name in own and name not in of_pods:
            message = f"has no effect on the pods: move it to {_TEMPLATE_ANNOTATIONS}"
            yield FieldError(f"metadata.annotations[{name}]", message)


def _label_faults(
    workload: _Workload, kind: _Kind, context: WorkloadContext, rules: GroupingRules
) -> Iterator[FieldError]:
    """Yield the labels without effect, and the queue that takes no pods."""
    named = next((it for it in (_OWN, _TEMPLATE) if _labels(workload, it).get(QUEUE)), None)
    if not _is_ours(workload, rules):
        if named is not None:
            scheduler = workload.spec.template.spec.scheduler_name or DEFAULT_SCHEDULER
            message = (
                f"the pods go to the scheduler {scheduler}, for which the label {QUEUE} has no "
                f"effect. Set schedulerName: {rules.scheduler_name}, or remove the label"
            )
            yield FieldError(_SCHEDULER, message)
        return
    queue, path, is_named = _queue(workload, kind, rules)
    if named is not None and named not in kind.label_paths and not is_named:
        message = (
            f"the label of the {kind.name} has no effect on its pods, which use queue {queue}. "
            f"Set the label at {path.partition('[')[0]}"
        )
        yield FieldError(f"{named}[{QUEUE}]", message)
    for labels_path in (_OWN, _TEMPLATE):
        if KUEUE_QUEUE in _labels(workload, labels_path) and not (rules.kueue or is_named):
            message = (
                f"the label has no effect here: the pods use queue {queue}. "
                f"Name their queue by the label {QUEUE} at {path.partition('[')[0]}"
            )
            yield FieldError(f"{labels_path}[{KUEUE_QUEUE}]", message)
    refused = _refused_class(workload, kind, context.cluster.priorities or {})
    if refused is not None:
        yield refused
    reason = context.queues.unusable_reason(queue)
    if reason is not None:
        given_by = "" if is_named else " (the default)"
        yield FieldError(path, f"queue {queue!r}{given_by} {reason}")


def _queue(workload: _Workload, kind: _Kind, rules: GroupingRules) -> tuple[str, str, bool]:
    """Return the queue of the pods, the field that names it, and whether one does."""
    for path in kind.label_paths:
        queue = _labels(workload, path).get(QUEUE)
        if queue:
            return queue, f"{path}[{QUEUE}]", True
    default_path = f"{kind.label_paths[0]}[{QUEUE}]"
    if kind.is_bundled and kind.is_job:
        return rules.default_queue, default_path, False
    for path in kind.label_paths:
        project = _labels(workload, path).get(PROJECT)
        if project:
            pool = workload.spec.template.metadata.labels.get(NODE_POOL)
            return f"{project}-{pool}" if pool else project, f"{path}[{PROJECT}]", True
    return rules.default_queue if kind.is_bundled else DEFAULT_QUEUE, default_path, False


def _quota_faults(
    workloads: tuple[_Workload, _Workload | None],
    kind: _Kind,
    context: WorkloadContext,
    rules: GroupingRules,
) -> Iterator[FieldError]:
    """Yield that non-preemptible pods exceed a quota, and the two ways out."""
    queues, classes = context.cluster.queues, context.cluster.priorities
    workload, old = workloads
    if queues is None or classes is None or not _is_ours(workload, rules):
        return
    memory_mib = _largest_memory_mib(context.cluster)
    pods = _pods(workload, kind, classes, rules, memory_mib)
    if not pods.non_preemptible_reason:
        return
    before = _pods(old, kind, classes, rules, memory_mib) if old and _is_ours(old, rules) else None
    needs, more = pods.requests, ""
    if before is not None and before.queue == pods.queue and before.non_preemptible_reason:
        needs = {name: it - before.requests.get(name, 0) for name, it in needs.items()}
        more = " more"
    short = quota_shortage(needs, context.cluster.gpus, pods.queue, queues, context.non_preemptible)
    if short is None:
        return
    parent = "" if short.queue == pods.queue else f", a parent of {pods.queue},"
    quota = f"has a quota of {short.quota}, {short.used} in use"
    if is_closed(context.queues.access(short.queue), context.unannotated):
        quota = "is closed, and has less of its quota left"  # not every user may see its amounts
    yield FieldError(
        "spec.template",
        f"the pods are non-preemptible ({pods.non_preemptible_reason}) and request "
        f"{short.requested}{more}; queue {short.queue}{parent} {quota}. Pods beyond the quota wait",
    )
    yield FieldError(
        "spec.template",
        f"to let them start, set the label {PREEMPTIBILITY}: {PREEMPTIBILITIES[0]} at "
        f"{pods.labels_path} (other queues may then evict them), or name a queue with enough quota "
        f"there ({QUEUE})",
    )


def _pods(
    workload: _Workload,
    kind: _Kind,
    classes: Mapping[str, PriorityClass],
    rules: GroupingRules,
    memory_mib: int,
) -> _Pods:
    queue, path, _ = _queue(workload, kind, rules)
    replicas = _pods_at_once(workload.spec) if kind.is_job else workload.spec.replicas
    if kind.name == "Notebook":
        replicas = 0 if NOTEBOOK_STOPPED in workload.metadata.annotations else 1
    try:
        each = pod_requests(workload.spec.template.spec)
    except QuantityError:
        each = {}
    annotations = workload.spec.template.metadata.annotations
    each = {**each, GPU: each.get(GPU, 0) + charged_gpus(annotations, memory_mib)}
    requests = {name: amount * replicas for name, amount in each.items()}
    reason = _non_preemptible_reason(workload, kind, classes)
    return _Pods(queue, path.partition("[")[0], reason, requests)


def _largest_memory_mib(cluster: KnownCluster) -> int:
    """Return the memory of the largest GPU, with which a share of memory counts least."""
    labels = cluster.nodes.label_values(GPU_MEMORY_MIB) if cluster.nodes is not None else ()
    return max(map(gpu_memory_mib, labels), default=0)


def _refused_class(
    workload: _Workload, kind: _Kind, classes: Mapping[str, PriorityClass]
) -> FieldError | None:
    """Return why our scheduler ignores the class that a label names; None if it counts."""
    own = workload.spec.template.spec.priority_class_name
    for path in kind.label_paths if kind.is_bundled else ():
        name = _labels(workload, path).get(PRIORITY_CLASS_NAME)
        if name and name != own:
            fact = SelectablePriorityClasses(classes).refusal_fact(name)
            if fact is None:
                return None
            message = f"{fact}. Set it at spec.template.spec.priorityClassName"
            return FieldError(f"{path}[{PRIORITY_CLASS_NAME}]", message)
    return None


def _global_default(classes: Mapping[str, PriorityClass]) -> str:
    """Return the class that Kubernetes gives a pod that names none; "" if there is none."""
    defaults = ((it.value, name) for name, it in classes.items() if it.global_default)
    return min(defaults, default=(0, ""))[1]


def _non_preemptible_reason(
    workload: _Workload, kind: _Kind, classes: Mapping[str, PriorityClass]
) -> str:
    """Say why the pods are non-preemptible; "" if they are preemptible."""
    for path in kind.label_paths:
        label = _labels(workload, path).get(PREEMPTIBILITY)
        if label in PREEMPTIBILITIES:
            return "" if label == PREEMPTIBILITIES[0] else f"label {PREEMPTIBILITY}"
    names = [_labels(workload, path).get(PRIORITY_CLASS_NAME) for path in kind.label_paths]
    name = next(filter(None, names), "") or workload.spec.template.spec.priority_class_name
    name, of_kind = name or _global_default(classes), ""
    if _refused_class(workload, kind, classes) is not None:
        name = ""  # the default priority counts, not the class of the kind
    elif name not in classes:
        name, of_kind = kind.kai_class, f", the default of a {kind.name}"
    value = SelectablePriorityClasses(classes).value(name)
    if value < PREEMPTIBLE_BELOW:
        return ""
    title = f"PriorityClass {name}{of_kind}" if name in classes else "the default PriorityClass"
    return f"{title}, has value {value}"
