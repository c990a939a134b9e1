"""What a stolen token of one of our processes can change beyond its role."""

from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from e2e.cluster.api import Api, ApiError, retry_while_stale
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    JOBS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    PVCS,
    RESOURCE_CLAIMS,
    SERVICE_ACCOUNTS,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace
from e2e.fixtures.install import CLUSTER_ROLES, apply
from e2e.fixtures.processes import NAMESPACE, PODGROUPER, SCHEDULER, WEBHOOK
from e2e.install.service_accounts import ServiceAccounts
from tests.support.case import Case, ids
from trainer_kai.api.names import (
    CLAIM_FINALIZER,
    EVICTED_BY,
    POD_GROUP,
    QUEUE,
    SCHEDULER_NAME,
    SELECTED_NODE,
    SUBGROUP,
)

_NAMESPACE: Final = "accounts"
_POD: Final = "one"
_KAI: Final = SCHEDULER_NAME  # its namespace is called alike
_NODE: Final = "system:node:node-0"
_OURS: Final = "kai-trainer"
_MERGE: Final = "application/strategic-merge-patch+json"
_PLAIN_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json-patch+json"
_OWNER: Final = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}
_ALONE: Final = (
    f"may change only metadata.annotations[{POD_GROUP}] and metadata.labels[{SUBGROUP}] of a pod"
)
_FINALIZER_ALONE: Final = "may change only metadata.finalizers of a ResourceClaim"
_BUNDLE_ALONE: Final = "may change only webhooks[*].clientConfig.caBundle"

# what the podgrouper's account merges into a pod -> the field that the refusal names
OF_PODS: Final[list[Case[Obj, str]]] = [
    Case("its PodGroup", {"metadata": {"annotations": {POD_GROUP: "some"}}}, ""),
    Case("its sub-group", {"metadata": {"labels": {SUBGROUP: "leaf"}}}, ""),
    Case("its image", {"spec": {"containers": [{"name": "c", "image": "evil"}]}}, "spec"),
    Case("its deadline", {"spec": {"activeDeadlineSeconds": 1}}, "spec"),
    Case("its owner", {"metadata": {"ownerReferences": [_OWNER]}}, "metadata.ownerReferences"),
    Case("its finalizers", {"metadata": {"finalizers": ["a.b/c"]}}, "metadata.finalizers"),
    Case("a label", {"metadata": {"labels": {"app": "db"}}}, "metadata.labels"),
    Case("a label is gone", {"metadata": {"labels": {"team": None}}}, "metadata.labels"),
    Case("an annotation", {"metadata": {"annotations": {"a": "b"}}}, "metadata.annotations"),
]

_EVICTED_ALONE: Final = f"may change only metadata.annotations[{EVICTED_BY}] and spec.suspend"
_OF_EVICTIONS: Final = {"metadata": {"annotations": {EVICTED_BY: "x"}}, "spec": {"suspend": False}}
# what the scheduler's account merges into a TrainJob -> the field that the refusal names
OF_TRAINJOBS: Final[list[Case[Obj, str]]] = [
    Case("an eviction", _OF_EVICTIONS, ""),
    Case("its image", {"spec": {"trainer": {"image": "evil"}}}, "spec"),
    Case("its finalizers", {"metadata": {"finalizers": ["a.b/c"]}}, "metadata"),
    Case("a label", {"metadata": {"labels": {QUEUE: "other"}}}, "metadata"),
    Case("an annotation", {"metadata": {"annotations": {"a": "b"}}}, "metadata.annotations"),
]
_JOBS_OF_USERS: Final = (JOBS, JOBSETS)
_JOB_SPEC: Final = {
    "suspend": True,
    "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    },
}
# what it merges into a Job or a JobSet -> the same
OF_JOBS: Final[list[Case[Obj, str]]] = [
    Case("an eviction", _OF_EVICTIONS, ""),
    Case("its deadline", {"spec": {"ttlSecondsAfterFinished": 1}}, "spec"),
    Case("its finalizers", {"metadata": {"finalizers": ["a.b/c"]}}, "metadata"),
    Case("an annotation", {"metadata": {"annotations": {"a": "b"}}}, "metadata.annotations"),
]
_NODE_ALONE: Final = f"may change only metadata.annotations[{SELECTED_NODE}] of a volume claim"
# what it merges into a volume claim -> the same
OF_CLAIMS: Final[list[Case[Obj, str]]] = [
    Case("the node", {"metadata": {"annotations": {SELECTED_NODE: "node-0"}}}, ""),
    Case("its finalizers", {"metadata": {"finalizers": ["a.b/c"]}}, "metadata"),
    Case("an annotation", {"metadata": {"annotations": {"a": "b"}}}, "metadata.annotations"),
]

