"""Kinds of object and their paths."""

import pytest

from e2e.cluster import resources
from e2e.cluster.resources import BY_KIND, NODES, PODS, TRAINJOBS, Resource
from tests.support.case import Case, ids

# resource, namespace, name, subresource -> path
PATHS = [
    Case("all of a kind", (PODS, None, "", ""), "/api/v1/pods"),
    Case("those of a namespace", (PODS, "ns", "", ""), "/api/v1/namespaces/ns/pods"),
    Case("one object", (PODS, "ns", "one", ""), "/api/v1/namespaces/ns/pods/one"),
    Case(
        "a part of one object",
        (PODS, "ns", "one", "binding"),
        "/api/v1/namespaces/ns/pods/one/binding",
    ),
    Case("an object of the cluster", (NODES, None, "one", ""), "/api/v1/nodes/one"),
    Case("what is in no namespace is asked for without", (NODES, "ns", "", ""), "/api/v1/nodes"),
    Case(
        "a kind of a group",
        (TRAINJOBS, "ns", "one", ""),
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/one",
    ),
]


@pytest.mark.parametrize("case", PATHS, ids=ids)
def test_path(case: Case[tuple[Resource, str | None, str, str], str]) -> None:
    """The path of an object follows from its kind, namespace and name."""
    resource, namespace, name, subresource = case.given

    assert resource.path(namespace, name, subresource) == case.want


def test_a_version_names_its_group() -> None:
    """The first kinds of Kubernetes have no group; all others do."""
    assert (PODS.api_version, TRAINJOBS.api_version) == ("v1", "trainer.kubeflow.org/v1alpha1")


def test_every_kind_is_found_by_its_name() -> None:
    """The kind that an object says leads to its path, and no kind hides another."""
    plurals = [resource.plural for resource in BY_KIND.values()]
    declared = [name for name in resources.__all__ if name.isupper() and name != "BY_KIND"]

    assert BY_KIND["Pod"] is PODS
    assert all(kind == resource.kind for kind, resource in BY_KIND.items())
    assert len(set(plurals)) == len(plurals) == len(declared)
