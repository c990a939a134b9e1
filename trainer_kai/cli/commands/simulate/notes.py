"""Notes on the input, for standard error, and hints on PodGroups without a reason in the plan.

The notes name objects that are in no file, what is assumed of them, and requests of PodGroups that
are not implemented yet. A PodGroup without pods has no reason in the plan, nor has one with
nominated pods: hints say what happens to it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from scheduler.state.inputs import Cluster
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ANTICIPATED,
    DEFAULT_SCHEDULER,
    NODE_POOL,
    POD_GROUP,
    PRIORITY_CLASS_NAME,
    QUEUE,
)
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.api.text import counted, listed_names, verb_form
from trainer_kai.cli.commands.why.reasons import why_suspended
from trainer_kai.policy.podgroups.anticipated import StageDependency, read_anticipated
from trainer_kai.policy.queueing.priority_classes import default_priority
from trainer_kai.policy.queueing.queue_access import QueueAccessMode
from trainer_kai.policy.workloads.kinds import kind_of_owner, kind_of_pod

_DEFAULT_CLASS = ("train", 50)  # the default class of a PodGroup, and its value


def ignored_requests(cluster: Cluster) -> Iterator[str]:
    groups = sorted(cluster.pod_groups.items())
    pooled = [key for key, group in groups if NODE_POOL in group.metadata.labels]
    if pooled:
        begin = f"the label {NODE_POOL} has no effect"
        yield f"{begin}: all nodes are considered for {_first_and_count(pooled)}"


def missing_objects(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    missing_nodes: dict[Key, str] = {}
    for key, pod in cluster.pods.items():
        name = pod.spec.node_name
        if name and name not in cluster.nodes and pod.status.phase not in TERMINAL_PHASES:
            missing_nodes[key] = name
    if missing_nodes:
        nodes = sorted(set(missing_nodes.values()))
        are = verb_form(len(nodes), "are")
        pods = _first_and_count(missing_nodes)
        yield f"Node {listed_names(nodes, 1)} {are} in no file, but pods run there: {pods}"
    yield from _missing_priority_classes(cluster, scheduler_name)


def other_scheduler_notes(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    """Yield the other schedulers of waiting pods that have a PodGroup or name a queue."""
    by_scheduler: dict[str, set[Key]] = {}
    for key, pod in cluster.pods.items():
        named = pod.spec.scheduler_name
        waits = not pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES
        is_meant = POD_GROUP in pod.metadata.annotations or QUEUE in pod.metadata.labels
        if named != scheduler_name and waits and is_meant:
            by_scheduler.setdefault(named or DEFAULT_SCHEDULER, set()).add(key)
    for name in sorted(by_scheduler):
        yield (
            f"ignored: Pod {_first_and_count(by_scheduler[name])}, with a PodGroup or a queue: "
            f"spec.schedulerName is {name}, and this scheduler is {scheduler_name}"
        )


def _missing_priority_classes(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    users: dict[str, set[Key]] = {}
    for key, group in cluster.pod_groups.items():
        users.setdefault(group.spec.priority_class_name, set()).add(key)
    for key, pod in cluster.pods.items():
        if pod.spec.scheduler_name == scheduler_name and POD_GROUP not in pod.metadata.annotations:
            label = pod.metadata.labels.get(PRIORITY_CLASS_NAME)
            users.setdefault(label or pod.spec.priority_class_name, set()).add(key)
    by_pods = {pod.spec.priority_class_name for pod in cluster.pods.values()}
    priority = default_priority(cluster.priority_classes)
    for name in sorted(users.keys() - cluster.priority_classes.keys() - {""}):
        if (name, priority) != _DEFAULT_CLASS:
            assumed = f"the priority of {_first_and_count(users[name])} is assumed to be {priority}"
            warning = ", but a cluster without it refuses such pods" if name in by_pods else ""
            yield f"PriorityClass {name} is in no file: {assumed}{warning}"


def assumed_access(cluster: Cluster, scheduler_name: str, default_queue: str) -> Iterator[str]:
    uses = {Key(key.namespace, it.spec.queue) for key, it in cluster.pod_groups.items()}
    for key, pod in cluster.pods.items():
        is_alone = POD_GROUP not in pod.metadata.annotations
        if is_alone and pod.spec.scheduler_name == scheduler_name:
            uses.add(Key(key.namespace, pod.metadata.labels.get(QUEUE) or default_queue))
    queue_table = QueueTable(cluster.queues)
    unknown = [it for it in uses - cluster.permits.keys() if _is_closed(queue_table, it.name)]
    if unknown:
        namespace, queue = min(unknown)
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        yield (
            f"queue {queue} is closed, and no SubjectAccessReview in the input says whether "
            f"namespace {namespace} may use it: this is assumed{more}"
        )


def _is_closed(queue_table: QueueTable, queue: str) -> bool:
    mode = queue_table.access(queue).mode
    return queue_table.prefilter_failure(queue) is None and mode is QueueAccessMode.CLOSED


def hints(
    cluster: Cluster, groups: Mapping[Key, Key], nominated: Iterable[Key], evicted: Iterable[Key]
) -> dict[Key, str]:
    """Return the hints by PodGroup; *groups* are the PodGroups of pods, the rest the last plan."""
    nominated_counts = Counter(groups[pod] for pod in nominated if pod in groups)
    evicted_counts = Counter(groups[pod] for pod in evicted if pod in groups)
    with_pods = frozenset(groups.values())
    without_pods = (key for key in cluster.pod_groups if key not in with_pods)
    return {
        **{key: _nominated_text(count) for key, count in nominated_counts.items()},
        **{key: _evicted_text(count) for key, count in evicted_counts.items()},
        **{key: _no_pods_text(cluster.pod_groups[key]) for key in without_pods},
        **suspended_podgroups(cluster),
    }


def suspended_podgroups(cluster: Cluster) -> dict[Key, str]:
    texts = ((key, _suspended_text(cluster, key, it)) for key, it in cluster.pod_groups.items())
    return {key: text for key, text in texts if text}


def _suspended_text(cluster: Cluster, key: Key, group: PodGroup) -> str:
    kind = kind_of_pod(group.metadata.labels)
    if kind is None:
        return ""
    name = Key(key.namespace, group.metadata.labels[kind.name_label])
    owner = cluster.workload_objects[kind.owner.resource].get(name) if kind.owner else None
    suspendable = kind.owner.adapt(owner) if kind.owner and owner is not None else None
    if suspendable is not None and suspendable.is_suspended:
        return f"It is suspended: {why_suspended(suspendable, (group,))}"
    obj = cluster.workload_objects[kind.resource].get(name)
    workload = kind.adapt(obj) if obj is not None else None
    if workload is None or not workload.is_suspended:
        return ""
    if workload.needs_owner:
        return f"Its {kind.resource.kind} is suspended"
    return f"It is suspended: {why_suspended(workload.as_suspendable(), (group,))}"


def names_of_jobs(cluster: Cluster) -> dict[Key, str]:
    """Return the Jobs by PodGroup, such as job/nightly.

    Other workloads are a TrainJob, or look like one: a JobSet with its PodGroups.
    """
    named = {}
    for key, group in cluster.pod_groups.items():
        for owner in group.metadata.owner_references:
            kind = kind_of_owner(owner)
            if kind is not None and not kind.form.jobs_path:
                named[key] = f"{kind.resource.kind.lower()}/{owner.name}"
    return named


def _first_and_count(keys: Collection[Key]) -> str:
    return listed_names([*map(str, sorted(keys))], 1)


def _nominated_text(count: int) -> str:
    if count == 1:
        return "1 pod is nominated, and starts when its node has released the resources"
    return f"{count} pods are nominated, and start when their nodes have released the resources"


def _evicted_text(count: int) -> str:
    evicted = f"{counted(count, 'pod')} {verb_form(count, 'are')} evicted"
    return f"{evicted}. Evicted pods count neither as placed nor as waiting"


def _no_pods_text(group: PodGroup) -> str:
    try:
        after = read_anticipated(group.metadata.annotations.get(ANTICIPATED, "")).after
    except msgspec.DecodeError:
        after = ()
    if not after:
        return "It has no pods"
    created = f"they are created when {_stages_text(after)}"
    return f"It has no pods yet: {created}, and are not planned before"


def _stages_text(after: Iterable[StageDependency]) -> str:
    by_status: dict[str, list[str]] = {}
    for it in after:
        by_status.setdefault(it.status, []).append(it.replicated_job)
    return ", and ".join(
        f"{' and '.join(names)} {verb_form(len(names), 'are')} {status}"
        for status, names in sorted(by_status.items())
    )
