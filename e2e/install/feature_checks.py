"""Checks of every feature that needs a permission, all at once, within seconds.

Each scene has a room of its own. What does not come about is returned in words, so that whoever
takes a right away sees what that breaks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import aiohttp

from e2e.claims.devices import device, device_class, one_gpu, resource_slice, template
from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import WAITING_CLASS
from e2e.cluster.patience import until
from e2e.cluster.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    JOBSETS,
    NAMESPACES,
    PODS,
    PVCS,
    SERVICE_ACCOUNTS,
    TRAINJOBS,
    Obj,
    Resource,
)
from e2e.cluster.timeline import Key, Timeline
from e2e.cluster.trainjobs import Submission, condition
from e2e.conftest import make_namespace
from e2e.fixtures.dry_run import jobset_of, make_unmanaged_trainjob
from e2e.fixtures.install import CLUSTER_ROLES, PODGROUPS, QUEUES, apply
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from e2e.fixtures.queues import delete_queue_in_use
from e2e.fixtures.trainjobs import Job, bare_pod, end_stage_now, make_queue, submit
from trainer_kai.api.names import (
    ADMITTED,
    EVICTED_GPUS,
    GPU_CONFIG_MAP,
    GPU_FRACTION,
    GPU_GROUP,
)

SHARED_NODE: Final = "shared-0"  # for pods that tolerate all taints

_BINDER: Final = "system:serviceaccount:kai-scheduler:binder"  # only schedulers write shares
_FOLLOWED: Final = (TRAINJOBS, JOBSETS, JOBS, PODS, PVCS, PODGROUPS, QUEUES, EVENTS, CONFIG_MAPS)
_RUNTIME: Final = "torch-distributed"
_GPUS: Final = 8  # of the one node
_LENT: Final = _GPUS - 3  # beside a pod, a Job and a JobSet of one GPU each


_TEMPLATE: Final[Obj] = {
    "metadata": {"labels": {"app": "none"}},
    "spec": {"restartPolicy": "Always", "containers": [{"name": "a", "image": "none"}]},
}
_ONCE: Final[Obj] = {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
_NO_PODS: Final[Obj] = {"selector": {"matchLabels": {"app": "none"}}, "template": _TEMPLATE}
# The farthest owner first: group, plural and a spec without pods.
_OWNERS: Final[dict[str, tuple[str, str, Obj]]] = {
    "CronJob": (
        "batch",
        "cronjobs",
        {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": _ONCE}}},
    ),
    "DaemonSet": (
        "apps",
        "daemonsets",
        {
            **_NO_PODS,
            "template": {
                **_TEMPLATE,
                "spec": {**_TEMPLATE["spec"], "nodeSelector": {"nowhere": ""}},
            },
        },
    ),
    "Job": ("batch", "jobs", {"suspend": True, "template": _ONCE}),
    "StatefulSet": ("apps", "statefulsets", {**_NO_PODS, "replicas": 0, "serviceName": "none"}),
    "Deployment": ("apps", "deployments", {**_NO_PODS, "replicas": 0}),
    "ReplicaSet": ("apps", "replicasets", {**_NO_PODS, "replicas": 0}),
}


class CheckContext(NamedTuple):
    """Where a scene is played, and for how long anything may be waited for."""

    cluster: Cluster
    timeline: Timeline
    round_name: str
    wait_s: float
    snapshot_url: str  # of the scheduler

    def namespace_of(self, scene: str) -> str:
        """Return the namespace of a scene."""
        return f"{scene}-{self.round_name}"

    def objects(self, resource: Resource, scene: str) -> list[Obj]:
        """Return the objects of one kind in the namespace of a scene."""
        namespace = self.namespace_of(scene)
        return [
            it
            for it in self.timeline.objects(resource)
            if it["metadata"].get("namespace") == namespace
        ]

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for something; fail with *what* did not come about."""
        await self.timeline.until(lambda _: is_so(), what, self.wait_s)

    async def until_dry_run(self, jobset: Obj, is_so: Callable[[Obj], bool], what: str) -> None:
        """Wait until a JobSet would become like this; for want of a right it may be refused."""
        await until(partial(self._dry_run_matches, jobset, is_so), what, self.wait_s)

    async def until_kept(self, queue: str) -> None:
        """Wait until a queue would not be deleted, because a PodGroup names it."""

        async def is_refused() -> bool:
            try:
                await self.cluster.api.delete(QUEUES, None, queue, dryRun=["All"])
            except ApiError as error:
                assert "is in use" in str(error)  # noqa: PT017 most attempts raise nothing
                return True
            return False

        await until(is_refused, "a queue in use would not be deleted", self.wait_s)

    async def _dry_run_matches(self, jobset: Obj, is_so: Callable[[Obj], bool]) -> bool:
        try:
            return is_so(await self.cluster.api.create(jobset, dryRun="All"))
        except ApiError:
            return False


