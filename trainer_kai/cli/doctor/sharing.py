"""Queues, who names them, classes and nodes: whether there is anything to share, and how."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from scheduler.state.queues import QueueRows
from trainer_kai.api.counted import counted_queue
from trainer_kai.api.names import ACCESS, DEFAULT_QUEUE, QUEUE
from trainer_kai.api.queue import Queue, QueueResource, QueueResources
from trainer_kai.cli.doctor.facts import Facts, at, listed, name_of
from trainer_kai.cli.doctor.finding import (
    CannotTell,
    Finding,
    Unread,
    fault,
    known,
    ok,
    warning,
)
from trainer_kai.cli.doctor.settled import ELSEWHERE, told_webhook
from trainer_kai.cli.doctor.tried import given_queue, has_kai

__all__ = [
    "check_classes",
    "check_default_queue",
    "check_named_queues",
    "check_nodes",
    "check_queues",
]

_KINDS: Final = ("gpu", "cpu", "memory")
_UNBOUND: Final = Decimal(-1)


def check_queues(facts: Facts) -> Iterator[Finding]:
    """Say whether each queue hangs together with the top, and none promises more than it has."""
    check, queues = "queues", {it.metadata.name: it for it in known(facts.queues)}
    told = QueueRows(queues).strays
    strays = [stray.message for stray in told if not stray.counts]
    others = f" annotation {ACCESS} "  # a check of its own tells of it
    otherwise = [it.message for it in told if it.counts and others not in it.message]
    if not queues:
        yield fault(check, "there is none", "at least one: manifests/base/queues has two")
        return
    if strays:
        yield fault(
            check,
            listed(strays, 2),
            "parents that exist, and no circle: until then these take nobody",
        )
    if otherwise:
        yield warning(
            check,
            listed(otherwise, 2),
            "names that have a meaning, and values that count as they are written",
        )
    above = [text for it in queues.values() for text in _above(it, queues)]
    inside = [text for it in queues.values() for text in _inside(it)]
    if above or inside:
        right = "as much for a parent as for its children together, and no quota above a limit"
        yield warning(check, listed([*above, *inside], 2), right)
    elif not (strays or otherwise):
        yield ok(check, f"{len(queues)}, each with a way to the top")


def check_default_queue(facts: Facts) -> Iterator[Finding]:
    """Say whether a TrainJob that names no queue gets one that takes it."""
    check, queues = "default queue", {it.metadata.name: it for it in known(facts.queues)}
    name = _default_queue(facts)
    bar = QueueRows(queues).bar(name)
    if bar is None:
        yield ok(check, f"{name} takes who names none")
    else:
        right = f"a queue {name} without children, or another setting default_queue"
        yield fault(check, bar.message, right)


def check_named_queues(facts: Facts) -> Iterator[Finding]:
    """Say whether queues that somebody names take him."""
    check, queues = "named queues", {it.metadata.name: it for it in known(facts.queues)}
    rows, by_name = QueueRows(queues), dict[str, list[str]]()
    for group in known(facts.groups):
        by_name.setdefault(group.queue, []).append(f"PodGroup {group.name}")
    for meta in () if isinstance(facts.namespaces, Unread) else facts.namespaces:
        if meta.labels.get(QUEUE):
            by_name.setdefault(meta.labels[QUEUE], []).append(f"namespace {meta.name}")
    barred = {name: bar for name in sorted(by_name) if (bar := rows.bar(name)) is not None}
    if not barred:
        yield ok(check, f"{len(by_name)} by groups and namespaces, which take them")
        return
    said = [f"{bar.message} (named by {listed(by_name[it], 2)})" for it, bar in barred.items()]
    yield warning(check, listed(said, 2), "such a queue, or another label: until then they wait")


def check_classes(facts: Facts) -> Iterator[Finding]:
    """Say whether KAI's priority classes are there, and that of our own pods."""
    check, found = "priority classes", set(known(facts.classes))
    lost = sorted(_own_classes(facts) - found)
    if lost:
        right = "manifests/base/processes, applied again: without it no new pod of ours is made"
        yield fault(check, f"there is no {listed(lost)}, which our Deployments name", right)
    missing = [it for it in facts.manifests.classes if it not in found]
    if missing:
        right = "manifests/base/priorityclasses: without them all have one priority"
        if has_kai(facts):
            right = "KAI's own: without them all have one priority"
        yield warning(check, f"there is no {listed(missing)}", right)
    elif not lost:
        yield ok(check, f"{listed(facts.manifests.classes)} are there")


def check_nodes(facts: Facts) -> Iterator[Finding]:
    """Say whether there are GPUs to give."""
    check, (having, number) = "nodes", known(facts.gpu_nodes)
    if having:
        yield ok(check, f"{having} of {number} have GPUs")
    else:
        right = "nodes with GPUs, and a device plugin that says so: else no such pod runs"
        yield warning(check, f"none of {number} has GPUs", right)


def _own_classes(facts: Facts) -> set[str]:
    """Return the classes that Deployments of ours ask for."""
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    ours = [it for it in deployments if name_of(it) in facts.manifests.deployments]
    named = {at(it, "spec", "template", "spec", "priorityClassName") for it in ours}
    return {str(it) for it in named if it}


def _default_queue(facts: Facts) -> str:
    """Return where goes what names no queue, in a namespace that names none either."""
    given, trial = given_queue(facts), facts.jobset
    place = "" if isinstance(trial, Unread) else trial.namespace
    metas = () if isinstance(facts.namespaces, Unread) else facts.namespaces
    has_own = any(it.name == place and it.labels.get(QUEUE) for it in metas)
    if given and not has_own:
        return given
    told = told_webhook(facts, "DEFAULT_QUEUE", DEFAULT_QUEUE)
    if told != ELSEWHERE:
        return told
    if has_own:
        raise CannotTell(f"namespace {place} names a queue of its own; try another by --try-in")
    return DEFAULT_QUEUE


def _shares(queue: Queue) -> QueueResources:
    return counted_queue(queue.spec)[0].resources or QueueResources()


def _of(queue: Queue, kind: str) -> QueueResource:
    found: QueueResource = getattr(_shares(queue), kind)
    return found


def _above(parent: Queue, queues: dict[str, Queue]) -> Iterator[str]:
    """Yield what children were promised that their parent does not have."""
    name = parent.metadata.name
    below = [it for it in queues.values() if it.spec.parent_queue == name and it is not parent]
    for kind in _KINDS:
        own = _of(parent, kind)
        shares = {it.metadata.name: _of(it, kind) for it in below}
        quota = sum(it.quota for it in shares.values() if it.quota > 0)
        if own.quota >= 0 and quota > own.quota:
            yield f"the children of {name} own {quota} {kind}, and it {own.quota}"
        for child, share in shares.items():
            if share.quota == _UNBOUND and own.quota >= 0:
                yield f"{child} owns {kind} without bound, and {name} above it {own.quota}"
            if share.limit > own.limit >= 0:
                yield f"{child} may have {share.limit} {kind}, and {name} above it {own.limit}"


def _inside(queue: Queue) -> Iterator[str]:
    name = queue.metadata.name
    for kind in _KINDS:
        share = _of(queue, kind)
        if 0 <= share.limit < share.quota:
            yield f"{name} owns {share.quota} {kind}, and may have {share.limit} only"
