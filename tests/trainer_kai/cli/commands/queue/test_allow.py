"""`trainer-kai queue allow`: what it writes, what it leaves, and what it says instead."""

from typing import Any, Final

import pytest
import yaml

from tests.trainer_kai.cli.commands.queue.writable_store import WritableStore
from trainer_kai.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    QUEUES,
    ROLE_BINDINGS,
    ROLES,
)
from trainer_kai.cli.commands.queue.allow_open_close import plan_allow
from trainer_kai.cli.commands.queue.write_plan import make_grant
from trainer_kai.errors import ConfigError

NAME: Final = "trainer-kai-use-team-a"
RBAC: Final = "rbac.authorization.k8s.io"
RULE: Final = {
    "apiGroups": ["scheduling.run.ai"],
    "resources": ["queues"],
    "resourceNames": ["team-a"],
    "verbs": ["use"],
}
USER: Final = {"apiGroup": RBAC, "kind": "User", "name": "ann"}
GROUP: Final = {"apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccounts:red"}


@pytest.fixture
def store() -> WritableStore:
    made = WritableStore()
    made.queue("team-a", access="closed")
    return made


async def allow(store: WritableStore, namespace: str = "red", **subject: Any) -> list[str]:
    before = len(store.wrote)
    await store.done(await plan_allow(store.reader, make_grant("team-a", namespace, **subject)))
    return store.wrote[before:]


