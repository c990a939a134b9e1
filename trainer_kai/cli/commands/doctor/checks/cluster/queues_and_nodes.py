"""Queues, the objects that name them, priority classes and nodes."""

from collections.abc import Iterator

from scheduler.core.messages.prefilter import prefilter_problem
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.names import ACCESS, DEFAULT_QUEUE, QUEUE
from trainer_kai.cli.commands.doctor.checks.admission.dry_runs import assigned_queue, kai_binds
from trainer_kai.cli.commands.doctor.checks.cluster.queue_shares import (
    share_findings,
    share_warnings,
    unlimited_default,
)
from trainer_kai.cli.commands.doctor.deployment_settings import UNKNOWN_VALUE, webhook_setting
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, listed, name_of, nested_field
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    Unread,
    fault,
    ok,
    require,
    warning,
)

__all__ = [
    "check_default_queue",
    "check_named_queues",
    "check_nodes",
    "check_priority_classes",
    "check_queues",
]


def check_queues(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether each queue has a root, and its numbers are as intended."""
    check, queues = "queues", {it.metadata.name: it for it in require(facts.queues)}
    warnings = QueueTable(queues).warnings
    rejected = [
        queue_warning.message for queue_warning in warnings if not queue_warning.still_counts
    ]
    findings = share_findings(queues)
    reported = {f"queue {it.queue}: {it.finding.path}" for it in findings}
    reported |= {f"queue {it}: spec.resources" for it in queues}  # its resources are reported
    corrected = [
        it.message
        for it in warnings
        if it.still_counts
        and f" annotation {ACCESS} " not in it.message
        and ": ".join(it.message.split(": ")[:2]) not in reported
    ]
    if not queues:
        yield fault(
            check,
            "no queues exist",
            "create a queue with `trainer-kai queue create`, or apply manifests/base/queues",
        )
        return
    if rejected:
        yield fault(
            check,
            listed(rejected, 2),
            "set existing parents without a cycle; until then these queues take no pods",
        )
    if corrected:
        yield warning(
            check,
            listed(corrected, 2),
            "correct the names and values",
        )
    yield from share_warnings(check, findings)
    if not (rejected or corrected or findings):
        yield ok(check, f"{len(queues)} queues, all below a root")


def check_default_queue(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the default queue takes TrainJobs that name no queue."""
    check, queues = "default queue", {it.metadata.name: it for it in require(facts.queues)}
    name = _default_queue(facts)
    prefilter_failure = QueueTable(queues).prefilter_failure(name)
    if prefilter_failure is None:
        problems = [*unlimited_default(check, name, queues)]
        yield from problems or [ok(check, f"{name} takes TrainJobs that name no queue")]
    else:
        remedy = f"create a queue {name} without children, or change the setting default_queue"
        yield fault(check, prefilter_problem(prefilter_failure), remedy)


def check_named_queues(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the queues that PodGroups and namespaces name take pods."""
    check, queues = "named queues", {it.metadata.name: it for it in require(facts.queues)}
    queue_table, by_name = QueueTable(queues), dict[str, list[str]]()
    for group in require(facts.podgroup_queues):
        by_name.setdefault(group.queue, []).append(f"PodGroup {group.name}")
    for meta in () if isinstance(facts.namespaces, Unread) else facts.namespaces:
        if meta.labels.get(QUEUE):
            by_name.setdefault(meta.labels[QUEUE], []).append(f"namespace {meta.name}")
    failing = {
        name: prefilter_failure
        for name in sorted(by_name)
        if (prefilter_failure := queue_table.prefilter_failure(name)) is not None
    }
    if not failing:
        yield ok(
            check, f"{len(by_name)} queues are named by PodGroups and namespaces, and take pods"
        )
        return
    described = [
        f"{prefilter_problem(prefilter_failure)} (named by {listed(by_name[it], 2)})"
        for it, prefilter_failure in failing.items()
    ]
    yield warning(
        check,
        listed(described, 2),
        "create such a queue, or change the label; until then no new pod of them starts",
    )


def check_priority_classes(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether KAI's priority classes exist, and the one of our own pods."""
    check, found = "priority classes", set(require(facts.priority_classes))
    missing_own = sorted(_own_classes(facts) - found)
    if missing_own:
        remedy = "apply manifests/base/processes again: without it no new pod of a process starts"
        yield fault(
            check, f"{listed(missing_own)} does not exist, but the Deployments name it", remedy
        )
    missing = [it for it in facts.manifests.classes if it not in found]
    if missing:
        remedy = (
            "apply manifests/base/priorityclasses: without them all workloads have one priority"
        )
        if kai_binds(facts):
            remedy = "install KAI's priority classes: without them all workloads have one priority"
        yield warning(check, f"{listed(missing)} does not exist", remedy)
    elif not missing_own:
        yield ok(check, f"{listed(facts.manifests.classes)} exist")


def check_nodes(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether nodes have GPUs."""
    check, (with_gpus, number) = "nodes", require(facts.gpu_nodes)
    if with_gpus:
        yield ok(check, f"{with_gpus} of {number} have GPUs")
    else:
        remedy = "add nodes with GPUs and a device plugin; until then no GPU pod can run"
        yield warning(check, f"none of {number} has GPUs", remedy)


def _own_classes(facts: InstallationFacts) -> set[str]:
    """Return the priority classes that our Deployments name."""
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    ours = [it for it in deployments if name_of(it) in facts.manifests.deployments]
    named = {nested_field(it, "spec", "template", "spec", "priorityClassName") for it in ours}
    return {str(it) for it in named if it}


def _default_queue(facts: InstallationFacts) -> str:
    """Return the queue of a TrainJob that names none, in a namespace that names none."""
    assigned, dry_run = assigned_queue(facts), facts.jobset
    place = "" if isinstance(dry_run, Unread) else dry_run.namespace
    metas = () if isinstance(facts.namespaces, Unread) else facts.namespaces
    has_own = any(it.name == place and it.labels.get(QUEUE) for it in metas)
    if assigned and not has_own:
        return assigned
    configured = webhook_setting(facts, "DEFAULT_QUEUE", DEFAULT_QUEUE)
    if configured != UNKNOWN_VALUE:
        return configured
    if has_own:
        raise CannotTell(
            f"namespace {place} names a queue of its own; set another one with --try-in"
        )
    return DEFAULT_QUEUE
