"""The fields of an object that are equal in two runs, as text."""

from typing import Any, Final

import yaml

from e2e.cluster.resources import Obj

_COMMAND: Final = "# Recorded from the real chain by `make fixtures`; not for editing.\n"
_UNSTABLE_FIELDS: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)


def stable_fields(obj: Obj) -> Obj:
    """Return an object without its status and all that differs from run to run."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _UNSTABLE_FIELDS}
    if "namespace" in metadata:
        metadata["namespace"] = "default"
    for owner in metadata.get("ownerReferences", ()):
        owner["uid"] = "uid-of-the-trainjob"
    kept: Obj = {**obj, "metadata": metadata}
    kept.pop("status", None)
    return kept


def as_text(*objects: Obj) -> str:
    """Write a fixture."""
    documents: list[Any] = list(objects)
    return _COMMAND + yaml.safe_dump_all(documents, sort_keys=True, width=100)
