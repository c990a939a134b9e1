"""What the manifests install, and the fields of a schema."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.expected_installation import as_json, expected_installation
from trainer_kai.cli.commands.doctor.expected import (
    PATH,
    dropped_fields,
    expected_manifests,
    field_paths,
)


def test_it_is_current() -> None:
    """`make tables` would write what is there already."""
    assert as_json(expected_installation()) == PATH.read_text()


def test_it_is_of_the_scheduler_of_the_site() -> None:
    """By the same words that the README of the manifests has replaced."""
    found = expected_manifests("mine")
    names = {it.name for account in found.accounts for it in account.rights}
    conditions = [
        text
        for configuration in found.configurations
        for hook in configuration.hooks
        for text in hook.conditions.values()
    ]

    assert "mine" in names
    assert any("in ['', 'mine']" in text for text in conditions)
    assert "kai-scheduler" not in {*names, *"".join(conditions).split("'")}


def test_it_holds_what_a_person_would_name() -> None:
    """One of each kind, to see that nothing is read past."""
    found = expected_manifests()
    (scheduler,) = (it for it in found.accounts if it.name == "trainer-kai-scheduler")
    hooks = {it.name: it for configuration in found.configurations for it in configuration.hooks}

    assert found.runtime_field == "spec.podGroupPolicy.kaiScheduler.queue"
    assert hooks["pod.trainer-kai.dev"].path == "/mutate/pod"
    assert ("create", "pods", "binding", True) in {
        (it.verb, it.resource, it.subresource, it.everywhere) for it in scheduler.rights
    }
    assert ("patch", "leases", "", False) in {
        (it.verb, it.resource, it.subresource, it.everywhere) for it in scheduler.rights
    }
    assert len(found.definitions) == 3


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