async def test_a_namespace_is_granted_by_a_role_and_its_binding(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs there may use the queue, and the user that is named; a second time nothing is."""
    assert len(await allow(store, users=["ann"])) == 3
    assert store.get(ROLES, NAME, "red")["rules"] == [RULE]
    made = store.get(ROLE_BINDINGS, NAME, "red")
    assert made["roleRef"] == {"apiGroup": RBAC, "kind": "Role", "name": NAME}
    assert made["subjects"] == [GROUP, USER]

    assert await allow(store, users=["ann"]) == []
    assert capsys.readouterr().out.splitlines() == [
        f"created Role red/{NAME}: may use queue team-a",
        (
            f"created RoleBinding red/{NAME}: may use queue team-a: group "
            "system:serviceaccounts:red, user ann"
        ),
        "created ClusterRoleBinding trainer-kai-user: may read queues: user ann",
        f"unchanged Role red/{NAME}: may use queue team-a",
        (
            f"unchanged RoleBinding red/{NAME}: may use queue team-a: group "
            "system:serviceaccounts:red, user ann"
        ),
        "unchanged ClusterRoleBinding trainer-kai-user: may read queues: user ann",
    ]


async def test_what_is_there_stays(store: WritableStore) -> None:
    """Other rules, and other subjects; none is written twice."""
    other = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    account = {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}
    ref = {"apiGroup": RBAC, "kind": "Role", "name": NAME}
    meta = {"metadata": {"namespace": "red", "name": NAME}}
    store.put(ROLES, {**meta, "rules": [other]})
    store.put(ROLE_BINDINGS, {**meta, "roleRef": ref, "subjects": [account, GROUP]})

    await allow(store, users=["ann"], groups=["ops"])

    assert store.get(ROLES, NAME, "red")["rules"] == [other, RULE]
    ops = {"apiGroup": RBAC, "kind": "Group", "name": "ops"}
    assert store.get(ROLE_BINDINGS, NAME, "red")["subjects"] == [account, GROUP, ops, USER]


async def test_a_list_that_is_null_is_made(store: WritableStore) -> None:
    """As the API server shows an empty role, and a binding of no subjects."""
    ref = {"apiGroup": RBAC, "kind": "Role", "name": NAME}
    meta = {"metadata": {"namespace": "red", "name": NAME}}
    store.put(ROLES, {**meta, "rules": None})
    store.put(ROLE_BINDINGS, {**meta, "roleRef": ref})

    await allow(store)

    assert store.get(ROLES, NAME, "red")["rules"] == [RULE]
    assert store.get(ROLE_BINDINGS, NAME, "red")["subjects"] == [GROUP]


async def test_users_are_granted_in_every_namespace_without_one(store: WritableStore) -> None:
    """By a ClusterRole; no namespace gets anything by that."""
    await allow(store, "", users=["ann"])

    assert store.get(CLUSTER_ROLES, NAME)["rules"] == [RULE]
    assert store.get(CLUSTER_ROLE_BINDINGS, NAME)["subjects"] == [USER]
    assert not any("namespaces" in it for it in store.wrote)


async def test_a_grantor_without_rights_in_the_cluster_grants_the_queue(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the user may not read then is said, with the command for an administrator."""
    store.refusals["clusterrolebindings"] = "eve cannot"
    assert len(await allow(store, users=["ann"])) == 3
    assert store.get(ROLE_BINDINGS, NAME, "red")["subjects"] == [GROUP, USER]
    assert "not written: ClusterRoleBinding trainer-kai-user" in capsys.readouterr().err

    store.forbidden.add("clusterrolebindings")
    plan = await plan_allow(store.reader, make_grant("team-a", "red", ["ann"]))
    assert [it.partition("grants it: ")[2] for it in plan.notes] == [
        "`kubectl create clusterrolebinding NAME --clusterrole=trainer-kai-user --user=USER`"
    ]


async def test_a_dry_run_writes_nothing(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what would be written."""
    await store.done(await plan_allow(store.reader, make_grant("team-a", "red")), is_dry=True)

    assert store.wrote == []
    output = capsys.readouterr().out
    lines = [it for it in output.splitlines() if not it.startswith(" ")]
    assert [it.partition(" Role")[0] for it in lines] == ["would create"] * 2
    assert yaml.safe_load(output.partition("\n")[2].partition("\nwould")[0])["rules"] == [RULE]


async def test_all_missing_permissions_are_named_together(store: WritableStore) -> None:
    """Of the reads; and of the writes, of which those after the first are dry runs."""
    store.forbidden.update({"queues", "roles", "rolebindings"})
    with pytest.raises(ConfigError) as raised:
        await allow(store)
    assert [it.path for it in raised.value.faults] == [
        "queues.scheduling.run.ai",
        f"Role red/{NAME}",
        f"RoleBinding red/{NAME}",
    ]

    store.forbidden.clear()
    store.refusals = {"roles": "User ann cannot create roles", "rolebindings": "nor bindings"}
    with pytest.raises(ConfigError) as raised:
        await allow(store)
    assert [it.path for it in raised.value.faults] == [
        f"Role red/{NAME}",
        f"RoleBinding red/{NAME}",
    ]


async def test_a_namespace_that_does_not_exist_is_named(store: WritableStore) -> None:
    """Not the path of a request."""
    store.absent_namespaces.add("nope")

    with pytest.raises(ConfigError) as raised:
        await allow(store, "nope")

    assert str(raised.value).startswith(
        "namespace nope: does not exist; create it, or name another"
    )


async def test_a_binding_of_another_role_is_named(store: WritableStore) -> None:
    """It cannot be changed, and another role is no grant."""
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    store.put(ROLE_BINDINGS, {"metadata": {"namespace": "red", "name": NAME}, "roleRef": ref})

    with pytest.raises(ConfigError) as raised:
        await allow(store)

    assert str(raised.value) == (
        f"RoleBinding red/{NAME}: roleRef: is ClusterRole edit, but must be Role {NAME}. A roleRef "
        "cannot be changed: delete this RoleBinding, then repeat the command"
    )


async def test_a_right_that_is_missing_is_named(store: WritableStore) -> None:
    """The verb, the kind and the namespace; and that only a user that has a right grants it."""
    store.refusals["roles"] = "roles.rbac.authorization.k8s.io is forbidden: User ann cannot"
    with pytest.raises(ConfigError) as raised:
        await allow(store)
    assert str(raised.value).startswith(
        f"Role red/{NAME}: permission to create roles.{RBAC} in namespace red is missing. "
        "API server: roles.rbac"
    )

    store.refusals["roles"] = "ann is attempting to grant RBAC permissions not currently held"
    with pytest.raises(ConfigError) as raised:
        await allow(store)
    assert "permission to use queues.scheduling.run.ai in namespace red is missing" in str(
        raised.value
    )

    store.forbidden.add("roles")
    with pytest.raises(
        ConfigError, match=f"permission to get roles.{RBAC} in namespace red is missing"
    ):
        await allow(store)
    store.forbidden.add("queues")
    with pytest.raises(
        ConfigError, match=r"permission to list queues.scheduling.run.ai is missing"
    ):
        await allow(store)


async def test_what_makes_no_difference_is_reported(store: WritableStore) -> None:
    """An open queue, and one with others below it; one that is not there is refused."""
    store.queue("open", access="open")
    store.queue("research")
    store.queue("team-b", parent="research")
    notes = [(await plan_allow(store.reader, make_grant(it, "red"))).notes for it in NOTES]

    assert notes == [*NOTES.values()]
    with pytest.raises(ConfigError, match="queue team-z: does not exist"):
        await plan_allow(store.reader, make_grant("team-z", "red"))
    with pytest.raises(ConfigError, match="nothing to allow: set -n NAMESPACE"):
        await plan_allow(store.reader, make_grant("team-a", ""))


_CLOSES: Final = "`trainer-kai queue close {} --from-usage` closes it"
_OPEN: Final = "queue open is open (annotation of queue open), so every namespace may use it; "
_UNANNOTATED: Final = (
    "queue team-b has no access annotation: every namespace may use it, unless "
    "queue_access.unannotated is closed; "
)
NOTES: Final = {
    "team-a": (),
    "open": (f"{_OPEN}{_CLOSES.format('open')}",),
    "team-b": (f"{_UNANNOTATED}{_CLOSES.format('team-b')}",),
    "research": (
        "queue research takes no pods, because it has child queues: grant a child queue instead",
    ),
}


async def test_a_cluster_without_queues_is_reported(store: WritableStore) -> None:
    """It is another cluster than was meant."""
    store.missing.add(QUEUES.plural)

    with pytest.raises(ConfigError, match="the cluster does not have this kind"):
        await allow(store)
