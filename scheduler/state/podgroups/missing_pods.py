"""Pods that a PodGroup misses: those expected later, and those lost from a gang that runs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from scheduler.core.gang.tasks_to_allocate import is_satisfied
from scheduler.core.model.podgroup import PodSet, ReservationCause, SubGroupTree
from scheduler.state.podgroups.podgroup import (
    DEFAULT_PODSET,
    PodGroupRecord,
    min_members,
    podgroup_tree,
    spec_failure,
)
from scheduler.state.podgroups.reserved_annotation import (
    NamedPlace,
    read_relocations,
    read_reserved,
    write_reserved,
)
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass
from trainer_kai.api.container import Container, ContainerPort, Resources
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    ANTICIPATED,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB,
    RESERVED,
    SUBGROUP,
)
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.podgroups.anticipated import AnticipatedPods, read_anticipated
from trainer_kai.policy.podgroups.names import podset_name_prefix
from trainer_kai.policy.podgroups.planned import MOST_EXPECTED
from trainer_kai.policy.podgroups.pod_counts import observe_pod

__all__ = [
    "Shortage",
    "expected_pods",
    "expected_prefixes",
    "is_lost",
    "is_short",
    "min_existing_pods",
    "replaces_lost_pods",
    "reserve_lost_places",
    "shortage_of",
    "staleness_grace_s",
]


def expected_pods(
    record: PodGroupRecord, class_table: PodClassTable, scheduler_name: str
) -> dict[str, tuple[PodClass, int]]:
    """Return for each leaf of which kin the pods that come will be, and how many there are."""
    found = {}
    for anticipated_pods in record.anticipated.later:
        pod = _example_pod(anticipated_pods, record.key, scheduler_name)
        count = _count(anticipated_pods)
        for podset, labels in _podsets_of(anticipated_pods, record):
            # Their sub-group is a label, so that those of two leaves are not alike.
            found[podset] = (
                class_table.expect(record.key, pod, (labels, anticipated_pods.sharing)),
                count,
            )
    for podset, reserved in record.relocating.items() if record.is_relocating else ():
        like = reserved.like
        if like is not None and podset in record.min_members and podset not in found:
            metadata = {**like.labels, SUBGROUP: podset}, like.sharing
            pod = _example_pod(like, record.key, scheduler_name)
            found[podset] = class_table.expect(record.key, pod, metadata), _count(like)
    return found


def _count(anticipated_pods: AnticipatedPods) -> int:
    return min(max(anticipated_pods.count, 0), MOST_EXPECTED)


def _podsets_of(
    anticipated_pods: AnticipatedPods, record: PodGroupRecord
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the leaves of pods that come later, and what is known of their labels."""
    known = {**anticipated_pods.labels, **_jobset_labels(anticipated_pods, record.jobset)}
    for podset in record.min_members:
        index = podset.removeprefix(anticipated_pods.sub_group_prefix)
        is_its = podset.startswith(anticipated_pods.sub_group_prefix) and index.isdecimal()
        if is_its and len(index) < 10 and int(index) < anticipated_pods.replicas:
            of_job = {JOB_INDEX: index} if record.jobset_uid else {}
            yield podset, {**known, **of_job, SUBGROUP: podset}


def _jobset_labels(anticipated_pods: AnticipatedPods, jobset: JobSet | None) -> Mapping[str, str]:
    """Return what JobSet will write on pods, as far as others may choose them by it."""
    if jobset is None:
        return {}
    known = {JOBSET_NAME: jobset.metadata.name, JOBSET_UID: jobset.metadata.uid}
    for job in jobset.spec.replicated_jobs:
        if podset_name_prefix(job.name) == anticipated_pods.sub_group_prefix:
            known[REPLICATED_JOB] = job.name
    return known


def _example_pod(anticipated_pods: AnticipatedPods, group: Key, scheduler_name: str) -> Pod:
    ports = tuple(
        ContainerPort(host_port=one.port, protocol=one.protocol, host_ip=one.host_ip)
        for one in anticipated_pods.host_ports
    )
    spec = PodSpec(
        containers=(
            Container(resources=Resources(requests=anticipated_pods.requests), ports=ports),
        ),
        volumes=tuple(one for one in anticipated_pods.volumes if one.persistent_volume_claim),
        topology_spread_constraints=anticipated_pods.topology_spread_constraints,
        node_selector=anticipated_pods.node_selector,
        affinity=anticipated_pods.affinity,
        tolerations=anticipated_pods.tolerations,
        priority_class_name=anticipated_pods.priority_class_name,
        scheduler_name=scheduler_name,
    )
    return Pod(metadata=Meta(namespace=group.namespace), spec=spec)


def expected_prefixes(group: PodGroup) -> tuple[str, ...]:
    """Return how the leaves are called whose pods are made only when others run."""
    try:
        anticipated = read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return tuple(expected.sub_group_prefix for expected in anticipated.later)


def min_existing_pods(group: PodGroup) -> int:
    """Return without how many pods that exist nothing of a group can be placed."""
    if spec_failure(group) is not None:
        return 0
    expected = expected_prefixes(group)

    def make_podset(name: str, minimum: int) -> PodSet:
        return PodSet(name, 0 if name.startswith(expected) else minimum)

    return _min_pods(podgroup_tree(group, make_podset))


def _min_pods(tree: SubGroupTree) -> int:
    if isinstance(tree, PodSet):
        return tree.minimum
    return sum(sorted(map(_min_pods, tree.children))[: tree.minimum])


_TERMINAL_PHASES = ("Succeeded", "Failed")


