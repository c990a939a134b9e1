"""From Kubernetes objects to the cluster of the reference: rules 4 to 6, 12, 13, 19 and 21."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final, TypeAlias

from tests.support.reference.amounts import added, asked, axes, parsed, subtracted
from tests.support.reference.grouping import read_units
from tests.support.reference.things import Budget, Cluster, Machine, Pod, Queue, Unit
from tests.support.reference.times import saved

__all__ = ["read"]

Obj: TypeAlias = Mapping[str, Any]

_STUCK: Final = 120  # seconds
_MOST_GRACE: Final = 3600  # seconds
_HEALTHY: Final = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}


def read(objects: Sequence[Obj], now: str) -> Cluster:
    """Read all objects; the time is the newest of theirs unless it is given."""
    by_kind: dict[str, list[Obj]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    at = now or max(
        told
        for one in objects
        for told in (one["metadata"].get("creationTimestamp", ""), _asked_at(one["metadata"]))
    )
    machines = [_machine(node) for node in by_kind.get("Node", ())]
    pods = [(raw, _pod(raw)) for raw in by_kind.get("Pod", ())]
    for raw, pod in pods:
        if _is_going(raw):
            pod.is_stuck = _overdue(raw["metadata"], at) > _STUCK
            pod.releases = not pod.is_stuck
    _occupy(machines, pods)
    cluster = Cluster(
        machines=machines,
        pods=[pod for raw, pod in pods if raw["status"]["phase"] not in ("Succeeded", "Failed")],
        units=read_units(by_kind.get("PodGroup", []), pods, by_kind.get("PriorityClass", []), at),
        queues={one["metadata"]["name"]: _queue(one) for one in by_kind.get("Queue", ())},
        total=_total(machines, pods),
        now=at,
        budgets=[_budget(one, pods) for one in by_kind.get("PodDisruptionBudget", ())],
    )
    _own(cluster, by_kind)
    # What exists later may be put on nodes too, and others must see it there.
    cluster.pods += [pod for unit in cluster.units for pod in unit.pods if pod.later]
    _connect(cluster)
    for unit in cluster.units:
        unit.is_unevictable = unit.preemptible and _is_unevictable(cluster, unit)
    _hold(cluster)
    return cluster


def _own(cluster: Cluster, by_kind: Mapping[str, Sequence[Obj]]) -> None:
    """Tell units what the TrainJobs say that they are of."""
    trainers = [job for job in by_kind.get("TrainJob", ()) if _is_trainers(job)]
    names = {_name(job) for job in trainers if _is_kueues(job)}
    for group in by_kind.get("PodGroup", ()):
        meta = group["metadata"]
        owners = {(meta["namespace"], one["name"]) for one in meta.get("ownerReferences", ())}
        for unit in cluster.units:
            if unit.uid == meta["uid"]:
                unit.stays = bool(owners & names)
                own = [job for job in trainers if _name(job) in owners]
                unit.saved = "".join(saved(job) for job in own)


def _budget(raw: Obj, pods: Sequence[tuple[Obj, Pod]]) -> Budget:
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
    return Budget(found, max(min(allowed, len(found) - status["desiredHealthy"]), 0))


def _is_unevictable(cluster: Cluster, unit: Unit) -> bool:
    """Say whether what leaves with a unit cannot be evicted, though it may be preempted itself."""
    units = [it for it in cluster.units if it is unit or (unit.owner and it.owner == unit.owner)]
    return any(it.queue != unit.queue or it.stays or not it.preemptible for it in units)


def _name(one: Obj) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _is_trainers(job: Obj) -> bool:
    """Say whether Trainer builds the JobSet of a TrainJob; else that is of no TrainJob."""
    return job["spec"].get("managedBy", "") in ("", "trainer.kubeflow.org/trainjob-controller")


def _is_kueues(job: Obj) -> bool:
    """Say whether Kueue, which runs here, suspends and resumes a TrainJob."""
    return "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {})


def _machine(node: Obj) -> Machine:
    spec, status = node.get("spec", {}), node.get("status", {})
    whole = parsed(status.get("allocatable", {}))
    sick = any(
        condition["status"] != _HEALTHY.get(condition["type"], condition["status"])
        for condition in status.get("conditions", ())
    )
    return Machine(
        name=node["metadata"]["name"],
        labels=node["metadata"].get("labels", {}),
        taints=list(spec.get("taints", ())),
        usable=not spec.get("unschedulable") and not sick,
        whole=whole,
        idle=whole,
        releasing={},
        is_ready=all(
            condition["status"] == "True"
            for condition in status.get("conditions", ())
            if condition["type"] == "Ready"
        ),
    )


def _pod(raw: Obj) -> Pod:
    meta, spec, status = raw["metadata"], raw["spec"], raw["status"]
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        labels=meta.get("labels", {}),
        spec=spec,
        needs=asked(spec),
        state=_state(raw),
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        going="deletionTimestamp" in meta,
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


def _occupy(machines: list[Machine], pods: list[tuple[Obj, Pod]]) -> None:
    """Take from each node what its pods have."""
    at = {machine.name: machine for machine in machines}
    for raw, pod in pods:
        if raw["status"]["phase"] in ("Succeeded", "Failed") or pod.node not in at:
            continue
        machine = at[pod.node]
        machine.idle = subtracted(machine.idle, pod.needs)
        if pod.releases:
            machine.releasing = added(machine.releasing, pod.needs)


def _asked_at(meta: Mapping[str, Any]) -> str:
    """Return when a deletion was asked for, or nothing."""
    if "deletionTimestamp" not in meta:
        return ""
    grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds", 0))
    asked_at = datetime.fromisoformat(meta["deletionTimestamp"]) - grace
    return asked_at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _overdue(meta: Mapping[str, Any], now: str) -> float:
    """Return for how long a pod should be gone, however much time it was given."""
    grace = min(meta.get("deletionGracePeriodSeconds", 0), _MOST_GRACE)
    since = datetime.fromisoformat(now) - datetime.fromisoformat(_asked_at(meta))
    overdue: float = since.total_seconds() - grace
    return overdue


def _is_going(raw: Obj) -> bool:
    """Say whether a pod has something of a node until it is gone."""
    is_over = raw["status"]["phase"] in ("Succeeded", "Failed")
    return "deletionTimestamp" in raw["metadata"] and "nodeName" in raw["spec"] and not is_over


def _total(machines: list[Machine], pods: list[tuple[Obj, Pod]]) -> tuple[int, int, int]:
    usable = {machine.name for machine in machines if machine.usable}
    total = [0, 0, 0]
    for machine in machines:
        for i, amount in enumerate(axes(machine.whole)):
            total[i] += amount if machine.usable else 0
    for raw, pod in pods:
        foreign = raw["spec"].get("schedulerName") != "kai-scheduler"
        if foreign and pod.node in usable and raw["status"]["phase"] not in ("Succeeded", "Failed"):
            for i, amount in enumerate(axes(pod.needs)):
                total[i] -= amount
    return total[0], total[1], total[2]


def _queue(raw: Obj) -> Queue:
    meta, spec = raw["metadata"], raw["spec"]
    resources = spec.get("resources") or {}
    return Queue(
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        parent=spec.get("parentQueue", ""),
        priority=spec.get("priority", 100),
        quota=_triple(resources, "quota"),
        limit=_triple(resources, "limit"),
        weight=tuple(
            Fraction(str(resources.get(name, {}).get("overQuotaWeight", 0)))
            for name in ("cpu", "memory", "gpu")
        ),
        goal=meta.get("annotations", {}).get("trainer-kai.dev/reclaim-goal", ""),
        preempt_min=spec.get("preemptMinRuntime", ""),
        reclaim_min=spec.get("reclaimMinRuntime", ""),
    )


def _triple(resources: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Read what is owed or allowed; memory is written in millions of bytes."""
    cpu, memory, gpu = (
        Fraction(str(resources.get(axis, {}).get(name, 0))) for axis in ("cpu", "memory", "gpu")
    )
    return cpu, memory if memory == -1 else memory * 10**6, gpu


