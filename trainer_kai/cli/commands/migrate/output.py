"""A migration as text, JSON, or the YAML of its objects. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import yaml

from trainer_kai.api.resources import (
    CLUSTER_RUNTIMES,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    ROLE_BINDINGS,
    ROLES,
    RUNTIMES,
    TOPOLOGIES,
    TRAINJOBS,
)
from trainer_kai.cli.commands.migrate.migration import (
    Migration,
    MigrationNote,
    ObjectName,
    Successor,
)
from trainer_kai.cli.output.table import escaped, wrapped_lines

_SYSTEMS: Final = {"kai": "KAI", "kueue": "Kueue", "volcano": "Volcano"}
_SCHEMA: Final = "trainer-kai/migrate/v1"
_INDENT: Final = " " * 6
_ORDER: Final = tuple(  # an object needs only those before it
    it.kind
    for it in (
        *(PRIORITY_CLASSES, TOPOLOGIES, QUEUES, NAMESPACES, ROLES, ROLE_BINDINGS),
        *(CLUSTER_RUNTIMES, RUNTIMES, TRAINJOBS),
    )
)


def as_text(system: str, migration: Migration, width: int) -> str:
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("Becomes", map(_successor_line, migration.becomes)),
        ("Change by hand", map(_note_line, migration.by_hand)),
        ("Not supported", map(_note_line, migration.unsupported)),
    )
    lines = [f"A move from {_SYSTEMS[system]} to trainer-kai. Nothing is written."]
    for title, texts in sections:
        lines += ["", title]
        lines += _wrapped(texts, width) or ["  nothing"]
    return "\n".join(lines)


def as_json(system: str, migration: Migration) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "system": system,
        "becomes": [*map(_successor_fields, migration.becomes)],
        "changeByHand": [*map(_note_fields, migration.by_hand)],
        "notSupported": [*map(_note_fields, migration.unsupported)],
        "objects": [*_in_order(migration.manifests)],
    }


def as_yaml(migration: Migration) -> str:
    """Return the objects to apply, each object after the objects that it needs."""
    text: str = yaml.safe_dump_all(
        _in_order(migration.manifests), sort_keys=False, explicit_start=True, allow_unicode=True
    )
    return text.rstrip("\n")


def _in_order(manifests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from sorted(manifests, key=lambda it: _ORDER.index(it["kind"]))


def _wrapped(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in wrapped_lines(escaped(text), _INDENT, width)]


def _successor_line(it: Successor) -> str:
    name = str(it.source) if it.source == it.target else f"{it.source} → {it.target}"
    more = f" and {it.likes} more like it" if it.likes else ""
    return f"{name}{more}: {it.text}"


def _note_line(it: MigrationNote) -> str:
    return f"{it.source}: {it.path}: {it.message}"


def _successor_fields(it: Successor) -> dict[str, Any]:
    return {
        "source": _name_fields(it.source),
        "target": _name_fields(it.target),
        "change": it.text,
        "more": it.likes,
    }


def _note_fields(it: MigrationNote) -> dict[str, Any]:
    return {"object": _name_fields(it.source), "field": it.path, "message": it.message}


def _name_fields(it: ObjectName) -> dict[str, Any]:
    return {"kind": it.kind, "namespace": it.key.namespace or None, "name": it.key.name}
