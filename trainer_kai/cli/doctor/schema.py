"""Which fields a schema knows, as paths: what is not there is dropped when it is written."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["ANYTHING", "fields_of", "missing_from"]

ANYTHING: Final = "**"  # from here on nothing is dropped
_KEPT: Final = "x-kubernetes-preserve-unknown-fields"


def fields_of(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield every path: `spec.subGroups[].name`, `spec.resources.*.quota`."""
    if schema.get(_KEPT):
        yield f"{above}.{ANYTHING}".lstrip(".")
    for name, inner in (schema.get("properties") or {}).items():
        path = f"{above}.{name}" if above else name
        yield path
        yield from fields_of(inner, path)
    items, others = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, Mapping):
        yield from fields_of(items, f"{above}[]")
    if isinstance(others, Mapping):
        yield from fields_of(others, f"{above}.*")


def missing_from(schema: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these paths a schema drops; what lies below one of them is not told again."""
    there = set(fields_of(schema))
    open_ends = tuple(it.removesuffix(ANYTHING) for it in there if it.endswith(ANYTHING))
    missing: list[str] = []
    for path in sorted(wanted):
        kept = path in there or path.startswith(open_ends)
        told = any(path.startswith((f"{it}.", f"{it}[")) for it in missing)
        if not kept and not told:
            missing.append(path)
    return tuple(missing)
