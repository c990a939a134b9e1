"""Changes of an object as JSON Patch operations, and which of its fields a field manager set."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

Operation: TypeAlias = Mapping[str, Any]
FieldPath: TypeAlias = tuple[str | int, ...]  # keys of maps, indexes of lists
_TEMPLATE_LABELS: Final = ("f:template", "f:metadata", "f:labels")


class PatchBuilder:
    """Changes an object step by step, and records each operation in order.

    The given tree is changed. Missing or null parents are created with their content; a value that
    is already set needs no operation.
    """

    def __init__(self, tree: Any) -> None:
        self.tree: Final = tree
        self._operations: list[Operation] = []
        # Added as a whole, with the values that are set in them later.
        self._created: dict[int, Any] = {}

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations)

    def get(self, field_path: FieldPath) -> Any:
        node = self.tree
        for step in field_path:
            node = _child(node, step)
        return node

    def labels(self, field_path: FieldPath) -> Mapping[str, str]:
        """Return a map of texts; an empty one if the path has no value."""
        values = self.get(field_path) or {}
        return {name: text for name, text in values.items() if text is not None}

    def set(self, field_path: FieldPath, value: Any) -> None:
        node = self.tree
        for depth, step in enumerate(field_path[:-1], 1):
            child = _child(node, step)
            if child is None:
                child = {}
                self._put(node, field_path[:depth], child)
            node = child
        if _child(node, field_path[-1]) != value:
            self._put(node, field_path, value)

    def append(self, field_path: FieldPath, value: Any) -> None:
        items = self.get(field_path)
        if items is None:
            items = []
            self.set(field_path, items)
        elif not self._is_created(items):
            path = pointer((*field_path, "-"))
            self._operations.append({"op": "add", "path": path, "value": value})
        items.append(value)

    def remove(self, field_path: FieldPath) -> None:
        node = self.get(field_path[:-1])
        if node is None or field_path[-1] not in node:
            return
        del node[field_path[-1]]
        if not self._is_created(node):
            self._operations.append({"op": "remove", "path": pointer(field_path)})

    def _put(self, node: Any, field_path: FieldPath, value: Any) -> None:
        if not self._is_created(node):
            # "add" replaces an existing member of a map, but inserts into a list.
            operation = "replace" if isinstance(node, list) else "add"
            self._operations.append({"op": operation, "path": pointer(field_path), "value": value})
        if isinstance(value, dict | list):
            self._created[id(value)] = value
        node[field_path[-1]] = value

    def _is_created(self, node: Any) -> bool:
        return id(node) in self._created


def pointer(field_path: FieldPath) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in field_path)


def _child(node: Any, step: str | int) -> Any:
    if isinstance(node, list) and isinstance(step, int):
        return node[step] if step < len(node) else None
    return node.get(step) if isinstance(node, dict) else None


class FieldManagers:
    """The labels and annotations that a field manager set, by `metadata.managedFields`.

    The API server records before admission which fields each manager set. So a field without a
    manager was written by a webhook. If nothing is recorded, every field counts as set by a
    manager. This is no proof: a client chooses the name of its manager, and may send entries of its
    own. So the names are not read, and only the choice between labels of the same author depends on
    the entries.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        managed_fields = metadata.get("managedFields")
        entries = managed_fields if isinstance(managed_fields, Sequence) else ()
        self._field_sets = [it["fieldsV1"] for it in entries if _is_entry(it)]

    @property
    def is_recorded(self) -> bool:
        return bool(self._field_sets)

    def sets_label(self, name: str) -> bool:
        return self._contains("f:metadata", "f:labels", f"f:{name}")

    def sets_annotation(self, name: str) -> bool:
        return self._contains("f:metadata", "f:annotations", f"f:{name}")

    def sets_job_template_label(self, name: str) -> bool:
        return self._contains("f:spec", *_TEMPLATE_LABELS, f"f:{name}")

    def sets_template_label(self, replicated_job: str, name: str) -> bool:
        job_key = f"k:{msgspec.json.encode({'name': replicated_job}).decode()}"
        template = ("f:template", "f:spec", *_TEMPLATE_LABELS, f"f:{name}")
        return self._contains("f:spec", "f:replicatedJobs", job_key, *template)

    def _contains(self, *path: str) -> bool:
        return not self._field_sets or any(
            _contains_path(fields, path) for fields in self._field_sets
        )


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("fieldsV1"), Mapping)


def _contains_path(fields: Any, path: Sequence[str]) -> bool:
    for step in path:
        if not isinstance(fields, Mapping) or step not in fields:
            return False
        fields = fields[step]
    return True