async def run_checks(cluster: Cluster, act: str, wait_s: float, snapshot_url: str) -> list[str]:
    """Play all scenes; return what did not come about."""
    faults: list[str] = []
    async with cluster.timeline(*_FOLLOWED) as seen:
        stage = CheckContext(cluster, seen, act, wait_s, snapshot_url)
        scenes = (
            *(_named, _is_relocated, _assigned, _stored, _is_explained, _is_reclaimed, _shown),
            *(_is_shared, _is_owned, _is_claimed),
        )
        await asyncio.gather(*(_run_check(scene, stage, faults) for scene in scenes))
    return sorted(faults)


async def remove_checks(cluster: Cluster, act: str) -> None:
    """Take away whatever still wants GPUs."""
    scenes = ("named", "moved", "assigned", "stored", "told", "taken", "shared", "owned", "claimed")
    for scene in scenes:
        namespace = f"{scene}-{act}"
        for kind in (TRAINJOBS, JOBSETS, JOBS):
            query = {"propagationPolicy": "Background"}
            await cluster.api.request("DELETE", kind.path(namespace), query=query)
        await cluster.api.until_no_pods(namespace)


async def _run_check(
    scene: Callable[[CheckContext], Awaitable[None]], stage: CheckContext, faults: list[str]
) -> None:
    try:
        await scene(stage)
    except AssertionError as error:
        faults.append(f"{scene.__name__.strip('_')}: {str(error).partition(';')[0]}")


