"""Fragments: what typical pods cannot use of the free GPUs of a node, after FGD (ATC '23).

Of one typical pod that is everything where the pod does not fit, and else what is free of GPUs with
too little for it. The fragments of a node are the mean of all typical pods. Numbers are whole: one
node and many are counted alike.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model.resources import DeviceSort, Floats, Ints
from scheduler.core.model.result import MOST_FRAGMENT_RANK
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.device_sorts.gpu_share_table import WHOLE_GPU, GpuShareTable
from scheduler.core.nodes.devices import NodeDevices
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.statement import Statement
from scheduler.core.nodes.strategies.typical_pods import WEIGHTS, typical_pods

_STEP: Final = 40 * WEIGHTS  # 0.04 of a GPU: less makes no difference
_WHOLE_GPUS: Final = 256  # more of a node count as one less: a step is worth as much
_MAX_KNOWN: Final = 200_000
_FULL: Final = 2 * WHOLE_GPU  # more than is left of any shared GPU

_Known: TypeAlias = dict[tuple[int, ...], int]


class Fragments:
    """Ranks nodes by how much their fragments grow with one more pod."""

    def __init__(
        self,
        snapshot: Snapshot,
        resources: NodeResources,
        devices: NodeDevices,
        statement: Statement,
    ) -> None:
        self._signatures: Final = snapshot.signatures
        self._resources: Final = resources
        self._statement: Final = statement
        self._typical: Final = typical_pods(snapshot)
        self._gpus: Final = list(snapshot.resources.gpus)
        # All of a node that makes a difference, beside what is left of its shared GPUs.
        self._columns: Final = sorted({*self._typical.columns, *self._gpus})
        shares = devices.participants[DeviceSort.GPU_SHARE]
        assert isinstance(shares, GpuShareTable)
        self._shares: Final = shares
        self._has_shares: Final = bool(shares.later) or any(shares.device_count)
        self._left: Ints = np.zeros((len(snapshot.nodes.names), 0), dtype=np.int64)
        self._left_of: Final[dict[int, tuple[int, ...]]] = {}  # the same, by node
        self._read(shares.later)
        self._seen = len(statement.changed_nodes)
        self._known: Final[dict[int, _Known]] = {}  # ranks by signature and node state
        self._known_count = 0

    def ranks(self, signature: int, nodes: Ints) -> Ints:
        """Return the ranks of nodes on which a pod fits, [node of these]: the least is the best."""
        self._refresh()
        free, left = self._resources.free[nodes], self._left[nodes]
        keys = np.concatenate((free[:, self._columns], left, self._share(signature, nodes)), axis=1)
        first, same = _equal_rows(keys)
        ranks = self._ranks(signature, nodes[first], free[first], left[first])
        found: Ints = ranks[same]
        return found

    def ranks_on(self, signature: int, nodes: Sequence[int]) -> list[int]:
        """Return the same for a few nodes: of those with a known state without counting."""
        self._refresh()
        known = self._known.setdefault(signature, {})
        keys = [self._state(signature, node) for node in nodes]
        new = {key: node for key, node in zip(keys, nodes, strict=True) if key not in known}
        if new:
            at = np.array([*new.values()], dtype=np.int64)
            ranks = self._ranks(signature, at, self._resources.free[at], self._left[at])
            self._known_count += len(new)
            if self._known_count > _MAX_KNOWN:
                self._forget()
                return ranks.tolist() if len(new) == len(nodes) else self.ranks_on(signature, nodes)
            known.update(zip(new, ranks.tolist(), strict=True))
        return [known[key] for key in keys]

    def ranks_in_a_row(self, signature: int, node: int, before: Ints) -> Ints:
        """Return the ranks with one more pod after so many on a node, [pod]; without shares."""
        self._refresh()
        request = np.array(self._signatures[signature].request, dtype=np.int64)
        free = self._resources.free[node] - before[:, None] * request
        nodes = np.full(len(before), node, dtype=np.int64)
        return self._ranks(signature, nodes, free, self._left[nodes])

    def _forget(self) -> None:
        self._known.clear()
        self._known_count = 0

    def _state(self, signature: int, node: int) -> tuple[int, ...]:
        free = self._resources.free[node].tolist()
        key = [free[r] for r in self._columns]
        if self._has_shares:
            if self._shares.device_count[signature]:
                key.append(self._shares.share(signature, node))
            key += self._left_of.get(node, ())
        return tuple(key)

    def _share(self, signature: int, nodes: Ints) -> Ints:
        """Return the thousandths of a GPU that a pod requests, [node, 1]."""
        if not self._shares.device_count[signature]:
            return np.zeros((len(nodes), 1), dtype=np.int64)
        of_kind: dict[int, int] = {}
        for node, kind in zip(nodes.tolist(), self._shares.kinds[nodes].tolist(), strict=True):
            if kind not in of_kind:
                of_kind[kind] = self._shares.share(signature, node)
        kinds, at = np.unique(self._shares.kinds[nodes], return_inverse=True)
        shares = np.array([of_kind[kind] for kind in kinds.tolist()], dtype=np.int64)
        return shares[at].reshape(-1, 1)

    def _ranks(self, signature: int, nodes: Ints, free: Ints, left: Ints) -> Ints:
        after = free - np.array(self._signatures[signature].request, dtype=np.int64)
        left_after = left
        count = self._shares.device_count[signature]
        if count:
            left_after = self._with_shares(signature, nodes, after, left, count)
        growth = self._fragments(after, left_after) - self._fragments(free, left)
        steps = (growth + _STEP // 2) // _STEP
        ranks: Ints = _WHOLE_GPUS * steps + self._whole_gpus(free).clip(max=_WHOLE_GPUS - 1)
        return ranks.clip(-MOST_FRAGMENT_RANK, MOST_FRAGMENT_RANK)

    def _with_shares(
        self, signature: int, nodes: Ints, after: Ints, left: Ints, count: int
    ) -> Ints:
        """Take shares of the GPUs with the least left that is enough; of whole ones in *after*."""
        share = self._share(signature, nodes)[:, 0]
        rows, column = np.arange(len(nodes)), np.array(self._shares.column)[nodes]
        fitting = np.where(left >= share[:, None], left, _FULL)
        found = np.concatenate((left, np.zeros((len(left), count), dtype=np.int64)), axis=1)
        for i in range(count):
            slot = fitting.argmin(axis=1) if fitting.shape[1] else np.zeros(len(rows), np.int64)
            is_shared = (
                fitting[rows, slot] < _FULL
                if fitting.shape[1]
                else np.zeros(len(rows), dtype=np.bool_)
            )
            found[rows[is_shared], slot[is_shared]] -= share[is_shared]
            if fitting.shape[1]:
                fitting[rows, slot] = _FULL
            is_new = ~is_shared
            found[is_new, left.shape[1] + i] = WHOLE_GPU - share[is_new]
            after[rows[is_new], column[is_new]] -= WHOLE_GPU
        return found

    def _fragments(self, free: Ints, left: Ints) -> Ints:
        """Return the fragments of nodes in thousandths, times the weights of all pods, [node]."""
        typical = self._typical
        whole = self._whole_gpus(free)
        shared = left.sum(axis=1)
        fits = np.ones((len(free), len(typical.weight)), dtype=np.bool_)
        for at, column in enumerate(typical.columns):
            fits &= free[:, column, None] >= typical.request[:, at]
        rooms, too_small = whole[:, None], shared[:, None]
        if left.shape[1]:
            is_enough = left[:, :, None] >= typical.needed
            count = is_enough.sum(axis=1)
            too_small = shared[:, None] - (left[:, :, None] * is_enough).sum(axis=1)
            rooms, too_small = rooms + count[:, typical.need], too_small[:, typical.need]
        fits &= rooms >= typical.devices
        unusable = np.where(fits, too_small, (WHOLE_GPU * whole + shared)[:, None])
        mean: Floats = unusable @ typical.weight  # whole numbers below 2**53: exact in any order
        return mean.astype(np.int64)

    def _whole_gpus(self, free: Ints) -> Ints:
        whole: Ints = (free[:, self._gpus] // WHOLE_GPU).clip(min=0).sum(axis=1)
        return whole

    def _refresh(self) -> None:
        changed = self._statement.changed_nodes
        if self._seen == len(changed):
            return
        if self._has_shares:
            self._read(set(changed[self._seen :]))
        self._seen = len(changed)

    def _read(self, nodes: Iterable[int]) -> None:
        """Read what is left of the shared GPUs of some nodes."""
        for node in nodes:
            used = self._shares.used_later(node)
            left = sorted([WHOLE_GPU - it for it in used if 0 < it < WHOLE_GPU])
            if not left and node not in self._left_of:
                continue
            if len(left) > self._left.shape[1]:
                more = len(left) - self._left.shape[1]
                self._left = np.pad(self._left, ((0, 0), (0, more)))
            self._left_of[node] = tuple(left)
            self._left[node] = 0
            self._left[node, : len(left)] = left


def _equal_rows(keys: Ints) -> tuple[Ints, Ints]:
    """Return the first of equal rows, and for each row which of these it is equal to."""
    with np.errstate(over="ignore"):
        factors = np.array([pow(_PRIME, i + 1, 2**63) for i in range(keys.shape[1])], np.int64)
        codes = (keys * factors).sum(axis=1)
    _, first, same = np.unique(codes, return_index=True, return_inverse=True)
    if not (keys[first][same] == keys).all():  # different rows with one code
        _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


_PRIME: Final = 6364136223846793005
