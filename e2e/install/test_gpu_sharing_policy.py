"""What the API server refuses of pods that share GPUs, and all that it lets pass."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Final, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import PODS, Obj
from e2e.conftest import make_namespace
from tests.support.case import Case, ids

_NAMESPACE: Final = "shared-gpus"
_NAMES: Final = count()
_GROUP: Final = "runai-gpu-group"
_ANN: Final = "ann"
_MERGE: Final = "application/merge-patch+json"
_RESERVES: Final = {"app": "kai-resource-reservation"}
_BINDER: Final = "system:serviceaccount:kai-scheduler:binder"
_EXEMPT: Final = ("system:serviceaccount:trainer-kai:trainer-kai-scheduler", _BINDER)
_ONLY: Final = "because only the scheduler sets it, on pods that share or reserve a GPU. Remove"
_STAYS: Final = "because it says which GPU the pod shares or reserves. To release the GPU, delete"
_RANGE: Final = "must be a number above 0 and below 1, such as 0.5. For whole GPUs remove"
_ONE: Final = "Remove one of the two"
_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
_PREFIX: Final = "job-0-x1y2z3a-shared-gpu"
_PREPARED: Final = {"gpu-fraction": "0.5", _CONFIG_MAP: _PREFIX}
_WRITTEN: Final = ("received-resource-type", "trainer-kai.dev/gpu-devices")
_INIT: Final = [{"name": "i", "image": "none"}]


class ApiUsers(NamedTuple):
    """The API server, and a session of an administrator that acts for users."""

    url: str
    session: aiohttp.ClientSession

    async def create(self, user: str, pod: Obj, *, dry_run: bool = True) -> str:
        """Create a pod as a user; return the refusal, or nothing."""
        return await self._write(
            user, "POST", PODS.path(_NAMESPACE), pod, "application/json", dry_run=dry_run
        )

    async def patch(self, user: str, name: str, metadata: Obj, *, dry_run: bool = True) -> str:
        """Change a pod as a user; return the refusal, or nothing."""
        path = PODS.path(_NAMESPACE, name)
        return await self._write(
            user, "PATCH", path, {"metadata": metadata}, _MERGE, dry_run=dry_run
        )

    async def patch_status(self, user: str, name: str, body: Obj, *, dry_run: bool = True) -> str:
        """Change the status of a pod, and what of its metadata can be changed with it."""
        path = PODS.path(_NAMESPACE, name, "status")
        return await self._write(user, "PATCH", path, body, _MERGE, dry_run=dry_run)

    async def _write(
        self, user: str, method: str, path: str, body: Obj, kind: str, *, dry_run: bool = True
    ) -> str:
        headers = {"Impersonate-User": user, "Content-Type": kind}
        query = {"dryRun": "All"} if dry_run else {}
        async with self.session.request(
            method, self.url + path, json=body, params=query, headers=headers
        ) as response:
            answer = await response.json()
        if response.status < 400:
            return ""
        assert response.status == 422, answer
        assert "ValidatingAdmissionPolicy 'trainer-kai-gpu-sharing'" in answer["message"]
        return str(answer["message"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def api_users(installed_cluster: Cluster) -> AsyncIterator[ApiUsers]:
    """Return the shared chain once the policy is in force; each user may do everything."""
    await make_namespace(installed_cluster, _NAMESPACE)
    api = installed_cluster.api
    headers = {"Authorization": f"Bearer {api.token}", "Impersonate-Group": "system:masters"}
    connector = aiohttp.TCPConnector(ssl=api.tls)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        users = ApiUsers(api.url, session)
        async with patience(30):
            while not await users.create(_ANN, _pod("tried", {"labels": {_GROUP: "a"}})):
                await asyncio.sleep(0.1)
        yield users


def _pod(name: str, metadata: Obj, **spec: object) -> Obj:
    resources = spec.pop("resources", {})
    container = {"name": "c", "image": "none", "resources": resources}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": _NAMESPACE, "name": name, **metadata},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
    }


def _share(**annotations: str) -> Obj:
    return {"annotations": {name.replace("_", "-"): it for name, it in annotations.items()}}


def _refused(name: str, metadata: Obj, want: str) -> Case[tuple[Obj, Obj], str]:
    return Case(name, (metadata, {}), want)


# the metadata of a new pod, and its spec -> the refusal
CREATED: Final[list[Case[tuple[Obj, Obj], str]]] = [
    Case("no share", ({}, {"resources": {"limits": {"nvidia.com/gpu": "8"}}}), ""),
    Case("half a GPU", (_share(gpu_fraction="0.5"), {}), ""),
    Case("in scientific notation", (_share(gpu_fraction="5e-1"), {}), ""),
    Case("memory of two GPUs", (_share(gpu_memory="3072", gpu_fraction_num_devices="2"), {}), ""),
    Case(
        "beside no GPU",
        (_share(gpu_fraction=".5"), {"resources": {"limits": {"nvidia.com/gpu": "0"}}}),
        "",
    ),
    Case("the least share", (_share(gpu_fraction="0.005"), {}), ""),
    Case("by MPS", (_share(gpu_fraction="0.5", mps="true"), {}), ""),
    Case("without MPS", (_share(mps="false"), {}), ""),
    Case("for a container", (_share(gpu_fraction="0.5", gpu_fraction_container_name="c"), {}), ""),
    Case("for none", (_share(gpu_fraction_container_name="x"), {}), ""),
    Case(
        "for an init container",
        (_share(gpu_memory="100", gpu_fraction_container_name="i"), {"initContainers": _INIT}),
        "",
    ),
    Case("as admission prepares it", ({"annotations": _PREPARED}, {}), ""),
    Case("of another scheduler", (_share(gpu_fraction="2"), {"schedulerName": "other"}), ""),
    Case("another app", ({"labels": {"app": "web", f"{_GROUP}s": "a"}}, {}), ""),
    *(
        _refused(
            f"a fraction of {text!r}",
            _share(gpu_fraction=text),
            f'metadata.annotations[gpu-fraction]: "{text}" {_RANGE}',
        )
        for text in (
            *("0", "-0.5", "1", "1.5", "nan", "inf", "half", "", "1e99", "1e999"),
            *("1000m", "999.5m", "0m", "4m", f"0.{'9' * 20}"),
        )
    ),
    *(
        _refused(
            f"a fraction of {text!r}",
            _share(gpu_fraction=text),
            f'[gpu-fraction]: "{text}" must be a number without a suffix; write {right}',
        )
        for text, right in (("500m", "0.5"), ("250m", "0.25"), ("999m", "0.999"), ("5m", "0.005"))
    ),
    *(
        _refused(
            f"a fraction of {text!r}",
            _share(gpu_fraction=text),
            f'"{text}" must be at least 0.005, because queues are charged in hundredths of a GPU',
        )
        for text in ("0.0049", "1e-3")
    ),
    _refused(
        "a number of 101 digits",
        _share(gpu_memory="1" * 101),
        "must be MiB as a whole number above 0, such as 3072",
    ),
    _refused(
        "101 digits of shares",
        _share(gpu_fraction="0.5", gpu_fraction_num_devices=f"{2:0101}"),
        "must be a whole number from 1 to 64",
    ),
    Case(
        "two GPUs as a fraction",
        (_share(gpu_fraction="2.0"), {}),
        "remove the annotation and request nvidia.com/gpu: 2",
    ),
    *(
        _refused(
            f"memory of {text!r}",
            _share(gpu_memory=text),
            f'metadata.annotations[gpu-memory]: "{text}" must be MiB as a whole number{more}',
        )
        for text, more in (
            *(
                ("3Gi", "; write 3072"),
                ("1Ki", "; write 1"),
                ("1.5Gi", "; write 1536"),
                ("3000M", "; write 2862"),
            ),
            *((text, " above 0, such as 3072") for text in ("0", "-1", "1.5", "8Ei", "0Gi", "x")),
        )
    ),
    *(
        _refused(
            f"shares of {text!r} GPUs",
            _share(gpu_fraction="0.5", gpu_fraction_num_devices=text),
            f'[gpu-fraction-num-devices]: "{text}" must be a whole number from 1 to 64',
        )
        for text in ("0", "65", "2.0", "two")
    ),
    Case(
        "a number of GPUs alone",
        (_share(gpu_fraction_num_devices="2"), {}),
        "[gpu-fraction-num-devices]: can only be set together with gpu-fraction or gpu-memory",
    ),
    Case(
        "MPS alone",
        (_share(mps="true"), {}),
        "metadata.annotations[mps]: can only be set together with gpu-fraction or gpu-memory",
    ),
    Case(
        "for a container that does not exist",
        (_share(gpu_memory="9", gpu_fraction_container_name="x"), {"initContainers": _INIT}),
        '[gpu-fraction-container-name]: the pod has no container "x". Name one of its containers: '
        "i, c",
    ),
    *(
        _refused(
            f"ConfigMaps called {name!r}",
            {"annotations": {**_PREPARED, _CONFIG_MAP: name}},
            f"metadata.annotations[{_CONFIG_MAP}]: must be a name such as job-x1y2z3a-shared-gpu",
        )
        for name in (
            "",
            "kube-root-ca.crt",
            "-shared-gpu",
            "a-shared-gpu",
            "../a-x1y2z3a-shared-gpu",
            "a..b-x1y2z3a-shared-gpu",
            "a" * 45 + "-x1y2z3a-shared-gpu",
        )
    ),
    Case("as another pod was prepared", ({"annotations": {_CONFIG_MAP: _PREFIX}}, {}), ""),
    _refused(
        "ConfigMaps of any name without a share",
        {"annotations": {_CONFIG_MAP: "../../x?y"}},
        f"metadata.annotations[{_CONFIG_MAP}]: must be a name such as",
    ),
    Case("for no container", (_share(gpu_fraction="0.5", gpu_fraction_container_name=""), {}), ""),
    *(
        _refused(
            f"the annotation {name}",
            {"annotations": {name: "x"}},
            f"metadata.annotations[{name}]: must be absent, because only the scheduler sets it",
        )
        for name in _WRITTEN
    ),
    Case(
        "both",
        (_share(gpu_fraction="0.5", gpu_memory="100"), {}),
        f"metadata.annotations[gpu-memory]: cannot be set together with gpu-fraction. {_ONE}",
    ),
    Case(
        "beside a whole GPU",
        (_share(gpu_fraction="0.5"), {"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
        (
            "spec.containers[c].resources: whole GPUs and MIG profiles cannot be requested together"
            f" with the annotation gpu-fraction. {_ONE}"
        ),
    ),
    Case(
        "beside MIG of an init container",
        (
            _share(gpu_memory="100"),
            {
                "initContainers": [
                    {
                        "name": "i",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
                    }
                ]
            },
        ),
        "spec.initContainers[i].resources: whole GPUs and MIG profiles cannot be requested",
    ),
    *(
        Case(
            f"the label {name} for {scheduler}",
            ({"labels": {name: value}}, {"schedulerName": scheduler}),
            f'metadata.labels[{name}]: cannot be "{value}", {_ONLY} the label',
        )
        for name, value in (
            *((_GROUP, "a"), (_GROUP, ""), (f"{_GROUP}/a", "a"), *_RESERVES.items()),
        )
        for scheduler in ("kai-scheduler", "default-scheduler")
    ),
]


@pytest.mark.parametrize("case", CREATED, ids=ids)
async def test_a_new_pod(case: Case[tuple[Obj, Obj], str], api_users: ApiUsers) -> None:
    """Refused with the field and what would be right, or created."""
    metadata, spec = case.given

    refusal = await api_users.create(_ANN, _pod("new", metadata, **spec))

    assert case.want in refusal
    assert bool(refusal) == bool(case.want)


@pytest.mark.parametrize("user", _EXEMPT)
async def test_the_scheduler_and_the_binder_of_kai_mark_pods(
    user: str, api_users: ApiUsers
) -> None:
    """They write the GPU on pods that share it, and KAI creates reservation pods anywhere."""
    name = f"marked-{next(_NAMES)}"
    reservation = _pod("new", {"labels": {_GROUP: "a", **_RESERVES}}, nodeName="node-0")
    reservation["spec"]["schedulerName"] = "default-scheduler"

    if user == _BINDER:  # test_shared_gpu_tokens.py has those of our scheduler
        assert await api_users.create(user, reservation) == ""
    assert await api_users.create(_ANN, _pod(name, {}), dry_run=False) == ""
    assert await api_users.patch(user, name, {"labels": {_GROUP: "a"}}) == ""
    assert await api_users.patch(_ANN, name, {"labels": {_GROUP: "a"}}) != ""


@pytest.mark.parametrize("node", ["", "node-0"], ids=["waiting", "on a node"])
async def test_the_labels_of_a_pod_stay(node: str, api_users: ApiUsers) -> None:
    """No user adds, changes or removes them, wherever the pod is; other labels may change."""
    name = f"shares-{next(_NAMES)}"
    several = f"{_GROUP}/b"
    labels = {_GROUP: "a", several: "b", **_RESERVES}
    pod = _pod(name, {"labels": labels}, schedulerName="default-scheduler", nodeName=node)
    assert await api_users.create(_BINDER, pod, dry_run=False) == ""

    changes: list[tuple[Obj, str]] = [
        ({"team": "a"}, ""),
        ({_GROUP: "c"}, f'metadata.labels[{_GROUP}]: must stay "a", {_STAYS} the pod'),
        ({_GROUP: None}, f'metadata.labels[{_GROUP}]: must stay "a", {_STAYS}'),
        ({several: None}, f'metadata.labels[{several}]: must stay "b", {_STAYS}'),
        ({"app": "web"}, f'metadata.labels[app]: must stay "kai-resource-reservation", {_STAYS}'),
        ({f"{_GROUP}/c": "c"}, f'metadata.labels[{_GROUP}/c]: cannot be "c", {_ONLY}'),
    ]
    for change, want in changes:
        refusal = await api_users.patch(_ANN, name, {"labels": change})
        assert want in refusal
        assert bool(refusal) == bool(want)


async def test_only_changed_requests_are_checked(api_users: ApiUsers) -> None:
    """A pod that was created before the policy, here by an exempt account, can be labelled."""
    name = f"old-{next(_NAMES)}"
    pod = _pod(name, _share(gpu_fraction="1"))
    assert await api_users.create(_BINDER, pod, dry_run=False) == ""

    assert await api_users.patch(_ANN, name, {"labels": {"team": "a"}}) == ""
    assert await api_users.patch(_ANN, name, _share(gpu_fraction="0.5")) == ""
    assert _RANGE in await api_users.patch(_ANN, name, _share(gpu_fraction="2"))


async def test_what_a_pod_was_prepared_by_stays(api_users: ApiUsers) -> None:
    """Admission wrote it into the container; the scheduler writes through `pods/status`."""
    name = f"prepared-{next(_NAMES)}"
    pod = _pod(name, {"annotations": _PREPARED})
    assert await api_users.create(_ANN, pod, dry_run=False) == ""

    at, stays = "metadata.annotations", "because pods are prepared for their shares of GPUs"
    changes: list[tuple[Obj, str]] = [
        ({"gpu-fraction": "0.25"}, ""),
        ({"gpu-fraction": None, "gpu-memory": "100"}, ""),
        ({"gpu-fraction": None}, f'{at}[gpu-fraction]: must stay "0.5", {stays}'),
        ({_CONFIG_MAP: "b-shared-gpu"}, f'{at}[{_CONFIG_MAP}]: must stay "job-0-x1y2z3a-shared'),
        ({_CONFIG_MAP: None}, stays),
        (
            {"gpu-fraction-container-name": "c"},
            f"{at}[gpu-fraction-container-name]: must stay absent, {stays}",
        ),
        *(({note: "x"}, f"{at}[{note}]: must stay as it is, because only") for note in _WRITTEN),
    ]
    for change, want in changes:
        refusal = await api_users.patch(_ANN, name, {"annotations": change})
        assert want in refusal
        assert bool(refusal) == bool(want)


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
async def test_a_pod_that_was_not_prepared_requests_no_share_later(
    name: str, api_users: ApiUsers
) -> None:
    """No container of it would learn which GPU it has."""
    pod = f"unprepared-{next(_NAMES)}"
    created = _pod(pod, {"annotations": {_CONFIG_MAP: _PREFIX}})
    assert await api_users.create(_ANN, created, dry_run=False) == ""

    refusal = await api_users.patch(_ANN, pod, {"annotations": {name: "0.5"}})

    assert f"metadata.annotations[{name}]: must stay absent, because pods are prepared" in refusal


async def test_the_status_of_a_pod_changes_without_its_gpus(api_users: ApiUsers) -> None:
    """Controllers write conditions; with metadata they do no more than through the pod itself."""
    name = f"status-{next(_NAMES)}"
    assert await api_users.create(_ANN, _pod(name, {"annotations": _PREPARED}), dry_run=False) == ""
    mark = {"labels": {_GROUP: "a"}, "annotations": dict.fromkeys(_WRITTEN, "x")}
    condition = {"type": "e2e.test/seen", "status": "True"}
    seen = {"status": {"conditions": [condition]}, "metadata": {"labels": {"team": "a"}}}

    refused = [
        await api_users.patch_status(_ANN, name, {"metadata": it})
        for it in ({"labels": mark["labels"]}, {"annotations": mark["annotations"]})
    ]
    assert f'metadata.labels[{_GROUP}]: cannot be "a", {_ONLY}' in refused[0]
    assert f"metadata.annotations[{_WRITTEN[0]}]" in refused[1]
    for user in ("system:node:node-0", *_EXEMPT):
        kept = {"labels": mark["labels"]} if user == _EXEMPT[0] else mark
        assert await api_users.patch_status(user, name, {"metadata": kept}) == ""
    assert await api_users.patch_status(_ANN, name, seen) == ""
    assert await api_users.patch_status(_EXEMPT[0], name, {"metadata": mark}, dry_run=False) == ""
    assert await api_users.patch_status(_ANN, name, seen, dry_run=False) == ""


async def test_the_request_of_a_pod_with_a_gpu_stays(api_users: ApiUsers) -> None:
    """From the moment when the scheduler has chosen the GPU; also before the pod is on a node."""
    name = f"chosen-{next(_NAMES)}"
    pod = _pod(name, {"annotations": _PREPARED})
    assert await api_users.create(_ANN, pod, dry_run=False) == ""
    assert await api_users.patch(_EXEMPT[0], name, {"labels": {_GROUP: "a"}}, dry_run=False) == ""

    for change in ({"gpu-fraction": "0.9"}, {"gpu-fraction-num-devices": "2"}):
        refusal = await api_users.patch(_ANN, name, {"annotations": change})
        assert f"metadata.annotations[{next(iter(change))}]: must stay" in refusal
    assert await api_users.patch(_ANN, name, {"annotations": {"team": "a"}}) == ""
