"""The entrance: applies the rules of one system to the objects of the input. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import Queue, QueueSpec
from trainer_kai.api.resources import QUEUES
from trainer_kai.cli.commands.migrate.kai import plan_kai
from trainer_kai.cli.commands.migrate.kueue import plan_kueue
from trainer_kai.cli.commands.migrate.migration import Migration, MigrationNote, name_of
from trainer_kai.cli.commands.migrate.volcano import plan_volcano
from trainer_kai.cli.input.documents import Document, read_object
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.queueing.queue_findings import (
    QueueFindingCode,
    all_queue_relatives,
    queue_findings,
)

_RULES: Final[Mapping[str, Callable[[Sequence[Document]], Migration]]] = {
    "kai": plan_kai,
    "kueue": plan_kueue,
    "volcano": plan_volcano,
}
# A sum above the parent is reported once, for the parent. An unlimited quota of CPU or memory was
# the same before the move; `trainer-kai doctor` reports it afterwards.
_REPEATED: Final = (
    QueueFindingCode.SIBLINGS_OVER_PARENT,
    QueueFindingCode.LIMIT_OVER_PARENT,
    QueueFindingCode.UNLIMITED_BESIDE,
)


def plan_migration(system: str, documents: Sequence[Document]) -> Migration:
    """Return what a move changes; raise for faults, and if no object is of the system."""
    migration = _RULES[system](documents)
    if not (migration.becomes or migration.by_hand or migration.unsupported):
        files = ", ".join(sorted({it.file for it in documents}))
        raise ConfigError([FieldError("-f", f"no object of {system} found in {files}")])
    migration.by_hand += _queue_notes(_queues(migration, documents))
    return migration


def _queues(migration: Migration, documents: Sequence[Document]) -> dict[str, Queue]:
    kept = [it for it in documents if (it.group, it.kind) == (QUEUES.group, QUEUES.kind)]
    queues = [read_object(Queue, it) for it in kept]
    made = [it for it in migration.manifests if it["kind"] == QUEUES.kind]
    queues += (decode(Queue, encode(it)) for it in made)
    return {it.metadata.name: it for it in queues}


def _queue_notes(queues: Mapping[str, Queue]) -> Iterator[MigrationNote]:
    """Yield what is probably wrong with the numbers of the Queues, as admission would."""
    specs: dict[str, QueueSpec] = {name: it.spec for name, it in queues.items()}
    relatives = all_queue_relatives(specs)
    for name, spec in sorted(specs.items()):
        source = name_of({"kind": QUEUES.kind, "metadata": {"name": name}})
        for finding in queue_findings(spec, relatives[name]):
            if finding.code not in _REPEATED:
                yield MigrationNote(source, finding.path, finding.message)
