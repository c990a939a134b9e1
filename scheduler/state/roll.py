"""All pods, each in a slot of its own as long as it is there, and of which kin each is.

Kin are pods that differ in nothing we read but name, node and state: the pods of one Job. What is
to know of a pod is worked out once for all its kin.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.kin import Kin
from scheduler.state.kins import NOBODY, Kins, grown
from scheduler.state.nodes import NodeRows
from scheduler.state.terms import Terms, epoch_s
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.pod import Pod

__all__ = [
    "DONE",
    "GATED",
    "RELEASING",
    "STATES",
    "STUCK",
    "SUCCEEDED",
    "THERE",
    "WAITING",
    "Roll",
    "going_until",
]

WAITING, GATED, THERE, RELEASING, STUCK, DONE, SUCCEEDED = range(7)
STATES: Final = 7

_FIRST: Final = 64  # slots of an empty roll
_NEVER: Final = 2**62
_NOBODY: Final = Key("", "")


class Roll:
    """Pods by slot; arrays are [slot]. A free slot is of nobody's kin, and done."""

    def __init__(self, kins: Kins, nodes: NodeRows, terms: Terms) -> None:
        self.kins: Final = kins
        self.nodes: Final = nodes
        self._terms: Final = terms
        self.keys: Final[list[Key]] = []
        self.pods: Final[list[Pod | None]] = []
        self.slot_of: Final[dict[Key, int]] = {}
        self.nominated: Final[dict[int, str]] = {}  # who waits for which node
        self._kin_of: Final[list[Kin | None]] = []
        self._free: Final[list[int]] = []
        self._kin: Ints = np.full(_FIRST, NOBODY, dtype=np.int64)
        self._state: Ints = np.full(_FIRST, DONE, dtype=np.int64)
        self._node: Ints = np.full(_FIRST, NONE, dtype=np.int64)
        self._until: Ints = np.zeros(_FIRST, dtype=np.int64)  # it is expected to go so long
        self.touched: dict[Kin, None] = {}  # kin with pods that have changed
        self.touched_slots: list[int] = []
        self.touched_nodes: set[int] = set()

    @property
    def kin(self) -> Ints:
        """Return the number of the kin of each."""
        return self._kin[: len(self.keys)]

    @property
    def state(self) -> Ints:
        """Return how far each is."""
        return self._state[: len(self.keys)]

    @property
    def node(self) -> Ints:
        """Return the node that each has something of, or NONE."""
        return self._node[: len(self.keys)]

    @property
    def ending(self) -> list[Pod]:
        """Return the pods of our scheduler that are going, also those that should be gone."""
        is_ending = self.kins.is_ours[self.kin] & np.isin(self.state, (RELEASING, STUCK))
        pods = (self.pods[slot] for slot in np.flatnonzero(is_ending).tolist())
        return [pod for pod in pods if pod is not None]

    @property
    def heads(self) -> Ints:
        """Count the pods of each kin, [kin, state]."""
        size = len(self.kins.rows)
        codes = self.kin * STATES + self.state
        return np.bincount(codes, minlength=size * STATES).reshape(size, STATES)

    @property
    def is_sparse(self) -> bool:
        """Say whether most slots are free, and there are many."""
        return len(self._free) > max(len(self.keys) // 2, _FIRST)

    def begin(self) -> None:
        """Forget who was touched."""
        self.touched, self.touched_slots, self.touched_nodes = {}, [], set()

    def read(self, told: Mapping[Key, Pod | None]) -> None:
        """Take pods as they are now."""
        found: list[int] = []  # of each its slot, kin, state, node, and until when it goes
        row_of, kin_of, slot_of = self.nodes.row_of, self.kins.of, self.slot_of.get
        for key, pod in told.items():
            slot = slot_of(key)
            if pod is not None:
                slot = self._enter(key) if slot is None else slot
                kin = kin_of(key, pod)
                self._join(slot, kin)
                self.pods[slot] = pod
                state, until = _state(pod, self._terms)
                name = pod.spec.node_name
                node = row_of(name) if name and state < DONE else NONE
                found += (slot, kin.number, state, node, until)
                if state == WAITING and pod.status.nominated_node_name:
                    self.nominated[slot] = pod.status.nominated_node_name
                elif self.nominated:
                    self.nominated.pop(slot, None)
            elif slot is not None:
                self._leave(key, slot)
                found += (slot, NOBODY, DONE, NONE, 0)
        self._write(np.array(found, dtype=np.int64).reshape(-1, 5))
        for kin in self.touched:
            self.kins.sweep(kin)
        self.kins.forget_identities()

    def pass_time(self, now: int) -> None:
        """Find those that have been going for too long, and those that have not."""
        going = np.flatnonzero((self.state == RELEASING) | (self.state == STUCK))
        is_stuck = self._until[going] < now
        state = np.where(is_stuck, STUCK, RELEASING)
        changed = going[self._state[going] != state]
        self._state[going] = state
        for slot in changed.tolist():
            self._join(slot, self._kin_of[slot])
            self.touched_slots.append(slot)
            self.touched_nodes.add(int(self._node[slot]))

    def renumber(self, row_of_old: Ints) -> None:
        """Give nodes other rows; *row_of_old* ends with that of no node."""
        self._node = row_of_old[self._node]
        lost = (self.node == NONE) & (self.state >= THERE) & (self.state < DONE)
        for slot in np.flatnonzero(lost).tolist():
            pod = self.pods[slot]
            self._node[slot] = self.nodes.row_of(pod.spec.node_name) if pod else NONE

    def promised(self, slot: int) -> int:
        """Return the row of the node that a pod waits for, or NONE."""
        return self.nodes.row_of(self.nominated.get(slot, ""))

    def pod(self, slot: int) -> Pod:
        """Return the pod in a slot."""
        pod = self.pods[slot]
        assert pod is not None
        return pod

    def age(self, slot: int) -> tuple[int, str, Key]:
        """Return what orders pods: the oldest first, then by uid, then by name."""
        meta = self.pod(slot).metadata
        return epoch_s(meta.creation_timestamp) or 0, meta.uid, self.keys[slot]

    def first(self, kin: Kin) -> int:
        """Return the slot of the oldest pod."""
        return min(kin.slots, key=self.age) if len(kin.slots) > 1 else next(iter(kin.slots))

    def title(self, kin: Kin) -> str:
        """Return what to call pods that are alike: the first of them."""
        return f"pod {self.keys[self.first(kin)].name}" if kin.slots else "a pod that comes later"

    def _enter(self, key: Key) -> int:
        if self._free:
            slot = self._free.pop()
            self.keys[slot] = key
        else:
            slot = len(self.keys)
            self.keys.append(key)
            self.pods.append(None)
            self._kin_of.append(None)
            if slot == len(self._kin):
                self._grow(2 * slot)
        self.slot_of[key] = slot
        return slot

    def _leave(self, key: Key, slot: int) -> None:
        self._join(slot, None)
        self.pods[slot], self.keys[slot] = None, _NOBODY
        self.nominated.pop(slot, None)
        del self.slot_of[key]
        self._free.append(slot)

    def _join(self, slot: int, kin: Kin | None) -> None:
        """Let a slot be of a kin, and no longer of the one before."""
        before = self._kin_of[slot]
        if before is not kin:
            if before is not None:
                del before.slots[slot]
                self.touched[before] = None
            self._kin_of[slot] = kin
            if kin is not None:
                kin.slots[slot] = None
        if kin is not None:
            self.touched[kin] = None

    def _write(self, lines: Ints) -> None:
        """Write columns; of two lines for one slot the last counts."""
        slots, kins, states, nodes, until = lines.T
        self.touched_slots += slots.tolist()
        self.touched_nodes.update(np.unique(np.concatenate((self._node[slots], nodes))).tolist())
        self._kin[slots], self._state[slots] = kins, states
        self._node[slots], self._until[slots] = nodes, until

    def _grow(self, size: int) -> None:
        self._kin, self._state = grown(self._kin, size), grown(self._state, size)
        known = len(self._node)
        self._node, self._until = grown(self._node, size), grown(self._until, size)
        self._node[known:] = NONE  # row 0 is a node, and there may be none


def going_until(meta: Meta, terms: Terms) -> int:
    """Return until when a pod that is going is expected to go, in seconds since 1970.

    The API server writes when it must be gone: as long after the deletion was asked for as its user
    chose to name, and that may be 68 years. No more than a site allows of that counts.
    """
    due = epoch_s(meta.deletion_timestamp)
    if due is None:
        return _NEVER
    beyond = max(meta.deletion_grace_period_seconds - terms.max_termination_grace_s, 0)
    return max(due - beyond + terms.stuck_in_releasing_s, 0)  # a grace has any size


def _state(pod: Pod, terms: Terms) -> tuple[int, int]:
    """Return how far a pod is, and until when it is expected to go; time may pass afterwards."""
    phase = pod.status.phase
    if phase == "Succeeded":
        return SUCCEEDED, 0
    if phase == "Failed":
        return DONE, 0
    if pod.metadata.deletion_timestamp:
        if not pod.spec.node_name:
            return DONE, 0  # it has nothing, and wants nothing any more
        return RELEASING, going_until(pod.metadata, terms)
    if pod.spec.node_name:
        return THERE, 0
    if phase not in {"", "Pending"}:
        return DONE, 0  # it runs nowhere
    return (GATED if pod.spec.scheduling_gates else WAITING), 0
