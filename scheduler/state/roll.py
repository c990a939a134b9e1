"""All pods in order, and of which kin each is.

Kin are pods that differ in nothing we read but name, node and state: the pods of one Job. What is
to know of a pod is worked out once for all its kin. They are found by the identity of the parts
that decoded siblings share, and only where those differ by their text.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.kin import Kin
from scheduler.state.terms import Terms, epoch_s
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.share import Stamped, without_node

__all__ = ["DONE", "GATED", "RELEASING", "STATES", "STUCK", "SUCCEEDED", "THERE", "WAITING", "Roll"]

WAITING, GATED, THERE, RELEASING, STUCK, DONE, SUCCEEDED = range(7)
STATES: Final = 7


class _Names(Protocol):
    def __call__(self, name: str, /) -> int: ...


class Roll:
    """Pods by row, oldest first; arrays are [pod]."""

    def __init__(self, pods: Mapping[Key, Pod], row_of: _Names, terms: Terms) -> None:
        self.keys: Final = _in_order(pods)
        self.pods: Final = [pods[key] for key in self.keys]
        self._specs: dict[tuple[int, ...] | int, int] = {}
        self._texts: dict[bytes, int] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self.kins: list[Kin] = []
        self._by_index = False
        kin = self._read()
        if any(kin_.asks_for_index for kin_ in self.kins):  # then pods of one Job are not alike
            self._by_index = True
            self._seen, self._known, self.kins = {}, {}, []
            kin = self._read()
        self.kin: Final[Ints] = np.array(kin, dtype=np.int64)
        states, nodes, self.nominated = self._states(row_of, terms)
        self.state: Final[Ints] = np.array(states, dtype=np.int64)
        self.node: Final[Ints] = np.array(nodes, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, kin: Kin) -> int:
        """Add kin of which there are no pods yet; return their number."""
        kin.spec_number = self._number_of_text(kin.spec)
        return self._enter(kin)

    def _enter(self, kin: Kin) -> int:
        number = self._known.setdefault(_content(kin), len(self.kins))
        if number == len(self.kins):
            kin.number = number
            self.kins.append(kin)
        return number

    def _read(self) -> list[int]:
        """Return the kin of each pod."""
        found = []
        seen, specs = self._seen, self._specs
        for key, pod in zip(self.keys, self.pods, strict=True):
            meta, spec = pod.metadata, pod.spec
            spec_number = specs.get(id(spec))
            if spec_number is None:
                spec_number = specs[id(spec)] = self._spec_number(spec)
            labels, annotations = meta.labels, meta.annotations
            if type(labels) is Stamped and not self._by_index:
                labels = labels.shared
            if type(annotations) is Stamped:
                annotations = annotations.shared
            parts = (
                spec_number,
                id(labels),
                id(annotations),
                id(meta.owner_references),
                key.namespace,
            )
            number = seen.get(parts)
            if number is None:
                kin = Kin(key, pod, labels, annotations)
                kin.spec_number = spec_number
                number = self._enter(kin)
                if not kin.own_name:
                    seen[parts] = number
            found.append(number)
        return found

    def _spec_number(self, spec: PodSpec) -> int:
        """Return one number for all specs that are equal but for their node."""
        parts = _parts(spec)
        number = self._specs.get(parts)
        if number is None:
            number = self._specs[parts] = self._number_of_text(spec)
        return number

    def _number_of_text(self, spec: PodSpec) -> int:
        text = msgspec.json.encode(without_node(spec), order="deterministic")
        return self._texts.setdefault(text, len(self._texts))

    def _states(self, row_of: _Names, terms: Terms) -> tuple[list[int], list[int], dict[int, int]]:
        states, nodes, nominated = [], [], {}
        for number, pod in enumerate(self.pods):
            state = _state(pod, terms)
            name = pod.spec.node_name
            states.append(state)
            nodes.append(row_of(name) if name and state < DONE else NONE)
            if state == WAITING and pod.status.nominated_node_name:
                row = row_of(pod.status.nominated_node_name)
                if row != NONE:
                    nominated[number] = row
        return states, nodes, nominated


def _content(kin: Kin) -> tuple[object, ...]:
    """Return all that makes kin differ from others."""
    return (
        kin.spec_number,
        tuple(sorted(kin.labels.items())),
        kin.wishes,
        kin.controller,
        kin.namespace,
        kin.own_name,
    )


def _state(pod: Pod, terms: Terms) -> int:
    phase = pod.status.phase
    if phase == "Succeeded":
        return SUCCEEDED
    if phase == "Failed":
        return DONE
    going = pod.metadata.deletion_timestamp
    if going:
        if not pod.spec.node_name:
            return DONE  # it has nothing, and wants nothing any more
        since = epoch_s(going)
        is_stuck = since is not None and terms.now - since > terms.stuck_in_releasing_s
        return STUCK if is_stuck else RELEASING
    if pod.spec.node_name:
        return THERE
    if phase not in {"", "Pending"}:
        return DONE  # it runs nowhere
    return GATED if pod.spec.scheduling_gates else WAITING


def _in_order(pods: Mapping[Key, Pod]) -> list[Key]:
    """Return the oldest first, then by uid, then by name."""
    keys = list(pods)
    if len({pod.metadata.uid for pod in pods.values()}) < len(keys):
        keys.sort()
    keys.sort(key=lambda key: pods[key].metadata.uid)
    keys.sort(key=lambda key: epoch_s(pods[key].metadata.creation_timestamp) or 0)
    return keys


def _parts(spec: PodSpec) -> tuple[int, ...]:
    """Return what is the same in copies of a spec that lie on different nodes."""
    return (
        id(spec.volumes),
        id(spec.init_containers),
        id(spec.containers),
        id(spec.node_selector),
        spec.host_network,
        id(spec.affinity),
        id(spec.scheduler_name),
        id(spec.tolerations),
        id(spec.priority_class_name),
        id(spec.overhead),
        id(spec.topology_spread_constraints),
        id(spec.scheduling_gates),
        id(spec.resource_claims),
        id(spec.resources),
    )
