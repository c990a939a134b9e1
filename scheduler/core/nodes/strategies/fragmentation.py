"""Fragments: what typical pods cannot use of the free GPUs of a node, after FGD (ATC '23).

Of one typical pod that is everything where the pod does not fit, and else what is free of GPUs with
too little for it. The fragments of a node are the mean of all typical pods. Numbers are whole: one
node and many are counted alike.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.model.resources import MAX_REQUEST, DeviceSort, Floats, Ints
from scheduler.core.model.result import MOST_FRAGMENT_RANK
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.device_sorts.gpu_share_table import WHOLE_GPU, GpuShareTable
from scheduler.core.nodes.devices import NodeDevices
from scheduler.core.nodes.node_resources import NodeResources, has_enough
from scheduler.core.nodes.statement import Statement
from scheduler.core.nodes.strategies.typical_pods import WEIGHTS, TypicalPods, typical_pods

_STEP: Final = 40 * WEIGHTS  # 0.04 of a GPU: less makes no difference
_WHOLE_GPUS: Final = 256  # more of a node count as one less: a step is worth as much
_FEW_NODES: Final = 4
_MAX_KNOWN: Final = 200_000

_Known: TypeAlias = dict[tuple[int, ...], int]


class _Request(NamedTuple):
    """What a pod takes from a node, and all of a node that makes a difference to it."""

    amounts: Ints  # [resource]
    each: tuple[int, ...]  # the same
    columns: list[int]
    most: list[int]  # [column] from so much on more makes no difference
    share: int | Ints  # thousandths of each GPU, or by kind of nodes
    devices: int  # GPUs that it has a share of


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
        # Of what is not requested there may be less than nothing.
        requested = self._typical.request
        self._least: Final = np.where(requested == 0, -MAX_REQUEST, requested)  # [shape, column]
        # The same as plain numbers: the weight, what is requested, the GPUs, and of each how much.
        self._shapes: Final = _plain(self._typical)
        self._needs: Final[list[int]] = self._typical.needed.tolist()
        self._gpus: Final = list(snapshot.resources.gpus)
        shares = devices.participants[DeviceSort.GPU_SHARE]
        assert isinstance(shares, GpuShareTable)
        self._shares: Final = shares
        self._has_shares: Final = bool(shares.later) or any(shares.device_count)
        self._left: Ints = np.zeros((len(snapshot.nodes.names), 0), dtype=np.int64)
        self._left_of: Final[dict[int, tuple[int, ...]]] = {}  # the same, by node
        self._read(shares.later)
        self._seen = len(statement.changed_nodes)
        self._gpu_column: Final = np.array(shares.column, dtype=np.int64)
        self._requests: Final[dict[int, _Request]] = {}  # by signature
        self._known: Final[dict[int, _Known]] = {}  # ranks by signature and node state
        self._known_count = 0

    def ranks(self, signature: int, nodes: Ints) -> Ints:
        """Return the ranks of nodes on which a pod fits, [node of these]: the least is the best."""
        self._refresh()
        request = self._request(signature)
        free, left = self._resources.free[nodes], self._left[nodes]
        states = np.minimum(free[:, request.columns], request.most)
        share = self._share(request, nodes)[:, None]
        first, same = _equal_rows(np.concatenate((states, left, share), axis=1))
        ranks = self._ranks(request, nodes[first], free[first], left[first])
        found: Ints = ranks[same]
        return found

    def ranks_on(self, signature: int, nodes: Sequence[int]) -> list[int]:
        """Return the same for a few nodes: of those with a known state without counting."""
        self._refresh()
        if self._known_count > _MAX_KNOWN:
            self._known.clear()
            self._known_count = 0
        known, request = self._known.setdefault(signature, {}), self._request(signature)
        states = [self._state(request, node) for node in nodes]
        new = {it: node for it, node in zip(states, nodes, strict=True) if it not in known}
        if len(new) > _FEW_NODES:
            at = np.array([*new.values()], dtype=np.int64)
            ranks = self._ranks(request, at, self._resources.free[at], self._left[at])
            known.update(zip(new, ranks.tolist(), strict=True))
        else:
            known.update({it: self._rank(request, node) for it, node in new.items()})
        self._known_count += len(new)
        return [known[it] for it in states]

    def ranks_in_a_row(self, signature: int, node: int, before: Ints) -> Ints:
        """Return the ranks with one more pod after so many on a node, [pod]; without shares."""
        self._refresh()
        request = self._request(signature)
        free = self._resources.free[node] - before[:, None] * request.amounts
        nodes = np.full(len(before), node, dtype=np.int64)
        return self._ranks(request, nodes, free, self._left[nodes])

    def _request(self, signature: int) -> _Request:
        found = self._requests.get(signature)
        if found is None:
            found = self._requests[signature] = self._new_request(signature)
        return found

    def _new_request(self, signature: int) -> _Request:
        amounts = np.array(self._signatures[signature].request, dtype=np.int64)
        typical, shares = self._typical, self._shares
        most = dict.fromkeys(self._gpus, MAX_REQUEST)  # of GPUs each one counts
        for at, column in enumerate(typical.columns):
            enough = int(typical.request[:, at].max(initial=0) + amounts[column])
            most.setdefault(column, enough)
        share: int | Ints = 0
        if shares.device_count[signature]:
            kinds, nodes = np.unique(shares.kinds, return_index=True)
            of_kind = [shares.share(signature, node) for node in nodes.tolist()]
            share = of_kind[0] if len(kinds) == 1 else np.array(of_kind, dtype=np.int64)
        columns = [*most], [*most.values()]
        each = self._signatures[signature].request
        return _Request(amounts, each, *columns, share, shares.device_count[signature])

    def _state(self, request: _Request, node: int) -> tuple[int, ...]:
        free = self._resources.free[node].tolist()
        state = [min(most, free[r]) for r, most in zip(request.columns, request.most, strict=True)]
        if self._has_shares:
            if not isinstance(request.share, int):
                state.append(int(request.share[self._shares.kind_of[node]]))
            state += self._left_of.get(node, ())
        return tuple(state)

    def _share(self, request: _Request, nodes: Ints) -> Ints:
        """Return the thousandths of a GPU that a pod requests, [node]."""
        if isinstance(request.share, int):
            return np.full(len(nodes), request.share, dtype=np.int64)
        found: Ints = request.share[self._shares.kinds[nodes]]
        return found

    def _ranks(self, request: _Request, nodes: Ints, free: Ints, left: Ints) -> Ints:
        count, after = len(nodes), free - request.amounts
        left_after = left
        if request.devices:
            left = np.concatenate(
                (left, np.zeros((count, request.devices), dtype=np.int64)), axis=1
            )
            left_after = self._with_shares(request, nodes, after, left)
        whole = self._whole_gpus(np.concatenate((free, after)))
        fragments = self._fragments(
            np.concatenate((free, after)), whole, np.concatenate((left, left_after))
        )
        steps = (fragments[count:] - fragments[:count] + _STEP // 2) // _STEP
        ranks: Ints = _WHOLE_GPUS * steps + np.minimum(whole[:count], _WHOLE_GPUS - 1)
        return np.minimum(np.maximum(ranks, -MOST_FRAGMENT_RANK), MOST_FRAGMENT_RANK)

    def _rank(self, request: _Request, node: int) -> int:
        """Return the rank of one node as `_ranks` does: arrays take longer for few nodes."""
        free = self._resources.free[node].tolist()
        after = [n - amount for n, amount in zip(free, request.each, strict=True)]
        left = [*self._left_of.get(node, ())]
        left_after, others, share = [*left], [*left], request.share
        if not isinstance(share, int):
            share = int(share[self._shares.kind_of[node]])
        for _ in range(request.devices):
            tightest = min([it for it in others if it >= share], default=0)
            if tightest:  # each share is of another GPU
                others.remove(tightest)
                left_after.remove(tightest)
                left_after.append(tightest - share)
            else:
                after[self._shares.column[node]] -= WHOLE_GPU
                left_after.append(WHOLE_GPU - share)
        whole = self._whole_on(free)
        growth = self._fragments_on(after, self._whole_on(after), left_after)
        growth -= self._fragments_on(free, whole, left)
        rank = _WHOLE_GPUS * ((growth + _STEP // 2) // _STEP) + min(whole, _WHOLE_GPUS - 1)
        return min(max(rank, -MOST_FRAGMENT_RANK), MOST_FRAGMENT_RANK)

    def _fragments_on(self, free: list[int], whole: int, left: list[int]) -> int:
        """Return the fragments of one node, as `_fragments` does of many."""
        shared, found = sum(left), 0
        total = WHOLE_GPU * whole + shared
        enough = {need: [it for it in left if it >= need] for need in self._needs}
        for weight, requests, devices, need in self._shapes:
            rooms = enough[need]
            if whole + len(rooms) >= devices and has_enough(free, requests):
                found += weight * (shared - sum(rooms))
            else:
                found += weight * total
        return found

    def _whole_on(self, free: list[int]) -> int:
        return sum([max(free[r] // WHOLE_GPU, 0) for r in self._gpus])

    def _with_shares(self, request: _Request, nodes: Ints, after: Ints, left: Ints) -> Ints:
        """Take shares of the GPUs with the least left that is enough, or of whole ones in *after*.

        The last columns of *left* are for these.
        """
        share, rows = self._share(request, nodes), np.arange(len(nodes))
        first = left.shape[1] - request.devices
        found, fitting = left.copy(), np.where(left >= share[:, None], left, 2 * WHOLE_GPU)
        for new in range(first, left.shape[1]):
            fitting[:, new] = WHOLE_GPU
            slot = fitting.argmin(axis=1)
            is_new = slot == new
            found[rows, slot] += WHOLE_GPU * is_new - share
            fitting[rows, slot] = 2 * WHOLE_GPU
            fitting[:, new] = 2 * WHOLE_GPU
            after[rows, self._gpu_column[nodes]] -= WHOLE_GPU * is_new
        return found

    def _fragments(self, free: Ints, whole: Ints, left: Ints) -> Ints:
        """Return the fragments of nodes in thousandths, times the weights of all pods, [node]."""
        typical = self._typical
        shared = left.sum(axis=1)
        amounts = free[:, typical.columns].T[:, :, None]
        fits = (amounts >= self._least.T[:, None, :]).all(axis=0)
        rooms, too_small = whole[:, None], shared[:, None]
        if left.shape[1]:
            is_enough = left[:, :, None] >= typical.needed
            count = is_enough.sum(axis=1)
            too_small = too_small - (left[:, :, None] * is_enough).sum(axis=1)
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


def _plain(typical: TypicalPods) -> list[tuple[int, tuple[tuple[int, int], ...], int, int]]:
    rows = zip(typical.request.tolist(), typical.devices.tolist(), strict=True)
    needed = typical.needed[typical.need].tolist()
    return [
        (
            int(weight),
            tuple([(r, n) for r, n in zip(typical.columns, amounts, strict=True) if n]),
            devices,
            need,
        )
        for weight, (amounts, devices), need in zip(
            typical.weight.tolist(), rows, needed, strict=True
        )
    ]


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
