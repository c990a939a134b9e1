"""The units of a TrainJob, and what is there of each.

They are what admission and the podgrouper make of its JobSet, by their own functions. Where that
may not be read, or says nothing of some pods, they are what groups say, and the pods that name one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ANTICIPATED,
    DEFAULT_QUEUE,
    JOBSET_UID,
    MEMBERS,
    POD_GROUP,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    STAGE,
    SUBGROUP,
)
from trainer_kai.api.podgroup import PodGroup, SubGroup
from trainer_kai.cli.found import Found, SeenPod
from trainer_kai.cli.preview import Preview, Row, Surroundings, preview_jobset
from trainer_kai.policy.anticipated import Anticipated, read_anticipated
from trainer_kai.policy.groups import Mode
from trainer_kai.policy.stages import Edge

__all__ = ["Heads", "Part", "count", "mode_of", "parts_of", "planned"]


class Heads(NamedTuple):
    """How many pods are how far, those in front first."""

    running: int = 0
    starting: int = 0  # on a node, and not running yet
    promised: int = 0  # to a node that others still have to leave
    gated: int = 0  # somebody does not let them go
    waiting: int = 0
    going: int = 0
    done: int = 0
    failed: int = 0

    @property
    def unplaced(self) -> int:
        """Return how many are on no node and would be."""
        return self.promised + self.gated + self.waiting

    @property
    def there(self) -> int:
        """Return how many count for their unit."""
        return self.running + self.starting + self.unplaced + self.done


class Part(NamedTuple):
    """One unit, or what stands for one."""

    stage: str
    group: str  # its name, whether there is one or not; "" where pods name none
    after: str
    members: str
    names: frozenset[str]  # of its replicatedJobs
    later: tuple[str, ...]  # those of which no pod is there because others have to be Ready first
    least: int  # pods without which it is not whole
    edges: tuple[Edge, ...]  # what others must have reached before
    is_over: bool
    pods: tuple[SeenPod, ...]
    found: PodGroup | None


def mode_of(found: Found) -> Mode:
    """Return who binds: a group without a tree was written for somebody else than us."""
    groups = found.groups
    is_flat = bool(groups) and not any(group.spec.sub_groups for group in groups)
    return "external" if is_flat else "bundled"


def planned(found: Found) -> Preview | None:
    """Return what becomes of the JobSet."""
    if found.jobset is None:
        return None
    around = Surroundings(mode_of(found), found.scheduler_name, DEFAULT_QUEUE)
    return preview_jobset(found.jobset, around)


def parts_of(found: Found, plan: Preview | None) -> tuple[Part, ...]:
    """Return the units in their order; after them pods that are in none."""
    groups = {group.metadata.key: group for group in found.groups}
    pods = _newest(found)
    parts = []
    for row in plan.rows if plan else ():
        names = {member.name for member in row.unit.members}
        own = [pod for pod in pods if pod.metadata.labels.get(REPLICATED_JOB) in names]
        pods = [pod for pod in pods if pod.metadata.labels.get(REPLICATED_JOB) not in names]
        group = groups.pop(Key(found.key.namespace, row.group), None)
        parts.append(_planned(row, own, group, found.jobset))
    return (*parts, *_others(pods, groups))


def count(pods: Iterable[SeenPod]) -> Heads:
    """Count pods by how far they are."""
    numbers = dict.fromkeys(Heads._fields, 0)
    for pod in pods:
        numbers[_how_far(pod)] += 1
    return Heads(**numbers)


def _how_far(pod: SeenPod) -> str:
    over = {"Succeeded": "done", "Failed": "failed"}.get(pod.status.phase)
    if over:
        return over
    if pod.metadata.deletion_timestamp:
        return "going"
    if pod.spec.node_name:
        return "running" if pod.status.phase == "Running" else "starting"
    if pod.spec.scheduling_gates:
        return "gated"
    return "promised" if pod.status.nominated_node_name else "waiting"


def _planned(row: Row, pods: list[SeenPod], group: PodGroup | None, jobset: JobSet | None) -> Part:
    there = {pod.metadata.labels.get(REPLICATED_JOB) for pod in pods}
    members = row.unit.members
    least = sum(
        member.replicas * member.minimum
        for member in members
        if not member.is_later or member.name in there
    )
    over = {
        one.name: one.succeeded for one in (jobset.status.replicated_jobs_status if jobset else ())
    }
    return Part(
        stage=row.stage,
        group=row.group,
        after=row.after,
        members=row.members,
        names=frozenset(member.name for member in members),
        later=tuple(it.name for it in members if it.is_later and it.name not in there),
        least=least,
        edges=row.unit.after,
        is_over=all(over.get(member.name, -1) >= member.replicas for member in members),
        pods=tuple(pods),
        found=group,
    )


def _others(pods: list[SeenPod], groups: dict[Key, PodGroup]) -> Iterator[Part]:
    """Yield what pods say of themselves: whose group they are in."""
    named: dict[str, list[SeenPod]] = {}
    for pod in pods:
        named.setdefault(pod.metadata.annotations.get(POD_GROUP, ""), []).append(pod)
    by_name = {key.name: group for key, group in groups.items()}
    parts = [_grouped(name, named.get(name, []), by_name.get(name)) for name in {*named, *by_name}]
    yield from sorted(parts, key=lambda part: (part.stage, part.group))


def _grouped(name: str, pods: list[SeenPod], group: PodGroup | None) -> Part:
    """Return what a group says of itself; without one it is the pods that name it."""
    notes = group.metadata.annotations if group else {}
    stage, _, after = notes.get(STAGE, "-").partition(" after ")
    said = _said(notes)
    leaves = [it for it in group.spec.sub_groups if it.min_member is not None] if group else []
    there = {pod.metadata.labels.get(SUBGROUP) for pod in pods}
    absent = [leaf for leaf in leaves if _is_later(leaf, said) and leaf.name not in there]
    least = sum(leaf.min_member or 0 for leaf in leaves if leaf not in absent)
    flat = group.spec.min_member if group else None
    inner = [it.name for it in group.spec.sub_groups if it.min_member is None] if group else []
    labels = (pod.metadata.labels.get(REPLICATED_JOB, "") for pod in pods)
    return Part(
        stage=stage,
        group=name,
        after=after,
        members=notes.get(MEMBERS) or "-",
        names=frozenset(filter(None, (*inner, *labels))),
        later=tuple(dict.fromkeys(leaf.parent or leaf.name for leaf in absent)),
        least=least or flat or len(pods),
        edges=tuple(Edge(it.replicated_job, "", it.status) for it in said.after),
        is_over=False,
        pods=tuple(pods),
        found=group,
    )


def _said(notes: Mapping[str, str]) -> Anticipated:
    try:
        return read_anticipated(notes.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Anticipated()  # the scheduler has a verdict of its own for that


def _is_later(leaf: SubGroup, said: Anticipated) -> bool:
    prefixes = (it.sub_group_prefix for it in said.later)
    return any(
        leaf.name.startswith(prefix) and leaf.name.removeprefix(prefix).isdecimal()
        for prefix in prefixes
    )


def _newest(found: Found) -> list[SeenPod]:
    """Return the pods of the JobSet's newest attempt; those of earlier ones only occupy nodes."""
    uid = found.jobset.metadata.uid if found.jobset else ""
    labels = [pod.metadata.labels for pod in found.pods]
    own = [
        (_number(it.get(RESTART_ATTEMPT, "")), pod)
        for it, pod in zip(labels, found.pods, strict=True)
        if not uid or it.get(JOBSET_UID, uid) == uid
    ]
    newest = max((attempt for attempt, _ in own), default=0)
    return [pod for attempt, pod in own if attempt == newest]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
