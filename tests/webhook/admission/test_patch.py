"""Operations that lead from an object to another one, whatever parents are missing."""

import copy
from typing import Any, TypeAlias

import jsonpatch
import pytest

from tests.support.case import Case, ids
from webhook.admission.patch import FieldPath, PatchBuilder, pointer

Changes: TypeAlias = list[tuple[FieldPath, str | None]]  # None takes away

LABEL = ("metadata", "labels", "a.b/c~d")


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


# an object and what is done to it -> the operations
CASES: list[Case[tuple[Any, Changes], list[dict[str, Any]]]] = [
    Case(
        "a label is added",
        ({"metadata": {"labels": {"x": "y"}}}, [(LABEL, "1")]),
        [add("/metadata/labels/a.b~1c~0d", "1")],
    ),
    Case(
        "a label is replaced",
        ({"metadata": {"labels": {"a.b/c~d": "0"}}}, [(LABEL, "1")]),
        [add("/metadata/labels/a.b~1c~0d", "1")],
    ),
    Case(
        "what is so already needs nothing",
        ({"metadata": {"labels": {"a.b/c~d": "1"}}}, [(LABEL, "1")]),
        [],
    ),
    Case(
        "a map that is missing is made",
        ({"metadata": {}}, [(LABEL, "1")]),
        [add("/metadata/labels", {"a.b/c~d": "1"})],
    ),
    Case(
        "so are its parents, at once",
        ({}, [(LABEL, "1")]),
        [add("/metadata", {"labels": {"a.b/c~d": "1"}})],
    ),
    Case(
        "null is nothing",
        ({"metadata": {"labels": None}}, [(LABEL, "1")]),
        [add("/metadata/labels", {"a.b/c~d": "1"})],
    ),
    Case(
        "what is put into a new map goes out with it",
        ({}, [(LABEL, "1"), (("metadata", "labels", "e"), "2")]),
        [add("/metadata", {"labels": {"a.b/c~d": "1", "e": "2"}})],
    ),
    Case(
        "and what is taken out of it never went in",
        ({}, [(LABEL, "1"), (LABEL, None)]),
        [add("/metadata", {"labels": {}})],
    ),
    Case(
        "a member of a list",
        ({"jobs": [{}, {"spec": {}}]}, [(("jobs", 1, "spec", "name"), "x")]),
        [add("/jobs/1/spec/name", "x")],
    ),
    Case(
        "a member of a list that is null",
        ({"jobs": [None]}, [(("jobs", 0, "name"), "x")]),
        [{"op": "replace", "path": "/jobs/0", "value": {"name": "x"}}],
    ),
    Case(
        "a label is removed",
        ({"metadata": {"labels": {"a.b/c~d": "0"}}}, [(LABEL, None)]),
        [{"op": "remove", "path": "/metadata/labels/a.b~1c~0d"}],
    ),
    Case("what is not there needs no removal", ({"metadata": None}, [(LABEL, None)]), []),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_operations(case: Case[tuple[Any, Changes], list[dict[str, Any]]]) -> None:
    """They are the expected ones, and lead to the object of the builder."""
    before, changes = case.given
    patch = PatchBuilder(copy.deepcopy(before))

    for field_path, value in changes:
        if value is None:
            patch.remove(field_path)
        else:
            patch.set(field_path, value)

    assert list(patch.operations) == case.want
    assert jsonpatch.JsonPatch(case.want).apply(before) == patch.tree


# an object and what is appended to its list at /spec/env -> the operations
APPENDED: list[Case[tuple[Any, list[Any]], list[dict[str, Any]]]] = [
    Case("nothing", ({}, []), []),
    Case(
        "one after the other",
        ({"spec": {"env": [0]}}, [1, 2]),
        [add("/spec/env/-", 1), add("/spec/env/-", 2)],
    ),
    Case("to an empty list", ({"spec": {"env": []}}, [1]), [add("/spec/env/-", 1)]),
    Case("to a list that is missing", ({"spec": {}}, [1, 2]), [add("/spec/env", [1, 2])]),
    Case("to null", ({"spec": {"env": None}}, [1, 2]), [add("/spec/env", [1, 2])]),
    Case("without a parent", ({}, [1, 2]), [add("/spec", {"env": [1, 2]})]),
]


@pytest.mark.parametrize("case", APPENDED, ids=ids)
def test_appending(case: Case[tuple[Any, list[Any]], list[dict[str, Any]]]) -> None:
    """A list that is made goes out with all that is in it."""
    before, values = case.given
    patch = PatchBuilder(copy.deepcopy(before))

    for value in values:
        patch.append(("spec", "env"), value)

    assert list(patch.operations) == case.want
    assert jsonpatch.JsonPatch(case.want).apply(before) == patch.tree


def test_the_tilde_is_escaped_first() -> None:
    """Otherwise a slash would become a tilde and something."""
    assert pointer(("a/b", "~1", 0)) == "/a~1b/~01/0"
