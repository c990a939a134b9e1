"""What a stolen token of the scheduler or of a reservation pod can do with what shares GPUs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.api import Api, ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Obj
from e2e.conftest import make_namespace
from e2e.fixtures.processes import NAMESPACE, SCHEDULER
from scheduler.shell.bind.gpu.reservation_manifest import (
    GpuPlace,
    ReservationPodOptions,
    reservation_pod,
)
from tests.support.case import Case, ids
from trainer_kai.api.names import (
    GPU,
    GPU_DEVICES,
    GPU_GROUP,
    RECEIVED_TYPE,
    RESERVATION_APP,
    RESERVED_DEVICE,
    SCHEDULER_NAME,
)
from trainer_kai.service.settings import ReservationPodSettings

_NAMESPACE: Final = "stolen-shares"
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_NAME: Final = "waits-x1y2z3a-shared-gpu-0"  # of the ConfigMap of a pod
_OWNERLESS: Final = "other-x1y2z3a-shared-gpu-i1-evar"
_BINDER: Final = "system:serviceaccount:kai-scheduler:binder"
_DEVICE: Final = "GPU-8a9b"
_CONTAINER: Final = "spec.containers[0]"
_SECURITY: Final = f"{_CONTAINER}.securityContext: "


class Thieves(NamedTuple):
    """Connections with stolen tokens."""

    scheduler: Api
    agent: Api
    owner: Obj  # of the ConfigMap


def config_map(name: str, owners: list[Obj], **data: str) -> Obj:
    """Return a ConfigMap."""
    metadata = {"namespace": _NAMESPACE, "name": name, "ownerReferences": owners}
    return {
        "apiVersion": "v1",
        "kind": CONFIG_MAPS.kind,
        "metadata": metadata,
        "data": data or {"NVIDIA_VISIBLE_DEVICES": _DEVICE},
    }


def pod(name: str, scheduler: str) -> Obj:
    """Return a pod that waits, whatever schedulers run."""
    return {
        "apiVersion": "v1",
        "kind": PODS.kind,
        "metadata": {"namespace": _NAMESPACE, "name": name, "labels": {"team": "red"}},
        "spec": {
            "schedulerName": scheduler,
            "schedulingGates": [{"name": "e2e.test/waits"}],
            "containers": [{"name": "c", "image": "none"}],
        },
    }


def created_pod(name: str = "gpu-reservation-1") -> Obj:
    """Return a pod as the scheduler creates it, without a RuntimeClass, for none is installed."""
    place = GpuPlace("node-0", "group")
    settings = ReservationPodSettings()
    options = ReservationPodOptions("none", "", settings.priority_class)
    made = reservation_pod(place, options)
    made["metadata"]["name"] = name
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def thieves(installed_cluster: Cluster) -> AsyncIterator[Thieves]:
    """Return the connections once all policies are in force, and have objects to attack."""
    cluster = installed_cluster
    await make_namespace(cluster, _NAMESPACE)
    waits = await cluster.api.create(pod("waits", SCHEDULER_NAME))
    await cluster.api.create(pod("foreign", "default-scheduler"))
    owner = {
        "apiVersion": "v1",
        "kind": PODS.kind,
        "name": "waits",
        "uid": waits["metadata"]["uid"],
    }
    await cluster.api.create(config_map("settings", [owner]))
    async with cluster.connect(user=_BINDER) as binder:  # only schedulers create these
        await binder.create(config_map(_OWNERLESS, []))
        await binder.create(config_map(_NAME, [owner], GPU_PORTION="0.50"))
    token = await cluster.api.service_account_token(NAMESPACE, SCHEDULER.account)
    async with cluster.connect(token=token) as scheduler:
        async with patience(30):
            while not await _refusal(scheduler, CONFIG_MAPS.path(_NAMESPACE, "settings")):
                await asyncio.sleep(0.1)
        for name in ("gpu-reservation-1", "gpu-reservation-2"):
            await scheduler.create(created_pod(name))
        async with (
            cluster.connect(token=await _token_of_a_pod(cluster)) as agent,
            _without_a_level(cluster, scheduler),
        ):
            yield Thieves(scheduler, agent, owner)
    await cluster.api.kill_pods(RESERVATION_APP)
    await cluster.api.kill_pods(_NAMESPACE)


@asynccontextmanager
async def _without_a_level(cluster: Cluster, scheduler: Api) -> AsyncIterator[None]:
    """Have the namespace as KAI creates it: without a Pod Security level."""

    async def enforce(level: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        patch = {"metadata": {"labels": labels}}
        await cluster.api.merge(NAMESPACES, None, RESERVATION_APP, patch)

    await enforce("privileged")
    privileged = created_pod("gpu-reservation-3")
    privileged["spec"]["hostPID"] = True
    async with patience(30):
        while True:
            try:
                await _refusal(scheduler, PODS.path(RESERVATION_APP), privileged, _JSON)
            except ApiError:
                await asyncio.sleep(0.05)
            else:
                break
    yield
    await enforce("baseline")


_TENANT: Final = "ann"
_COLLECTOR: Final = "system:serviceaccount:kube-system:generic-garbage-collector"


def _all_gpus(name: str) -> Obj:
    return config_map(name, [], NVIDIA_VISIBLE_DEVICES="all")


# a user, and a ConfigMap that it creates -> the refusal
OF_TENANTS: Final[list[Case[tuple[str, str], str]]] = [
    Case("the one of a pod", (_TENANT, "waits-y1y2z3a-shared-gpu-0"), "metadata.name: only the"),
    Case("its environment", (_TENANT, "y1y2z3a-y1y2z3a-shared-gpu-i1-evar"), "metadata.name: "),
    Case("of an admin", ("kubernetes-admin", "a-y1y2z3a-shared-gpu-0"), "metadata.name: "),
    Case("another name", (_TENANT, "my-shared-gpu-0"), ""),
    Case("a longer name", (_TENANT, "a-y1y2z3a-shared-gpu-0-x"), ""),
    Case("by KAI", (_BINDER, "waits-y1y2z3a-shared-gpu-0"), ""),
]


@pytest.mark.usefixtures("thieves")
@pytest.mark.parametrize("case", OF_TENANTS, ids=ids)
async def test_only_the_scheduler_creates_configmaps_of_shares(
    case: Case[tuple[str, str], str], installed_cluster: Cluster
) -> None:
    """A tenant could give a container all GPUs of its node."""
    user, name = case.given

    async with installed_cluster.connect(user=user) as api:
        refusal = await _refusal(api, CONFIG_MAPS.path(_NAMESPACE), _all_gpus(name), _JSON)

    _compare(refusal, case.want)


@pytest.mark.usefixtures("thieves")
async def test_only_the_scheduler_changes_configmaps_of_shares(installed_cluster: Cluster) -> None:
    """Labels may change; the garbage collector removes owners, and each user may delete."""
    path = CONFIG_MAPS.path(_NAMESPACE, _NAME)
    changes: list[tuple[Obj, str]] = [
        ({"data": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "data: must stay"),
        ({"binaryData": {"A": "YQ=="}}, "data: must stay"),
        ({"immutable": True}, "data: must stay"),
        ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences: must stay"),
        ({"metadata": {"labels": {"a": "b"}}}, ""),
    ]
    async with (
        installed_cluster.connect(user=_TENANT) as tenant,
        installed_cluster.connect(user=_COLLECTOR) as collector,
    ):
        for change, want in changes:
            _compare(await _refusal(tenant, path, change, _MERGE), want)
        without_owner: Obj = {"metadata": {"ownerReferences": []}}
        assert await _refusal(collector, path, without_owner, _MERGE) == ""
        assert await _refusal(tenant, path) == ""


async def test_configmaps_of_a_pod_end_with_it(
    thieves: Thieves, installed_cluster: Cluster
) -> None:
    """The garbage collector deletes them, or leaves them if the pod is deleted without them."""
    api = installed_cluster.api
    for name, policy in (("ends", "Background"), ("leaves", "Orphan")):
        made = await api.create(pod(name, SCHEDULER_NAME))
        owner = {**thieves.owner, "name": name, "uid": made["metadata"]["uid"]}
        for suffix in ("0", "0-evar"):
            await thieves.scheduler.create(
                config_map(f"{name}-x1y2z3a-shared-gpu-{suffix}", [owner])
            )
        await api.delete(PODS, _NAMESPACE, name, propagationPolicy=policy)

    async def left() -> dict[str, bool]:
        found = await api.request("GET", CONFIG_MAPS.path(_NAMESPACE))
        metas = [it["metadata"] for it in found["items"] if "x1y2z3a" in it["metadata"]["name"]]
        ours = [it for it in metas if it["name"].startswith(("ends", "leaves"))]
        return {it["name"]: "ownerReferences" in it for it in ours}

    wanted = dict.fromkeys((f"leaves-x1y2z3a-shared-gpu-{it}" for it in ("0", "0-evar")), False)
    async with patience(30):
        while await left() != wanted:
            await asyncio.sleep(0.1)


_OTHER: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "1"}
# a ConfigMap that the scheduler applies: name, owners, data -> the refusal
APPLIED: Final[list[Case[tuple[str, list[Obj] | None, Mapping[str, str]], str]]] = [
    Case("a new one", ("new-y1y2z3a-shared-gpu-i12", None, {"GPU_PORTION": "0.50"}), ""),
    Case(
        "its environment",
        ("new-y1y2z3a-shared-gpu-0-evar", None, {"NVIDIA_VISIBLE_DEVICES": "a"}),
        "",
    ),
    Case("the one of the pod", (_NAME, None, {"RUNAI_NUM_OF_GPUS": "0.50"}), ""),
    Case("without a random part", ("new-shared-gpu-0", None, {}), "metadata.name: "),
    Case("another name", ("shared-gpu-0", None, {}), "metadata.name: "),
    Case("a longer name", ("a-x1y2z3a-shared-gpu-0-x", None, {}), "metadata.name: "),
    Case("of nothing", ("new-y1y2z3a-shared-gpu-0", [], {}), "metadata.ownerReferences: "),
    Case("of others", ("new-y1y2z3a-shared-gpu-0", [_OTHER], {}), "metadata.ownerReferences: "),
    Case("over one of nothing", (_OWNERLESS, None, {}), "metadata.ownerReferences: "),
    Case("other data", ("new-y1y2z3a-shared-gpu-0", None, {"LD_PRELOAD": "/evil"}), "data: "),
]


@pytest.mark.parametrize("case", APPLIED, ids=ids)
async def test_the_scheduler_applies_configmaps_of_pods(
    case: Case[tuple[str, list[Obj] | None, Mapping[str, str]], str], thieves: Thieves
) -> None:
    """What containers learn about their GPUs, and nothing else."""
    name, owners, data = case.given
    applied = config_map(name, [thieves.owner] if owners is None else owners, **data)
    path = CONFIG_MAPS.path(_NAMESPACE, name)

    refusal = await _refusal(thieves.scheduler, path, applied, _APPLY)

    _compare(refusal, case.want)


async def test_the_scheduler_deletes_configmaps_of_pods(thieves: Thieves) -> None:
    """No other one, and none that no pod owns."""
    found = {
        name: await _refusal(thieves.scheduler, CONFIG_MAPS.path(_NAMESPACE, name))
        for name in ("settings", _OWNERLESS, _NAME)
    }

    assert "metadata.name: " in found["settings"]
    assert "metadata.ownerReferences: " in found[_OWNERLESS]
    assert found[_NAME] == ""


_AS_IT_IS: Final = {"runAsGroup": 65532}
# what is changed in a pod, and in its container -> the refusal
CREATED: Final[list[Case[tuple[Obj, Obj], str]]] = [
    Case("as it should be", ({}, {}), ""),
    Case("another image", ({}, {"image": "own"}), ""),
    Case("with a runtime", ({"tolerations": []}, {"imagePullPolicy": "Never"}), ""),
    Case("of another account", ({"serviceAccountName": "default"}, {}), "metadata.namespace: "),
    Case("without a node", ({"nodeName": None}, {}), "metadata.labels: "),
    Case("on the network of its node", ({"hostNetwork": True}, {}), "spec.containers: "),
    Case("beside processes of its node", ({"hostPID": True}, {}), "spec.containers: "),
    Case(
        "with more containers",
        ({"initContainers": [{"name": "i", "image": "evil"}]}, {}),
        "spec.containers: ",
    ),
    Case(
        "above all pods",
        ({"priorityClassName": "system-node-critical"}, {}),
        "spec.priorityClassName: ",
    ),
    Case(
        "with the disk of its node",
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {}),
        "spec.volumes: ",
    ),
    Case(
        "with a Secret in a file",
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "pull"}}]}}]},
            {},
        ),
        "spec.volumes: ",
    ),
    Case(
        "with a Secret",
        ({}, {"envFrom": [{"secretRef": {"name": "pull"}}]}),
        f"{_CONTAINER}.env: ",
    ),
    Case(
        "with the value of a Secret",
        (
            {},
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "pull", "key": "k"}}}]},
        ),
        f"{_CONTAINER}.env: ",
    ),
    Case("with all GPUs", ({}, {"resources": {"limits": {GPU: "8"}}}), f"{_CONTAINER}.resources: "),
    Case("with no GPU", ({}, {"resources": {}}), f"{_CONTAINER}.resources: "),
    Case(
        "with another device",
        ({}, {"resources": {"limits": {GPU: "1", "rdma/hca": "1"}}}),
        f"{_CONTAINER}.resources: ",
    ),
    *(
        Case(name, ({"securityContext": of_pod}, {"securityContext": of_container}), _SECURITY)
        for name, of_pod, of_container in (
            ("without any security", {}, {}),
            ("as root", {"runAsUser": 0}, _AS_IT_IS),
            ("as the user of the image", {"runAsNonRoot": False}, _AS_IT_IS),
            ("without seccomp", {"seccompProfile": {"type": "Unconfined"}}, _AS_IT_IS),
            ("with more rights", _AS_IT_IS, {"allowPrivilegeEscalation": True}),
            ("with a capability", _AS_IT_IS, {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}),
            ("as root again", _AS_IT_IS, {"runAsUser": 0}),
            ("of another confinement", _AS_IT_IS, {"seLinuxOptions": {"type": "spc_t"}}),
        )
    ),
]


@pytest.mark.parametrize("case", CREATED, ids=ids)
async def test_the_scheduler_creates_reservation_pods(
    case: Case[tuple[Obj, Obj], str], thieves: Thieves
) -> None:
    """Without rights on the node, and with one GPU."""
    created = created_pod("gpu-reservation-3")
    for changed, changes in zip(
        (created["spec"], created["spec"]["containers"][0]), case.given, strict=True
    ):
        changed.update(_merged(changed, changes))
    path = PODS.path(RESERVATION_APP)

    refusal = await _refusal(thieves.scheduler, path, created, _JSON)

    _compare(refusal, case.want)


# what the scheduler merges into the status of a pod -> the field that the refusal names
PATCHED: Final[list[Case[tuple[str, Obj], str]]] = [
    Case(
        "which GPUs it shares",
        (
            "waits",
            {
                "labels": {GPU_GROUP: "a", f"{GPU_GROUP}/b": "b"},
                "annotations": {RECEIVED_TYPE: "Fraction", GPU_DEVICES: _DEVICE},
            },
        ),
        "",
    ),
    Case("another label", ("waits", {"labels": {"team": "blue"}}), "metadata.labels: "),
    Case("a label is gone", ("waits", {"labels": {"team": None}}), "metadata.labels: "),
    Case("one more annotation", ("waits", {"annotations": {"a": "b"}}), "metadata.annotations: "),
    Case("a finalizer", ("waits", {"finalizers": ["a.b/c"]}), "metadata.finalizers: "),
    Case("of another scheduler", ("foreign", {"labels": {GPU_GROUP: "a"}}), "spec.schedulerName: "),
]


@pytest.mark.parametrize("case", PATCHED, ids=ids)
async def test_the_scheduler_writes_on_pods_which_gpus_they_share(
    case: Case[tuple[str, Obj], str], thieves: Thieves
) -> None:
    """Through the status, which leaves the spec and the owners as they are."""
    name, metadata = case.given
    path = PODS.path(_NAMESPACE, name, "status")
    query = {} if not case.want else {"dryRun": "All"}
    patch = {"metadata": {**metadata, "ownerReferences": [_OTHER]}, "spec": {"nodeName": "node-0"}}

    refusal = await _refusal(thieves.scheduler, path, patch, _MERGE, query)

    _compare(refusal, case.want)
    if not case.want:
        written = await thieves.scheduler.request(
            "GET", f"{PODS.path()}?fieldSelector=metadata.name={name}"
        )
        [found] = written["items"]
        assert metadata["labels"].items() <= found["metadata"]["labels"].items()
        assert metadata["annotations"].items() <= found["metadata"]["annotations"].items()
        assert "ownerReferences" not in found["metadata"]
        assert "nodeName" not in found["spec"]


# which pod the agent of the first changes, and what -> the field that the refusal names
OF_AGENT: Final[list[Case[tuple[int, Obj], str]]] = [
    Case("its GPU", (1, {"metadata": {"annotations": {RESERVED_DEVICE: _DEVICE}}}), ""),
    Case("its MIG device", (1, {"metadata": {"annotations": {RESERVED_DEVICE: "MIG-8"}}}), ""),
    Case("all GPUs", (1, {"metadata": {"annotations": {RESERVED_DEVICE: "all"}}}), RESERVED_DEVICE),
    Case(
        "two GPUs",
        (1, {"metadata": {"annotations": {RESERVED_DEVICE: "GPU-a,GPU-b"}}}),
        RESERVED_DEVICE,
    ),
    Case(
        "the GPU of another",
        (2, {"metadata": {"annotations": {RESERVED_DEVICE: _DEVICE}}}),
        "metadata.name: ",
    ),
    Case("an annotation", (1, {"metadata": {"annotations": {"a": "b"}}}), "metadata.annotations: "),
    Case("a label", (1, {"metadata": {"labels": {"a": "b"}}}), "metadata: "),
    Case("a finalizer", (1, {"metadata": {"finalizers": ["a.b/c"]}}), "metadata: "),
    Case("its deadline", (1, {"spec": {"activeDeadlineSeconds": 1}}), "spec: "),
]


@pytest.mark.usefixtures("thieves")
async def test_a_token_of_no_pod_changes_no_reservation_pod(installed_cluster: Cluster) -> None:
    """It could give away the GPUs of all tenants."""
    token = await installed_cluster.api.service_account_token(RESERVATION_APP, RESERVATION_APP)
    path = PODS.path(RESERVATION_APP, "gpu-reservation-1")
    patch = {"metadata": {"annotations": {RESERVED_DEVICE: _DEVICE}}}
    async with installed_cluster.connect(token=token) as agent:
        assert "metadata.name: " in await _refusal(agent, path, patch, _MERGE)


@pytest.mark.parametrize("case", OF_AGENT, ids=ids)
async def test_an_agent_says_which_gpu_it_has(
    case: Case[tuple[int, Obj], str], thieves: Thieves
) -> None:
    """One of its own, on its own pod."""
    number, patch = case.given
    path = PODS.path(RESERVATION_APP, f"gpu-reservation-{number}")

    refusal = await _refusal(thieves.agent, path, patch, _MERGE)

    _compare(refusal, case.want)


def _merged(before: Obj, changes: Obj) -> Obj:
    """Return what is changed; of a security context only the fields that are named."""
    context = changes.get("securityContext")
    if not context:
        return changes
    return {**changes, "securityContext": {**before["securityContext"], **context}}


async def test_a_reservation_pod_meets_the_restricted_level(installed_cluster: Cluster) -> None:
    """As the namespace of our processes enforces it."""
    created = created_pod("as-ours")
    created["metadata"] = {"namespace": NAMESPACE, "name": "as-ours"}
    created["spec"]["serviceAccountName"] = SCHEDULER.account

    made = await installed_cluster.api.create(created, dryRun="All")

    assert made["spec"]["nodeName"] == "node-0"


async def _token_of_a_pod(cluster: Cluster) -> str:
    """Return a token of the first reservation pod, as the kubelet gets it."""
    found = await cluster.api.get(PODS, RESERVATION_APP, "gpu-reservation-1")
    meta = found["metadata"]
    bound = {"apiVersion": "v1", "kind": PODS.kind, "name": meta["name"], "uid": meta["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    path = SERVICE_ACCOUNTS.path(RESERVATION_APP, RESERVATION_APP, "token")
    answer = await cluster.api.request("POST", path, request)
    return str(answer["status"]["token"])


async def _refusal(
    api: Api,
    path: str,
    body: Obj | None = None,
    content_type: str = "",
    query: Mapping[str, str] | None = None,
) -> str:
    """Try dry to write an object, or to delete it; return the refusal of a policy, or nothing."""
    asked = {"dryRun": "All"} if query is None else dict(query)
    method = "DELETE" if body is None else "PATCH"
    if content_type == _JSON:
        method = "POST"
    if content_type == _APPLY:
        asked |= {"fieldManager": "thief", "force": "true"}
    kind = {"content_type": content_type} if content_type else {}
    try:
        await api.request(method, path, body, query=asked, **kind)
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return str(error)
    return ""


def _compare(refusal: str, want: str) -> None:
    assert want in refusal, refusal
    assert bool(refusal) == bool(want), refusal
