"""Roles taken apart into rights, and one right taken out of a role."""

from typing import Any, Final

import pytest

from e2e.cluster.audit import Request
from e2e.install.rbac_permissions import RbacPermission, is_used_by_request, permissions_of, without
from tests.support.case import Case, ids

RULES: Final[list[dict[str, Any]]] = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tls"], "verbs": ["get"]},
]
ROLE: Final = {"kind": "ClusterRole", "metadata": {"name": "one"}, "rules": RULES}
LIST_PODS: Final = RbacPermission("ClusterRole", "one", "", "pods", "list")
MAKE_PODS: Final = LIST_PODS._replace(verb="create")
GET_SECRET: Final = RbacPermission("Role", "one", "", "secrets", "get", "tls", "trainer-kai")
ACCOUNT: Final = {"kind": "ServiceAccount", "metadata": {"namespace": "trainer-kai", "name": "one"}}
ASKED: Final = Request("system:serviceaccount:trainer-kai:one", "list", "", "pods", "", "", 200)
READ: Final = ASKED._replace(verb="get", resource="secrets", namespace="trainer-kai", name="tls")


def test_a_role_is_taken_apart() -> None:
    """Each verb on each resource; of roles that belong to no process nothing."""
    other = {**ROLE, "metadata": {"name": "for-people"}}
    agent = {"kind": "ServiceAccount", "metadata": {"namespace": "other", "name": "for-people"}}

    assert permissions_of([ROLE, ACCOUNT, other, agent]) == [
        LIST_PODS,
        LIST_PODS._replace(verb="watch"),
        LIST_PODS._replace(resource="nodes"),
        LIST_PODS._replace(resource="nodes", verb="watch"),
        GET_SECRET._replace(kind="ClusterRole", namespace=""),
    ]


def test_a_role_is_of_a_namespace() -> None:
    """An account may have one in each, and both have one name."""
    roles = [
        {**ROLE, "kind": "Role", "metadata": {"name": "one", "namespace": it}}
        for it in ("trainer-kai", "other")
    ]

    found = permissions_of([*roles, ACCOUNT])

    assert GET_SECRET in found
    assert GET_SECRET._replace(namespace="other") in found
    assert str(GET_SECRET._replace(namespace="other")) == "one: get secrets tls in other"


def test_without_one_all_others_are_left() -> None:
    """Also those of the same rule; and a rule of which nothing is left goes."""
    rights = permissions_of([ROLE, ACCOUNT])
    for right in rights:
        left = {**ROLE, "rules": without(RULES, right)}
        assert set(permissions_of([left, ACCOUNT])) == set(rights) - {right}


USES: Final = [
    Case("who may and does", (LIST_PODS, ASKED), True),
    Case("another verb is no use", (LIST_PODS, ASKED._replace(verb="watch")), False),
    Case("another kind is no use", (LIST_PODS, ASKED._replace(resource="pods/status")), False),
    Case("another group is no use", (LIST_PODS, ASKED._replace(group="metrics.k8s.io")), False),
    Case("another account is no use", (LIST_PODS, ASKED._replace(user="admin")), False),
    Case("a request that was refused", (LIST_PODS, ASKED._replace(status=403)), False),
    Case(
        "one that was let through and came to nothing",
        (LIST_PODS, ASKED._replace(status=404)),
        True,
    ),
    Case("what is applied is made", (MAKE_PODS, ASKED._replace(verb="patch", status=201)), True),
    Case("or was there", (MAKE_PODS, ASKED._replace(verb="patch", status=200)), False),
    Case("the object that is named", (GET_SECRET, READ), True),
    Case("another object is no use", (GET_SECRET, READ._replace(name="other")), False),
    Case("another namespace is no use", (GET_SECRET, READ._replace(namespace="default")), False),
]


@pytest.mark.parametrize("case", USES, ids=ids)
def test_what_uses_a_right(case: Case[tuple[RbacPermission, Request], bool]) -> None:
    """It needs all to be the same, and to have been allowed."""
    assert is_used_by_request(*case.given) is case.want
