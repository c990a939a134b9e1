"""A migration as a value, and as text, JSON or the YAML of its objects. Pure.

What objects become, what is changed by hand, and what is not supported: the three lists keep the
order in which a system's rules add to them; the rules sort their input, so the result does not
depend on the order of the files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import yaml

from trainer_kai.api.meta import Key, Object
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
from trainer_kai.cli.input.documents import Document, read_object
from trainer_kai.cli.output.table import escaped, wrapped_lines
from trainer_kai.errors import ConfigError, FieldError

T = TypeVar("T", bound=Object)

Manifest = dict[str, Any]
_STEP: Final = re.compile(r"[^.\[\]]+|\[\]")


class ObjectName(NamedTuple):
    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Successor(NamedTuple):
    """What an object becomes; *likes* are more objects like it, which are not listed."""

    source: ObjectName
    target: ObjectName
    text: str
    likes: int = 0


class MigrationNote(NamedTuple):
    """A field that needs a change by hand, or that has no equivalent, and what to do."""

    source: ObjectName
    path: str
    message: str


@dataclass(slots=True)
class Migration:
    """All that a move changes; *manifests* are the objects to apply."""

    becomes: list[Successor] = field(default_factory=list)
    by_hand: list[MigrationNote] = field(default_factory=list)
    unsupported: list[MigrationNote] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)

    def add(self, source: ObjectName, manifest: Manifest, text: str) -> None:
        self.manifests.append(manifest)
        self.becomes.append(Successor(source, name_of(manifest), text))

    def change_by_hand(self, source: ObjectName, path: str, message: str) -> None:
        self.by_hand.append(MigrationNote(source, path, message))

    def not_supported(self, source: ObjectName, path: str, message: str) -> None:
        self.unsupported.append(MigrationNote(source, path, message))


class ReadObject(NamedTuple, Generic[T]):
    """An object as it is written, and as a struct."""

    document: Document
    value: T

    @property
    def name(self) -> ObjectName:
        return ObjectName(self.document.kind, self.value.metadata.key)


class FieldRule(NamedTuple):
    """A field without an equivalent: `[]` in the path is each item of a list."""

    path: str
    message: str
    ignored: tuple[Any, ...] = ()  # values that change nothing, beside empty ones


def name_of(manifest: Mapping[str, Any]) -> ObjectName:
    meta = manifest["metadata"]
    return ObjectName(manifest["kind"], Key(meta.get("namespace", ""), meta["name"]))


def read_objects(
    documents: Iterable[Document],
    structs: Mapping[tuple[str, str], type[Any]],
    versions: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, list[ReadObject[Any]]]:
    """Return the objects of some kinds, by kind and sorted; raise for all faults at once.

    *versions* are the known versions of an API group: another version may have other fields.
    """
    objects: dict[tuple[str, Key], ReadObject[Any]] = {}
    faults: list[FieldError] = []
    for document in documents:
        struct = structs.get((document.group, document.kind))
        if struct is None:
            continue
        version = str(document.fields.get("apiVersion", "")).rpartition("/")[2]
        known = versions.get(document.group, (version,))
        if version not in known:
            message = f"apiVersion: {version!r} is unknown; known are {', '.join(known)}"
            faults.append(FieldError(str(document), message))
            continue
        try:
            it = ReadObject(document, read_object(struct, document))
        except ConfigError as error:
            faults += error.faults
            continue
        previous = objects.setdefault((document.kind, it.value.metadata.key), it)
        if not it.value.metadata.name:
            faults.append(FieldError(str(document), "metadata.name: is missing"))
        elif previous is not it:
            message = f"metadata.name: exists twice, first in {previous.document.file}"
            faults.append(FieldError(str(document), message))
    if faults:
        raise ConfigError(faults)
    by_kind: dict[str, list[ReadObject[Any]]] = {kind: [] for _, kind in structs}
    for (kind, _), it in sorted(objects.items(), key=lambda pair: pair[0]):
        by_kind[kind].append(it)
    return by_kind


def field_notes(it: ReadObject[Any], rules: Sequence[FieldRule]) -> Iterator[MigrationNote]:
    for rule in rules:
        for path, value in values_at(it.document.fields, rule.path):
            # 0 is a value, although it equals False.
            is_set = value is not None and value is not False
            if is_set and value not in ("", [], {}, *rule.ignored):
                is_shown = isinstance(value, str | int | float) and value is not True
                shown = f"{value!r}: " if is_shown else ""
                yield MigrationNote(it.name, path, f"{shown}{rule.message}")


def values_at(fields: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each value at a path, with its path; none where the shape of the object differs."""
    found: list[tuple[str, Any]] = [("", fields)]
    for step in _STEP.findall(path):
        below: list[tuple[str, Any]] = []
        for parent, value in found:
            if step == "[]" and isinstance(value, list):
                below += ((f"{parent}[{i}]", item) for i, item in enumerate(value))
            elif step != "[]" and isinstance(value, Mapping) and step in value:
                below.append((f"{parent}.{step}".lstrip("."), value[step]))
        found = below
    yield from found


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
