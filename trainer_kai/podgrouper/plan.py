"""What to write for one JobSet: groups that are missing or differ, pods nobody assigned.

The answer follows from what is there and from nothing else, so asking twice is asking once. While a
JobSet is suspended nothing is written: its queue may still change, and its groups ask for nothing.
While a pod of it is on a node, its groups change only so that they are easier to evict.
Nor is it for a JobSet whose TrainJob does not exist: marks and owners are what an author wrote.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    GANG,
    JOBSET_CONTROLLER,
    POD_GROUP,
    QUEUE,
    SUBGROUP,
)
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.wishes import annotation_wish_faults, label_wish_faults
from trainer_kai.podgrouper.roster import Seen
from trainer_kai.podgrouper.seen import Group, paths_in
from trainer_kai.policy.census import census
from trainer_kai.policy.classes import Choosable
from trainer_kai.policy.easing import Eased, eased
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.groups import Fields, Rules, group_of_unit, groups
from trainer_kai.policy.names import leaf_name
from trainer_kai.policy.units import Outline, Unit, outline

__all__ = ["Assign", "Known", "Plan", "is_ours", "plan"]

_NOT_COMPARED: Final = ("apiVersion", "kind", "metadata")


class Known(NamedTuple):
    """The groups of a JobSet, and what else is known of the cluster."""

    groups: Mapping[Key, Group]
    undefined: AbstractSet[str] = frozenset()  # fields of a group's spec that KAI's CRD lacks
    has_trainjob: bool = True  # the TrainJob that the JobSet names as its controller exists
    is_running: bool = False  # a pod of a group is on a node, and not over
    classes: Choosable = Choosable({})


class Assign(NamedTuple):
    """A pod that must be told its group, and what to merge into it."""

    key: Key
    fields: Fields


class Plan(NamedTuple):
    """What to write, and what is worth telling once."""

    apply: tuple[Fields, ...] = ()
    assign: tuple[Assign, ...] = ()
    is_first: bool = False
    outline: Outline = Outline(())
    kept: tuple[Finding, ...] = ()  # what the JobSet asks for in vain while its pods run


def is_ours(jobset: JobSet) -> bool:
    """Say whether a JobSet was admitted by us, and its pods are made in this cluster."""
    managed_here = jobset.spec.managed_by in {"", JOBSET_CONTROLLER}
    return managed_here and jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK


def plan(jobset: JobSet, known: Known, members: Iterable[Seen], rules: Rules) -> Plan:
    """Compare what is with what should be."""
    meta = jobset.metadata
    is_over = meta.deletion_timestamp or jobset.status.terminal_state
    if is_over or jobset.spec.suspend or not (known.has_trainjob and is_ours(jobset)):
        return Plan()
    whole = outline(jobset, rules.scheduler_name, staged=rules.mode == "external")
    marked = Outline(
        tuple(unit for unit in whole.units if _is_marked(jobset, unit)),
        (*whole.findings, *_wishes(jobset)),
    )
    pods = list(members)
    counts = census(pod.sighting for pod in pods) if rules.mode == "external" else {}
    try:
        wanted = list(groups(jobset, whole, rules, counts))
    except QuantityError as error:
        finding = Finding("spec.replicatedJobs", f"cannot be planned: {error}", blocks=True)
        return Plan(outline=marked._replace(findings=(*marked.findings, finding)))
    if not any(count.waiting for count in counts.values()):
        wanted = [_not_raised(fields, known.groups) for fields in wanted]
    pairs = zip(whole.units, wanted, strict=True)
    found = [_eased(fields, known, rules) for unit, fields in pairs if unit in marked.units]
    apply = tuple(it.fields for it in found if _differs(it.fields, known))
    assign = (_assigned(jobset, pod, marked, rules) for pod in pods if not pod.group)
    kept = tuple(dict.fromkeys(finding for it in found for finding in it.kept))
    is_first = bool(apply) and not known.groups
    return Plan(apply, tuple(filter(None, assign)), is_first, marked, kept)


def _wishes(jobset: JobSet) -> Iterator[Finding]:
    """Yield what is asked for and cannot be meant; without a queue that can be, nothing runs."""
    meta = jobset.metadata
    for fault in (
        *label_wish_faults(meta.labels, "metadata.labels"),
        *annotation_wish_faults(meta.annotations, "metadata.annotations"),
    ):
        yield Finding(fault.path, fault.message, blocks=f"[{QUEUE}]" in fault.path)


def _not_raised(fields: Fields, groups: Mapping[Key, Group]) -> Fields:
    """Leave a flat minimum that was lowered as it is: nobody waits, so nobody is helped by more."""
    group = groups.get(_key(fields))
    there = group.spec.get("minMember") if group else None
    if there is None or "minMember" not in fields["spec"]:
        return fields
    lowest = min(there, fields["spec"]["minMember"])
    return {**fields, "spec": {**fields["spec"], "minMember": lowest}}


def _eased(fields: Fields, known: Known, rules: Rules) -> Eased:
    """Leave what is there where pods run and the change would make them harder to evict."""
    there = known.groups.get(_key(fields))
    if there is None or not known.is_running:
        return Eased(fields)
    return eased(fields, there.metadata["labels"], there.spec, known.classes, rules.mode)


def _is_marked(jobset: JobSet, unit: Unit) -> bool:
    """Say whether admission left the pods of a unit to us, and did not leave them to their user."""
    names = {member.name for member in unit.members}
    return any(
        GANG in job.template.spec.template.metadata.labels
        for job in jobset.spec.replicated_jobs
        if job.name in names
    )


def _key(fields: Fields) -> Key:
    return Key(fields["metadata"]["namespace"], fields["metadata"]["name"])


def _differs(wanted: Fields, known: Known) -> bool:
    meta = wanted["metadata"]
    group = known.groups.get(_key(wanted))
    if group is None:
        return True
    own = {name: meta[name] for name in ("labels", "annotations", "ownerReferences")}
    spec = {name: it for name, it in wanted["spec"].items() if name not in known.undefined}
    fields = {"metadata": own, "spec": spec}
    if not _holds(fields, {"metadata": group.metadata, "spec": group.spec}):
        return True
    whole = {"metadata": own, "spec": wanted["spec"]}
    return not group.ours <= set(paths_in(whole))  # something of ours should be there no more


def _holds(wanted: Any, there: Any) -> bool:
    """Say whether an object has all that is wanted; lists are whole, objects may have more."""
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(
            name in there and _holds(value, there[name]) for name, value in wanted.items()
        )
    return bool(wanted == there)


def _assigned(jobset: JobSet, pod: Seen, marked: Outline, rules: Rules) -> Assign | None:
    unit = marked.unit_of(pod.replicated_job)
    if unit is None or pod.sighting.is_going:
        return None
    metadata: Fields = {
        "uid": pod.uid,  # the API server refuses the merge if it is another pod by now
        "annotations": {POD_GROUP: group_of_unit(jobset, unit)},
    }
    if rules.mode == "bundled":
        metadata["labels"] = {SUBGROUP: leaf_name(pod.replicated_job, pod.job_index)}
    return Assign(pod.key, {"metadata": metadata})
