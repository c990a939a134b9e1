"""Checks at every change that a started PodGroup has room for all its missing pods. Pure.

A PodGroup that is bound in part is harmless only if its missing pods have places: a pod that waits
has the node that it gets in the end, and a pod that cannot exist yet a place in `reserved`. So at
every change the bound pods, the waiting pods of such a PodGroup, at the node that they got later,
and its reserved places must fit into their nodes together.

A pod whose bind the API server did not answer, and that was not bound, may get another node later
than the one that it had its place on: where it waits cannot be judged.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import JOBSETS, NODES, PODS, Obj
from e2e.cluster.timeline import Key, Moment
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, SUBGROUP

_RESERVED: Final = "trainer-kai.dev/reserved"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_K = TypeVar("_K")
_OVER: Final = ("Succeeded", "Failed")


class GangCheck(NamedTuple):
    """What a history showed."""

    faults: list[str]
    partly: int  # changes at which some PodGroup was bound in part
    most_passed: int  # binds of other PodGroups while a pod waited in such a PodGroup


def check_gangs(history: Sequence[Moment], unanswered: Mapping[str, str] = _NONE) -> GangCheck:
    """Look at every change of JobSets, groups, pods and nodes.

    By name of a pod: to which node its bind went, if there was no answer.
    """
    witness = _GangObserver(_final_nodes(history), unanswered)
    for moment in history:
        witness.see(moment)
    return GangCheck(witness.faults, witness.partly, witness.most_passed)


def _final_nodes(history: Iterable[Moment]) -> dict[str, str]:
    """Return which node each pod got, by uid."""
    pods = [it.obj for it in history if it.key.resource == PODS and _node(it.obj)]
    return {pod["metadata"]["uid"]: _node(pod) for pod in pods}


class _GangObserver:
    """The cluster at one moment, and what was wrong until then."""

    def __init__(self, ends: Mapping[str, str], unanswered: Mapping[str, str]) -> None:
        self.final_nodes = ends
        self.unanswered = unanswered
        self.faults: list[str] = []
        self.partly = 0
        self.most_passed = 0
        self._jobsets: dict[str, Obj] = {}
        self._groups: dict[str, Obj] = {}
        self._capacity: dict[str, int] = {}
        self._assigned: Counter[str] = Counter()
        self._pods: dict[str, dict[Key, Obj]] = defaultdict(dict)
        self._created: dict[
            str, dict[str, set[str]]
        ] = {}  # by group and PodSet: the pods that it had
        self._requests: dict[str, int] = {}  # of a pod of a group
        self._partly: set[str] = set()
        self._binds: Counter[str] = Counter()  # by group
        self._since: dict[str, int] = {}  # binds of others, when a pod began to wait

    def see(self, moment: Moment) -> None:
        """Take note of one change, and look at what is there after it."""
        kind, name, is_gone = moment.key.resource, moment.key.name, moment.type == "DELETED"
        touched: Iterable[str] = ()
        if kind == NODES:
            own_namespace = moment.obj["status"].get("allocatable", {}).get(GPU, "0")
            self._capacity[name] = 0 if is_gone else int(own_namespace)
        elif kind == JOBSETS:
            _store(self._jobsets, name, moment.obj, is_gone=is_gone)
            touched = [it for it in self._groups if self._jobset_of(it) == name]
        elif kind == PODGROUPS:
            _store(self._groups, name, moment.obj, is_gone=is_gone)
            touched = [name]
        elif kind == PODS:
            touched = [self._see_pod(moment, is_gone=is_gone)]
        for group in touched:
            (self._partly.add if self._is_partly(group) else self._partly.discard)(group)
        self._check(moment.at_s)

    def _see_pod(self, moment: Moment, *, is_gone: bool) -> str:
        pod, meta = moment.obj, moment.obj["metadata"]
        group: str = meta.get("annotations", {}).get(PODGROUP, "")
        before = self._pods[group].get(moment.key)
        if before is not None:
            self._assigned.subtract(_takes(before))
        _store(self._pods[group], moment.key, pod, is_gone=is_gone)
        if not is_gone:
            self._assigned.update(_takes(pod))
            self._requests[group] = _gpus(pod)
            self._binds[group] += bool(_node(pod)) and (before is None or not _node(before))
        if not is_gone and not _is_terminating(pod):
            self._count(group, pod)
        return group

    def _count(self, group: str, pod: Obj) -> None:
        podset = pod["metadata"].get("labels", {}).get(SUBGROUP, "")
        came = self._created.setdefault(group, {})
        came.setdefault(podset, set()).add(pod["metadata"]["uid"])

    def _reset(self, name: str) -> None:
        """Forget the pods that went, but not those that came before their group."""
        self._created.pop(name, None)
        for pod in self._pods[name].values():
            if not _is_terminating(pod):
                self._count(name, pod)

    def _check(self, at_s: float) -> None:
        waiting = {name for name in self._partly if self._waiting(name)}
        for name in waiting:
            self._since.setdefault(name, self._binds_of_others(name))
        for name in [it for it in self._since if it not in waiting]:
            passed = self._binds_of_others(name) - self._since.pop(name)
            self.most_passed = max(self.most_passed, passed)
        if not self._partly:
            return
        self.partly += 1
        used = self._assigned.copy()
        for name in self._partly:
            used.update(self._missing_by_node(name))
        podgroups = ", ".join(sorted(self._partly))
        self.faults += [
            f"{at_s:.3f} s: {gpus} GPUs of {node} are spoken for, while {podgroups} are not whole"
            for node, gpus in used.items()
            if gpus > self._capacity.get(node, 0)
        ]

    def _binds_of_others(self, name: str) -> int:
        return self._binds.total() - self._binds[name]

    def _is_partly(self, name: str) -> bool:
        """Say whether a group that is to run has pods with a node, and lacks some."""
        if not self._is_wanted(name):
            self._reset(name)
            return False
        started = any(_node(it) for it in self._alive(name))
        return started and bool(self._waiting(name) or self._missing_pods(name))

    def _is_wanted(self, name: str) -> bool:
        group, jobset = self._groups.get(name), self._jobsets.get(self._jobset_of(name))
        if group is None or jobset is None or _is_terminating(group) or _is_terminating(jobset):
            return False
        is_over = condition(jobset, "Completed") or condition(jobset, "Failed")
        return not is_over and not jobset["spec"].get("suspend")

    def _jobset_of(self, name: str) -> str:
        owners = self._groups.get(name, {}).get("metadata", {}).get("ownerReferences", ())
        return max((it["name"] for it in owners), default="")

    def _missing_by_node(self, name: str) -> Counter[str]:
        """Return what a group lacks: by node, the GPUs that are there for it."""
        lacks: Counter[str] = Counter()
        for pod in self._waiting(name):
            end = self.final_nodes.get(pod["metadata"]["uid"], "no node at all")
            if self.unanswered.get(pod["metadata"]["name"], end) == end:
                lacks[end] += _gpus(pod)
        held = self._groups[name]["metadata"].get("annotations", {}).get(_RESERVED, "{}")
        reserved_places = json.loads(held or "{}")
        for podset, number in self._missing_pods(name).items():
            nodes = reserved_places.get(podset, {}).get("nodes", {})
            lacks.update({node: count * self._requests[name] for node, count in nodes.items()})
            if sum(nodes.values()) < number:
                lacks["no node at all"] += 1
        return lacks

    def _missing_pods(self, name: str) -> dict[str, int]:
        """Return how many pods each PodSet needs that never existed yet."""
        podsets = self._groups[name]["spec"].get("subGroups", ())
        minima = {it["name"]: it.get("minMember", 0) for it in podsets if "minMember" in it}
        came = self._created.get(name, {})
        missing = {podset: n - len(came.get(podset, ())) for podset, n in minima.items()}
        return {podset: n for podset, n in missing.items() if n > 0}

    def _waiting(self, name: str) -> list[Obj]:
        return [it for it in self._alive(name) if not _node(it)]

    def _alive(self, name: str) -> list[Obj]:
        pods = self._pods[name].values()
        alive = [it for it in pods if it["status"].get("phase") not in _OVER]
        return [it for it in alive if not _is_terminating(it)]


def _store(store: dict[_K, Obj], key: _K, obj: Obj, *, is_gone: bool) -> None:
    if is_gone:
        store.pop(key, None)
    else:
        store[key] = obj


def _takes(pod: Obj) -> Counter[str]:
    """Return what a pod takes of its node."""
    is_there = _node(pod) and pod["status"].get("phase") not in _OVER
    return Counter({_node(pod): _gpus(pod)} if is_there else {})


def _is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _node(pod: Obj) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def _gpus(pod: Obj) -> int:
    limits = (it.get("resources", {}).get("limits", {}) for it in pod["spec"]["containers"])
    return sum(int(it.get(GPU, "0")) for it in limits)
