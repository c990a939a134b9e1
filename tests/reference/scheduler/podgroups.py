"""Which pods form a PodGroup, and its attributes: rules 5, 6, 19 and 19b."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.reference.scheduler.min_runtime import in_preemption_delay, started_at
from tests.reference.scheduler.model import PodGroupInfo, PodInfo, PodSet, SubGroup, SubGroupSet
from tests.reference.scheduler.resources import added, parse_quantities

Obj: TypeAlias = Mapping[str, Any]

_ATTEMPTS: Final = ("jobset.sigs.k8s.io/restart-attempt", "batch.kubernetes.io/job-restart-attempt")
_NO_ATTEMPT: Final = (0, 0)


def read_podgroups(
    groups: list[Obj], pods: list[tuple[Obj, PodInfo]], classes: list[Obj], now: str
) -> list[PodGroupInfo]:
    """Return the PodGroups: of the API, and one for each pod of ours that names none."""
    own: dict[tuple[str, str], list[tuple[Obj, PodInfo]]] = {}
    podgroups = []
    for raw, pod in pods:
        if raw["spec"].get("schedulerName") != "kai-scheduler":
            continue
        named = raw["metadata"].get("annotations", {}).get("pod-group-name")
        if named:
            own.setdefault((pod.namespace, named), []).append((raw, pod))
        else:
            podgroups.append(_podgroup_of_pod(raw, pod, classes))
    for group in groups:
        key = group["metadata"]["namespace"], group["metadata"]["name"]
        podgroup = _podgroup(group, own.get(key, []), classes)
        podgroup.in_preemption_delay = in_preemption_delay(group, now)
        there = [(raw, pod) for raw, pod in own.get(key, ()) if pod.state == "there"]
        podgroup.started_at = started_at(group, [it for it in there if it[1] in podgroup.pods])
        podgroups.append(podgroup)
        podgroups += [
            _podgroup_of_misplaced(raw, pod, podgroup.queue, classes)
            for raw, pod in podgroup.misplaced_pods
        ]
    return podgroups


def _podgroup_of_misplaced(raw: Obj, pod: PodInfo, queue: str, classes: list[Obj]) -> PodGroupInfo:
    """Return the PodGroup of a pod that runs without a place in the group that it names."""
    podgroup = _podgroup_of_pod(raw, pod, classes)
    podgroup.queue, podgroup.preemptible, podgroup.is_invalid = queue, True, False
    return podgroup


def _podgroup_of_pod(raw: Obj, pod: PodInfo, classes: list[Obj]) -> PodGroupInfo:
    labels = pod.labels
    own = raw["spec"].get("priorityClassName", "")
    wish = labels.get("priorityClassName") or own
    is_refused = wish != own and _is_system_class(wish, classes)
    priority = _priority("" if is_refused else wish, classes)
    return PodGroupInfo(
        namespace=pod.namespace,
        name=f"pg-{pod.name}-{pod.uid}",
        uid=pod.uid,
        created=pod.created,
        queue=labels.get("kai.scheduler/queue", "default-queue"),
        priority=priority,
        preemptible=_preemptible(labels.get("kai.scheduler/preemptibility", ""), priority),
        root=PodSet(name="", minimum=1, pods=[pod]),
        is_invalid=is_refused and pod.state != "there",
        started_at=started_at({"metadata": {}}, [(raw, pod)] if pod.state == "there" else []),
    )


def _podgroup(group: Obj, pods: list[tuple[Obj, PodInfo]], classes: list[Obj]) -> PodGroupInfo:
    meta, spec = group["metadata"], group["spec"]
    name = spec.get("priorityClassName", "")
    priority = _priority(name, classes)
    root, meant = _subgroup_tree(spec)
    has_begun = any(pod.state == "there" for _, pod in pods)
    podgroup = PodGroupInfo(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        queue=spec.get("queue", ""),
        priority=priority,
        preemptible=_preemptible(spec.get("preemptibility", ""), priority),
        root=root,
        is_invalid=not meant,
    )
    podsets = {podset.name: podset for podset in podgroup.podsets}
    flat = isinstance(root, PodSet)
    owners = [it["uid"] for it in meta.get("ownerReferences", ()) if it["kind"] == "JobSet"]
    podgroup.owning_jobset, owned = "".join(owners), bool(owners)
    for raw, pod in pods:
        named = "" if flat else pod.labels.get("kai.scheduler/subgroup-name", "")
        if named in podsets and (not owned or _is_owned_by_job(raw)):
            podsets[named].pods.append(pod)
        elif pod.state == "waiting":
            podgroup.has_misplaced_waiting = True
        else:
            podgroup.misplaced_pods.append((raw, pod))
    if owned:
        _exclude_old_attempts(podgroup)
    for podset in podgroup.podsets if not flat else ():
        podset.expected = _expected_pods(group, podset)
    own = {raw["spec"].get("priorityClassName", "") for raw, _ in pods}
    later = [pod for podset in podgroup.podsets for pod in podset.expected]
    if _is_system_class(name, classes) and (later or own != {name}):
        podgroup.priority = _priority("", classes)
        podgroup.preemptible = _preemptible(spec.get("preemptibility", ""), podgroup.priority)
        own.update(pod.spec.get("priorityClassName", "") for pod in later)
        podgroup.is_invalid = podgroup.is_invalid or (name not in own and not has_begun)
    return podgroup


def _is_owned_by_job(raw: Obj) -> bool:
    owners = raw["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == "Job" and owner.get("controller") for owner in owners)


def _subgroup_tree(spec: Mapping[str, Any]) -> tuple[SubGroup, bool]:
    """Return the tree, and whether it can be meant; if not, it is one PodSet."""
    subgroups: Sequence[Mapping[str, Any]] = spec.get("subGroups") or []
    if not subgroups:
        least = spec.get("minMember")
        return PodSet(name="", minimum=1 if least is None else least), True
    names = [subgroup["name"] for subgroup in subgroups]
    reached: list[str] = []
    root = SubGroupSet("", 0)
    root.children = _children("", subgroups, reached)
    root.minimum = _minimum(spec, root.children)
    if len(set(names)) < len(names) or len(reached) < len(names):
        return PodSet(name="", minimum=1), False
    return root, True


def _children(
    parent: str, subgroups: Sequence[Mapping[str, Any]], reached: list[str]
) -> list[SubGroup]:
    parts: list[SubGroup] = []
    for subgroup in subgroups:
        if subgroup.get("parent", "") != parent:
            continue
        if subgroup["name"] in reached:
            return parts
        reached.append(subgroup["name"])
        below = _children(subgroup["name"], subgroups, reached)
        if below:
            parts.append(SubGroupSet(subgroup["name"], _minimum(subgroup, below), below))
        else:
            least = subgroup.get("minMember")
            parts.append(PodSet(subgroup["name"], 1 if least is None else least))
    return parts


def _minimum(spec: Mapping[str, Any], children: list[SubGroup]) -> int:
    least = spec.get("minSubGroup")
    return len(children) if least is None else int(least)


def _exclude_old_attempts(podgroup: PodGroupInfo) -> None:
    """Let only the newest attempt count: of the whole, and of that the newest of each PodSet."""
    attempts = {pod: _attempt(pod) for podset in podgroup.podsets for pod in podset.pods}
    newest = max(attempts.values(), default=_NO_ATTEMPT)[0]
    for podset in podgroup.podsets:
        best = max([(newest, 0), *(attempts[pod] for pod in podset.pods)])
        for pod in podset.pods:
            if attempts[pod] != best:
                pod.state = "old" if pod.state == "there" else "other"


def _attempt(pod: PodInfo) -> tuple[int, int]:
    labels = pod.labels
    one, two = (int(labels.get(name, "0")) for name in _ATTEMPTS)
    return one, two


def _expected_pods(group: Obj, podset: PodSet) -> list[PodInfo]:
    """Return the pods that a PodSet will have and has not yet."""
    meta = group["metadata"]
    text = meta.get("annotations", {}).get("trainer-kai.dev/anticipated", "{}")
    found: list[PodInfo] = []
    for one in json.loads(text).get("later", ()):
        names = [f"{one['subGroupPrefix']}{i}" for i in range(one["replicas"])]
        if podset.name in names:
            here = sum(pod.state not in ("other", "old") for pod in podset.pods)
            labels = {**one.get("labels", {}), "kai.scheduler/subgroup-name": podset.name}
            lacks = range(one["count"] - here)
            found += [_expected_pod(meta["namespace"], labels, one) for _ in lacks]
    return found


def _expected_pod(namespace: str, labels: Mapping[str, str], like: Mapping[str, Any]) -> PodInfo:
    ports = [{**one, "hostPort": one["port"]} for one in like.get("hostPorts", ())]
    return PodInfo(
        namespace=namespace,
        name="",
        uid="",
        created="",
        labels=labels,
        spec={**like, "containers": [{"ports": ports}]},
        requests=added(parse_quantities(like.get("requests", {})), {"pods": 1}),
        state="later",
        is_expected=True,
    )


def _priority(name: str, classes: list[Obj]) -> int:
    for one in classes:
        if one["metadata"]["name"] == name:
            return int(one["value"])
    for one in classes:
        if one.get("globalDefault"):
            return int(one["value"])
    return 50


def _is_system_class(name: str, classes: list[Obj]) -> bool:
    """Say whether a class is not for a label to choose (19b); quotas are not drawn."""
    return any(it["metadata"]["name"] == name and it["value"] >= 10**9 for it in classes)


def _preemptible(wish: str, priority: int) -> bool:
    if wish in ("preemptible", "non-preemptible"):
        return wish == "preemptible"
    return priority < 100
