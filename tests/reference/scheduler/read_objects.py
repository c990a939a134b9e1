"""From Kubernetes objects to the model of the reference: rules 4 to 6, 12, 13, 19, 21 and 27."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final, TypeAlias

from tests.reference.scheduler.fragments import typical_pods
from tests.reference.scheduler.gpu_shares import (
    gpu_memory_of,
    is_mig_node,
    read_requests_of_gpus,
    set_shared_gpus,
)
from tests.reference.scheduler.min_runtime import checkpointed_at
from tests.reference.scheduler.model import (
    ClusterInfo,
    DisruptionBudget,
    NodeInfo,
    PodGroupInfo,
    PodInfo,
    QueueInfo,
)
from tests.reference.scheduler.podgroups import read_podgroups
from tests.reference.scheduler.resources import (
    Amount,
    QueueAmounts,
    added,
    parse_quantities,
    pod_requests,
    queue_amounts,
    subtracted,
)
from tests.reference.scheduler.topology import read_constraints

Obj: TypeAlias = Mapping[str, Any]

_MOST_TRIED = 32  # nodes that refuse pods
_OVERDUE_S: Final = 120  # seconds
_MAX_GRACE_S: Final = 3600  # seconds
_HEALTHY: Final = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}


def read_cluster(objects: Sequence[Obj], now: str) -> ClusterInfo:
    """Read all objects; the time is the newest of theirs unless it is given."""
    by_kind: dict[str, list[Obj]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    at = now or max(
        report
        for one in objects
        for report in (
            one["metadata"].get("creationTimestamp", ""),
            _deletion_requested_at(one["metadata"]),
        )
    )
    nodes = [_node(node) for node in by_kind.get("Node", ())]
    memory_of_nodes = {it.name: it.gpu_memory for it in nodes}
    pods = _pods(by_kind.get("Pod", ()), memory_of_nodes, at)
    _subtract_pods(nodes, pods)
    cluster = ClusterInfo(
        nodes=nodes,
        pods=[pod for raw, pod in pods if raw["status"]["phase"] not in ("Succeeded", "Failed")],
        podgroups=read_podgroups(
            by_kind.get("PodGroup", []), pods, by_kind.get("PriorityClass", []), at
        ),
        queues={one["metadata"]["name"]: _queue(one) for one in by_kind.get("Queue", ())},
        total=_total_amounts(nodes, pods),
        now=at,
        budgets=[_budget(one, pods) for one in by_kind.get("PodDisruptionBudget", ())],
    )
    cluster.ended = [*_ended_pods(pods, at)]
    _read_shards(cluster, by_kind.get("SchedulingShard", ()))
    _read_expected_shares(cluster, memory_of_nodes)
    _read_trainjobs(cluster, by_kind)
    _read_avoided_nodes(cluster, by_kind)
    cluster.typical = typical_pods(cluster)
    # What exists later may be put on nodes too, and others must see it there.
    cluster.pods += [pod for it in cluster.podgroups for pod in it.pods if pod.is_expected]
    read_constraints(cluster, by_kind.get("PodGroup", ()), by_kind.get("Topology", []))
    _link_queues(cluster)
    for podgroup in cluster.podgroups:
        podgroup.is_non_evictable = podgroup.preemptible and _is_non_evictable(cluster, podgroup)
    _charge_queues(cluster)
    return cluster


def _read_shards(cluster: ClusterInfo, shards: Iterable[Obj]) -> None:
    for shard in shards:
        strategy = shard["spec"].get("placementStrategy", {})
        gpu, cpu = strategy.get("gpu"), strategy.get("cpu")
        cluster.spreads_gpus, cluster.spreads_cpu = gpu == "spread", cpu == "spread"
        cluster.fragments_gpus = gpu == "fragmentation"
        cluster.fragments_cpu = cpu == "fragmentation"


def _pods(
    raw_pods: Iterable[Obj], memory_of_nodes: Mapping[str, int], at: str
) -> list[tuple[Obj, PodInfo]]:
    """Read pods, with what they request of GPUs."""
    pods = [(raw, _pod(raw)) for raw in raw_pods]
    for raw, pod in pods:
        if _is_terminating(raw):
            pod.is_overdue = _overdue_for_s(raw["metadata"], at) > _OVERDUE_S
            pod.is_releasing = not pod.is_overdue
        is_ours = raw["spec"].get("schedulerName") == "kai-scheduler"
        notes = raw["metadata"].get("annotations", {}) if is_ours else {}
        read_requests_of_gpus(pod, notes, memory_of_nodes)
    return pods


def _ended_pods(pods: list[tuple[Obj, PodInfo]], at: str) -> Iterator[tuple[PodInfo, int]]:
    """Yield pods that have run and ended, without their nodes, and how many hours ago."""
    now = datetime.fromisoformat(at)
    for raw, pod in pods:
        times = [it.get("lastTransitionTime", "") for it in raw["status"].get("conditions", ())]
        if raw["status"]["phase"] in ("Succeeded", "Failed") and pod.node and any(times):
            ago = now - datetime.fromisoformat(max(times))
            yield replace(pod, node=""), max(int(ago.total_seconds()), 0) // 3600


def _read_expected_shares(cluster: ClusterInfo, memory_of_nodes: Mapping[str, int]) -> None:
    """Read the shares of expected pods, and whether pods that wait request what cannot be meant."""
    for podgroup in cluster.podgroups:
        for pod in podgroup.pods:
            if pod.is_expected:
                read_requests_of_gpus(pod, pod.spec.get("sharing", {}), memory_of_nodes)
            if pod.has_malformed_share and pod.state == "waiting":
                podgroup.is_invalid = True


def _read_trainjobs(cluster: ClusterInfo, by_kind: Mapping[str, Sequence[Obj]]) -> None:
    """Set on PodGroups what their TrainJobs say."""
    trainers = [job for job in by_kind.get("TrainJob", ()) if _is_built_by_trainer(job)]
    names = {_namespaced_name(job) for job in trainers if _is_managed_by_kueue(job)}
    for group in by_kind.get("PodGroup", ()):
        meta = group["metadata"]
        owners = {(meta["namespace"], one["name"]) for one in meta.get("ownerReferences", ())}
        for podgroup in cluster.podgroups:
            if podgroup.uid == meta["uid"]:
                podgroup.is_managed_elsewhere = bool(owners & names)
                own = [job for job in trainers if _namespaced_name(job) in owners]
                podgroup.checkpointed_at = "".join(checkpointed_at(job) for job in own)


def _read_avoided_nodes(cluster: ClusterInfo, by_kind: Mapping[str, Sequence[Obj]]) -> None:
    """Set on pods which nodes their PodGroup avoids: rule 22a."""
    uids = {it["metadata"]["name"]: it["metadata"].get("uid", "") for it in by_kind.get("Node", ())}
    for group in by_kind.get("PodGroup", ()):
        meta = group["metadata"]
        text = meta.get("annotations", {}).get("trainer-kai.dev/avoided-nodes", "{}")
        avoided = {
            name
            for name, it in json.loads(text).items()
            if it["until"] > cluster.now and it["uid"] == uids.get(name)
        }
        if len(avoided) >= _MOST_TRIED:
            avoided = {*uids}
        for pod in (pod for it in cluster.podgroups if it.uid == meta["uid"] for pod in it.pods):
            pod.avoids = frozenset(avoided)


def _budget(raw: Obj, pods: Sequence[tuple[Obj, PodInfo]]) -> DisruptionBudget:
    """Return which pods a PodDisruptionBudget covers, and how many of them may go."""
    meta, status = raw["metadata"], raw["status"]
    wanted = raw["spec"]["selector"].get("matchLabels", {}).items()
    found = [
        pod
        for one, pod in pods
        if pod.namespace == meta["namespace"]
        and wanted <= pod.labels.items()
        and _state(one) == "there"
    ]
    is_old = status.get("observedGeneration", 0) < meta.get("generation", 0)
    allowed = 0 if is_old else status["disruptionsAllowed"]
    return DisruptionBudget(found, max(min(allowed, len(found) - status["desiredHealthy"]), 0))


def _is_non_evictable(cluster: ClusterInfo, podgroup: PodGroupInfo) -> bool:
    """Say whether what leaves with a preemptible PodGroup cannot be evicted."""
    podgroups = [
        it
        for it in cluster.podgroups
        if it is podgroup or (podgroup.owning_jobset and it.owning_jobset == podgroup.owning_jobset)
    ]
    return any(
        it.queue != podgroup.queue or it.is_managed_elsewhere or not it.preemptible
        for it in podgroups
    )


def _namespaced_name(one: Obj) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _is_built_by_trainer(job: Obj) -> bool:
    """Say whether Trainer builds the JobSet of a TrainJob; else that is of no TrainJob."""
    return job["spec"].get("managedBy", "") in ("", "trainer.kubeflow.org/trainjob-controller")


def _is_managed_by_kueue(job: Obj) -> bool:
    """Say whether Kueue, which runs here, suspends and resumes a TrainJob."""
    return "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {})


def _node(node: Obj) -> NodeInfo:
    spec, status = node.get("spec", {}), node.get("status", {})
    labels = node["metadata"].get("labels", {})
    whole = parse_quantities(status.get("allocatable", {}))
    sick = any(
        condition["status"] != _HEALTHY.get(condition["type"], condition["status"])
        for condition in status.get("conditions", ())
    )
    return NodeInfo(
        name=node["metadata"]["name"],
        labels=labels,
        taints=list(spec.get("taints", ())),
        is_schedulable=not spec.get("unschedulable") and not sick,
        allocatable=whole,
        idle_beside_pods=whole,
        releasing_of_pods={},
        gpu_memory=gpu_memory_of(labels),
        is_mig=is_mig_node(labels, whole),
        is_ready=all(
            condition["status"] == "True"
            for condition in status.get("conditions", ())
            if condition["type"] == "Ready"
        ),
    )


def _pod(raw: Obj) -> PodInfo:
    meta, spec, status = raw["metadata"], raw["spec"], raw["status"]
    return PodInfo(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        labels=meta.get("labels", {}),
        spec=spec,
        requests=pod_requests(spec),
        state=_state(raw),
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        is_terminating="deletionTimestamp" in meta,
    )


def _state(raw: Obj) -> str:
    phase, spec = raw["status"]["phase"], raw["spec"]
    if phase == "Succeeded":
        return "succeeded"
    if phase == "Failed" or "deletionTimestamp" in raw["metadata"]:
        return "other"
    if spec.get("nodeName"):
        return "there"
    return "gated" if spec.get("schedulingGates") else "waiting"


def _subtract_pods(nodes: list[NodeInfo], pods: list[tuple[Obj, PodInfo]]) -> None:
    """Take from each node what its pods have."""
    at = {node_info.name: node_info for node_info in nodes}
    here = [
        pod
        for raw, pod in pods
        if raw["status"]["phase"] not in ("Succeeded", "Failed") and pod.node in at
    ]
    set_shared_gpus(nodes, here)
    for pod in here:
        node_info = at[pod.node]
        node_info.idle_beside_pods = subtracted(node_info.idle_beside_pods, pod.requests)
        if pod.is_releasing:
            node_info.releasing_of_pods = added(node_info.releasing_of_pods, pod.requests)
        node_info.is_closed_to_mig = node_info.is_closed_to_mig or pod.has_mig_annotation


def _deletion_requested_at(meta: Mapping[str, Any]) -> str:
    """Return when a deletion was asked for, or nothing."""
    if "deletionTimestamp" not in meta:
        return ""
    grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds", 0))
    asked_at = datetime.fromisoformat(meta["deletionTimestamp"]) - grace
    return asked_at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _overdue_for_s(meta: Mapping[str, Any], now: str) -> float:
    """Return for how long a pod should be gone, however much time it was given."""
    grace = min(meta.get("deletionGracePeriodSeconds", 0), _MAX_GRACE_S)
    since = datetime.fromisoformat(now) - datetime.fromisoformat(_deletion_requested_at(meta))
    overdue: float = since.total_seconds() - grace
    return overdue


def _is_terminating(raw: Obj) -> bool:
    """Say whether a pod has something of a node until it is gone."""
    is_over = raw["status"]["phase"] in ("Succeeded", "Failed")
    return "deletionTimestamp" in raw["metadata"] and "nodeName" in raw["spec"] and not is_over


def _total_amounts(nodes: list[NodeInfo], pods: list[tuple[Obj, PodInfo]]) -> QueueAmounts:
    usable = {node_info.name for node_info in nodes if node_info.is_schedulable}
    total: list[Amount] = [0, 0, 0]
    for node_info in nodes:
        for i, amount in enumerate(queue_amounts(node_info.allocatable)):
            total[i] += amount if node_info.is_schedulable else 0
    for raw, pod in pods:
        foreign = raw["spec"].get("schedulerName") != "kai-scheduler"
        if foreign and pod.node in usable and raw["status"]["phase"] not in ("Succeeded", "Failed"):
            for i, amount in enumerate(pod.charged):
                total[i] -= amount
    return total[0], total[1], total[2]


def _queue(raw: Obj) -> QueueInfo:
    meta, spec = raw["metadata"], raw["spec"]
    resources = spec.get("resources") or {}
    return QueueInfo(
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        parent=spec.get("parentQueue", ""),
        priority=spec.get("priority", 100),
        quota=_queue_bounds(resources, "quota"),
        limit=_queue_bounds(resources, "limit"),
        weight=tuple(
            Fraction(str(resources.get(name, {}).get("overQuotaWeight", 0)))
            for name in ("cpu", "memory", "gpu")
        ),
        reclaim_goal=meta.get("annotations", {}).get("trainer-kai.dev/reclaim-goal", ""),
        preempt_min_runtime=spec.get("preemptMinRuntime", ""),
        reclaim_min_runtime=spec.get("reclaimMinRuntime", ""),
    )


def _queue_bounds(resources: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Read a quota or limit; memory is written in millions of bytes."""
    cpu, memory, gpu = (
        Fraction(str(resources.get(axis, {}).get(name, 0))) for axis in ("cpu", "memory", "gpu")
    )
    return cpu, memory if memory == -1 else memory * 10**6, gpu


