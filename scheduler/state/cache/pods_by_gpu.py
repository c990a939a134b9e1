"""The shared GPUs by node and id: their reservation pods, and the pods that have shares of them.

A pod is a user of the GPUs that its labels name, of at most so many as it requests: first those
that a reservation pod holds, as they count in a plan. A pod that is being bound is shown with
labels of the GPUs that were chosen for it. A reservation pod without an id has the id "".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.pods.gpu_share_metadata import (
    GpuSharing,
    is_gpu_reservation,
    named_gpus,
    read_gpu_sharing,
)
from trainer_kai.api.interning import IndexedLabels
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU_FRACTION, GPU_MEMORY, RESERVATION_APP
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.pods.requests import pod_requests

_Pair: TypeAlias = tuple[str, str]  # a node, and the id of a GPU there


class _Entry(NamedTuple):
    node: str
    ids: tuple[str, ...]
    devices: int = 0  # that a user requests; 0 for a reservation pod
    holds: bool = False  # a GPU: it is a reservation pod, and has not finished

    @property
    def is_leftover(self) -> bool:
        return self.devices > 0 and not self.node

    @property
    def pairs(self) -> tuple[_Pair, ...]:
        return () if self.is_leftover else tuple([(self.node, id_) for id_ in self.ids])


class GpuGroups:
    """An index of the pods that have to do with shared GPUs; others cost one look."""

    def __init__(self, cluster: Cluster, options: StateOptions) -> None:
        """*cluster* has the pods with the assumed changes."""
        self._cluster: Final = cluster
        self._scheduler_name: Final = options.scheduler_name
        self._gpus: Final = options.gpu_resources
        self._entries: Final[dict[Key, _Entry]] = {}
        self._reservation_pods: Final[dict[_Pair, dict[Key, None]]] = {}
        self._naming: Final[dict[_Pair, dict[Key, None]]] = {}  # by pair: pods with it in labels
        self._leftovers: Final[dict[Key, None]] = {}
        self._holding = 0
        self.on_change: Callable[[str, str], None] | None = None
        """Called with the node and the id of each GPU of which the pods have changed."""
        self.on_leftover: Callable[[Key], None] | None = None
        """Called with a pod that names GPUs, and is neither on a node nor being bound."""

    def update(self, key: Key, pod: Pod | None) -> None:
        before = self._entries.get(key)
        if before is None and key.namespace != RESERVATION_APP:
            if pod is None:
                return
            annotations = pod.metadata.annotations
            if type(annotations) is IndexedLabels:
                annotations = annotations.shared
            if GPU_FRACTION not in annotations and GPU_MEMORY not in annotations:
                return
        now = None if pod is None else self._entry(key, pod)
        changed = {*(before.pairs if before else ()), *(now.pairs if now else ())}
        held = {pair for pair in changed if self._is_held(pair)}
        self._move(key, before, now)
        for pair in [it for it in changed if (it in held) != self._is_held(it)]:
            changed |= self._other_pairs_of_users(pair)
        self._notify(key, changed)

    def groups(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((*self._reservation_pods, *self._naming)))

    def reservation_pods(self, node: str, group: str) -> tuple[Pod, ...]:
        """Return the reservation pods of a GPU, also if they terminate or have finished."""
        pods = self._cluster.pods
        return tuple([pods[key] for key in self._reservation_pods.get((node, group), ())])

    def users(self, node: str, group: str) -> tuple[Key, ...]:
        """Return the pods that have shares of a GPU, or are being bound to it."""
        return tuple(
            [
                key
                for key in self._naming.get((node, group), ())
                if group in self._counted(self._entries[key])
            ]
        )

    @property
    def reservation_pod_count(self) -> int:
        return self._holding

    def leftovers(self) -> tuple[Key, ...]:
        """Return the pods that name GPUs, and are neither on a node nor being bound."""
        return tuple(self._leftovers)

    @property
    def content(self) -> Mapping[str, object]:
        return {
            "pods": dict(self._entries),
            "reservation pods": dict(self._reservation_pods),
            "users": dict(self._naming),
            "leftovers": dict(self._leftovers),
        }

    def _entry(self, key: Key, pod: Pod) -> _Entry | None:
        meta, spec = pod.metadata, pod.spec
        named = tuple(named_gpus(meta.labels))
        has_finished = pod.status.phase in TERMINAL_PHASES
        if is_gpu_reservation(key.namespace, meta.labels, spec):
            return _Entry(spec.node_name, named or ("",), holds=not has_finished)
        if not named or has_finished or spec.scheduler_name != self._scheduler_name:
            return None
        if not spec.node_name and meta.deletion_timestamp:
            return None
        try:
            amounts = pod_requests(spec)
        except QuantityError:
            amounts = {}
        sharing = read_gpu_sharing(meta.annotations, amounts, self._gpus)
        if not isinstance(sharing, GpuSharing):
            return None
        return _Entry(spec.node_name, named, sharing.devices)

    def _move(self, key: Key, before: _Entry | None, now: _Entry | None) -> None:
        for entry, is_added in ((before, False), (now, True)):
            if entry is None:
                continue
            self._holding += (1 if is_added else -1) * entry.holds
            if entry.is_leftover:
                _put(self._leftovers, key, is_added=is_added)
            index = self._naming if entry.devices else self._reservation_pods
            for pair in entry.pairs:
                known = index.setdefault(pair, {})
                _put(known, key, is_added=is_added)
                if not known:
                    del index[pair]
        if now is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = now

    def _other_pairs_of_users(self, pair: _Pair) -> set[_Pair]:
        """Return what the pods count for that name more GPUs than they request, this one too."""
        users = [self._entries[key] for key in self._naming.get(pair, ())]
        return {it for user in users if len(user.ids) > user.devices for it in user.pairs}

    def _notify(self, key: Key, changed: Iterable[_Pair]) -> None:
        if self.on_change is not None:
            for node, id_ in changed:
                self.on_change(node, id_)
        if self.on_leftover is not None and key in self._leftovers:
            self.on_leftover(key)

    def _is_held(self, pair: _Pair) -> bool:
        return any(self._entries[key].holds for key in self._reservation_pods.get(pair, ()))

    def _counted(self, user: _Entry) -> tuple[str, ...]:
        """Return the ids of which a user has shares; held ones come first."""
        if len(user.ids) <= user.devices:
            return user.ids
        held = [it for it in user.ids if self._is_held((user.node, it))]
        return (*held, *(it for it in user.ids if it not in held))[: user.devices]


def _put(keys: dict[Key, None], key: Key, *, is_added: bool) -> None:
    if is_added:
        keys[key] = None
    else:
        del keys[key]
