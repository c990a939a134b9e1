"""Pods that a PodGroup misses: expected pods, and pods that a running PodGroup lost."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from scheduler.core.gang import is_satisfied
from scheduler.core.model.podgroup import PodSet, ReservationCause, SubGroupTree
from scheduler.state.podgroups.podgroup import (
    DEFAULT_PODSET,
    NamedPlace,
    PodGroupRecord,
    min_members,
    podgroup_tree,
    read_relocations,
    read_reserved,
    spec_failure,
    write_reserved,
)
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass
from trainer_kai.api.bounds import MOST_EXPECTED
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    ANTICIPATED,
    RESERVED,
    SUBGROUP,
)
from trainer_kai.api.pod import TERMINAL_PHASES, Container, ContainerPort, Pod, PodSpec, Resources
from trainer_kai.api.quantity import DurationError, nanoseconds
from trainer_kai.policy.podgroups.anticipated import AnticipatedPods, read_anticipated
from trainer_kai.policy.podgroups.grouping import (
    newest_attempts,
    observe_pod,
    podset_name_prefix,
)
from trainer_kai.policy.podgroups.segments import is_segment_prefix
from trainer_kai.policy.workloads.kinds import kind_of_owner, pod_place
from trainer_kai.policy.workloads.workload import Workload


class Shortage(NamedTuple):
    running: int
    needed: int
    all_exist: bool  # the missing pods are pending; otherwise some are not created yet

    def __str__(self) -> str:
        return f"{self.running} of {self.needed} required pods are on nodes"


def expected_pods(
    record: PodGroupRecord, class_table: PodClassTable, scheduler_name: str
) -> dict[str, tuple[PodClass, int]]:
    """Return for each PodSet the class of the pods that come later, and how many it has in all."""
    expected = {}
    for anticipated in record.anticipated.later:
        pod = _example_pod(anticipated, record.key, scheduler_name)
        count = _count(anticipated)
        for podset, labels in _podsets_of(anticipated, record):
            # The sub-group is a label, so the pods of two PodSets are of two classes.
            pod_class = class_table.expect(record.key, pod, (labels, anticipated.sharing))
            expected[podset] = pod_class, count
    for podset, reserved in record.relocating.items() if record.is_relocating else ():
        like = reserved.like
        if like is not None and podset in record.min_members and podset not in expected:
            metadata = {**like.labels, SUBGROUP: podset}, like.sharing
            pod = _example_pod(like, record.key, scheduler_name)
            expected[podset] = class_table.expect(record.key, pod, metadata), _count(like)
    return expected


def _count(anticipated: AnticipatedPods) -> int:
    return min(max(anticipated.count, 0), MOST_EXPECTED)


def _podsets_of(
    anticipated: AnticipatedPods, record: PodGroupRecord
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the PodSets of pods that come later, with the known labels of these pods."""
    job, kind = _job_name(anticipated, record.workload), record.kind
    prefix = anticipated.sub_group_prefix
    for podset in record.min_members:
        index = podset.removeprefix(prefix)
        is_indexed = podset.startswith(prefix) and index.isdecimal()
        if podset == prefix:
            added = kind.expected_labels(record.workload, "", "") if kind else {}
            yield podset, {**anticipated.labels, **added, SUBGROUP: podset}
        elif is_indexed and len(index) < 10 and int(index) < anticipated.replicas:
            # The number of a segment is no index of a Job.
            of_job = "" if is_segment_prefix(prefix) else index
            added = kind.expected_labels(record.workload, job, of_job) if kind else {}
            yield podset, {**anticipated.labels, **added, SUBGROUP: podset}


def _job_name(anticipated: AnticipatedPods, workload: Workload | None) -> str:
    """Return the name of the job that creates the pods; "" if it is not known."""
    names = (it.name for it in (workload.spec.replicated_jobs if workload else ()))
    prefix = anticipated.sub_group_prefix
    return next((it for it in names if podset_name_prefix(it) == prefix), "")


def _example_pod(anticipated: AnticipatedPods, group: Key, scheduler_name: str) -> Pod:
    ports = tuple(
        ContainerPort(host_port=one.port, protocol=one.protocol, host_ip=one.host_ip)
        for one in anticipated.host_ports
    )
    spec = PodSpec(
        containers=(Container(resources=Resources(requests=anticipated.requests), ports=ports),),
        volumes=tuple(one for one in anticipated.volumes if one.persistent_volume_claim),
        topology_spread_constraints=anticipated.topology_spread_constraints,
        node_selector=anticipated.node_selector,
        affinity=anticipated.affinity,
        tolerations=anticipated.tolerations,
        priority_class_name=anticipated.priority_class_name,
        scheduler_name=scheduler_name,
    )
    return Pod(metadata=Meta(namespace=group.namespace), spec=spec)


def expected_prefixes(group: PodGroup) -> tuple[str, ...]:
    """Return the name prefixes of the PodSets that get pods only when others run."""
    try:
        anticipated = read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return tuple(expected.sub_group_prefix for expected in anticipated.later)


def min_existing_pods(group: PodGroup) -> int:
    """Return how many pods must exist before any pod of a PodGroup can be placed."""
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


