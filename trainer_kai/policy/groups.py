"""From a unit to the PodGroup it should have.

A group is what is sent as a server-side apply: all fields that are ours, every time, for one that
is left out would be taken away. What is not ours (`reserved`, back-off, a topology that somebody
else assigned) is not named, and stays.

Our own scheduler reads KAI's tree: a node for each replicatedJob, a leaf for each of its Jobs. An
external one is given one flat group for each stage, whose minimum sinks as members are done.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    ANTICIPATED,
    GANG,
    JOBSET_NAME,
    MEMBERS,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    STAGE,
    STALENESS_GRACE_PERIOD,
    TOP_OWNER,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.resources import JOBSETS, PODGROUPS
from trainer_kai.api.wishes import annotation_wish_faults, label_wish_faults
from trainer_kai.policy.anticipated import anticipated
from trainer_kai.policy.census import Count
from trainer_kai.policy.classes import OF_SYSTEM, UNCHOSEN
from trainer_kai.policy.names import group_name, leaf_name
from trainer_kai.policy.units import Member, Outline, Unit

__all__ = ["Mode", "Rules", "group_of_unit", "groups"]

Mode = Literal["bundled", "external"]
Fields = dict[str, Any]

_NEVER: Final = "-1s"  # evicted for being incomplete


class Rules(NamedTuple):
    """What a site decides."""

    mode: Mode
    scheduler_name: str
    default_queue: str
    kueue: bool = False  # it runs here


def groups(
    jobset: JobSet, plan: Outline, rules: Rules, counts: Mapping[str, Count] | None = None
) -> Iterator[Fields]:
    """Yield the wanted groups of a JobSet; *counts* are its pods, for an external scheduler."""
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    levels = _levels(plan)
    for unit, level in zip(plan.units, levels, strict=True):
        annotations = {
            STAGE: _stage(unit, level, max(levels)),
            MEMBERS: _members(unit),
            TOP_OWNER: _owner_text(jobset),
        }
        if rules.mode == "bundled":
            annotations[ANTICIPATED] = anticipated(unit, jobs, lambda n: _group_of(jobset, plan, n))
            spec = _tree(unit, jobs)
        else:
            spec = _flat(jobset, unit, jobs, counts or {})
        yield {
            "apiVersion": PODGROUPS.api_version,
            "kind": PODGROUPS.kind,
            "metadata": {
                "name": group_of_unit(jobset, unit),
                "namespace": jobset.metadata.namespace,
                "labels": _labels(jobset, unit),
                "annotations": {name: text for name, text in annotations.items() if text},
                "ownerReferences": [_owner(jobset)],
            },
            "spec": {**_wishes(jobset, unit, jobs, rules), **spec},
        }


def group_of_unit(jobset: JobSet, unit: Unit) -> str:
    """Return the name of a unit's group."""
    return group_name(jobset.metadata.name, jobset.metadata.uid, unit.suffix)


def _group_of(jobset: JobSet, plan: Outline, name: str) -> str:
    unit = plan.unit_of(name)
    return group_of_unit(jobset, unit) if unit else ""


def _labels(jobset: JobSet, unit: Unit) -> dict[str, str]:
    labels = {JOBSET_NAME: jobset.metadata.name, GANG: unit.suffix}
    for name in (QUEUE, NODE_POOL):
        if jobset.metadata.labels.get(name):
            labels[name] = jobset.metadata.labels[name]
    return labels


def _owner(jobset: JobSet) -> Fields:
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "name": jobset.metadata.name,
        "uid": jobset.metadata.uid,
    }


def _owner_text(jobset: JobSet) -> str:
    """Write the owner as KAI does, for whoever shows it."""
    meta = jobset.metadata
    return (
        f"name: {meta.name}\nuid: {meta.uid}\ngroup: {JOBSETS.group}\n"
        f"version: {JOBSETS.version}\nkind: {JOBSETS.kind}\n"
    )


def _levels(plan: Outline) -> list[int]:
    """Return for each unit how many stages there are up to it; those before it stand before it."""
    levels: list[int] = []
    level_of: dict[str, int] = {}
    for unit in plan.units:
        levels.append(1 + max((level_of.get(edge.before, 0) for edge in unit.after), default=0))
        level_of |= {member.name: levels[-1] for member in unit.members}
    return levels


def _stage(unit: Unit, level: int, last: int) -> str:
    ahead: dict[str, list[str]] = {}
    for edge in unit.after:
        ahead.setdefault(edge.status, []).append(edge.before)
    after = " and ".join(
        f"{', '.join(dict.fromkeys(names))} {status}" for status, names in ahead.items()
    )
    return f"{level}/{last}" + (f" after {after}" if after else "")


def _members(unit: Unit) -> str:
    return " + ".join(
        f"{member.replicas * member.pods} {member.name}{' later' if member.is_later else ''}"
        for member in unit.members
    )


