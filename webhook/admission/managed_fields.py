"""Which labels and annotations a field manager set, read from `metadata.managedFields`.

The API server records before admission which fields each manager set. So a field without a manager
was written by a webhook. If nothing is recorded, every field counts as set by a manager. This is no
proof: a client chooses the name of its manager, and may send entries of its own. So the names are
not read, and only the choice between labels of the same author depends on the entries.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class FieldManagers:
    """The fields of an object that a field manager set."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        managed_fields = metadata.get("managedFields")
        entries = managed_fields if isinstance(managed_fields, Sequence) else ()
        self._field_sets = [it["fieldsV1"] for it in entries if _is_entry(it)]

    @property
    def is_recorded(self) -> bool:
        """Say whether any manager is recorded."""
        return bool(self._field_sets)

    def sets_label(self, name: str) -> bool:
        """Say whether a manager set a label of the object."""
        return self._contains("f:metadata", "f:labels", f"f:{name}")

    def sets_annotation(self, name: str) -> bool:
        """Say whether a manager set an annotation of the object."""
        return self._contains("f:metadata", "f:annotations", f"f:{name}")

    def sets_template_label(self, replicated_job: str, name: str) -> bool:
        """Say whether a manager set a label of a replicatedJob's pod template."""
        job_key = f"k:{msgspec.json.encode({'name': replicated_job}).decode()}"
        template = ("f:template", "f:spec", "f:template", "f:metadata", "f:labels", f"f:{name}")
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
