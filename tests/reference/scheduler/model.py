"""The objects of a cluster, as the reference sees them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, TypeAlias

from tests.reference.scheduler.resources import (
    GPU_RESOURCES,
    Amount,
    Amounts,
    QueueAmounts,
    added,
    queue_amounts,
    subtracted,
)

WHOLE_GPU: Final = 1000  # thousandths


@dataclass(eq=False)
class SharedGpu:
    """A GPU of which pods have shares; a pod that waits has one if that is reserved for it."""

    name: str  # its id; "" of one that became shared in this plan
    number: int  # of the GPUs that became shared in this plan; 0 if it was shared before
    shares: list[tuple["PodInfo", int]] = field(default_factory=list)  # thousandths

    def used(self, how: str) -> int:
        """Return how much of it stays, is nominated or terminates."""
        return sum(amount for pod, amount in self.shares if pod.has_share_that == how)

    @property
    def rank(self) -> tuple[object, ...]:
        """Return what orders the GPUs of a node."""
        return self.number, self.name


@dataclass(eq=False)
class NodeInfo:
    """A node."""

    name: str
    labels: Mapping[str, str]
    taints: list[Mapping[str, str]]
    is_schedulable: bool
    allocatable: Amounts
    idle_beside_pods: Amounts  # shared GPUs not counted
    releasing_of_pods: Amounts
    is_ready: bool = True
    gpus: list[SharedGpu] = field(default_factory=list)  # that are shared
    gpu_memory: int = 0  # MiB of each; 0 is not known
    is_mig: bool = False
    is_closed_to_mig: bool = False  # for of a pod there an annotation requests MIG

    @property
    def gpu_resource(self) -> str:
        """Return the name of its GPUs, if it has any."""
        return next((name for name in GPU_RESOURCES if self.allocatable.get(name, 0) > 0), "")

    @property
    def idle(self) -> Amounts:
        """Return what is idle: a shared GPU is one less, unless it is only nominated."""
        found = self.idle_beside_pods
        for gpu in self.gpus:
            if gpu.used("stays") or gpu.used("terminates"):
                found = subtracted(found, self._whole(gpu))
        return found

    @property
    def releasing(self) -> Amounts:
        """Return what is releasing, less what is nominated to it."""
        found = self.releasing_of_pods
        for gpu in self.gpus:
            if gpu.used("terminates") and not gpu.used("stays") and not gpu.used("nominated"):
                found = added(found, self._whole(gpu))
            elif gpu.used("nominated") and not gpu.used("stays") and not gpu.used("terminates"):
                found = subtracted(found, self._whole(gpu))
        return found

    def state(self) -> "NodeState":
        """Return what is used of it, to be restored."""
        gpus = [(gpu, [*gpu.shares]) for gpu in self.gpus]
        return self.idle_beside_pods, self.releasing_of_pods, gpus

    def restore(self, state: "NodeState") -> None:
        """Let so much be used of it again."""
        self.idle_beside_pods, self.releasing_of_pods, gpus = state
        for gpu, shares in gpus:
            gpu.shares = [*shares]
        self.gpus = [gpu for gpu, _ in gpus]

    def remove_shares(self, pod: "PodInfo") -> None:
        """Let a pod have no shares of its GPUs."""
        for gpu in self.gpus:
            gpu.shares = [(one, amount) for one, amount in gpu.shares if one is not pod]
        self.gpus = [gpu for gpu in self.gpus if gpu.shares]

    def _whole(self, gpu: SharedGpu) -> Amounts:
        """Return what a shared GPU takes: a new one also a place for its reservation pod."""
        return {self.gpu_resource: 1, "pods": 1 if gpu.number else 0}


NodeState: TypeAlias = tuple[Amounts, Amounts, list[tuple[SharedGpu, list[tuple["PodInfo", int]]]]]


@dataclass(frozen=True, eq=False)
class GpuShare:
    """The shares of GPUs that a pod requests: thousandths or MiB of each."""

    devices: int
    thousandths: int
    memory: int
    memory_of_nodes: Mapping[str, int]  # MiB of one GPU, or 0 where that is not known

    def on(self, node: str) -> int | None:
        """Return thousandths of each GPU of a node; None if that is not known."""
        return self._part(self.memory_of_nodes.get(node, 0))

    def charge(self, node: str, *, is_least: bool = False) -> Fraction:
        """Return what queues count, on a node or before it has one."""
        if not self.memory:
            return Fraction((self.thousandths + 5) // 10 * self.devices, 100)
        known = [memory for memory in self.memory_of_nodes.values() if memory]
        whole = self.memory_of_nodes.get(node, 0)
        if known and node not in self.memory_of_nodes:
            whole = max(known) if is_least else min(known)
        part = self._part(whole)
        return Fraction(WHOLE_GPU if part is None else min(part, WHOLE_GPU), 1000) * self.devices

    def _part(self, whole: int) -> int | None:
        if not self.memory:
            return self.thousandths
        return -(-100 * self.memory // whole) * 10 if whole else None


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
    share: GpuShare | None = None
    has_malformed_share: bool = False  # 27i
    has_mig_annotation: bool = False  # 27h
    avoids: frozenset[str] = frozenset()  # nodes: 22a

    @property
    def charged(self) -> QueueAmounts:
        """Return what its queue is charged."""
        return self.charged_on(self.node)

    def charged_on(self, node: str, *, is_least: bool = False) -> QueueAmounts:
        """Return what its queue is charged on a node, or at least."""
        cpu, memory, gpu = queue_amounts(self.requests)
        return cpu, memory, gpu + (self.share.charge(node, is_least=is_least) if self.share else 0)

    @property
    def has_share_that(self) -> str:
        """Say what its shares of GPUs do."""
        if self.is_releasing or self.state == "evicted":
            return "terminates"
        return "nominated" if self.state in ("nominated", "waiting", "later") else "stays"


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


@dataclass(frozen=True)
class TopologyInfo:
    """A topology: the labels of its levels, the widest first."""

    name: str
    labels: tuple[str, ...]

    def path(self, node_info: NodeInfo) -> tuple[str, ...]:
        """Return the domains of a node as the values of all labels; nothing if one is missing."""
        path = tuple(node_info.labels[it] for it in self.labels if it in node_info.labels)
        return path if len(path) == len(self.labels) else ()


@dataclass(frozen=True)
class Constraint:
    """How many levels of a topology the pods must have and should have in common; 0 is none."""

    topology: TopologyInfo
    required: int
    preferred: int


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
    # By sub-group; that of the PodGroup itself has no name.
    constraints: dict[str, Constraint] = field(default_factory=dict)
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
    fair_share: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    allocated: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    non_preemptible: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    non_evictable: list[Amount] = field(
        default_factory=lambda: [0, 0, 0]
    )  # in fixed, of its own PodGroups
    requested: list[Amount] = field(default_factory=lambda: [0, 0, 0])
    unclaimed_release: list[Amount] = field(
        default_factory=lambda: [0, 0, 0]
    )  # that is releasing, and no PodGroup waits for
    unclaimed_release_by_node: dict[str, list[Amount]] = field(
        default_factory=dict
    )  # of that, by node
    evicted: list[Amount] = field(
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
    checks_order: bool = False  # of placement: whether that decides which victims are enough
    spreads_gpus: bool = False
    spreads_cpu: bool = False
    # By GPUs or CPUs and node: how late it comes among equal nodes.
    lateness: dict[tuple[bool, str], int] = field(default_factory=dict)
    # Of equal pods that use GPUs: one of them, its share of each GPU, and their weight.
    typical: list[tuple[PodInfo, int, int]] = field(default_factory=list)
    # Pods that have run and ended, on no node, and how many hours ago.
    ended: list[tuple[PodInfo, int]] = field(default_factory=list)
    fragments_gpus: bool = False
    places_gang: bool = False  # the pods that are being placed are several
    fragments_cpu: bool = False

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
            for i, amount in enumerate(pod.charged):
                queue.allocated[i] += amount
                queue.non_preemptible[i] += 0 if podgroup.preemptible else amount


def total_charge(pods: Iterable[PodInfo], *, is_least: bool = False) -> QueueAmounts:
    """Return what pods are charged together where they are, or at least."""
    some = [pod.charged_on(pod.node, is_least=is_least) for pod in pods]
    cpu, memory, gpu = (sum(one[i] for one in some) for i in range(3))
    return cpu, memory, gpu


def _podsets(part: SubGroup) -> Iterator[PodSet]:
    if isinstance(part, PodSet):
        yield part
    else:
        for child in part.children:
            yield from _podsets(child)
