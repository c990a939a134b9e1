"""The fields of a schema, as paths; the API server drops other fields."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

ANYTHING: Final = "**"  # below it nothing is dropped
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


def field_paths(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield every path: `spec.subGroups[].name`, `spec.resources.*.quota`."""
    if schema.get(_PRESERVE_UNKNOWN):
        yield f"{above}.{ANYTHING}".lstrip(".")
    for name, inner in (schema.get("properties") or {}).items():
        path = f"{above}.{name}" if above else name
        yield path
        yield from field_paths(inner, path)
    items, others = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, Mapping):
        yield from field_paths(items, f"{above}[]")
    if isinstance(others, Mapping):
        yield from field_paths(others, f"{above}.*")


def dropped_fields(schema: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these paths a schema drops, without paths below a dropped one."""
    known_paths = set(field_paths(schema))
    open_prefixes = tuple(it.removesuffix(ANYTHING) for it in known_paths if it.endswith(ANYTHING))
    missing: list[str] = []
    for path in sorted(wanted):
        is_known = path in known_paths or path.startswith(open_prefixes)
        is_covered = any(path.startswith((f"{it}.", f"{it}[")) for it in missing)
        if not is_known and not is_covered:
            missing.append(path)
    return tuple(missing)