_CALLED: Final = "/webhooks/0/clientConfig"
# what the webhook's account changes in a configuration -> the beginning of the refusal
# what the scheduler's account merges into a ResourceClaim -> the field that the refusal names
OF_RESOURCE_CLAIMS: Final[list[Case[Obj, str]]] = [
    Case("the finalizer", {"metadata": {"finalizers": [CLAIM_FINALIZER]}}, ""),
    Case("another one", {"metadata": {"finalizers": ["a.b/c"]}}, "metadata.finalizers"),
    Case("a label", {"metadata": {"labels": {QUEUE: "rich"}}}, "metadata"),
    Case("an annotation", {"metadata": {"annotations": {"a": "b"}}}, "metadata"),
    Case("its owner", {"metadata": {"ownerReferences": [_OWNER]}}, "metadata"),
]
OF_WEBHOOKS: Final[list[Case[Obj, str]]] = [
    Case("the bundle", {"op": "add", "path": f"{_CALLED}/caBundle", "value": "LQ=="}, ""),
    Case(
        "who is called",
        {"op": "replace", "path": f"{_CALLED}/url", "value": "https://evil.example/"},
        "webhooks: ",
    ),
    Case(
        "for what",
        {"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["*"]},
        "webhooks: ",
    ),
    Case(
        "where",
        {"op": "remove", "path": "/webhooks/0/namespaceSelector"},
        "webhooks: ",
    ),
    Case("on what condition", {"op": "remove", "path": "/webhooks/0/matchConditions"}, "webhooks:"),
    Case("whether at all", {"op": "remove", "path": "/webhooks/1"}, "webhooks: "),
    Case(
        "its owner",
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{**_OWNER, "kind": "Namespace"}],
        },
        "metadata: ",
    ),
    Case(
        "a label",
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        "metadata: ",
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def podgrouper(service_accounts: ServiceAccounts) -> AsyncIterator[Api]:
    """Return the podgrouper's connection, and have a pod on a node."""
    await make_namespace(service_accounts.cluster, _NAMESPACE)
    container = {"name": "c", "image": "none"}
    pod = {
        "apiVersion": "v1",
        "kind": PODS.kind,
        "metadata": {"namespace": _NAMESPACE, "name": _POD, "labels": {"team": "red"}},
        "spec": {"nodeName": "node-0", "containers": [container]},
    }
    await service_accounts.cluster.api.create(pod)
    token = await service_accounts.cluster.api.service_account_token(NAMESPACE, PODGROUPER.account)
    async with service_accounts.cluster.connect(token=token) as api:
        yield api
    await service_accounts.cluster.api.kill_pods(_NAMESPACE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def webhook(service_accounts: ServiceAccounts) -> AsyncIterator[Api]:
    """Return the webhook's connection."""
    token = await service_accounts.cluster.api.service_account_token(NAMESPACE, WEBHOOK.account)
    async with service_accounts.cluster.connect(token=token) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scheduler(service_accounts: ServiceAccounts, podgrouper: Api) -> AsyncIterator[Api]:
    """Return the scheduler's connection, and have a TrainJob and a volume claim."""
    del podgrouper  # it makes the namespace
    api = service_accounts.cluster.api
    job = Submission("own", "torch-distributed", _NAMESPACE).trainjob()
    await api.create({**job, "spec": {**job["spec"], "suspend": True}})
    claim = {
        "apiVersion": "v1",
        "kind": PVCS.kind,
        "metadata": {"namespace": _NAMESPACE, "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await api.create(claim)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    devices = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"namespace": _NAMESPACE, "name": "devices"},
        "spec": {"devices": {"requests": [request]}},
    }
    await api.create(devices)
    for kind in _JOBS_OF_USERS:
        replicated = {"name": "n", "template": {"spec": _JOB_SPEC}}
        spec = _JOB_SPEC if kind is JOBS else {"suspend": True, "replicatedJobs": [replicated]}
        metadata = {"namespace": _NAMESPACE, "name": "of-user"}
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        await api.create({**made, "spec": spec})
    token = await api.service_account_token(NAMESPACE, SCHEDULER.account)
    async with service_accounts.cluster.connect(token=token) as connection:
        yield connection


@pytest.mark.parametrize("case", OF_TRAINJOBS, ids=ids)
async def test_the_scheduler_suspends_trainjobs(case: Case[Obj, str], scheduler: Api) -> None:
    """With a stolen token no TrainJob runs another image, or is in another queue."""
    await _check_patch(scheduler, TRAINJOBS.path(_NAMESPACE, "own"), case, _EVICTED_ALONE)


@pytest.mark.parametrize("kind", _JOBS_OF_USERS, ids=str)
@pytest.mark.parametrize("case", OF_JOBS, ids=ids)
async def test_the_scheduler_suspends_jobs_and_jobsets(
    case: Case[Obj, str], kind: Resource, scheduler: Api
) -> None:
    """With a stolen token no Job runs longer or shorter, or another image."""
    await _check_patch(scheduler, kind.path(_NAMESPACE, "of-user"), case, _EVICTED_ALONE)


@pytest.mark.parametrize("case", OF_CLAIMS, ids=ids)
async def test_the_scheduler_selects_the_node_of_a_claim(
    case: Case[Obj, str], scheduler: Api
) -> None:
    """With a stolen token no claim gets another volume."""
    await _check_patch(scheduler, PVCS.path(_NAMESPACE, "data"), case, _NODE_ALONE)


@pytest.mark.parametrize("case", OF_RESOURCE_CLAIMS, ids=ids)
async def test_the_scheduler_protects_a_resource_claim(
    case: Case[Obj, str], scheduler: Api
) -> None:
    """With a stolen token no claim is another pod's, or in another queue."""
    path = RESOURCE_CLAIMS.path(_NAMESPACE, "devices")
    await _check_patch(scheduler, path, case, _FINALIZER_ALONE)


async def _check_patch(scheduler: Api, path: str, case: Case[Obj, str], alone: str) -> None:
    """Check what the refusal of a merge patch names; nothing where there is none."""
    output = await _tried(scheduler, path, case.given, _PLAIN_MERGE)

    if case.want:
        assert f"{case.want}: the scheduler of trainer-kai {alone}" in output
    else:
        assert output == ""


@pytest.mark.parametrize("case", OF_PODS, ids=ids)
async def test_the_podgrouper_changes_two_names_of_a_pod(
    case: Case[Obj, str], podgrouper: Api
) -> None:
    """A stolen token puts pods into PodGroups, and changes no image, owner or other label."""
    output = await _tried(podgrouper, PODS.path(_NAMESPACE, _POD), case.given, _MERGE)

    if case.want:
        assert f"{case.want}: the podgrouper of trainer-kai {_ALONE}" in output
    else:
        assert output == ""


@pytest.mark.parametrize("kind", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS], ids=lambda it: it.kind)
@pytest.mark.parametrize("case", OF_WEBHOOKS, ids=ids)
async def test_the_webhook_changes_whom_the_api_server_trusts(
    case: Case[Obj, str], kind: Resource, webhook: Api
) -> None:
    """With a stolen token no other server is called, and none for other objects."""
    output = await _tried(webhook, kind.path(None, _OURS), [case.given], _JSON)

    if case.want:
        assert case.want in output
        assert _BUNDLE_ALONE in output
    else:
        assert output == ""


@pytest.mark.usefixtures("podgrouper")
async def test_kai_writes_on_pods_that_are_on_nodes(service_accounts: ServiceAccounts) -> None:
    """In mode external its binder and podgrouper do, whose accounts are in its namespace."""
    api, path = service_accounts.cluster.api, PODS.path(_NAMESPACE, _POD)
    change = {"metadata": {"labels": {QUEUE: "a"}, "annotations": {POD_GROUP: "some"}}}
    await make_namespace(service_accounts.cluster, _KAI)
    account = {"namespace": _KAI, "name": "binder"}
    await api.create({"apiVersion": "v1", "kind": SERVICE_ACCOUNTS.kind, "metadata": account})
    await _let_edit(service_accounts.cluster, {"kind": SERVICE_ACCOUNTS.kind, **account})
    assert f"metadata.labels[{QUEUE}]: must stay absent" in await _tried(api, path, change, _MERGE)
    token = await api.service_account_token(_KAI, "binder")
    async with service_accounts.cluster.connect(token=token) as kai:
        await retry_while_stale(lambda: kai.merge(PODS, _NAMESPACE, _POD, change), "forbidden")


@pytest.mark.usefixtures("podgrouper")
async def test_a_node_mirrors_its_static_pods(service_accounts: ServiceAccounts) -> None:
    """They name their node, also where their file asks for our scheduler."""
    api = service_accounts.cluster.api
    await _let_edit(
        service_accounts.cluster, {"kind": "User", "name": _NODE, "apiGroup": CLUSTER_ROLES.group}
    )
    node = await api.get(NODES, None, "node-0")
    owner = {"apiVersion": "v1", "kind": NODES.kind, "name": "node-0", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": PODS.kind,
        "metadata": {
            "namespace": _NAMESPACE,
            "name": "mirrored-node-0",
            "annotations": {"kubernetes.io/config.mirror": "1"},
            "ownerReferences": [{**owner, "uid": node["metadata"]["uid"]}],
        },
        "spec": {
            "nodeName": "node-0",
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "c", "image": "none"}],
        },
    }
    await retry_while_stale(lambda: _made_by_node(api, pod), "forbidden")
    with pytest.raises(ApiError, match=r"Leave spec\.nodeName out"):
        await api.create(pod, dryRun="All")


async def _made_by_node(api: Api, pod: Obj) -> Obj:
    """Try dry to make a pod as a node does."""
    headers = {
        "Authorization": f"Bearer {api.token}",
        "Impersonate-User": _NODE,
        "Impersonate-Group": "system:nodes",
    }
    path = f"{PODS.path(_NAMESPACE)}?dryRun=All"
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(api.url + path, json=pod, ssl=api.tls) as response,
    ):
        if response.status >= 400:
            raise ApiError(f"POST {path}", response.status, await response.text())
        made: Obj = await response.json()
        return made


async def _let_edit(cluster: Cluster, subject: Obj) -> None:
    """Give a user the role `edit` in the room."""
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": "edit"}
    name = subject["name"].replace(":", "-")
    binding = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "RoleBinding",
        "metadata": {"namespace": _NAMESPACE, "name": name},
        "roleRef": role,
        "subjects": [subject],
    }
    await apply(cluster, binding)


async def _tried(api: Api, path: str, patch: Any, content_type: str) -> str:
    """Try a patch dry; return the refusal of a policy, or nothing."""
    query = {"dryRun": "All"}
    try:
        await api.request("PATCH", path, patch, query=query, content_type=content_type)
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return str(error)
    return ""
