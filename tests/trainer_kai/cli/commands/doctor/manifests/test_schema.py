"""Which fields a schema keeps."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.cli.commands.doctor.manifests.schema import dropped_fields, field_paths

SCHEMA: dict[str, Any] = {
    "properties": {
        "spec": {
            "properties": {
                "parts": {"items": {"properties": {"name": {}}}},
                "shares": {"additionalProperties": {"properties": {"quota": {}}}},
                "rest": {"x-kubernetes-preserve-unknown-fields": True},
            }
        }
    }
}

# paths that are wanted -> those that are dropped
DROPPED: list[Case[tuple[str, ...], tuple[str, ...]]] = [
    Case("what is there", ("spec.parts[].name", "spec.shares.*.quota"), ()),
    Case("what is not", ("spec.parts[].size",), ("spec.parts[].size",)),
    Case("below what is kept whole", ("spec.rest.any.thing",), ()),
    Case("what lies in it is not told", ("spec.a", "spec.a.b", "spec.a[].c"), ("spec.a",)),
    Case("what is called alike is", ("spec.a", "spec.ab"), ("spec.a", "spec.ab")),
]


@pytest.mark.parametrize("case", DROPPED, ids=ids)
def test_what_a_schema_drops(case: Case[tuple[str, ...], tuple[str, ...]]) -> None:
    """In the order of the paths."""
    assert dropped_fields(SCHEMA, case.given) == case.want


def test_paths() -> None:
    """Lists and maps have marks of their own."""
    assert sorted(field_paths(SCHEMA)) == [
        *("spec", "spec.parts", "spec.parts[].name", "spec.rest", "spec.rest.**"),
        *("spec.shares", "spec.shares.*.quota"),
    ]