def _wishes(jobset: JobSet, unit: Unit, jobs: Mapping[str, ReplicatedJob], rules: Rules) -> Fields:
    """Return what the JobSet asks for; what cannot be meant is left out, as KAI does."""
    meta = jobset.metadata
    labels = _meant_labels(meta.labels)
    asked = _meant(meta.annotations)
    pods = [jobs[member.name].template.spec.template.spec for member in unit.members]
    of_pods = next((pod.priority_class_name for pod in pods if pod.priority_class_name), UNCHOSEN)
    chosen = labels.get(PRIORITY_CLASS_NAME, "")
    if rules.mode == "external" and chosen.startswith(OF_SYSTEM):  # KAI would let it choose
        chosen = chosen if {pod.priority_class_name for pod in pods} == {chosen} else ""
    external = _NEVER if rules.mode == "external" else None
    wishes: Fields = {
        "queue": meta.labels.get(QUEUE) or rules.default_queue,
        "priorityClassName": chosen or of_pods,
        "preemptibility": labels.get(PREEMPTIBILITY),
        "preemptionDelay": asked.get(PREEMPTION_DELAY),
        "stalenessGracePeriod": asked.get(STALENESS_GRACE_PERIOD, external),
        "topologyConstraint": _topology(asked),
    }
    return {name: wish for name, wish in wishes.items() if wish}


def _meant(annotations: Mapping[str, str]) -> dict[str, str]:
    wrong = {fault.path for fault in annotation_wish_faults(annotations, "")}
    return {name: text for name, text in annotations.items() if f"[{name}]" not in wrong}


def _meant_labels(labels: Mapping[str, str]) -> dict[str, str]:
    wrong = {fault.path for fault in label_wish_faults(labels, "")}
    return {name: text for name, text in labels.items() if f"[{name}]" not in wrong}


def _topology(asked: Mapping[str, str]) -> Fields | None:
    names = {
        "topology": asked.get(TOPOLOGY),
        "requiredTopologyLevel": asked.get(TOPOLOGY_REQUIRED),
        "preferredTopologyLevel": asked.get(TOPOLOGY_PREFERRED),
    }
    return {name: text for name, text in names.items() if text} if names["topology"] else None


def _tree(unit: Unit, jobs: Mapping[str, ReplicatedJob]) -> Fields:
    leaves = {
        leaf_name(member.name, i): member for member in unit.members for i in range(member.replicas)
    }
    if any(member.name in leaves for member in unit.members):
        # One is called like the leaf of another. Without the inner nodes all leaves are needed.
        flat = [_leaf(name, jobs[member.name], member.minimum) for name, member in leaves.items()]
        return {"minSubGroup": len(flat), "subGroups": flat}
    nodes: list[Fields] = []
    for member in unit.members:
        nodes.append({"name": member.name, "minSubGroup": member.replicas})
        nodes += (
            {
                **_leaf(leaf_name(member.name, i), jobs[member.name], member.minimum),
                "parent": member.name,
            }
            for i in range(member.replicas)
        )
    return {"minSubGroup": unit.min_members, "subGroups": nodes}


def _leaf(name: str, job: ReplicatedJob, minimum: int) -> Fields:
    leaf: Fields = {"name": name, "minMember": minimum}
    topology = _topology(_meant(job.template.metadata.annotations))
    if topology and len(topology) > 1:
        leaf["topologyConstraint"] = topology
    return leaf


def _flat(
    jobset: JobSet, unit: Unit, jobs: Mapping[str, ReplicatedJob], counts: Mapping[str, Count]
) -> Fields:
    """Count what is needed; less once members are done and others wait to take their places again.

    An external scheduler does not count those that succeeded, so a pod that is made again beside
    them would wait for ever. Where nobody waits nothing is written.
    """
    found = {member.name: _found(member, counts) for member in unit.members}
    needed = [member.replicas * member.minimum for member in unit.members]
    alive = [count.waiting + count.bound for each in found.values() for count in each]
    is_waiting = any(count.waiting for each in found.values() for count in each)
    if is_waiting and sum(alive) < _least(unit, needed):
        over = {one.name: one.succeeded for one in jobset.status.replicated_jobs_status}
        needed = [
            0  # the pods of a Job that is over may be gone
            if over.get(member.name) == member.replicas
            else sum(_left(member, jobs[member.name], count) for count in found[member.name])
            for member in unit.members
        ]
    return {"minMember": max(_least(unit, needed), 1)}


def _least(unit: Unit, needed: list[int]) -> int:
    """Return with how many pods as many members as are needed have theirs, whichever they are."""
    return sum(sorted(needed)[: unit.min_members])


def _left(member: Member, job: ReplicatedJob, count: Count) -> int:
    """Return how many of one Job's pods can still be asked for."""
    completions = job.template.spec.completions
    if completions is not None:
        return min(member.minimum, max(completions - count.succeeded, 0))
    return count.waiting + count.bound if count.succeeded else member.minimum


def _found(member: Member, counts: Mapping[str, Count]) -> list[Count]:
    """Return the pods of each Job of a member."""
    return [counts.get(leaf_name(member.name, i), Count()) for i in range(member.replicas)]
