"""The nodes on which a PodGroup could start, now or when the pods that run there have ended.

They are found one signature after the other, the most GPUs first. That is no search: a PodGroup
with different pods may fit in another way than the one that is tried.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.resources import NONE, Bools, Floats, Ints, ResourceKind
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.session import Session

_GPU: Final = ResourceKind.GPU
_LEAST_RUN_S: Final = 600  # a PodGroup that has just begun runs for as long
_NOT_KNOWN: Final = np.inf


class NodeRoom(NamedTuple):
    """What PodGroups may get on the nodes."""

    free: Ints  # [node, resource]
    without_pods: Ints  # [node, resource] if no pod of ours were there
    free_at: Floats  # [node] when the last of them ends by force; infinite is not known
    # [node] how long they may still run: until then, else together as long as they have run.
    wait_s: Floats


class Target(NamedTuple):
    node: int
    signature: int
    pods: int
    free_at: int  # when there is room for them, by ends that are enforced; 0 is not known, or now


class Targets(NamedTuple):
    """Where all pods of a PodGroup are to start."""

    nodes: tuple[Target, ...]
    free_at: float  # when the last of them is free; infinite is not known

    @property
    def planned_at(self) -> int:
        return int(self.free_at) if 0 < self.free_at < _NOT_KNOWN else 0


def node_room(session: Session) -> NodeRoom:
    """Return what is free, what would be without our pods, and when their ends are enforced."""
    snapshot, pods = session.snapshot, session.snapshot.pods
    is_there = (pods.node != NONE) & (pods.podgroup != NONE)
    is_there &= np.isin(pods.state, (PodState.RUNNING, PodState.STUCK_RELEASING))
    rows = np.flatnonzero(is_there)
    free = session.nodes.resources.free.copy()
    without_pods = free.copy()
    free_at, wait_s = np.zeros(len(free)), np.zeros(len(free))
    if len(rows):
        np.add.at(without_pods, pods.node[rows], _requests(snapshot)[pods.signature[rows]])
        found, inverse = np.unique(pods.podgroup[rows], return_inverse=True)
        ends = np.array([_end(snapshot, it) for it in found.tolist()])
        np.maximum.at(free_at, pods.node[rows], ends[inverse])
        ran_s = np.array([_ran_s(snapshot, it) for it in found.tolist()])
        node, one = np.divmod(
            np.unique(pods.node[rows].astype(np.int64) * len(found) + inverse), len(found)
        )
        np.add.at(wait_s, node, ran_s[one])
        wait_s = np.where(free_at < _NOT_KNOWN, free_at - snapshot.now, wait_s)
    return NodeRoom(free, without_pods, free_at, wait_s)


def emptied_nodes(snapshot: Snapshot) -> Ints:
    """Return what is free on the nodes when no pod of ours is there, [node, resource].

    A pod of ours may have outlived its PodGroup by a moment, which shows by its GPUs: no GPU counts
    as taken for long, and nothing that terminates.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    rows = np.flatnonzero((pods.node != NONE) & (pods.podgroup != NONE))
    amounts: Ints = nodes.idle + nodes.releasing
    np.add.at(amounts, pods.node[rows], _requests(snapshot)[pods.signature[rows]])
    emptied: Ints = np.minimum(amounts, nodes.allocatable)  # ours that terminate count once
    is_gpu = np.array(snapshot.resources.kinds) == _GPU
    emptied[:, is_gpu] = nodes.allocatable[:, is_gpu]
    return emptied


def fits_at_once(session: Session, runs: SignatureRuns, amounts: Ints) -> bool:
    """Say whether all pods fit together on nodes with these amounts."""
    left = amounts.copy()
    for signature, count in _largest_first(session, runs):
        taken = _Pods(session, signature).take(left, count, np.zeros(len(left)))
        if sum([pods for _, pods in taken]) < count:
            return False
    return True


def targets_of(
    session: Session, runs: SignatureRuns, room: NodeRoom, kept: Collection[int]
) -> Targets | None:
    """Return where pods are to start: where they fit now, else where they are expected to soonest.

    Nodes on which room is *kept* come first, as long as the pods fit there when others have ended:
    what is gathered is not given back. None if not all pods fit even then.
    """
    free, later = room.free.copy(), room.without_pods.copy()
    is_other = np.ones(len(free), dtype=np.bool_)
    is_other[[*kept]] = False
    wait_s, free_at = np.where(is_other, room.wait_s, -1.0), 0.0
    targets: list[Target] = []
    for signature, count in _largest_first(session, runs):
        pods = _Pods(session, signature)
        now = pods.take(free, count, is_other)
        left = count - sum([number for _, number in now])
        for node, number in now:
            later[node] -= number * pods.request
            targets.append(Target(node, signature, number, 0))
        for node, number in pods.take(later, left, wait_s, free):
            free[node] -= number * pods.request
            at = float(room.free_at[node])
            targets.append(Target(node, signature, number, 0 if at == _NOT_KNOWN else int(at)))
            free_at = max(free_at, at)
            left -= number
        if left:
            return None
    return Targets(tuple(targets), free_at)


