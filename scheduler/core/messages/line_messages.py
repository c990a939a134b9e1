"""What the line keeps: for the PodGroup that is next, and for those in whose way that is."""

from datetime import UTC, datetime
from typing import Final

from scheduler.core.messages.amounts import amount_of_kind
from scheduler.core.model.line import LineNote
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.text import first_listed, verb_form

_MOST_NAMED: Final = 3
_LAST: Final = 253_402_300_799  # the last second of the year 9999


def line_sentence(snapshot: Snapshot, podgroup: int, note: LineNote) -> str:
    """Say what is kept, to the PodGroup for which it is, or to another one."""
    return _own(snapshot, note) if podgroup == note.podgroup else _of_another(snapshot, note)


def _own(snapshot: Snapshot, note: LineNote) -> str:
    names, queue = snapshot.nodes.names, snapshot.podgroups[note.podgroup].queue
    there, needed = _gpus(note.gpus), _gpus(note.needed)
    by_time: dict[int, list[str]] = {}
    for it in sorted(note.nodes, key=lambda it: it.since):
        by_time.setdefault(it.since, []).append(names[it.node])
    kept = [
        f"{first_listed(nodes)} {verb_form(len(nodes), 'are')} kept since {_time(since)}"
        for since, nodes in [*by_time.items()][:_MOST_NAMED]
    ]
    text = (
        f"It is next in queue {snapshot.queues.names[queue]}: {', '.join(kept)}, "
        f"{there.removesuffix(' GPU')} of {needed} {verb_form(note.needed // 1000, 'are')} there"
    )
    expected = [
        f"{names[it.node]} is expected free at {_time(it.free_at)} (enforced end)"
        for it in sorted((*note.nodes, *note.awaited), key=lambda it: it.free_at)
        if it.free_at
    ]
    sentences = [text, *expected[:_MOST_NAMED]]
    if 0 < snapshot.podgroups[note.podgroup].ends_at <= note.planned_at:
        start = _time(note.planned_at)
        sentences.append(f"its deadline ends it before it is likely to start at {start}")
    return "; ".join(sentences)


def _of_another(snapshot: Snapshot, note: LineNote) -> str:
    name, kept = snapshot.podgroups[note.podgroup].name, _gpus(note.gpus)
    verb = verb_form(note.gpus // 1000, "are")
    text = f"{kept} {verb} idle but kept for {name} since {_time(note.since)}"
    if not note.planned_at:
        return text
    return f"{text}; a workload that ends by force before {_time(note.planned_at)} may start"


def _gpus(thousandths: int) -> str:
    return amount_of_kind(ResourceKind.GPU, thousandths)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
