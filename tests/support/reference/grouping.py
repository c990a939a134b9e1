"""Which pods are a unit, and what it is like: rules 5, 6, 19 and 19b."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.support.reference.amounts import added, parsed
from tests.support.reference.things import Group, Leaf, Part, Pod, Unit
from tests.support.reference.times import began, is_patient

__all__ = ["read_units"]

Obj: TypeAlias = Mapping[str, Any]

_ATTEMPTS: Final = ("jobset.sigs.k8s.io/restart-attempt", "batch.kubernetes.io/job-restart-attempt")
_NO_ATTEMPT: Final = (0, 0)


def read_units(
    groups: list[Obj], pods: list[tuple[Obj, Pod]], classes: list[Obj], now: str
) -> list[Unit]:
    """Return the units: one for each group, and one for each pod of ours that names no group."""
    own: dict[tuple[str, str], list[tuple[Obj, Pod]]] = {}
    units = []
    for raw, pod in pods:
        if raw["spec"].get("schedulerName") != "kai-scheduler":
            continue
        named = raw["metadata"].get("annotations", {}).get("pod-group-name")
        if named:
            own.setdefault((pod.namespace, named), []).append((raw, pod))
        else:
            units.append(_of_one(raw, pod, classes))
    for group in groups:
        key = group["metadata"]["namespace"], group["metadata"]["name"]
        unit = _of_group(group, own.get(key, []), classes)
        unit.patient = is_patient(group, now)
        there = [(raw, pod) for raw, pod in own.get(key, ()) if pod.state == "there"]
        unit.began = began(group, [it for it in there if it[1] in unit.pods])
        units.append(unit)
        units += [_of_stray(raw, pod, unit.queue, classes) for raw, pod in unit.strays]
    return units


def _of_stray(raw: Obj, pod: Pod, queue: str, classes: list[Obj]) -> Unit:
    """Return the unit of a pod that runs without a place in the group that it names."""
    unit = _of_one(raw, pod, classes)
    unit.queue, unit.preemptible, unit.broken = queue, True, False
    return unit


def _of_one(raw: Obj, pod: Pod, classes: list[Obj]) -> Unit:
    labels = pod.labels
    own = raw["spec"].get("priorityClassName", "")
    wish = labels.get("priorityClassName") or own
    is_refused = wish != own and _is_of_system(wish, classes)
    priority = _priority("" if is_refused else wish, classes)
    return Unit(
        namespace=pod.namespace,
        name=f"pg-{pod.name}-{pod.uid}",
        uid=pod.uid,
        created=pod.created,
        queue=labels.get("kai.scheduler/queue", "default-queue"),
        priority=priority,
        preemptible=_preemptible(labels.get("kai.scheduler/preemptibility", ""), priority),
        root=Leaf(name="", minimum=1, pods=[pod]),
        broken=is_refused and pod.state != "there",
        began=began({"metadata": {}}, [(raw, pod)] if pod.state == "there" else []),
    )


def _of_group(group: Obj, pods: list[tuple[Obj, Pod]], classes: list[Obj]) -> Unit:
    meta, spec = group["metadata"], group["spec"]
    name = spec.get("priorityClassName", "")
    priority = _priority(name, classes)
    root, meant = _tree(spec)
    has_begun = any(pod.state == "there" for _, pod in pods)
    unit = Unit(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        queue=spec.get("queue", ""),
        priority=priority,
        preemptible=_preemptible(spec.get("preemptibility", ""), priority),
        root=root,
        broken=not meant,
    )
    leaves = {leaf.name: leaf for leaf in unit.leaves}
    flat = isinstance(root, Leaf)
    owners = [it["uid"] for it in meta.get("ownerReferences", ()) if it["kind"] == "JobSet"]
    unit.owner, owned = "".join(owners), bool(owners)
    for raw, pod in pods:
        named = "" if flat else pod.labels.get("kai.scheduler/subgroup-name", "")
        if named in leaves and (not owned or _is_of_job(raw)):
            leaves[named].pods.append(pod)
        elif pod.state == "waiting":
            unit.has_strays = True
        else:
            unit.strays.append((raw, pod))
    if owned:
        _forget_old_attempts(unit)
    for leaf in unit.leaves if not flat else ():
        leaf.later = _later(group, leaf)
    own = {raw["spec"].get("priorityClassName", "") for raw, _ in pods}
    later = [pod for leaf in unit.leaves for pod in leaf.later]
    if _is_of_system(name, classes) and (later or own != {name}):
        unit.priority = _priority("", classes)
        unit.preemptible = _preemptible(spec.get("preemptibility", ""), unit.priority)
        own.update(pod.spec.get("priorityClassName", "") for pod in later)
        unit.broken = unit.broken or (name not in own and not has_begun)
    return unit


def _is_of_job(raw: Obj) -> bool:
    owners = raw["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == "Job" and owner.get("controller") for owner in owners)


def _tree(spec: Mapping[str, Any]) -> tuple[Part, bool]:
    """Return the tree, and whether it can be meant; if not, it is one leaf."""
    subs: Sequence[Mapping[str, Any]] = spec.get("subGroups") or []
    if not subs:
        least = spec.get("minMember")
        return Leaf(name="", minimum=1 if least is None else least), True
    names = [sub["name"] for sub in subs]
    reached: list[str] = []
    root = Group("", 0)
    root.children = _children("", subs, reached)
    root.minimum = _minimum(spec, root.children)
    if len(set(names)) < len(names) or len(reached) < len(names):
        return Leaf(name="", minimum=1), False
    return root, True


def _children(parent: str, subs: Sequence[Mapping[str, Any]], reached: list[str]) -> list[Part]:
    parts: list[Part] = []
    for sub in subs:
        if sub.get("parent", "") != parent:
            continue
        if sub["name"] in reached:
            return parts
        reached.append(sub["name"])
        below = _children(sub["name"], subs, reached)
        if below:
            parts.append(Group(sub["name"], _minimum(sub, below), below))
        else:
            least = sub.get("minMember")
            parts.append(Leaf(sub["name"], 1 if least is None else least))
    return parts


def _minimum(spec: Mapping[str, Any], children: list[Part]) -> int:
    least = spec.get("minSubGroup")
    return len(children) if least is None else int(least)


def _forget_old_attempts(unit: Unit) -> None:
    """Let only the newest attempt count: of the whole, and of that the newest of each leaf."""
    attempts = {pod: _attempt(pod) for leaf in unit.leaves for pod in leaf.pods}
    newest = max(attempts.values(), default=_NO_ATTEMPT)[0]
    for leaf in unit.leaves:
        best = max([(newest, 0), *(attempts[pod] for pod in leaf.pods)])
        for pod in leaf.pods:
            if attempts[pod] != best:
                pod.state = "old" if pod.state == "there" else "other"


def _attempt(pod: Pod) -> tuple[int, int]:
    labels = pod.labels
    one, two = (int(labels.get(name, "0")) for name in _ATTEMPTS)
    return one, two


def _later(group: Obj, leaf: Leaf) -> list[Pod]:
    """Return the pods that a leaf will have and has not yet."""
    meta = group["metadata"]
    text = meta.get("annotations", {}).get("trainer-kai.dev/anticipated", "{}")
    found: list[Pod] = []
    for one in json.loads(text).get("later", ()):
        names = [f"{one['subGroupPrefix']}{i}" for i in range(one["replicas"])]
        if leaf.name in names:
            here = sum(pod.state not in ("other", "old") for pod in leaf.pods)
            labels = {**one.get("labels", {}), "kai.scheduler/subgroup-name": leaf.name}
            lacks = range(one["count"] - here)
            found += [_later_pod(meta["namespace"], labels, one) for _ in lacks]
    return found


def _later_pod(namespace: str, labels: Mapping[str, str], like: Mapping[str, Any]) -> Pod:
    ports = [{**one, "hostPort": one["port"]} for one in like.get("hostPorts", ())]
    return Pod(
        namespace=namespace,
        name="",
        uid="",
        created="",
        labels=labels,
        spec={**like, "containers": [{"ports": ports}]},
        needs=added(parsed(like.get("requests", {})), {"pods": 1}),
        state="later",
        later=True,
    )


def _priority(name: str, classes: list[Obj]) -> int:
    for one in classes:
        if one["metadata"]["name"] == name:
            return int(one["value"])
    for one in classes:
        if one.get("globalDefault"):
            return int(one["value"])
    return 50


def _is_of_system(name: str, classes: list[Obj]) -> bool:
    """Say whether a class is not for a label to choose (19b); quotas are not drawn."""
    return any(it["metadata"]["name"] == name and it["value"] >= 10**9 for it in classes)


def _preemptible(wish: str, priority: int) -> bool:
    if wish in ("preemptible", "non-preemptible"):
        return wish == "preemptible"
    return priority < 100