class _Pods:
    """Pods of one signature that are given to nodes."""

    def __init__(self, session: Session, signature: int) -> None:
        snapshot, ranking = session.snapshot, session.placer.ranking(signature)
        self.request: Final = np.array(snapshot.signatures[signature].request, dtype=np.int64)
        self._columns: Final = np.flatnonzero(self.request)
        self._gpus: Final = list(snapshot.resources.gpus)
        self._is_open: Final = ranking.fits_empty.copy()
        # Pods that exclude each other, or that others exclude: one on each node.
        self._most: Final = 2**40 if ranking.has_no_relations else 1

    def take(
        self, amounts: Ints, count: int, rank: Floats | Bools, free: Ints | None = None
    ) -> list[tuple[int, int]]:
        """Take amounts of the nodes for pods, and return how many of them are on which node.

        By *rank*; of equal nodes first where the least is missing of what is *free*, or where the
        fewest GPUs are left.
        """
        if not count:
            return []
        columns, needed = self._columns, self.request[self._columns]
        each = (amounts[:, columns] // needed).min(axis=1).clip(min=0, max=self._most)
        nodes = np.flatnonzero(self._is_open & (each > 0))
        if free is None:
            gpus = amounts[nodes][:, self._gpus].sum(axis=1)
            second = gpus - each[nodes] * int(self.request[self._gpus].sum())
        else:
            missing = needed - free[nodes][:, columns].clip(min=0)
            second = (missing.clip(min=0) / needed).max(axis=1)
        taken = []
        for node in nodes[np.lexsort((second, rank[nodes]))].tolist():
            number = min(count, int(each[node]))
            amounts[node] -= number * self.request
            self._is_open[node] = self._most > 1
            taken.append((node, number))
            count -= number
            if not count:
                break
        return taken


class NodeSizes:
    """By the GPUs of nodes, in thousandths."""

    def __init__(self, session: Session) -> None:
        snapshot = session.snapshot
        gpus, self._columns = snapshot.nodes.allocatable, snapshot.resources.gpus
        self._session: Final = session
        self._gpus: Final[Ints] = (
            gpus[:, self._columns[0]]
            if len(self._columns) == 1
            else gpus[:, list(self._columns)].sum(axis=1)
        )
        self._largest: Final = int(self._gpus.max(initial=0))

    @cached_property
    def _by_size(self) -> tuple[Ints, Ints]:
        return np.unique(self._gpus, return_inverse=True)

    def least_large(self, signatures: Sequence[int], gpus: int) -> int:
        """Return with how many GPUs a PodGroup is large that can start and requests *gpus*.

        What is no less than any node needs no look at which nodes there are: it fits some with the
        GPUs that its pods name.
        """
        every = self._session.snapshot.signatures
        if gpus >= self._largest and any(
            every[it].request[column] for it in signatures for column in self._columns
        ):
            return self._largest
        return self.typical(signatures)

    def typical(self, signatures: Iterable[int]) -> int:
        """Return the size with the most GPUs among the nodes that pods fit on when empty.

        A few small nodes make no PodGroup large.
        """
        sizes, size_of = self._by_size
        fits = np.zeros(len(size_of), dtype=np.bool_)
        for signature in signatures:
            fits |= self._session.placer.ranking(signature).fits_empty
        gpus = sizes * np.bincount(size_of[fits], minlength=len(sizes))
        return int(sizes[gpus.argmax()]) if gpus.any() else 2**60


def _largest_first(session: Session, runs: SignatureRuns) -> list[tuple[int, int]]:
    signatures = session.snapshot.signatures
    counts = Counter[int]()
    for signature, count in runs:
        counts[signature] += count
    return sorted(counts.items(), key=lambda it: -signatures[it[0]].queue_request[_GPU])


def _requests(snapshot: Snapshot) -> Ints:
    requests = [it.request for it in snapshot.signatures]
    return np.array(requests, dtype=np.int64).reshape(-1, len(snapshot.resources.kinds))


def _ran_s(snapshot: Snapshot, row: int) -> float:
    """Return how long a PodGroup has run: most that have run for long run on for as long."""
    since = snapshot.podgroups[row].running_since
    return float(max(snapshot.now - since, _LEAST_RUN_S)) if since else float(_LEAST_RUN_S)


def _end(snapshot: Snapshot, row: int) -> float:
    ends_at = snapshot.podgroups[row].ends_at
    return float(ends_at) if ends_at > snapshot.now else _NOT_KNOWN