def is_lost(before: Pod | None, now: Pod | None) -> bool:
    if before is None or not before.spec.node_name or _is_terminating_or_finished(before):
        return False
    if now is None or now.metadata.uid != before.metadata.uid:
        return True
    return _is_terminating_or_finished(now) and now.status.phase != "Succeeded"


def reserve_lost_places(
    lost: Iterable[Pod], others: Iterable[Pod], group: PodGroup, workload: Workload | None
) -> str | None:
    """Return the annotation with the places of lost pods added; None if no pod will need them.

    All lost pods of a PodGroup are handled at once: to look at all its pods for each lost one took
    minutes for thousands, which a user may delete in a moment.
    """
    if not replaces_lost_pods(group, workload) or spec_failure(group) is not None:
        return None
    lost = list(lost)
    counting = _newest_attempt(group, (*lost, *others))
    if any(pod.status.phase == "Succeeded" for pod in counting):
        return None  # the PodGroup is about to end
    counting_ids = set(map(id, counting))
    minimums = min_members(group)
    running = Counter(
        podset_of(pod, minimums)
        for pod in counting
        if pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES
    )
    text = group.metadata.annotations.get(RESERVED, "")
    reserved = _reserved_places(text)
    places = [
        NamedPlace(podset, pod.spec.node_name, ReservationCause.REPAIR)
        for pod in lost
        if id(pod) in counting_ids and (podset := podset_of(pod, minimums)) in minimums
    ]
    if not places or not _is_enough(group, running + Counter(one.podset for one in reserved)):
        return None  # the PodGroup was incomplete: the pods get new places with the missing ones
    return write_reserved([*reserved, *places], read_relocations(text))


def _reserved_places(text: str) -> list[NamedPlace]:
    reserved = read_reserved(text)
    if isinstance(reserved, str):
        return []
    return [place for places in reserved.values() for place in places]


def shortage_of(group: PodGroup, pods: Iterable[Pod], workload: Workload | None) -> Shortage | None:
    """Return what a PodGroup lacks; None if it is complete, has not started, or is ending."""
    pods = _newest_attempt(group, pods)
    if not replaces_lost_pods(group, workload) or spec_failure(group) is not None:
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


def is_below_minimum(
    group: PodGroup,
    pods: Iterable[Pod],
    workload: Workload | None,
    is_stuck: Callable[[Pod], bool] = lambda _pod: False,
) -> bool:
    """Say whether a PodGroup cannot run with the pods that it has on nodes, none or some.

    A pod that *is_stuck* on its node does not run there.
    """
    pods = _newest_attempt(group, pods)
    if not replaces_lost_pods(group, workload) or spec_failure(group) is not None:
        return False
    if any(pod.status.phase == "Succeeded" for pod in pods):
        return False  # the PodGroup is about to end
    minimums = min_members(group)
    alive = [pod for pod in pods if not _is_terminating_or_finished(pod)]
    on_nodes = [pod for pod in alive if pod.spec.node_name and not is_stuck(pod)]
    running = Counter(podset_of(pod, minimums) for pod in on_nodes)
    existing = Counter(podset_of(pod, minimums) for pod in alive)
    return is_short(group, running, existing)


def is_short(group: PodGroup, running: Mapping[str, int], existing: Mapping[str, int]) -> bool:
    """Say whether a started PodGroup lacks pods; pods of a later stage are not missing yet."""
    return not _is_enough(group, Counter(running) + _expected(group, existing))


def staleness_grace_s(group: PodGroup, default_s: float) -> float:
    """Return for how many seconds a PodGroup may lack pods; a negative number is forever."""
    try:
        return nanoseconds(group.spec.staleness_grace_period) / 1e9
    except DurationError:
        return default_s


def _expected(group: PodGroup, existing: Mapping[str, int]) -> Counter[str]:
    """Return the PodSets of later stages of which no pod exists, and their minimums."""
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
    def make_podset(name: str, minimum: int) -> PodSet:
        return PodSet(name, minimum, running=pod_counts.get(name, 0))

    return is_satisfied(podgroup_tree(group, make_podset))


def _newest_attempt(group: PodGroup, pods: Iterable[Pod]) -> list[Pod]:
    kinds = filter(None, map(kind_of_owner, group.metadata.owner_references))
    place_of = next((kind.pod_place for kind in kinds), pod_place)
    observed = [(pod, observe_pod(pod, place_of(pod.metadata.labels))) for pod in pods]
    newest_of = newest_attempts([(it.podset, it.attempt) for _, it in observed])
    return [pod for pod, it in observed if it.attempt == newest_of[it.podset]]


def podset_of(pod: Pod, minimums: Mapping[str, int]) -> str:
    return pod.metadata.labels.get(SUBGROUP) or (DEFAULT_PODSET if len(minimums) == 1 else "")


def replaces_lost_pods(group: PodGroup, workload: Workload | None) -> bool:
    if group.metadata.deletion_timestamp:
        return False
    if workload is not None:
        return not (workload.is_suspended or workload.is_over)
    kinds = map(kind_of_owner, group.metadata.owner_references)
    # Whatever else created the pods may create another.
    return not any(kind is not None and kind.covers_all for kind in kinds)


def _is_terminating_or_finished(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) or pod.status.phase in TERMINAL_PHASES
