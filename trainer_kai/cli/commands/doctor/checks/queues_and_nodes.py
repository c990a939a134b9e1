"""Queues, the objects that name them, priority classes and nodes."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from scheduler.core.messages.prefilter import prefilter_problem
from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.effective_values import effective_queue
from trainer_kai.api.names import ACCESS, DEFAULT_QUEUE, QUEUE
from trainer_kai.api.queue import Queue, QueueResource, QueueResources
from trainer_kai.cli.commands.doctor.checks.dry_runs import assigned_queue, kai_binds
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

_KINDS: Final = ("gpu", "cpu", "memory")
_UNLIMITED: Final = Decimal(-1)


def check_queues(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether each queue has a root, and no parent less than its children are promised."""
    check, queues = "queues", {it.metadata.name: it for it in require(facts.queues)}
    warnings = QueueTable(queues).warnings
    rejected = [
        queue_warning.message for queue_warning in warnings if not queue_warning.still_counts
    ]
    access_annotation = f" annotation {ACCESS} "  # reported by `check_access`
    corrected = [
        it.message for it in warnings if it.still_counts and access_annotation not in it.message
    ]
    if not queues:
        yield fault(check, "there is none", "at least one: manifests/base/queues has two")
        return
    if rejected:
        yield fault(
            check,
            listed(rejected, 2),
            "parents that exist, and no circle: until then these take nobody",
        )
    if corrected:
        yield warning(
            check,
            listed(corrected, 2),
            "names that have a meaning, and values that count as they are written",
        )
    parent_problems = [text for it in queues.values() for text in _parent_problems(it, queues)]
    own_problems = [text for it in queues.values() for text in _own_problems(it)]
    if parent_problems or own_problems:
        remedy = "as much for a parent as for its children together, and no quota above a limit"
        yield warning(check, listed([*parent_problems, *own_problems], 2), remedy)
    elif not (rejected or corrected):
        yield ok(check, f"{len(queues)}, each with a way to the top")


def check_default_queue(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a TrainJob that names no queue gets one that takes it."""
    check, queues = "default queue", {it.metadata.name: it for it in require(facts.queues)}
    name = _default_queue(facts)
    prefilter_failure = QueueTable(queues).prefilter_failure(name)
    if prefilter_failure is None:
        yield ok(check, f"{name} takes who names none")
    else:
        remedy = f"a queue {name} without children, or another setting default_queue"
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
        yield ok(check, f"{len(by_name)} by groups and namespaces, which take them")
        return
    described = [
        f"{prefilter_problem(prefilter_failure)} (named by {listed(by_name[it], 2)})"
        for it, prefilter_failure in failing.items()
    ]
    yield warning(
        check, listed(described, 2), "such a queue, or another label: until then they wait"
    )


def check_priority_classes(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether KAI's priority classes are there, and that of our own pods."""
    check, found = "priority classes", set(require(facts.priority_classes))
    missing_own = sorted(_own_classes(facts) - found)
    if missing_own:
        remedy = "manifests/base/processes, applied again: without it no new pod of ours is made"
        yield fault(check, f"there is no {listed(missing_own)}, which our Deployments name", remedy)
    missing = [it for it in facts.manifests.classes if it not in found]
    if missing:
        remedy = "manifests/base/priorityclasses: without them all have one priority"
        if kai_binds(facts):
            remedy = "KAI's own: without them all have one priority"
        yield warning(check, f"there is no {listed(missing)}", remedy)
    elif not missing_own:
        yield ok(check, f"{listed(facts.manifests.classes)} are there")


def check_nodes(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether nodes have GPUs."""
    check, (with_gpus, number) = "nodes", require(facts.gpu_nodes)
    if with_gpus:
        yield ok(check, f"{with_gpus} of {number} have GPUs")
    else:
        remedy = "nodes with GPUs, and a device plugin that says so: else no such pod runs"
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
        raise CannotTell(f"namespace {place} names a queue of its own; try another by --try-in")
    return DEFAULT_QUEUE


def _shares(queue: Queue) -> QueueResources:
    return effective_queue(queue.spec)[0].resources or QueueResources()


def _share(queue: Queue, kind: str) -> QueueResource:
    share: QueueResource = getattr(_shares(queue), kind)
    return share


def _parent_problems(parent: Queue, queues: dict[str, Queue]) -> Iterator[str]:
    """Yield the quotas and limits of children that exceed those of their parent."""
    name = parent.metadata.name
    children = [it for it in queues.values() if it.spec.parent_queue == name and it is not parent]
    for kind in _KINDS:
        parent_share = _share(parent, kind)
        shares = {it.metadata.name: _share(it, kind) for it in children}
        quota = sum(it.quota for it in shares.values() if it.quota > 0)
        if parent_share.quota >= 0 and quota > parent_share.quota:
            yield f"the children of {name} own {quota} {kind}, and it {parent_share.quota}"
        for child, share in shares.items():
            if share.quota == _UNLIMITED and parent_share.quota >= 0:
                yield f"{child} owns {kind} without bound, and {name} above it {parent_share.quota}"
            if share.limit > parent_share.limit >= 0:
                yield (
                    f"{child} may have {share.limit} {kind}, and {name} above it "
                    f"{parent_share.limit}"
                )


def _own_problems(queue: Queue) -> Iterator[str]:
    name = queue.metadata.name
    for kind in _KINDS:
        share = _share(queue, kind)
        if 0 <= share.limit < share.quota:
            yield f"{name} owns {share.quota} {kind}, and may have {share.limit} only"
