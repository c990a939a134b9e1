"""Which pods belong to which group, and which of them count.

A pod belongs to the group that it names, if that has its sub-group. Into the group of a JobSet only
pods of Jobs count, and of those only the newest attempt; the others just occupy their nodes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from scheduler.core.model import NONE, Bar, Bools, Ints, Verdict
from scheduler.state.cluster import Cluster
from scheduler.state.kin import Kin
from scheduler.state.roll import WAITING, Roll
from scheduler.state.terms import Stray, Terms
from scheduler.state.trees import DEFAULT, group_bar, minima
from trainer_kai.api.container import Container, ContainerPort, Resources
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    ANTICIPATED,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB,
    SUBGROUP,
)
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS
from trainer_kai.policy.anticipated import Anticipated, Later, read_anticipated
from trainer_kai.policy.names import leaf_prefix

__all__ = ["Gang", "Gangs"]

_MOST_LATER: Final = 100_000
_TOLD: Final = 8  # names in a message
_WAKES_ON: Final = frozenset({"groups"})


class Gang:
    """A group that pods name, whether it exists or not."""

    def __init__(
        self, number: int, key: Key, group: PodGroup | None, jobset: JobSet | None
    ) -> None:
        self.number: Final = number
        self.key: Final = key
        self.group: Final = group
        self.jobset: Final = jobset
        self.owner: Final = _owner(group.metadata) if group else ""
        self.is_suspended: Final = jobset is not None and jobset.spec.suspend
        self.kins: Final[list[int]] = []
        self.seats: Final[dict[str, int]] = {}  # by leaf
        self.later: Final[dict[str, tuple[int, int]]] = {}  # by leaf: kin, and how many in all
        self.said = Anticipated()
        if group is None:
            message = f"its pods name the group {key}, which does not exist"
            self.bar: Bar | None = Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)
        else:
            self.bar = group_bar(group)
        self.is_sound: Final = group is not None and self.bar is None
        self.minima: Final = minima(group) if group and self.is_sound else {DEFAULT: 1}
        if group and self.is_sound:
            self._read_said(group.metadata.annotations.get(ANTICIPATED, ""))

    def leaf_of(self, kin: Kin) -> str | None:
        """Return the leaf of pods; None if the group has none for them."""
        name = kin.labels.get(SUBGROUP, "")
        if not self.is_sound:
            return DEFAULT
        name = name or (DEFAULT if len(self.minima) == 1 else "")
        return name if name in self.minima else None

    def refusal(self, kin: Kin) -> str | None:
        """Say why pods that name the group do not count."""
        if self.owner and not kin.is_of_job:
            return "is of a JobSet, and pods that no Job made name it"
        if self.leaf_of(kin) is not None:
            return None
        right = ", ".join([*self.minima][:_TOLD]) + (", …" if len(self.minima) > _TOLD else "")
        name = kin.labels.get(SUBGROUP, "")
        named = f"the sub-group {name}, which it does not have" if name else "no sub-group"
        return f"has pods that name {named}; it has {right}"

    def _read_said(self, text: str) -> None:
        try:
            self.said = read_anticipated(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            message = f"metadata.annotations[{ANTICIPATED}]: {error}"
            self.bar = Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)


class Gangs:
    """All of them, and for each kin, [kin]: its gang, its seat, and whether it counts."""

    def __init__(self, cluster: Cluster, roll: Roll, terms: Terms) -> None:
        self._cluster: Final = cluster
        self._roll: Final = roll
        self._by_key: Final[dict[Key, Gang]] = {}
        self.gangs: Final[list[Gang]] = []
        self.seats = 0  # leaves that have pods
        self._strays: Final[dict[Stray, None]] = {}
        self._waiting: Final = frozenset(np.unique(roll.kin[roll.state == WAITING]).tolist())
        size = len(roll.kins)
        self.seat: Ints = np.full(size, NONE, dtype=np.int64)
        self.gang: Ints = np.full(size, NONE, dtype=np.int64)
        self.is_ours: Bools = np.zeros(size, dtype=np.bool_)
        self.is_alone: Bools = np.zeros(size, dtype=np.bool_)
        self.is_foreign: Bools = np.zeros(size, dtype=np.bool_)
        for number, kin in enumerate(roll.kins):
            if kin.spec.scheduler_name == terms.scheduler_name:
                self.is_ours[number] = True
                self._seat(number, kin)
            else:
                self.is_foreign[number] = not kin.is_of_scheduler
        self.counts: Bools = self._newest() & (self.seat != NONE)
        self._foresee(terms.scheduler_name)

    @property
    def strays(self) -> list[Stray]:
        """Return the pods that do not count, once for each reason."""
        return list(self._strays)

    def find(self, key: Key) -> Gang | None:
        """Return a gang that has pods."""
        return self._by_key.get(key)

    def _seat(self, number: int, kin: Kin) -> None:
        if not kin.group:
            self.is_alone[number] = True
            return
        gang = self._named(Key(kin.namespace, kin.group))
        refusal = gang.refusal(kin)
        if refusal is not None:
            message = f"the group {gang.key} {refusal}"
            self._strays[Stray(gang.key, message, waits=number in self._waiting)] = None
            return
        gang.kins.append(number)
        leaf = gang.leaf_of(kin) or DEFAULT
        if leaf not in gang.seats:
            gang.seats[leaf] = self.seats
            self.seats += 1
        self.seat[number] = gang.seats[leaf]
        self.gang[number] = gang.number

    def _named(self, key: Key) -> Gang:
        gang = self._by_key.get(key)
        if gang is None:
            group = self._cluster.pod_groups.get(key)
            gang = Gang(len(self.gangs), key, group, self._jobset_of(group))
            self._by_key[key] = gang
            self.gangs.append(gang)
        return gang

    def _jobset_of(self, group: PodGroup | None) -> JobSet | None:
        if group is None:
            return None
        for owner in group.metadata.owner_references:
            jobset = self._cluster.jobsets.get(Key(group.metadata.namespace, owner.name))
            if jobset is not None and jobset.metadata.uid == owner.uid:
                return jobset
        return None

    def _newest(self) -> Bools:
        """Return which kin are of the newest attempt, of their JobSet and then of their Job."""
        is_newest = np.ones(len(self._roll.kins), dtype=np.bool_)
        of_owner: dict[str, list[tuple[int, str, tuple[int, int]]]] = {}
        for gang in self.gangs:
            if gang.owner and gang.kins:
                seen = of_owner.setdefault(gang.owner, [])
                seen.extend((number, *self._roll.kins[number].attempt) for number in gang.kins)
        for seen in of_owner.values():
            newest = max(attempt[0] for _, _, attempt in seen)
            of_job: dict[str, tuple[int, int]] = {}
            for _, job, attempt in seen:
                of_job[job] = max(of_job.get(job, (newest, 0)), attempt)
            for number, job, attempt in seen:
                is_newest[number] = attempt == of_job[job]
        return is_newest

    def _foresee(self, scheduler_name: str) -> None:
        """Add kin for pods that do not exist yet."""
        for gang in self.gangs:
            for later in gang.said.later:
                pod = _pod_of(later, gang.key, scheduler_name)
                count = min(max(later.count, 0), _MOST_LATER)
                for leaf, labels in _later_leaves(later, gang):
                    # Their sub-group is a label, so that those of two leaves are not alike.
                    kin = Kin(gang.key, pod, labels, later.sharing)
                    gang.later[leaf] = self._roll.add(kin), count


def _later_leaves(later: Later, gang: Gang) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the leaves of pods that come later, and what is known of their labels."""
    known = {**later.labels, **_jobset_labels(later, gang.jobset)}
    for leaf in gang.minima:
        index = leaf.removeprefix(later.sub_group_prefix)
        is_its = leaf.startswith(later.sub_group_prefix) and index.isdecimal()
        if is_its and len(index) < 10 and int(index) < later.replicas:
            of_job = {JOB_INDEX: index} if gang.owner else {}
            yield leaf, {**known, **of_job, SUBGROUP: leaf}


