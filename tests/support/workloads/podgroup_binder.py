"""Which pods may be bound, read from PodGroups and pods alone, as the API serves them.

A group with sub-groups is read as our scheduler must: enough pods exist in all sub-groups but those
that come later, and what its `anticipated` puts before it is over. A flat one is read as KAI reads
it: enough pods that neither succeeded nor failed. Where a pod fits is not asked.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Obj: TypeAlias = Mapping[str, Any]

_ANTICIPATED: Final = "trainer-kai.dev/anticipated"
_GROUP: Final = "pod-group-name"
_SUBGROUP: Final = "kai.scheduler/subgroup-name"
_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
_JOB: Final = "batch.kubernetes.io/job-name"
_JOB_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"


class _PodFacts(NamedTuple):
    """What is to know of a pod."""

    namespace: str
    name: str
    group: str
    podset: str
    is_waiting: bool
    is_alive: bool
    is_ready: bool
    is_done: bool

    @property
    def counts(self) -> bool:
        """Say whether it is there, or has done its part."""
        return self.is_alive or self.is_done


def bindable(groups: Iterable[Obj], pods: Iterable[Obj]) -> list[tuple[str, str]]:
    """Return namespace and name of the pods that may be bound now; what names no group waits."""
    groups = list(groups)
    by_group = _by_group(groups, newest_attempt(groups, pods))
    found: set[tuple[str, str]] = set()
    for group in groups:
        meta = group["metadata"]
        of = [pod for pod in by_group if pod.namespace == meta.get("namespace", "")]
        own = [pod for pod in of if pod.group == meta["name"]]
        flat = not group["spec"].get("subGroups")
        may = _bindable_of_flat(group["spec"], own) if flat else _bindable_of_tree(group, own, of)
        found |= {(pod.namespace, pod.name) for pod in own if pod.is_waiting and may(pod)}
    return sorted(found)


def newest_attempt(groups: Iterable[Obj], pods: Iterable[Obj]) -> list[Obj]:
    """Return the pods of the newest attempt: of all groups of one owner, and then of a Job."""
    owner_of = {
        _key(group["metadata"], group["metadata"]["name"]): _owner(group) for group in groups
    }
    first: dict[str, int] = {}
    second: dict[tuple[str, str, int], int] = {}
    listed = []
    for pod in pods:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        owner = owner_of.get(_key(meta, _group_of(meta)), "")
        of_all, of_job = int(labels.get(_ATTEMPT, 0)), int(labels.get(_JOB_ATTEMPT, 0))
        job = (owner, labels.get(_JOB, ""), of_all)
        first[owner] = max(first.get(owner, 0), of_all)
        second[job] = max(second.get(job, 0), of_job)
        listed.append((pod, job, of_job))
    return [
        pod
        for pod, job, of_job in listed
        if job[0] and first[job[0]] == job[2] and second[job] == of_job
    ]


def is_stage_over(after: Obj, pods: Iterable[_PodFacts], own: Iterable[_PodFacts]) -> bool:
    """Say whether what must be over, or ready, is; another scheduler's pods are not looked at.

    A pod that is made only afterwards is proof, also when those before it have been removed.
    """
    first = tuple(after.get("before", ()))
    if not after.get("group") or any(_has_prefix(pod.podset, first) for pod in own):
        return True
    of = [pod for pod in pods if pod.group == after["group"]]
    for number in range(after["replicas"]):
        job = [pod for pod in of if pod.podset == f"{after['subGroupPrefix']}{number}"]
        done = sum(pod.is_done for pod in job)
        if after["status"] == "Complete":
            if done < after["count"] or any(pod.is_alive for pod in job):
                return False
        elif done + sum(pod.is_ready for pod in job) < after["count"]:
            return False
    return True


def _bindable_of_tree(
    group: Obj, own: list[_PodFacts], pods: list[_PodFacts]
) -> Callable[[_PodFacts], bool]:
    """Return the pods that may be bound: expected pods as they come, the others all or none."""
    spec = group["spec"]
    output = json.loads((group["metadata"].get("annotations") or {}).get(_ANTICIPATED) or "{}")
    later = {
        f"{one['subGroupPrefix']}{i}"
        for one in output.get("later", ())
        for i in range(one["replicas"])
    }
    minima = {one["name"]: one.get("minMember") for one in spec["subGroups"]}
    begins = all(is_stage_over(after, pods, own) for after in output.get("after", ()))
    is_complete = begins and _has_enough_children(spec, "", own, later)
    return lambda pod: pod.podset in later or (is_complete and minima.get(pod.podset) is not None)


def _has_enough_children(spec: Obj, parent: str, own: list[_PodFacts], later: set[str]) -> bool:
    """Say whether so many children have enough; those that come later are not asked."""
    children = [one for one in spec["subGroups"] if one.get("parent", "") == parent]
    above = next((one for one in spec["subGroups"] if one["name"] == parent), spec)
    asked = [one for one in children if not _is_expected(spec, one, later)]
    least: int = min(above.get("minSubGroup", len(children)), len(asked))
    return sum(_has_enough(spec, one, own, later) for one in asked) >= least


def _has_enough(spec: Obj, one: Obj, own: list[_PodFacts], later: set[str]) -> bool:
    if any(other.get("parent") == one["name"] for other in spec["subGroups"]):
        return _has_enough_children(spec, one["name"], own, later)
    there = sum(pod.counts for pod in own if pod.podset == one["name"])
    return there >= int(one.get("minMember", 0))


def _is_expected(spec: Obj, one: Obj, later: set[str]) -> bool:
    below = [other for other in spec["subGroups"] if other.get("parent") == one["name"]]
    return (
        all(_is_expected(spec, other, later) for other in below) if below else one["name"] in later
    )


def _bindable_of_flat(spec: Obj, own: list[_PodFacts]) -> Callable[[_PodFacts], bool]:
    alive = sum(pod.is_alive for pod in own)
    return lambda _: alive >= max(spec.get("minMember") or 0, 1)


def _by_group(groups: Iterable[Obj], pods: Iterable[Obj]) -> list[_PodFacts]:
    known = {_key(group["metadata"], group["metadata"]["name"]) for group in groups}
    return [
        _pod_facts(pod)
        for pod in pods
        if _key(pod["metadata"], _group_of(pod["metadata"])) in known
    ]


def _pod_facts(pod: Obj) -> _PodFacts:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    is_over = phase in {"Succeeded", "Failed"}
    is_free = not spec.get("schedulingGates") and not meta.get("deletionTimestamp")
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or ()}
    is_bound = bool(spec.get("nodeName"))
    return _PodFacts(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        group=_group_of(meta),
        podset=(meta.get("labels") or {}).get(_SUBGROUP, ""),
        is_waiting=is_free and not is_bound and not is_over,
        is_alive=is_free and not is_over,
        is_ready=is_bound and not is_over and conditions.get("Ready") == "True",
        is_done=phase == "Succeeded",
    )


def _has_prefix(podset: str, prefixes: Iterable[str]) -> bool:
    """Say whether a sub-group is one of those that begin so and end in a number."""
    return any(podset.startswith(one) and podset.removeprefix(one).isdecimal() for one in prefixes)


def _group_of(meta: Obj) -> str:
    name: str = (meta.get("annotations") or {}).get(_GROUP, "")
    return name


def _owner(group: Obj) -> str:
    owners = group["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid") or group["metadata"]["name"])


def _key(meta: Obj, name: str) -> tuple[str, str]:
    return meta.get("namespace", ""), name
