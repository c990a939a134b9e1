"""Who may use queues: which say nothing and so take pods of every namespace, and slips."""

from collections.abc import Iterator

from scheduler.state.queues import QueueRows
from trainer_kai.api.names import ACCESS
from trainer_kai.cli.doctor.facts import Facts, listed
from trainer_kai.cli.doctor.finding import Finding, Unread, fault, known, ok, warning
from trainer_kai.cli.doctor.settled import told_webhook
from trainer_kai.policy.access import Access, close_command, is_closed

__all__ = ["check_access"]


def check_access(facts: Facts) -> Iterator[Finding]:
    """Say which queues take pods of every namespace because no annotation says who may use them."""
    check, queues = "queue access", {it.metadata.name: it for it in known(facts.queues)}
    notes = {name: it.metadata.annotations.get(ACCESS) for name, it in queues.items()}
    slips = [
        f"queue {name}: metadata.annotations[{ACCESS}] is {note!r}: it counts as closed"
        for name, note in notes.items()
        if note not in (None, *Access)
    ]
    if slips:
        yield fault(check, listed(slips, 2), " or ".join(Access))
    rows = QueueRows(queues)
    leaves = [name for name in sorted(queues) if rows.bar(name) is None]
    unannotated = told_webhook(facts, "QUEUE_ACCESS_UNANNOTATED", Access.OPEN)
    silent = [it for it in leaves if rows.access(it).access is None]
    if silent and unannotated != Access.CLOSED:
        used = _namespaces(facts)
        said = [f"{name} ({listed(used.get(name, ['no namespace']), 4)})" for name in silent]
        right = f"{close_command(silent[0])}, or the annotation {ACCESS}: open, for each"
        yield warning(check, f"open to every namespace, and not annotated: {listed(said)}", right)
    elif not slips:
        closed = sum(is_closed(rows.access(it), unannotated) for it in leaves)
        yield ok(check, f"{closed} of {len(leaves)} are closed to namespaces without a grant")


def _namespaces(facts: Facts) -> dict[str, list[str]]:
    """Return the namespaces that have PodGroups in each queue."""
    found: dict[str, set[str]] = {}
    for group in () if isinstance(facts.groups, Unread) else facts.groups:
        found.setdefault(group.queue, set()).add(group.name.partition("/")[0])
    return {queue: sorted(names) for queue, names in found.items()}
