"""The rules, one after the other, for a JobSet as admission would let it in."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import PREEMPTIBILITY, PRIORITY_CLASS_NAME, SKIP_PODGROUPER
from trainer_kai.api.wishes import PREEMPTIBILITIES
from trainer_kai.policy.classes import UNCHOSEN, Choosable
from trainer_kai.policy.finding import Code, Finding
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.lint.bounds import Bounds
from trainer_kai.policy.lint.limits import over_limits, over_quotas
from trainer_kai.policy.lint.room import Room
from trainer_kai.policy.lint.subject import Part, count_path, part_of, summed
from trainer_kai.policy.lint.words import (
    amount_faults,
    excesses,
    near,
    priority_faults,
    topology_faults,
    unsupported_topologies,
    wish_faults,
)
from trainer_kai.policy.lint.work import Patience
from trainer_kai.policy.units import Unit, outline

__all__ = ["MOST_FINDINGS", "lint_jobset"]

MOST_FINDINGS: Final = 16  # nobody reads more, and the API server passes no more on
_NOTES: Final = "metadata.annotations"
_PREEMPTIBLE_BELOW: Final = 100


def lint_jobset(jobset: JobSet, queue: str, rules: Rules, bounds: Bounds) -> tuple[Finding, ...]:
    """Return what is wrong with it, what can never run first; paths are those of the JobSet."""
    found = dict.fromkeys(islice(_all(jobset, queue, rules, bounds), 4 * MOST_FINDINGS))
    unsaid = Code.NO_NODE_TODAY if bounds.grows else ""
    told = (it for it in found if it.code != unsaid)
    return tuple(sorted(told, key=lambda it: not it.blocks)[:MOST_FINDINGS])


def _all(jobset: JobSet, queue: str, rules: Rules, bounds: Bounds) -> Iterator[Finding]:
    plan = outline(jobset, rules.scheduler_name, staged=rules.mode == "external")
    for finding in plan.findings:
        code = Code.UNREACHABLE if finding.blocks else Code.NOT_UNDERSTOOD
        yield finding._replace(code=code)
    yield from _words(jobset, bounds)
    if jobset.metadata.annotations.get(SKIP_PODGROUPER) == "true":
        return  # whoever groups his pods himself knows what starts together
    if rules.mode == "bundled":
        yield from unsupported_topologies(jobset)
        yield from excesses(jobset)
    patience = Patience()
    room = Room(bounds.nodes, patience, grows=bounds.grows) if bounds.nodes is not None else None
    for unit in plan.units:
        parts = [part_of(jobset, member) for member in unit.members]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            yield from _of_unit(jobset, unit, known, room, (queue, bounds))


def _words(jobset: JobSet, bounds: Bounds) -> Iterator[Finding]:
    yield from amount_faults(jobset)
    if bounds.priorities is not None:
        yield from priority_faults(jobset, bounds.priorities)
    if bounds.topologies is not None:
        yield from topology_faults(jobset.metadata.annotations, _NOTES, bounds.topologies)
        for i, job in enumerate(jobset.spec.replicated_jobs):
            notes = job.template.metadata.annotations
            yield from topology_faults(notes, _leaf_notes(i), bounds.topologies)
    yield from wish_faults(jobset)


def _of_unit(
    jobset: JobSet, unit: Unit, parts: Sequence[Part], room: Room | None, known: tuple[str, Bounds]
) -> Iterator[Finding]:
    """Yield what is wrong with the size of one unit."""
    queue, bounds = known
    needs = {name: amount for name, amount in summed(unit, parts).items() if amount}
    path = count_path(parts)
    if bounds.queues is not None:
        yield from over_limits(path, needs, bounds.gpus, queue, bounds.queues)
        if _is_fixed(jobset, parts, bounds):
            yield from over_quotas(path, needs, bounds.gpus, queue, bounds.queues)
    if room is None:
        return
    whole = near(jobset.metadata.annotations, _NOTES, bounds.topologies)
    is_all = unit.min_members == len(unit.members)
    yield from room.of_unit(parts, needs, whole, all_needed=is_all)
    for part in parts:
        notes = part.job.template.metadata.annotations
        leaf = near(notes, _leaf_notes(part.place), bounds.topologies)
        if leaf is not None:
            yield from room.of_leaf(part, leaf)


def _leaf_notes(index: int) -> str:
    return f"spec.replicatedJobs[{index}].template.{_NOTES}"


def _is_fixed(jobset: JobSet, parts: Iterable[Part], bounds: Bounds) -> bool:
    """Say whether it is known that nobody may preempt a unit."""
    labels = jobset.metadata.labels
    wish = labels.get(PREEMPTIBILITY)
    if wish in PREEMPTIBILITIES:
        return wish != PREEMPTIBILITIES[0]
    if bounds.priorities is None:
        return False
    of_pods = (part.pod.priority_class_name for part in parts if part.pod.priority_class_name)
    name = labels.get(PRIORITY_CLASS_NAME) or next(of_pods, UNCHOSEN)
    return Choosable(bounds.priorities).value(name) >= _PREEMPTIBLE_BELOW
