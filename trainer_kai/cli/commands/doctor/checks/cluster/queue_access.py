"""Queues that are open to all namespaces because no annotation controls their access."""

from collections.abc import Iterator

from scheduler.state.queues.queue_table import QueueTable
from trainer_kai.api.names import ACCESS
from trainer_kai.cli.commands.doctor.deployment_settings import webhook_setting
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, listed
from trainer_kai.cli.commands.doctor.finding import (
    CheckFinding,
    Unread,
    fault,
    ok,
    require,
    warning,
)
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, close_command, is_closed


def check_access(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say which queues take pods of all namespaces because no annotation controls their access."""
    check, queues = "queue access", {it.metadata.name: it for it in require(facts.queues)}
    notes = {name: it.metadata.annotations.get(ACCESS) for name, it in queues.items()}
    mistyped = [
        f"queue {name}: metadata.annotations[{ACCESS}] is {note!r}, and counts as closed"
        for name, note in notes.items()
        if note not in (None, *QueueAccessMode)
    ]
    if mistyped:
        yield fault(check, listed(mistyped, 2), " or ".join(QueueAccessMode))
    queue_table = QueueTable(queues)
    leaf_queues = [name for name in sorted(queues) if queue_table.prefilter_failure(name) is None]
    unannotated = webhook_setting(facts, "QUEUE_ACCESS_UNANNOTATED", QueueAccessMode.OPEN)
    without_annotation = [it for it in leaf_queues if queue_table.access(it).mode is None]
    if without_annotation and unannotated != QueueAccessMode.CLOSED:
        namespaces_by_queue = _namespaces(facts)
        descriptions = [
            f"{name} ({listed(namespaces_by_queue.get(name, ['no namespace']), 4)})"
            for name in without_annotation
        ]
        close = close_command(without_annotation[0])
        remedy = f"`{close}`, or set the annotation {ACCESS}: open, for each queue"
        yield warning(
            check, f"open to all namespaces, because not annotated: {listed(descriptions)}", remedy
        )
    elif not mistyped:
        closed = sum(is_closed(queue_table.access(it), unannotated) for it in leaf_queues)
        yield ok(
            check, f"{closed} of {len(leaf_queues)} queues are closed to namespaces without a grant"
        )


def _namespaces(facts: InstallationFacts) -> dict[str, list[str]]:
    """Return the namespaces that have PodGroups in each queue."""
    by_queue: dict[str, set[str]] = {}
    for group in () if isinstance(facts.podgroup_queues, Unread) else facts.podgroup_queues:
        by_queue.setdefault(group.queue, set()).add(group.name.partition("/")[0])
    return {queue: sorted(names) for queue, names in by_queue.items()}
