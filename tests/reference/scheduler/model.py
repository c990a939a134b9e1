"""The objects of a cluster, as the reference sees them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.reference.scheduler.resources import Amounts, QueueAmounts, queue_amounts

__all__ = [
    "ClusterInfo",
    "DisruptionBudget",
    "NodeInfo",
    "PodGroupInfo",
    "PodInfo",
    "PodSet",
    "QueueInfo",
    "SubGroup",
    "SubGroupSet",
]


@dataclass(eq=False)
class NodeInfo:
    """A node."""

    name: str
    labels: Mapping[str, str]
    taints: list[Mapping[str, str]]
    is_schedulable: bool
    allocatable: Amounts
    idle: Amounts
    releasing: Amounts
    is_ready: bool = True


@dataclass(eq=False)
class PodInfo:
    """A pod, or one that will exist later.

    Its state is one of: waiting, gated, there, succeeded, old (there, of an older attempt), other;
    and, once decided: bound, nominated, reserved, evicted. One that does not exist is later until
    it is decided.
    """

    namespace: str
    name: str
    uid: str
    created: str
    labels: Mapping[str, str]  # of a later one those of its template
    spec: Mapping[str, Any]
    requests: Amounts
    state: str
    node: str = ""  # where it is, or was put
    nominated: str = ""
    is_terminating: bool = False
    is_releasing: bool = False  # it is going, and expected to
    is_overdue: bool = False  # it is going, and was expected to be gone
    is_expected: bool = False


@dataclass(eq=False)
class PodSet:
    """A sub-group of pods."""

    name: str
    minimum: int
    pods: list[PodInfo] = field(default_factory=list)
    expected: list[PodInfo] = field(default_factory=list)


@dataclass(eq=False)
class SubGroupSet:
    """A sub-group of sub-groups."""

    name: str
    minimum: int
    children: list["SubGroup"] = field(default_factory=list)


SubGroup: TypeAlias = PodSet | SubGroupSet


@dataclass(eq=False)
class PodGroupInfo:
    """What starts together or not at all."""

    namespace: str
    name: str
    uid: str
    created: str
    queue: str
    priority: int
    preemptible: bool
    root: SubGroup
    is_invalid: bool = False  # its group or sub-groups cannot be meant
    owning_jobset: str = ""  # the JobSet that it is a part of
    in_preemption_delay: bool = False  # it takes nothing from others yet
    is_delayed: bool = False  # that is what keeps it from taking something
    awaits_own_release: bool = False  # the releasing pods of its queues are in its way
    is_managed_elsewhere: bool = False  # another controller manages its TrainJob
    is_non_evictable: bool = False  # it says that it may be preempted, and cannot be evicted
    started_at: str = ""  # when it began to run, where that is known
    checkpointed_at: str = ""  # when it saved its work last, where it says so
    has_misplaced_waiting: bool = False  # pods wait that name a sub-group which it does not have
    # Such pods that do not wait.
    misplaced_pods: list[tuple[Mapping[str, Any], PodInfo]] = field(default_factory=list)

    @property
    def podsets(self) -> list[PodSet]:
        """Return all its PodSets."""
        return list(_podsets(self.root))

    @property
    def pods(self) -> list[PodInfo]:
        """Return all its pods, later ones too."""
        return [pod for podset in self.podsets for pod in [*podset.pods, *podset.expected]]

    @property
    def has_waiting(self) -> bool:
        """Say whether a pod of it waits."""
        return any(pod.state == "waiting" for pod in self.pods)


@dataclass(eq=False)
class QueueInfo:
    """A queue; each triple is CPU, memory, GPU."""

    name: str
    uid: str
    created: str
    parent: str
    priority: int
    quota: tuple[Any, ...]
    limit: tuple[Any, ...]
    weight: tuple[Any, ...]
    children: list["QueueInfo"] = field(default_factory=list)
    fair_share: list[int] = field(default_factory=lambda: [0, 0, 0])
    allocated: list[int] = field(default_factory=lambda: [0, 0, 0])
    non_preemptible: list[int] = field(default_factory=lambda: [0, 0, 0])
    non_evictable: list[int] = field(
        default_factory=lambda: [0, 0, 0]
    )  # in fixed, of its own PodGroups
    requested: list[int] = field(default_factory=lambda: [0, 0, 0])
    unclaimed_release: list[int] = field(
        default_factory=lambda: [0, 0, 0]
    )  # that is releasing, and no PodGroup waits for
    unclaimed_release_by_node: dict[str, list[int]] = field(
        default_factory=dict
    )  # of that, by node
    evicted: list[int] = field(
        default_factory=lambda: [0, 0, 0]
    )  # that is releasing for a claimant
    reclaim_goal: str = ""  # of reclaim among those below it
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""


@dataclass(eq=False)
class DisruptionBudget:
    """Pods of which so many may still go."""

    pods: list[PodInfo]
    allowed: int


@dataclass(eq=False)
class ClusterInfo:
    """All of it."""

    nodes: list[NodeInfo]
    pods: list[PodInfo]  # of all users, on a node or not; finished ones are left out
    podgroups: list[PodGroupInfo]
    queues: dict[str, QueueInfo]
    total: QueueAmounts
    now: str
    victim_policy: str = "kai"
    budgets: list[DisruptionBudget] = field(default_factory=list)
    respects_budgets: bool = False  # in reclaim as well

    def may_evict(self, pods: Iterable[PodInfo]) -> bool:
        """Say whether budgets let all of these pods go."""
        gone = set(pods)
        return all(len(gone.intersection(it.pods)) <= max(it.allowed, 0) for it in self.budgets)

    def queue_with_ancestors(self, name: str) -> list[QueueInfo]:
        """Return a queue and those above it."""
        way: list[QueueInfo] = []
        while name in self.queues and self.queues[name] not in way:
            way.append(self.queues[name])
            name = self.queues[name].parent
        return way

    def is_misconfigured(self, podgroup: PodGroupInfo) -> bool:
        """Say whether a PodGroup or its queue cannot be meant."""
        way = self.queue_with_ancestors(podgroup.queue)
        is_inner = podgroup.queue in self.queues and bool(self.queues[podgroup.queue].children)
        is_circle = bool(way) and way[-1].parent in [queue.name for queue in way]
        return podgroup.is_invalid or is_inner or is_circle

    def charge(self, podgroup: PodGroupInfo, pod: PodInfo) -> None:
        """Count a pod as allocated, on all levels."""
        for queue in self.queue_with_ancestors(podgroup.queue):
            for i, amount in enumerate(queue_amounts(pod.requests)):
                queue.allocated[i] += amount
                queue.non_preemptible[i] += 0 if podgroup.preemptible else amount


def _podsets(part: SubGroup) -> Iterator[PodSet]:
    if isinstance(part, PodSet):
        yield part
    else:
        for child in part.children:
            yield from _podsets(child)
