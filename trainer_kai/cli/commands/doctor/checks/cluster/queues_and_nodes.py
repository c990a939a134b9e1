"""Queues, the objects that name them, priority classes and nodes."""

from collections.abc import Iterator

from scheduler.core.messages.prefilter import prefilter_problem
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.gpu_share import mig_slices
from trainer_kai.api.names import ACCESS, CPU_WORKER, DEFAULT_QUEUE, GPU_WORKER, QUEUE
from trainer_kai.cli.commands.doctor.checks.admission.dry_runs import assigned_queue, kai_binds
from trainer_kai.cli.commands.doctor.checks.cluster.queue_shares import (
    share_findings,
    share_warnings,
    unlimited_default,
)
from trainer_kai.cli.commands.doctor.deployment_settings import (
    UNKNOWN_VALUE,
    scheduler_setting,
    webhook_setting,
)
from trainer_kai.cli.commands.doctor.facts import (
    InstallationFacts,
    NodeFacts,
    listed,
    name_of,
    nested_field,
)
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    Unread,
    fault,
    ok,
    require,
    warning,
)
from trainer_kai.service.settings import PolicySettings, split_names


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
    """Say whether nodes have GPUs, whether queues count all of them, and who may run there."""
    check, nodes = "nodes", require(facts.nodes)
    uncharged = [] if kai_binds(facts) else _uncharged(facts, nodes)
    restricted = [] if kai_binds(facts) else [*_restriction(check, facts, nodes)]
    if uncharged:
        remedy = (
            "add what are GPUs to the setting policies.gpu_replicas of the scheduler, or to "
            "policies.gpu_resources where one is a whole GPU"
        )
        observed = f"no queue is charged for {listed(uncharged)}: a GPU limit does not hold there"
        yield warning(check, observed, remedy)
    if not nodes.with_gpus:
        remedy = "add nodes with GPUs and a device plugin; until then no GPU pod can run"
        yield warning(check, f"none of {nodes.number} has GPUs", remedy)
        return
    yield from restricted
    if not uncharged and not restricted:
        yield ok(check, f"{nodes.with_gpus} of {nodes.number} have GPUs")


def _restriction(check: str, facts: InstallationFacts, nodes: NodeFacts) -> Iterator[CheckFinding]:
    """Yield what is wrong with the labels that say which pods run where, or that none count."""
    restricts = scheduler_setting(facts, "RESTRICT_NODE_SCHEDULING", "false")
    access = scheduler_setting(facts, "QUEUE_ACCESS_UNANNOTATED", "open")
    if restricts.lower() == "true":
        if nodes.unlabelled_gpus:
            observed = (
                f"{nodes.unlabelled_gpus} nodes with GPUs lack the label {GPU_WORKER}: with "
                "restrict_node_scheduling no GPU pod runs there"
            )
            yield warning(check, observed, f"`kubectl label node NAME {GPU_WORKER}=`")
        if not nodes.cpu_workers:
            observed = (
                f"no node has the label {CPU_WORKER}: with restrict_node_scheduling no pod "
                "without GPUs runs"
            )
            yield warning(check, observed, f"`kubectl label node NAME {CPU_WORKER}=`")
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
        yield warning(check, observed, remedy)


def _uncharged(facts: InstallationFacts, nodes: NodeFacts) -> list[str]:
    """Return the resources of makers of GPUs that the scheduler counts for no queue."""
    policies = PolicySettings()
    whole = scheduler_setting(facts, "POLICIES_GPU_RESOURCES", policies.gpu_resources)
    replicas = scheduler_setting(facts, "POLICIES_GPU_REPLICAS", policies.gpu_replicas)
    if UNKNOWN_VALUE in (whole, replicas):
        return []
    counted = {it.partition("=")[0].strip() for it in split_names(f"{whole},{replicas}")}
    return [it for it in nodes.of_vendors if it not in counted and not mig_slices(it)]


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
