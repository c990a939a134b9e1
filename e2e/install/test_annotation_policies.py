"""What the policies refuse on the chain, in which words, and all that they let pass."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.api import Api, ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.kubeconfig import ADMIN
from e2e.cluster.patience import patience
from e2e.cluster.resources import JOBS, JOBSETS, SERVICE_ACCOUNTS, TRAINJOBS, Obj, Resource
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace
from e2e.fixtures.install import MANIFESTS, PODGROUPS, RULES, apply, build, run_kubectl
from e2e.fixtures.processes import NAMESPACE, PODGROUPER, SCHEDULER
from e2e.install.test_webhook_rules import jobset
from tests.support.case import Case, ids
from trainer_kai.api.names import (
    ADMITTED,
    ANTICIPATED,
    ASKED_FOR_NODES,
    AVOIDED_NODES,
    EVICTED_BY,
    RESERVED,
)

_NAMESPACE: Final = "policed"
_TENANT: Final = "tenant"
_RBAC: Final = "rbac.authorization.k8s.io"
_NAMES: Final = count()
Notes = Mapping[str, str | None]


class PolicyUsers(NamedTuple):
    """A chain with the policies, and connections of all that write there."""

    cluster: Cluster
    users: Mapping[str, Api]


class Write(NamedTuple):
    """Annotations of an object of a kind that are there, and what of them a user writes."""

    user: str
    resource: Resource
    there: Notes | None  # None: the object is made by this write
    notes: Notes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def policy_users(installed_cluster: Cluster) -> AsyncIterator[PolicyUsers]:
    """Return the shared chain once the policies are in force, with a tenant who edits a room."""
    await make_namespace(installed_cluster, _NAMESPACE)
    for obj in _tenant():
        await apply(installed_cluster, obj)
    accounts = {
        "scheduler": (NAMESPACE, SCHEDULER.account),
        "podgrouper": (NAMESPACE, PODGROUPER.account),
        "tenant": (_NAMESPACE, _TENANT),
    }
    async with AsyncExitStack() as stack:
        users = {"admin": installed_cluster.api}
        for name, account in accounts.items():
            token = await installed_cluster.api.service_account_token(*account)
            users[name] = await stack.enter_async_context(installed_cluster.connect(token=token))
        shared = PolicyUsers(installed_cluster, users)
        await _until_in_force(shared)
        yield shared


def may_not(user: str, verb: str, name: str) -> str:
    """Return how a refusal begins."""
    return f"metadata.annotations[{name}]: {user} may not {verb} it: "


_STAYS: Final = (
    "only the webhook of trainer-kai sets it, when the JobSet is created."
    " To change it, delete the JobSet and create it again"
)
_AS_TENANT: Final = f"system:serviceaccount:{_NAMESPACE}:{_TENANT}"
_AS_PODGROUPER: Final = f"system:serviceaccount:{NAMESPACE}:{PODGROUPER.account}"
_COPIED: Final = (
    "only the scheduler of trainer-kai records there that it evicted the TrainJob."
    " Leave the annotation out (a manifest that was exported during an eviction contains it);"
    " to suspend the TrainJob, set spec.suspend"
)
_PODGROUP_RECORDS: Final = {
    RESERVED: "{}",
    ANTICIPATED: "{}",
    EVICTED_BY: "{}",
    AVOIDED_NODES: "{}",
}

# a write -> the words by which it is refused; none where it passes
WRITES: Final[list[Case[Write, str]]] = [
    Case(
        "a JobSet's mark is added",
        Write("tenant", JOBSETS, {}, {ADMITTED: "v1"}),
        f'[{ADMITTED}]: must stay absent, and cannot be set to "v1": {_STAYS}',
    ),
    Case(
        "a JobSet's mark is another",
        Write("admin", JOBSETS, {ADMITTED: "v1"}, {ADMITTED: "v2"}),
        f'[{ADMITTED}]: must stay "v1", and cannot be set to "v2": {_STAYS}',
    ),
    Case(
        "a JobSet's mark is removed",
        Write("tenant", JOBSETS, {ADMITTED: "v1"}, {ADMITTED: None}),
        f'[{ADMITTED}]: must stay "v1", and cannot be removed: {_STAYS}',
    ),
    Case("a JobSet keeps its mark", Write("tenant", JOBSETS, {ADMITTED: "v1"}, {"a": "b"}), ""),
    Case("a JobSet has no mark", Write("tenant", JOBSETS, {}, {"a": "b"}), ""),
    Case("a JobSet has no annotation", Write("tenant", JOBSETS, {"a": "b"}, {"a": None}), ""),
    Case("a JobSet is made with a mark", Write("tenant", JOBSETS, None, {ADMITTED: "v1"}), ""),
    Case(
        "a TrainJob says that it is evicted",
        Write("tenant", TRAINJOBS, {}, {EVICTED_BY: "{}"}),
        f"{may_not(_AS_TENANT, 'add', EVICTED_BY)}{_COPIED}",
    ),
    Case(
        "a TrainJob says otherwise why it is evicted",
        Write("admin", TRAINJOBS, {EVICTED_BY: "{}"}, {EVICTED_BY: "[]"}),
        may_not(ADMIN, "change", EVICTED_BY),
    ),
    Case(
        "the podgrouper evicts nothing",
        Write("podgrouper", PODGROUPS, {}, {EVICTED_BY: "{}"}),
        may_not(_AS_PODGROUPER, "add or change", EVICTED_BY),
    ),
    Case(
        "a user takes the copy away",
        Write("tenant", TRAINJOBS, {EVICTED_BY: "{}"}, {EVICTED_BY: None}),
        "",
    ),
    Case("a user empties it", Write("tenant", TRAINJOBS, {EVICTED_BY: "{}"}, {EVICTED_BY: ""}), ""),
    Case("a TrainJob keeps it", Write("tenant", TRAINJOBS, {EVICTED_BY: "{}"}, {"a": "b"}), ""),
    Case("the scheduler evicts", Write("scheduler", TRAINJOBS, {}, {EVICTED_BY: "{}"}), ""),
    Case("a TrainJob is made anew", Write("tenant", TRAINJOBS, None, {EVICTED_BY: "{}"}), ""),
    Case(
        "an administrator keeps room",
        Write("admin", PODGROUPS, {}, {RESERVED: "{}"}),
        may_not(ADMIN, "add or change", RESERVED),
    ),
    Case(
        "the podgrouper keeps no room",
        Write("podgrouper", PODGROUPS, {}, {RESERVED: "{}"}),
        may_not(_AS_PODGROUPER, "add or change", RESERVED),
    ),
    Case(
        "an administrator foretells pods",
        Write("admin", PODGROUPS, {ANTICIPATED: "{}"}, {ANTICIPATED: "[]"}),
        may_not(ADMIN, "add or change", ANTICIPATED),
    ),
    Case(
        "an administrator records an eviction",
        Write("admin", PODGROUPS, {}, {EVICTED_BY: "{}"}),
        may_not(ADMIN, "add or change", EVICTED_BY),
    ),
    Case(
        "an administrator keeps it from a node",
        Write("admin", PODGROUPS, {}, {AVOIDED_NODES: "{}"}),
        may_not(ADMIN, "add or change", AVOIDED_NODES),
    ),
    Case(
        "an administrator asks for nodes",
        Write("admin", PODGROUPS, {}, {ASKED_FOR_NODES: "{}"}),
        may_not(ADMIN, "add, change or remove", ASKED_FOR_NODES),
    ),
    Case(
        "the podgrouper forgets what was asked for",
        Write("podgrouper", PODGROUPS, {ASKED_FOR_NODES: "{}"}, {ASKED_FOR_NODES: None}),
        may_not(_AS_PODGROUPER, "add, change or remove", ASKED_FOR_NODES),
    ),
    Case(
        "the scheduler forgets it",
        Write("scheduler", PODGROUPS, {ASKED_FOR_NODES: "{}"}, {ASKED_FOR_NODES: None}),
        "",
    ),
    Case(
        "a PodGroup is made with room",
        Write("admin", PODGROUPS, None, {RESERVED: "{}"}),
        may_not(ADMIN, "add or change", RESERVED),
    ),
    Case(
        "a PodGroup is made with pods to come",
        Write("admin", PODGROUPS, None, {ANTICIPATED: "{}"}),
        may_not(ADMIN, "add or change", ANTICIPATED),
    ),
    Case(
        "a PodGroup is made with a record", Write("admin", PODGROUPS, None, {EVICTED_BY: "{}"}), ""
    ),
    Case("the podgrouper foretells", Write("podgrouper", PODGROUPS, None, {ANTICIPATED: "{}"}), ""),
    Case(
        "it foretells anew",
        Write("podgrouper", PODGROUPS, _PODGROUP_RECORDS, {ANTICIPATED: "[]"}),
        "",
    ),
    Case("the scheduler writes", Write("scheduler", PODGROUPS, {}, _PODGROUP_RECORDS), ""),
    Case("what is there stays", Write("admin", PODGROUPS, _PODGROUP_RECORDS, {"a": "b"}), ""),
    Case(
        "it goes",
        Write("admin", PODGROUPS, _PODGROUP_RECORDS, dict.fromkeys(_PODGROUP_RECORDS)),
        "",
    ),
    Case("a PodGroup of others", Write("admin", PODGROUPS, None, {"a": "b"}), ""),
]


@pytest.mark.parametrize("case", WRITES, ids=ids)
async def test_a_write(case: Case[Write, str], policy_users: PolicyUsers) -> None:
    """A refusal names the field, the account and what would be right."""
    write = case.given
    user = policy_users.users[write.user]
    name = f"one-{next(_NAMES)}"
    if write.there is not None:
        await _have(policy_users, write.resource, name, write.there)
        writing = user.merge(
            write.resource, _NAMESPACE, name, {"metadata": {"annotations": write.notes}}
        )
    else:
        writing = _make(user, write.resource, name, write.notes)
    if not case.want:
        await writing
        return
    with pytest.raises(ApiError) as refused:
        await writing

    assert refused.value.status == 422
    assert case.want in str(refused.value)
    assert f"ValidatingAdmissionPolicy 'trainer-kai-{write.resource.plural}'" in str(refused.value)


@pytest.mark.parametrize("manager", ["trainer-kai-eviction", "trainer-kai-scheduler"])
async def test_a_field_manager_is_no_account(manager: str, policy_users: PolicyUsers) -> None:
    """A client chooses its name; the account is what counts, in an apply and in a patch."""
    name = f"one-{next(_NAMES)}"
    await _have(policy_users, TRAINJOBS, name, {})
    path = TRAINJOBS.path(_NAMESPACE, name)
    body = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": name, "annotations": {EVICTED_BY: "{}"}},
    }
    for kind in ("application/apply-patch+yaml", "application/merge-patch+json"):
        with pytest.raises(ApiError, match="may not add it"):
            await policy_users.users["tenant"].request(
                "PATCH", path, body, query={"fieldManager": manager}, content_type=kind
            )


async def test_a_refusal_has_its_whole_message(policy_users: PolicyUsers) -> None:
    """As kubectl shows it, and as the README has it."""
    name = f"one-{next(_NAMES)}"
    await _have(policy_users, TRAINJOBS, name, {})
    path = str(await policy_users.cluster.service_account_kubeconfig(_NAMESPACE, _TENANT))
    output = await run_kubectl(
        *(
            "--kubeconfig",
            path,
            "-n",
            _NAMESPACE,
            "annotate",
            "trainjob",
            name,
            f"{EVICTED_BY}={{}}",
        )
    )
    message = (MANIFESTS / "README.md").read_text().partition('```\nThe trainjobs "job"')[2]
    message = f'The trainjobs "job"{message.partition("```")[0]}'
    for placeholder, right in (('"job"', f'"{name}"'), (" ann ", f" {_AS_TENANT} ")):
        message = message.replace(placeholder, right)

    assert output.status == 1
    assert " ".join(output.err.split()) == " ".join(message.split())


async def test_no_expression_is_in_doubt(policy_users: PolicyUsers) -> None:
    """The API server finds the kinds that a policy is about, and every field in them."""
    policies = [
        obj["metadata"]["name"]
        for obj in await build(MANIFESTS / "overlays" / "local")
        if obj["kind"] == RULES.kind
    ]
    assert len(policies) == 17
    for name in policies:
        async with patience(30):
            while True:
                found = await policy_users.cluster.api.get(RULES, None, name)
                checked = found.get("status", {})
                if checked.get("observedGeneration") == found["metadata"]["generation"]:
                    break
                await asyncio.sleep(0.1)
        assert checked["typeChecking"] == {}


# a Job -> the words by which the scheduler may not delete it; none where it may
DELETIONS: Final[list[Case[Obj, str]]] = [
    Case("a suspended Job of a JobSet", {"suspend": True}, ""),
    Case("a Job that runs", {"suspend": False}, "spec.suspend: "),
    Case("a Job of its own", {"suspend": True, "owner": None}, "metadata.ownerReferences: "),
    Case(
        "a Job that another kind controls",
        {"suspend": True, "owner": "CronJob"},
        "metadata.ownerReferences: ",
    ),
]


@pytest.mark.parametrize("case", DELETIONS, ids=ids)
async def test_the_scheduler_deletes_a_job(case: Case[Obj, str], policy_users: PolicyUsers) -> None:
    """Only to have it made anew; a user deletes it as before."""
    name = f"one-{next(_NAMES)}"
    await policy_users.users["tenant"].request(
        "POST", JOBS.path(_NAMESPACE), _job(name, **case.given)
    )
    deleting = policy_users.users["scheduler"].delete(JOBS, _NAMESPACE, name)
    if case.want:
        with pytest.raises(ApiError) as refused:
            await deleting
        assert case.want in str(refused.value)
        await policy_users.users["tenant"].delete(JOBS, _NAMESPACE, name)
    else:
        await deleting
    await policy_users.cluster.api.merge(JOBS, _NAMESPACE, name, {"metadata": {"finalizers": None}})


def _job(name: str, *, suspend: bool, owner: str | None = "JobSet") -> Obj:
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": owner, "name": "j", "uid": "u"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": _NAMESPACE,
            "name": name,
            "ownerReferences": [{**kind, "controller": True}] if owner else [],
            # Its owner does not exist: without this the garbage collector may be quicker.
            "finalizers": ["e2e.trainer-kai.dev/kept"],
        },
        "spec": {"suspend": suspend, "template": {"spec": pod}},
    }


async def _have(policy_users: PolicyUsers, resource: Resource, name: str, notes: Notes) -> None:
    """Have an object with annotations, each by the account that may write it."""
    if resource != PODGROUPS:
        await _make(policy_users.cluster.api, resource, name, notes)
        return
    await _make(policy_users.users["podgrouper"], resource, name, {})
    of_scheduler = (RESERVED, EVICTED_BY, ASKED_FOR_NODES, AVOIDED_NODES)
    for user, names in (("podgrouper", (ANTICIPATED,)), ("scheduler", of_scheduler)):
        own = {it: notes[it] for it in names if it in notes}
        await policy_users.users[user].merge(
            resource, _NAMESPACE, name, {"metadata": {"annotations": own}}
        )


async def _make(user: Api, resource: Resource, name: str, notes: Notes) -> Obj:
    made: Obj = await user.request("POST", resource.path(_NAMESPACE), _made(resource, name, notes))
    return made


def _made(resource: Resource, name: str, notes: Notes) -> Obj:
    if resource == PODGROUPS:
        made: Obj = {
            "apiVersion": PODGROUPS.api_version,
            "kind": PODGROUPS.kind,
            "metadata": {"namespace": _NAMESPACE, "name": name},
            "spec": {"queue": "default-queue", "minMember": 1},
        }
    elif resource == JOBSETS:
        made = jobset(name, None, _NAMESPACE)
    else:
        made = Submission(name, "torch-distributed", _NAMESPACE).trainjob()
        made["spec"]["suspend"] = True
    if notes:
        made["metadata"]["annotations"] = dict(notes)
    return made


def _tenant() -> list[Obj]:
    """Return an account with the role `edit`, and all that it may do with jobs."""
    where = {"namespace": _NAMESPACE, "name": _TENANT}
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    jobs: Any = [
        {"apiGroups": [it.group], "resources": [it.plural], "verbs": verbs}
        for it in (JOBSETS, TRAINJOBS)
    ]
    subjects = [{"kind": SERVICE_ACCOUNTS.kind, **where}]
    bindings = [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": _NAMESPACE, "name": f"{_TENANT}-{role}"},
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
            "subjects": subjects,
        }
        for kind, role in (("ClusterRole", "edit"), ("Role", _TENANT))
    ]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": where, "rules": jobs}
    account = {"apiVersion": "v1", "kind": SERVICE_ACCOUNTS.kind, "metadata": where}
    return [account, role, *bindings]


async def _until_in_force(policy_users: PolicyUsers) -> None:
    """Wait until each kind is kept: the API server hears of policies by a watch."""
    for resource, name in ((JOBSETS, ADMITTED), (TRAINJOBS, EVICTED_BY), (PODGROUPS, RESERVED)):
        made = f"tried-{resource.plural}"
        await _have(policy_users, resource, made, {})
        notes = {"metadata": {"annotations": {name: "v1"}}}
        path = resource.path(_NAMESPACE, made)
        async with patience(30):
            while True:
                try:
                    await policy_users.cluster.api.request(
                        "PATCH",
                        path,
                        notes,
                        query={"dryRun": "All"},
                        content_type="application/merge-patch+json",
                    )
                except ApiError as error:
                    if "ValidatingAdmissionPolicy" not in str(error):
                        raise
                    break
                await asyncio.sleep(0.1)