def _link_queues(cluster: ClusterInfo) -> None:
    """Name the children of each queue."""
    for queue in cluster.queues.values():
        if queue.parent in cluster.queues:
            cluster.queues[queue.parent].children.append(queue)


def _charge_queues(cluster: ClusterInfo) -> None:
    """Count what PodGroups have and what they wait for."""
    ready = {node_info.name for node_info in cluster.nodes if node_info.is_ready}
    for podgroup in cluster.podgroups:
        wishes = () if cluster.is_misconfigured(podgroup) else ("waiting", "later")
        is_alive = any(pod.state in ("there", "waiting") for pod in podgroup.pods)
        for pod in podgroup.pods:
            is_there = pod.state in ("there", "old") or (pod.is_overdue and pod.node in ready)
            if is_there:
                cluster.charge(podgroup, pod)
            if podgroup.is_non_evictable and pod.state in ("there", "old"):
                _charge_non_evictable(cluster, podgroup, pod)
            if pod.is_releasing and pod.node in ready:
                _count_releasing(cluster, podgroup, pod)
            if is_there or (is_alive and pod.state in wishes):
                for queue in cluster.queue_with_ancestors(podgroup.queue):
                    for i, amount in enumerate(pod.charged):
                        queue.requested[i] += amount


def _charge_non_evictable(cluster: ClusterInfo, podgroup: PodGroupInfo, pod: PodInfo) -> None:
    """Count a pod as not evictable in its queue, and in no other."""
    for queue in cluster.queue_with_ancestors(podgroup.queue)[:1]:
        for i, amount in enumerate(pod.charged):
            queue.non_preemptible[i] += amount
            queue.non_evictable[i] += amount


def _count_releasing(cluster: ClusterInfo, podgroup: PodGroupInfo, pod: PodInfo) -> None:
    """Count a pod as releasing in its queues."""
    for queue in cluster.queue_with_ancestors(podgroup.queue):
        for amounts in (
            queue.unclaimed_release,
            queue.unclaimed_release_by_node.setdefault(pod.node, [0, 0, 0]),
        ):
            for i, amount in enumerate(pod.charged):
                amounts[i] += amount