class Shortage(NamedTuple):
    """What a unit lacks that has begun."""

    running: int
    needed: int
    all_exist: bool  # those that are missing wait for room; otherwise some are still to be made

    def __str__(self) -> str:
        return f"{self.running} of {self.needed} of its pods have a place"


def is_lost(before: Pod | None, now: Pod | None) -> bool:
    """Say whether a pod that had its place gives it up without having succeeded."""
    if before is None or not before.spec.node_name or _is_terminating_or_finished(before):
        return False
    if now is None or now.metadata.uid != before.metadata.uid:
        return True
    return _is_terminating_or_finished(now) and now.status.phase != "Succeeded"


def reserve_lost_places(
    lost: Iterable[Pod], others: Iterable[Pod], group: PodGroup, jobset: JobSet | None
) -> str | None:
    """Return the annotation with the places of lost pods in it; None if no pod will want them.

    All that a group has lost is looked at once: to look at all its pods for each that it loses took
    minutes for thousands, which a user may delete in a moment.
    """
    if not replaces_lost_pods(group, jobset) or spec_failure(group) is not None:
        return None
    lost = list(lost)
    counting = _newest_attempt((*lost, *others))
    if any(pod.status.phase == "Succeeded" for pod in counting):
        return None  # it is about to end
    are_counting = set(map(id, counting))
    minimums = min_members(group)
    running = Counter(
        podset_of(pod, minimums)
        for pod in counting
        if pod.spec.node_name and pod.status.phase not in _TERMINAL_PHASES
    )
    text = group.metadata.annotations.get(RESERVED, "")
    reserved = read_reserved(text)
    reserved_places = (
        []
        if isinstance(reserved, str)
        else [reserved_place for some in reserved.values() for reserved_place in some]
    )
    pod_counts = running + Counter(reserved_place.podset for reserved_place in reserved_places)
    places = [
        NamedPlace(podset, pod.spec.node_name, ReservationCause.REPAIR)
        for pod in lost
        if id(pod) in are_counting and (podset := podset_of(pod, minimums)) in minimums
    ]
    if not places or not _is_enough(group, pod_counts):
        return None  # it was not whole: what is missing gets a place anew, with the others
    return write_reserved([*reserved_places, *places], read_relocations(text))


def shortage_of(group: PodGroup, pods: Iterable[Pod], jobset: JobSet | None) -> Shortage | None:
    """Return what a unit lacks; None if it is whole, has not begun, or comes to its end."""
    pods = _newest_attempt(pods)
    if not replaces_lost_pods(group, jobset) or spec_failure(group) is not None:
        return None
    if any(pod.status.phase == "Succeeded" for pod in pods):
        return None
    minimums = min_members(group)
    alive = [pod for pod in pods if not _is_terminating_or_finished(pod)]
    running = Counter(podset_of(pod, minimums) for pod in alive if pod.spec.node_name)
    existing = Counter(podset_of(pod, minimums) for pod in alive)
    if not running.total() or not is_short(group, running, existing):
        return None
    expected = _expected(group, existing)
    needed = sum(count for podset, count in minimums.items() if podset not in expected)
    return Shortage(running.total(), needed, all_exist=_is_enough(group, existing + expected))


def is_short(group: PodGroup, running: Mapping[str, int], existing: Mapping[str, int]) -> bool:
    """Say whether a group that has begun lacks pods; those of a later stage it lacks not yet."""
    return not _is_enough(group, Counter(running) + _expected(group, existing))


def staleness_grace_s(group: PodGroup, usual_s: float) -> float:
    """Return for how many seconds a unit may be short; below zero without end."""
    try:
        return nanoseconds(group.spec.staleness_grace_period) / 1e9
    except DurationError:
        return usual_s


def _expected(group: PodGroup, existing: Mapping[str, int]) -> Counter[str]:
    """Return the leaves of later stages of which no pod exists, and what these need."""
    prefixes = expected_prefixes(group)
    minimums = min_members(group).items()
    return Counter(
        {
            podset: n
            for podset, n in minimums
            if not existing.get(podset) and podset.startswith(prefixes)
        }
    )


def _is_enough(group: PodGroup, pod_counts: Mapping[str, int]) -> bool:
    """Say whether a group is as whole as it has to be with so many pods in each leaf."""
    return is_satisfied(
        podgroup_tree(
            group, lambda name, minimums: PodSet(name, minimums, running=pod_counts.get(name, 0))
        )
    )


def _newest_attempt(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of the newest attempt, of their JobSet and then of their Job."""
    seen = [(pod, observe_pod(pod)) for pod in pods]
    newest = max((it.attempt[0] for _, it in seen), default=0)
    newest_of_job: dict[str, tuple[int, int]] = {}
    for _, it in seen:
        newest_of_job[it.podset] = max(newest_of_job.get(it.podset, (newest, 0)), it.attempt)
    return [pod for pod, it in seen if it.attempt == newest_of_job[it.podset]]


def podset_of(pod: Pod, minimums: Mapping[str, int]) -> str:
    """Return the leaf that a pod names."""
    return pod.metadata.labels.get(SUBGROUP) or (DEFAULT_PODSET if len(minimums) == 1 else "")


def replaces_lost_pods(group: PodGroup, jobset: JobSet | None) -> bool:
    """Say whether there will be another pod for one that is lost."""
    if group.metadata.deletion_timestamp:
        return False
    owners = [owner for owner in group.metadata.owner_references if owner.kind == "JobSet"]
    if not owners:
        return True  # whoever made the pods may make another
    if jobset is None or jobset.metadata.deletion_timestamp:
        return False
    return not (jobset.spec.suspend or jobset.status.terminal_state)


def _is_terminating_or_finished(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) or pod.status.phase in _TERMINAL_PHASES
