"""Queues, what names them, priority classes and nodes; quotas that are probably not as intended.

The rules are those of admission, which reports them when a queue is written.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.core.messages.rejection_messages import prefilter_problem
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.gpu_requests import mig_slices
from trainer_kai.api.kai_kinds import Queue, QueueResources
from trainer_kai.api.names import ACCESS, CPU_WORKER, DEFAULT_QUEUE, GPU_WORKER, QUEUE
from trainer_kai.cli.commands.doctor.checks.dry_runs import assigned_queue, kai_binds
from trainer_kai.cli.commands.doctor.facts import (
    UNKNOWN_VALUE,
    CannotTell,
    Findings,
    InstallationFacts,
    NodeFacts,
    PodGroupQueue,
    Unread,
    fault,
    if_read,
    listed,
    nested_field,
    ok,
    scheduler_setting,
    warning,
    webhook_setting,
)
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, close_command, is_closed
from trainer_kai.policy.queueing.queue_findings import (
    QueueFindingCode,
    all_queue_relatives,
    queue_findings,
)
from trainer_kai.service.setting_checks import split_names
from trainer_kai.service.settings import PolicySettings

_MAX_QUEUES: Final = 3  # in one warning
# Each is reported for the parent, or for the child.
_SEEN_FROM_THE_OTHER_SIDE: Final = (
    QueueFindingCode.SIBLINGS_OVER_PARENT,
    QueueFindingCode.CHILD_OVER_LIMIT,
)
_APPLY_CLASSES: Final = "apply manifests/base/priorityclasses"
_PATCH: Final = (
    """'{"spec":{"resources":{"gpu":{"quota":0},"cpu":{"quota":0},"memory":{"quota":0}}}}'"""
)


def _by_name(queues: Sequence[Queue]) -> dict[str, Queue]:
    return {it.metadata.name: it for it in queues}


def check_queues(_: InstallationFacts, found: Sequence[Queue]) -> Findings:
    queues = _by_name(found)
    warnings = QueueTable(queues).warnings
    rejected = [it.message for it in warnings if not it.still_counts]
    findings = _share_findings(queues)
    reported = {f"queue {queue}: {it.path}" for queue, it in findings}
    reported |= {f"queue {it}: spec.resources" for it in queues}  # its resources are reported
    corrected = [
        it.message
        for it in warnings
        if it.still_counts
        and f" annotation {ACCESS} " not in it.message
        and ": ".join(it.message.split(": ")[:2]) not in reported
    ]
    if not queues:
        remedy = "create a queue with `trainer-kai queue create`, or apply manifests/base/queues"
        yield fault("no queues exist", remedy)
        return
    if rejected:
        remedy = "set existing parents without a cycle; until then these queues take no pods"
        yield fault(listed(rejected, 2), remedy)
    if corrected:
        yield warning(listed(corrected, 2), "correct the names and values")
    yield from _share_warnings(findings)
    if not (rejected or corrected or findings):
        yield ok(f"{len(queues)} queues, all below a root")


def _share_findings(queues: Mapping[str, Queue]) -> list[tuple[str, Finding]]:
    """Return what is probably wrong with the numbers of each queue, each once."""
    specs = {name: it.spec for name, it in queues.items()}
    relatives = all_queue_relatives(specs)
    return [
        (name, finding)
        for name in sorted(specs)
        for finding in queue_findings(specs[name], relatives[name])
        if finding.code not in _SEEN_FROM_THE_OTHER_SIDE
    ]


def _share_warnings(findings: list[tuple[str, Finding]]) -> Findings:
    same_rule: dict[str, list[tuple[str, Finding]]] = {}
    for queue, it in findings:
        same_rule.setdefault(it.code, []).append((queue, it))
    for _, broken in sorted(same_rule.items()):
        observed = (
            f"queue {queue}: {it.path}: {it.message.partition('. ')[0]}" for queue, it in broken
        )
        first, finding = broken[0]
        remedy = finding.message.partition(". ")[2]
        remedy = f"queue {first}: {remedy[:1].lower()}{remedy[1:]}"
        yield warning(listed(observed, _MAX_QUEUES), remedy)


def check_access(facts: InstallationFacts, found: Sequence[Queue]) -> Findings:
    queues = _by_name(found)
    notes = {name: it.metadata.annotations.get(ACCESS) for name, it in queues.items()}
    mistyped = [
        f"queue {name}: metadata.annotations[{ACCESS}] is {note!r}, and counts as closed"
        for name, note in notes.items()
        if note not in (None, *QueueAccessMode)
    ]
    if mistyped:
        yield fault(listed(mistyped, 2), " or ".join(QueueAccessMode))
    queue_table = QueueTable(queues)
    leaf_queues = [name for name in sorted(queues) if queue_table.prefilter_failure(name) is None]
    unannotated = webhook_setting(facts, "QUEUE_ACCESS_UNANNOTATED", QueueAccessMode.OPEN)
    without_annotation = [it for it in leaf_queues if queue_table.access(it).mode is None]
    if without_annotation and unannotated != QueueAccessMode.CLOSED:
        namespaces_by_queue = _namespaces(facts)
        descriptions = (
            f"{name} ({listed(namespaces_by_queue.get(name, ['no namespace']), 4)})"
            for name in without_annotation
        )
        close = close_command(without_annotation[0])
        remedy = f"`{close}`, or set the annotation {ACCESS}: open, for each queue"
        observed = f"open to all namespaces, because not annotated: {listed(descriptions)}"
        yield warning(observed, remedy)
    elif not mistyped:
        closed = sum(is_closed(queue_table.access(it), unannotated) for it in leaf_queues)
        number = len(leaf_queues)
        yield ok(f"{closed} of {number} queues are closed to namespaces without a grant")


def _namespaces(facts: InstallationFacts) -> dict[str, list[str]]:
    by_queue: dict[str, set[str]] = {}
    for group in if_read(facts.podgroup_queues, ()):
        by_queue.setdefault(group.queue, set()).add(group.name.partition("/")[0])
    return {queue: sorted(names) for queue, names in by_queue.items()}


def check_default_queue(facts: InstallationFacts, found: Sequence[Queue]) -> Findings:
    queues, name = _by_name(found), _default_queue(facts)
    prefilter_failure = QueueTable(queues).prefilter_failure(name)
    if prefilter_failure is None:
        problems = [*_unlimited_default(name, queues)]
        yield from problems or [ok(f"{name} takes TrainJobs that name no queue")]
    else:
        remedy = f"create a queue {name} without children, or change the setting default_queue"
        yield fault(prefilter_problem(prefilter_failure), remedy)


def _default_queue(facts: InstallationFacts) -> str:
    """Return the queue of a TrainJob that names none, in a namespace that names none."""
    dry_run = facts.jobset
    place = "" if isinstance(dry_run, Unread) else dry_run.namespace
    metas = if_read(facts.namespaces, ())
    has_own = any(it.name == place and it.labels.get(QUEUE) for it in metas)
    if (assigned := assigned_queue(facts)) and not has_own:
        return assigned
    configured = webhook_setting(facts, "DEFAULT_QUEUE", DEFAULT_QUEUE)
    if configured != UNKNOWN_VALUE:
        return configured
    if has_own:
        message = f"namespace {place} names a queue of its own; set another one with --try-in"
        raise CannotTell(message)
    return DEFAULT_QUEUE


def _unlimited_default(default: str, queues: Mapping[str, Queue]) -> Findings:
    """Warn if queues cannot reclaim from the default queue, as in earlier versions.

    Reclaim compares two queues of one level: the ancestors of both below their common ancestor.
    """
    path = _ancestors(default, queues)
    below = dict(zip(path[1:], path, strict=False))  # an ancestor -> the queue of the path below
    owners: dict[str, list[str]] = {}
    for name in sorted(queues):
        if name not in path and _gpu_quota(queues[name]) > 0:
            common = next((it for it in _ancestors(name, queues) if it in path), "")
            compared = below.get(common, "") if common else path[-1]
            if compared and _gpu_quota(queues[compared]) < 0:
                owners.setdefault(compared, []).append(name)
    for name in sorted(owners, key=path.index):
        observed = (
            f"the GPU quota of {name} is unlimited (-1), as in earlier versions: "
            f"{listed(owners[name])} cannot reclaim from workloads that name no queue"
        )
        yield warning(observed, f"`kubectl patch queue {name} --type merge -p {_PATCH}`")


def _ancestors(name: str, queues: Mapping[str, Queue]) -> list[str]:
    path = dict[str, None]()
    while name in queues and name not in path:
        path[name] = None
        name = queues[name].spec.parent_queue
    return [*path]


def _gpu_quota(queue: Queue) -> float:
    return float((queue.spec.resources or QueueResources()).gpu.quota)


def check_named_queues(
    facts: InstallationFacts, read: tuple[Sequence[Queue], Sequence[PodGroupQueue]]
) -> Findings:
    queue_table, by_name = QueueTable(_by_name(read[0])), dict[str, list[str]]()
    for group in read[1]:
        by_name.setdefault(group.queue, []).append(f"PodGroup {group.name}")
    for meta in if_read(facts.namespaces, ()):
        if meta.labels.get(QUEUE):
            by_name.setdefault(meta.labels[QUEUE], []).append(f"namespace {meta.name}")
    failures = ((name, queue_table.prefilter_failure(name)) for name in sorted(by_name))
    described = [
        f"{prefilter_problem(failure)} (named by {listed(by_name[name], 2)})"
        for name, failure in failures
        if failure is not None
    ]
    if described:
        remedy = "create such a queue, or change the label; until then no new pod of them starts"
        yield warning(listed(described, 2), remedy)
    else:
        yield ok(f"{len(by_name)} queues are named by PodGroups and namespaces, and take pods")


def check_priority_classes(facts: InstallationFacts, found: Sequence[str]) -> Findings:
    path = ("spec", "template", "spec", "priorityClassName")
    named = {nested_field(it, *path) for it in facts.our_deployments.values()}
    missing_own = sorted({str(it) for it in named if it} - {*found})
    if missing_own:
        remedy = "apply manifests/base/processes again: without it no new pod of a process starts"
        observed = f"{listed(missing_own)} does not exist, but the Deployments name it"
        yield fault(observed, remedy)
    classes = facts.manifests.classes
    missing = [it for it in classes if it not in found]
    if missing:
        remedy = "install KAI's priority classes" if kai_binds(facts) else _APPLY_CLASSES
        consequence = "without them all workloads have one priority"
        yield warning(f"{listed(missing)} does not exist", f"{remedy}: {consequence}")
    elif not missing_own:
        yield ok(f"{listed(classes)} exist")


def check_nodes(facts: InstallationFacts, nodes: NodeFacts) -> Findings:
    uncharged = [] if kai_binds(facts) else _uncharged(facts, nodes)
    restricted = [] if kai_binds(facts) else [*_restriction(facts, nodes)]
    if uncharged:
        remedy = (
            "add what are GPUs to the setting policies.gpu_replicas of the scheduler, or to "
            "policies.gpu_resources where one is a whole GPU"
        )
        observed = f"no queue is charged for {listed(uncharged)}: a GPU limit does not hold there"
        yield warning(observed, remedy)
    if not nodes.with_gpus:
        remedy = "add nodes with GPUs and a device plugin; until then no GPU pod can run"
        yield warning(f"none of {nodes.number} has GPUs", remedy)
        return
    yield from restricted
    if not uncharged and not restricted:
        yield ok(f"{nodes.with_gpus} of {nodes.number} have GPUs")


def _restriction(facts: InstallationFacts, nodes: NodeFacts) -> Findings:
    """Yield what is wrong with the labels that say which pods run where, or that none count."""
    restricts = scheduler_setting(facts, "RESTRICT_NODE_SCHEDULING", "false")
    access = scheduler_setting(facts, "QUEUE_ACCESS_UNANNOTATED", "open")
    if restricts.lower() == "true":
        if nodes.unlabelled_gpus:
            observed = (
                f"{nodes.unlabelled_gpus} nodes with GPUs lack the label {GPU_WORKER}: with "
                "restrict_node_scheduling no GPU pod runs there"
            )
            yield warning(observed, f"`kubectl label node NAME {GPU_WORKER}=`")
        if not nodes.cpu_workers:
            observed = (
                f"no node has the label {CPU_WORKER}: with restrict_node_scheduling no pod "
                "without GPUs runs"
            )
            yield warning(observed, f"`kubectl label node NAME {CPU_WORKER}=`")
    elif access == "closed" and nodes.with_gpus < nodes.number:
        observed = (
            f"pods without GPUs may run on the {nodes.with_gpus} nodes with GPUs, and what queues "
            "do not count (ephemeral-storage, hugepages, network devices) can keep GPU pods from "
            "them"
        )
        remedy = (
            f"label nodes with {GPU_WORKER} or {CPU_WORKER}, then set restrict_node_scheduling of "
            "the scheduler"
        )
        yield warning(observed, remedy)


def _uncharged(facts: InstallationFacts, nodes: NodeFacts) -> list[str]:
    """Return the resources of makers of GPUs that the scheduler counts for no queue."""
    policies = PolicySettings()
    whole = scheduler_setting(facts, "POLICIES_GPU_RESOURCES", policies.gpu_resources)
    replicas = scheduler_setting(facts, "POLICIES_GPU_REPLICAS", policies.gpu_replicas)
    if UNKNOWN_VALUE in (whole, replicas):
        return []
    counted = {it.partition("=")[0].strip() for it in split_names(f"{whole},{replicas}")}
    return [it for it in nodes.of_vendors if it not in counted and not mig_slices(it)]