async def _named(stage: CheckContext) -> None:
    """See a new namespace name the queue; and a group that is deleted made again, and told."""
    namespace, api = stage.namespace_of("named"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    await make_queue(stage.cluster, namespace, 0, namespace)
    await api.merge(NAMESPACES, None, namespace, {"metadata": {"labels": {QUEUE: namespace}}})
    tried = jobset_of(
        await make_unmanaged_trainjob(stage.cluster, Submission("probe", _RUNTIME, namespace, 1))
    )
    await stage.until_dry_run(
        tried, lambda made: _label(made) == namespace, "it is known what its namespace says"
    )
    await api.create(Submission("job", _RUNTIME, namespace, 2).trainjob())
    await stage.until(
        lambda: [_label(it) for it in stage.objects(JOBSETS, "named")] == [namespace],
        "its JobSet is in the queue of its namespace",
    )
    await stage.until(lambda: _running(stage.objects(PODS, "named")) == 2, "its pods run")
    [group] = stage.objects(PODGROUPS, "named")
    await api.delete(PODGROUPS, namespace, group["metadata"]["name"])
    await stage.until(
        lambda: (
            [it["metadata"]["uid"] for it in stage.objects(PODGROUPS, "named")]
            not in ([], [group["metadata"]["uid"]])
        ),
        "its group is made again",
    )
    await stage.until(
        lambda: _conditions(stage, "named", "PodGroupsCreated") == 2, "that is told twice"
    )


async def _is_relocated(stage: CheckContext) -> None:
    """See that who is suspended may change the queue, and goes there when it is resumed."""
    namespace, api = stage.namespace_of("moved"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    job = Submission("job", _RUNTIME, namespace, 1, labels={QUEUE: "here"}).trainjob()
    job["spec"]["suspend"] = True
    await api.create(job)
    await stage.until(
        lambda: [_label(it) for it in stage.objects(JOBSETS, "moved")] == ["here"],
        "it is in its queue",
    )
    change = {"metadata": {"labels": {QUEUE: "there"}}, "spec": {"suspend": False}}
    await api.merge(TRAINJOBS, namespace, "job", change)
    await stage.until(
        lambda: [_label(it) for it in stage.objects(JOBSETS, "moved")] == ["there"], "it has moved"
    )


async def _assigned(stage: CheckContext) -> None:
    """Pods that admission has not seen are told their group, and run."""
    namespace, api = stage.namespace_of("assigned"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    job = Submission("job", _RUNTIME, namespace, 2).trainjob()
    job["spec"]["suspend"] = True
    owner = await api.create(job)
    await stage.until(lambda: bool(stage.objects(JOBSETS, "assigned")), "its JobSet is made")
    out = {"metadata": {"labels": {"trainer-kai.dev/inject": "disabled"}}}
    await api.merge(NAMESPACES, None, namespace, out)
    await stage.until_dry_run(
        jobset_of(owner), lambda made: not _is_admitted(made), "its namespace stays out"
    )
    await api.merge(TRAINJOBS, namespace, "job", {"spec": {"suspend": False}})
    await stage.until(
        lambda: (
            [PODGROUP in it["metadata"].get("annotations", {}) for it in _pods(stage, "assigned")]
            == [True] * 2
        ),
        "its pods are told their group",
    )
    await stage.until(lambda: _running(_pods(stage, "assigned")) == 2, "its pods run")


async def _stored(stage: CheckContext) -> None:
    """See a claim that waits for its first pod told the node."""
    namespace, api = stage.namespace_of("stored"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    claim = {
        "apiVersion": PVCS.api_version,
        "kind": PVCS.kind,
        "metadata": {"namespace": namespace, "name": "data"},
        "spec": {
            "storageClassName": WAITING_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    reader = bare_pod(namespace, "reader", "default-queue", 0)
    reader["spec"]["containers"][0].pop("resources")
    reader["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await api.create(claim)
    await api.create(reader)
    await stage.until(
        lambda: _running(stage.objects(PODS, "stored")) == 1, "the pod has its volume"
    )


async def _is_explained(stage: CheckContext) -> None:
    """Who waits is told why, and of the same trouble again when it comes back."""
    namespace, api = stage.namespace_of("told"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    await submit(stage.cluster, namespace, Job("job", namespace, 1))
    await stage.until(lambda: "QueueMissing" in _reason(stage), "there is no such queue")
    await api.request("POST", QUEUES.path(), _closed(namespace))
    await stage.until(lambda: "QueueMissing" not in _reason(stage), "there is one")
    await stage.until_kept(namespace)
    await delete_queue_in_use(stage.cluster, namespace)
    await stage.until(lambda: "QueueMissing" in _reason(stage), "there is none any more")
    await stage.until(lambda: _conditions(stage, "told", "Waiting") >= 2, "that is told twice")


async def _is_reclaimed(stage: CheckContext) -> None:
    """Take a quota back: a TrainJob is suspended, a pod marked and deleted, the queue counts."""
    namespace, cluster = stage.namespace_of("taken"), stage.cluster
    owner, borrower = f"owner-{stage.round_name}", f"borrower-{stage.round_name}"
    await make_namespace(cluster, namespace)
    await make_queue(cluster, owner, _GPUS, namespace)
    await make_queue(cluster, borrower, 0, namespace)
    await cluster.api.create(bare_pod(namespace, "lodger", borrower, 1))
    await submit(cluster, namespace, Job("lent", borrower, _LENT))
    for kind in (JOBS, JOBSETS):
        await cluster.api.create(_of_user(kind, bare_pod(namespace, "lent-too", borrower, 1)))
    await stage.until(lambda: _running(_pods(stage, "taken")) == _GPUS, "the room is lent")
    await end_stage_now(cluster, _pods_of(stage, "lent")[:1])
    await stage.until(lambda: _running(_pods(stage, "taken")) == _GPUS - 1, "one rank is done")
    await submit(cluster, namespace, Job("claim", owner, _GPUS))
    await stage.until(lambda: _was_suspended(stage), "a TrainJob makes room")
    await stage.until(lambda: _running(_pods_of(stage, "claim")) == _GPUS, "the owner has its room")
    await stage.until(lambda: not _is_suspended(stage), "who made room is let run again")
    for kind in (JOBS, JOBSETS):
        await stage.until(partial(_is_resumed, stage, kind), f"so is the {kind.kind}")
    await stage.until(lambda: _allocated(stage, owner) == f"{_GPUS}", "its queue says so")
    await stage.until(lambda: _conditions(stage, "taken", "Evicted") >= 1, "who made room is told")
    await stage.until(
        lambda: _evicted_gpus(stage) == {f"{_LENT - 1}", "1"}, "the PodGroups say what they lost"
    )
    await stage.until(lambda: _waiting(_pods_of(stage, "lent")) == _LENT, "all ranks come again")
    lodger = [it.obj for it in stage.timeline.moments if _is(it.obj, namespace, "lodger")]
    assert any(condition(it, "DisruptionTarget") for it in lodger), "the pod was not marked"


def _of_user(kind: Resource, pod: Obj) -> Obj:
    """Return a Job or JobSet of one pod."""
    template = {"spec": {**pod["spec"], "restartPolicy": "Never"}}
    spec: Obj = {"template": template}
    if kind is JOBSETS:
        spec = {"replicatedJobs": [{"name": "node", "template": {"spec": spec}}]}
    metadata = {name: pod["metadata"][name] for name in ("namespace", "name", "labels")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _is_resumed(stage: CheckContext, kind: Resource) -> bool:
    key = Key(kind, stage.namespace_of("taken"), "lent-too")
    states = [bool(it.obj["spec"].get("suspend")) for it in stage.timeline.moments if it.key == key]
    return True in states and not states[-1]


async def _is_shared(stage: CheckContext) -> None:
    """See a pod get a share of a GPU, and what another process left on a pod taken away."""
    namespace, api = stage.namespace_of("shared"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    await api.create(_share_pod(namespace, "shares", {"kubernetes.io/hostname": SHARED_NODE}))
    left = await api.create(_share_pod(namespace, "left", {"nowhere": ""}))
    prefix = left["metadata"].get("annotations", {}).get(GPU_CONFIG_MAP, "none")
    owner = {"apiVersion": "v1", "kind": PODS.kind, "name": "left", "uid": left["metadata"]["uid"]}
    written = {"namespace": namespace, "name": f"{prefix}-0", "ownerReferences": [owner]}
    label = {"metadata": {"labels": {GPU_GROUP: "old"}}}
    async with stage.cluster.connect(user=_BINDER) as binder:
        await binder.create({"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": written})
        await binder.merge(PODS, namespace, "left", label, "status")
    await stage.until(
        lambda: [*map(_runs_by_name, _pods(stage, "shared"))].count("shares") == 1,
        "the pod has its share",
    )
    names = {it["metadata"]["name"] for it in stage.objects(CONFIG_MAPS, "shared")}
    assert len([it for it in names if "-shared-gpu-" in it]) >= 2, (
        "the pod has no ConfigMaps that name its GPU"
    )
    await stage.until(
        lambda: (
            f"{prefix}-0"
            not in {it["metadata"]["name"] for it in stage.objects(CONFIG_MAPS, "shared")}
        ),
        "a ConfigMap that was left is deleted",
    )
    await stage.until(
        lambda: all(
            GPU_GROUP not in it["metadata"]["labels"]
            for it in _pods(stage, "shared")
            if it["metadata"]["name"] == "left"
        ),
        "a label that was left is removed",
    )


async def _is_claimed(stage: CheckContext) -> None:
    """See a pod get a device by a claim."""
    namespace, api = stage.namespace_of("claimed"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    own = device_class(namespace, f"device.driver == '{namespace}.example.com'")
    await api.create(own)
    devices = resource_slice(SHARED_NODE, [device("gpu")])
    devices["metadata"]["name"] = namespace
    devices["spec"] |= {"driver": f"{namespace}.example.com"}
    devices["spec"]["pool"]["name"] = namespace
    await api.create(devices)
    await api.create(template(namespace, "one", one_gpu(deviceClassName=namespace)))
    pod = bare_pod(namespace, "claims", "default-queue", 0)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    pod["spec"] |= {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "tolerations": [{"operator": "Exists"}],
    }
    await api.create(pod)
    await stage.until(
        lambda: _running(stage.objects(PODS, "claimed")) == 1, "the pod has its device"
    )


def _share_pod(namespace: str, name: str, selector: dict[str, str]) -> Obj:
    """Return a pod that shares a GPU of some node, also of that which is kept for such pods."""
    pod = bare_pod(namespace, name, "default-queue", 0)
    pod["metadata"]["annotations"] = {GPU_FRACTION: "0.5"}
    pod["spec"]["containers"][0].pop("resources")
    pod["spec"] |= {"nodeSelector": selector, "tolerations": [{"operator": "Exists"}]}
    return pod


def _runs_by_name(pod: Obj) -> str:
    return str(pod["metadata"]["name"]) if pod["status"].get("phase") == "Running" else ""


async def _is_owned(stage: CheckContext) -> None:
    """See pods in the PodGroup of their last owner, in the queue of that or of their namespace."""
    namespace, api = stage.namespace_of("owned"), stage.cluster.api
    await make_namespace(stage.cluster, namespace)
    await api.merge(NAMESPACES, None, namespace, {"metadata": {"labels": {QUEUE: "of-namespace"}}})
    owner: Obj | None = None
    made: dict[str, Obj] = {}
    for kind, (group, plural, spec) in _OWNERS.items():
        # A Job that another controller owns is no workload, so that it has to be read.
        owners = _owned_by(owner, is_controller=kind == "Job")
        metadata = {"namespace": namespace, "name": kind.lower(), **owners}
        metadata["labels"] = {QUEUE: "of-owner"} if kind == "CronJob" else {}
        obj = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": spec}
        path = Resource(group, "v1", plural, kind).path(namespace)
        owner = made[kind] = await api.request("POST", path, obj)
    drivers = [await _owned_pod(stage, "driver", owner), await _owned_pod(stage, "bare", None)]
    for driver in drivers:
        await _owned_pod(stage, f"of-{driver['metadata']['name']}", driver)
    wanted = {
        f"pg-daemonset-{made['DaemonSet']['metadata']['uid']}": "of-owner",
        f"pg-bare-{drivers[1]['metadata']['uid']}": "of-namespace",
    }
    await stage.until(
        lambda: (
            {
                it["metadata"]["name"]: it["spec"]["queue"]
                for it in stage.objects(PODGROUPS, "owned")
            }
            == wanted
        ),
        "there is one PodGroup for each last owner",
    )


def _owned_by(owner: Obj | None, *, is_controller: bool = False) -> Obj:
    """Return metadata with an owner: one that is no controller is ignored by all controllers."""
    if owner is None:
        return {}
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": is_controller}
    meta = owner["metadata"]
    return {"ownerReferences": [{**named, "name": meta["name"], "uid": meta["uid"]}]}


async def _owned_pod(stage: CheckContext, name: str, owner: Obj | None) -> Obj:
    pod = bare_pod(stage.namespace_of("owned"), name, "default-queue", 0)
    pod["metadata"] = {**pod["metadata"], "labels": {}, **_owned_by(owner)}
    pod["spec"]["containers"][0].pop("resources")
    made: Obj = await stage.cluster.api.create(pod)
    return made


async def _shown(stage: CheckContext) -> None:
    """See the snapshot given to the account that may have it, and to no other."""
    namespace, cluster = stage.namespace_of("shown"), stage.cluster
    await make_namespace(cluster, namespace)
    for name in ("reader", "stranger"):
        metadata = {"namespace": namespace, "name": name}
        await cluster.api.create(
            {"apiVersion": "v1", "kind": SERVICE_ACCOUNTS.kind, "metadata": metadata}
        )
    await apply(cluster, _reading(namespace))

    async def is_given() -> bool:
        return await _status_for(stage, "reader") == 200

    await until(is_given, "the snapshot is given to the reader", stage.wait_s)
    assert await _status_for(stage, "stranger") == 403, "a stranger is given the snapshot"


async def _status_for(stage: CheckContext, account: str) -> int:
    """Return the status with which the scheduler answers an account that asks for the snapshot."""
    token = await stage.cluster.api.service_account_token(stage.namespace_of("shown"), account)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(stage.snapshot_url) as response,
    ):
        return response.status


def _reading(namespace: str) -> Obj:
    """Return what lets an account of a namespace read the snapshot."""
    role = {
        "apiGroup": CLUSTER_ROLES.group,
        "kind": CLUSTER_ROLES.kind,
        "name": "trainer-kai-snapshot-reader",
    }
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": role,
        "subjects": [{"kind": SERVICE_ACCOUNTS.kind, "namespace": namespace, "name": "reader"}],
    }


def _closed(name: str) -> Obj:
    """Return a queue that may have no GPU."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "memory": free, "gpu": {**free, "quota": 0, "limit": 0}}
    metadata, spec = {"name": name}, {"resources": resources}
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _pods(stage: CheckContext, scene: str) -> list[Obj]:
    return [it for it in stage.objects(PODS, scene) if not it["metadata"].get("deletionTimestamp")]


def _pods_of(stage: CheckContext, job: str) -> list[Obj]:
    """Return the pods of a TrainJob."""
    name = "jobset.sigs.k8s.io/jobset-name"
    pods = _pods(stage, "taken")
    return [it for it in pods if it["metadata"].get("labels", {}).get(name) == job]


def _waiting(pods: list[Obj]) -> int:
    return sum(it["status"].get("phase") == "Pending" for it in pods)


def _running(pods: list[Obj]) -> int:
    return sum(it["status"].get("phase") == "Running" for it in pods)


def _label(obj: Obj) -> str:
    found: str = obj["metadata"].get("labels", {}).get(QUEUE, "")
    return found


def _is_admitted(obj: Obj) -> bool:
    return ADMITTED in obj["metadata"].get("annotations", {})


def _conditions(stage: CheckContext, scene: str, reason: str) -> int:
    """Return how often something was said in the room of a scene, by the Event with most."""
    events = [it for it in stage.objects(EVENTS, scene) if it.get("reason") == reason]
    return max((it.get("deprecatedCount", 1) for it in events), default=0)


def _reason(stage: CheckContext) -> set[str]:
    return {
        why["reason"]
        for group in stage.objects(PODGROUPS, "told")
        for it in group.get("status", {}).get("schedulingConditions") or ()
        for why in it.get("reasons") or ()
    }


def _was_suspended(stage: CheckContext) -> bool:
    """Look for it in what was recorded, for it may last a moment."""
    lent = Key(TRAINJOBS, stage.namespace_of("taken"), "lent")
    return any(it.obj["spec"].get("suspend") for it in stage.timeline.moments if it.key == lent)


def _is_suspended(stage: CheckContext) -> bool:
    jobs = [it for it in stage.objects(TRAINJOBS, "taken") if it["metadata"]["name"] == "lent"]
    return any(it["spec"].get("suspend") for it in jobs)


def _evicted_gpus(stage: CheckContext) -> set[str]:
    """Return how many GPUs PodGroups lost."""
    notes = (it["metadata"].get("annotations", {}) for it in stage.objects(PODGROUPS, "taken"))
    return {it[EVICTED_GPUS] for it in notes if EVICTED_GPUS in it}


def _allocated(stage: CheckContext, queue: str) -> str:
    found = next(
        (it for it in stage.timeline.objects(QUEUES) if it["metadata"]["name"] == queue), {}
    )
    allocated = found.get("status", {}).get("allocated") or {}
    return str(next((n for name, n in allocated.items() if "gpu" in name), ""))


def _is(obj: Obj, namespace: str, name: str) -> bool:
    meta = obj["metadata"]
    return (meta.get("namespace"), meta["name"]) == (namespace, name) and obj["kind"] == PODS.kind
