"""Who owns the suspension of an object, by its managed fields and its annotations; pure.

Only a suspension that no other manager owns is removed again. A client chooses the name of its
manager: a false one costs at most the user of this object.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from trainer_kai.api.names import EVICTED_BY, LAST_APPLIED
from trainer_kai.policy.podgroups.eviction_record import EvictionRecord
from trainer_kai.policy.workloads.workload import FieldPath

EVICTION_MANAGER: Final = "trainer-kai-eviction"


class _ManagedFieldsEntry(msgspec.Struct, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class _ManagedMeta(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] = {}
    managed_fields: list[_ManagedFieldsEntry] = []


class RawSuspendable(msgspec.Struct):
    metadata: _ManagedMeta
    spec: dict[str, Any] = {}

    def is_suspended(self, path: FieldPath) -> bool:
        return _value_at({"spec": self.spec}, path) is True


def user_wants_suspension(
    meta: _ManagedMeta, records: Iterable[EvictionRecord], path: FieldPath
) -> bool:
    """Say whether a user wants it suspended besides us, since it was evicted."""
    if has_other_manager(meta, path):
        return True
    was_asked = _eviction_copy(meta.annotations).get("applied", False) or any(
        it.was_suspend_requested for it in records
    )
    return last_applied_suspends(meta.annotations, path) and not was_asked


def kept_annotations(meta: _ManagedMeta) -> dict[str, Any]:
    """Return a field that keeps the annotations that no manager owns, such as the admitted mark.

    Without it an apply that gives up the only owned annotation would remove all of them.
    """
    owned = any(
        "f:annotations" in it.fields_v1.get("f:metadata", {})
        for it in meta.managed_fields
        if it.manager != EVICTION_MANAGER
    )
    return {"annotations": {}} if meta.annotations.keys() - {EVICTED_BY} and not owned else {}


def is_suspended_by_us(raw: RawSuspendable, path: FieldPath) -> bool:
    """Say whether our manager owns the suspension; a forged owner only has it resumed."""
    ours = (it for it in raw.metadata.managed_fields if it.manager == EVICTION_MANAGER)
    return raw.is_suspended(path) and any(_owns_suspension(it, path) for it in ours)


def has_other_manager(meta: _ManagedMeta, path: FieldPath) -> bool:
    """Say whether another manager owns the suspension: it is kept when we give it up."""
    return bool(other_managers(meta, path))


def other_managers(meta: _ManagedMeta, path: FieldPath) -> list[str]:
    """Return the names of the managers that own the suspension besides us."""
    owners = (it.manager for it in meta.managed_fields if _owns_suspension(it, path))
    return sorted({*owners} - {EVICTION_MANAGER})


def _owns_suspension(managed: _ManagedFieldsEntry, path: FieldPath) -> bool:
    owned = _value_at(managed.fields_v1, tuple(f"f:{name}" for name in path))
    return not managed.subresource and owned is not None


def last_applied_suspends(annotations: Mapping[str, str], path: FieldPath) -> bool:
    try:
        applied = json.loads(annotations.get(LAST_APPLIED, "{}"))
    except (ValueError, RecursionError):  # any user may write it, nested as deep as they like
        return False
    return _value_at(applied, path) is True


def _value_at(fields: object, path: FieldPath) -> object:
    """Return the value at a path; None if there is none."""
    for name in path:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields


def suspended_fields(path: FieldPath, *, value: bool = True) -> dict[str, Any]:
    *outer, name = path
    fields: dict[str, Any] = {name: value}
    for name in reversed(outer):
        fields = {name: fields}
    return fields


def _eviction_copy(annotations: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        found = json.loads(annotations.get(EVICTED_BY, "{}"))
    except (ValueError, RecursionError):  # any user may write it, nested as deep as they like
        return {}
    return found if isinstance(found, dict) else {}