def _jobset_labels(later: Later, jobset: JobSet | None) -> Mapping[str, str]:
    """Return what JobSet will write on pods, as far as others may choose them by it."""
    if jobset is None:
        return {}
    known = {JOBSET_NAME: jobset.metadata.name, JOBSET_UID: jobset.metadata.uid}
    for job in jobset.spec.replicated_jobs:
        if leaf_prefix(job.name) == later.sub_group_prefix:
            known[REPLICATED_JOB] = job.name
    return known


def _pod_of(later: Later, group: Key, scheduler_name: str) -> Pod:
    ports = tuple(
        ContainerPort(host_port=one.port, protocol=one.protocol, host_ip=one.host_ip)
        for one in later.host_ports
    )
    spec = PodSpec(
        containers=(Container(resources=Resources(requests=later.requests), ports=ports),),
        volumes=tuple(one for one in later.volumes if one.persistent_volume_claim),
        topology_spread_constraints=later.topology_spread_constraints,
        node_selector=later.node_selector,
        affinity=later.affinity,
        tolerations=later.tolerations,
        priority_class_name=later.priority_class_name,
        scheduler_name=scheduler_name,
    )
    return Pod(metadata=Meta(namespace=group.namespace), spec=spec)


def _owner(meta: Meta) -> str:
    """Return the uid of the JobSet that owns a group."""
    for owner in meta.owner_references:
        if owner.kind == JOBSETS.kind and owner.api_version.partition("/")[0] == JOBSETS.group:
            return owner.uid or owner.name
    return ""