def _connect(cluster: Cluster) -> None:
    """Name the children of each queue."""
    for queue in cluster.queues.values():
        if queue.parent in cluster.queues:
            cluster.queues[queue.parent].children.append(queue)


def _hold(cluster: Cluster) -> None:
    """Count what units have and what they wait for."""
    ready = {machine.name for machine in cluster.machines if machine.is_ready}
    for unit in cluster.units:
        wishes = () if cluster.is_misconfigured(unit) else ("waiting", "later")
        is_alive = any(pod.state in ("there", "waiting") for pod in unit.pods)
        for pod in unit.pods:
            is_there = pod.state in ("there", "old") or (pod.is_stuck and pod.node in ready)
            if is_there:
                cluster.hold(unit, pod)
            if unit.is_unevictable and pod.state in ("there", "old"):
                _fix(cluster, unit, pod)
            if pod.releases and pod.node in ready:
                _let_go(cluster, unit, pod)
            if is_there or (is_alive and pod.state in wishes):
                for queue in cluster.way_up(unit.queue):
                    for i, amount in enumerate(axes(pod.needs)):
                        queue.requested[i] += amount


def _fix(cluster: Cluster, unit: Unit, pod: Pod) -> None:
    """Count a pod as fixed of its queue, and of no other."""
    for queue in cluster.way_up(unit.queue)[:1]:
        for i, amount in enumerate(axes(pod.needs)):
            queue.fixed[i] += amount
            queue.unevictable[i] += amount


def _let_go(cluster: Cluster, unit: Unit, pod: Pod) -> None:
    """Count a pod as what goes of its queues."""
    for queue in cluster.way_up(unit.queue):
        for amounts in (queue.left, queue.left_at.setdefault(pod.node, [0, 0, 0])):
            for i, amount in enumerate(axes(pod.needs)):
                amounts[i] += amount
