"""Which devices are taken by claims, and which of our pods hold them; made for each snapshot.

A claim is free again when Kubernetes has removed its allocation, a moment after its last pod is
gone: until then its devices are being released.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.claims import (
    ClaimDevices,
    DeviceFilter,
    DeviceName,
    PodClaim,
    SharedClaim,
    held_device,
    slots_of,
)
from scheduler.core.model.resources import NONE, Bools
from scheduler.state.claims.claim_table import ClaimTable
from scheduler.state.claims.device_table import DeviceTable
from scheduler.state.inputs import Cluster
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import DONE, GATED, PENDING, RELEASING, RUNNING, PodTable
from trainer_kai.api.device_kinds import AllocatedDevice, ClaimAllocation, ResourceClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import TERMINAL_PHASES

_PODS: Final = "pods"
_NODE_NAME: Final = "metadata.name"


class _Use(NamedTuple):
    """A claim that is allocated, its devices that are known, and what uses it."""

    node: int
    devices: tuple[tuple[str, int], ...]  # requests and rows
    live: int = 0  # pods on nodes, and users that are no pods
    releasing: int = 0  # pods that are terminating
    gone: int = 0  # pods that are gone or have ended

    @property
    def is_releasing(self) -> bool:
        return not self.live and bool(self.releasing or self.gone)


class ClaimAllocations:
    def __init__(
        self, cluster: Cluster, pod_table: PodTable, claims: ClaimTable, devices: DeviceTable
    ) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._claims: Final = claims
        self._devices: Final = devices
        self._uses: dict[Key, _Use] = {}

    def read(self) -> None:
        """Read the allocations of all claims; those that we write count from when we do."""
        found = {}
        for key, claim in self._cluster.resource_claims.items():
            allocation = claim.status.allocation or self._assumed(key, claim)
            if allocation is not None:
                found[key] = self._use(key, claim, allocation)
        self._uses = found

    def _assumed(self, key: Key, claim: ResourceClaim) -> ClaimAllocation | None:
        assumed = self._cluster.assumed_claims.get(key)
        if assumed is None or assumed.uid != claim.metadata.uid:
            return None
        pods = self._cluster.pods
        is_bound = any(
            pod is not None and pod.metadata.uid == uid and bool(pod.spec.node_name)
            for it, uid in assumed.pods
            for pod in (pods.get(it),)
        )
        return assumed.allocation if is_bound else None

    def _use(self, key: Key, claim: ResourceClaim, allocation: ClaimAllocation) -> _Use:
        rows = [
            (it.request, row)
            for it in allocation.devices.results
            for row in (self._row(it),)
            if row != NONE
        ]
        node = int(self._devices.node[rows[0][1]]) if rows else self._node_of(allocation)
        live = releasing = gone = 0
        users = {
            (it.name, it.uid): it.resource == _PODS and not it.api_group
            for it in claim.status.reserved_for
        }
        assumed = self._cluster.assumed_claims.get(key)
        users.update({(pod.name, uid): True for pod, uid in (assumed.pods if assumed else ())})
        for (name, uid), is_pod in users.items():
            state = self._state(Key(key.namespace, name), uid) if is_pod else RUNNING
            live += state == RUNNING
            releasing += state == RELEASING
            gone += state == DONE
        return _Use(node, tuple(rows), live, releasing, gone)

    def _row(self, it: AllocatedDevice) -> int:
        if it.admin_access:
            return NONE
        return self._devices.row_of.get(DeviceName(it.driver, it.pool, it.device), NONE)

    def _node_of(self, allocation: ClaimAllocation) -> int:
        """Return the node that an allocation names; its devices may be gone."""
        terms = allocation.node_selector.node_selector_terms if allocation.node_selector else ()
        for term in terms:
            for it in term.match_fields:
                if it.key == _NODE_NAME and len(it.values) == 1:
                    return self._pod_table.nodes.row_of(it.values[0])
        return NONE

    def _state(self, key: Key, uid: str) -> int:
        """Return the state of a user: DONE if it is gone, RUNNING if it holds the devices."""
        pod = self._cluster.pods.get(key)
        if pod is None or pod.metadata.uid != uid or pod.status.phase in TERMINAL_PHASES:
            return DONE
        row = self._pod_table.row_by_key.get(key, NONE)
        state = int(self._pod_table.state[row]) if row != NONE else RUNNING
        return state if state in {RELEASING, PENDING, GATED} else RUNNING

    # What single pods have.

    def allocated(self, key: Key | None) -> bool:
        return key is not None and key in self._uses

    def special_claims(self) -> Iterator[tuple[int, PodClass, tuple[PodClaim, ...], int]]:
        """Yield the pending pods of which own claims are allocated already, with rows for these.

        And those that are charged less than pods of their class on nodes, with how much less.
        """
        for pod_row, pod_class in self._pods(PENDING):
            known = self._claims.of_class(pod_class)
            claims, less = known.claims, known.gpus - known.waiting_gpus
            pod, changed = self._pod_table.pod(pod_row), [*claims]
            for n, use in enumerate(pod_class.spec.resource_claims if claims else ()):
                key = self._claims.claim_key(pod, use)
                if not use.resource_claim_name and key is not None and key in self._uses:
                    changed[n] = changed[n]._replace(shared=self._claims.row(key))
            if less or tuple(changed) != claims:
                yield pod_row, pod_class, tuple(changed), less

    def claim_keys(self) -> dict[int, tuple[Key | None, ...]]:
        """Return the claims of each pending pod, in the order of its spec."""
        return {
            pod_row: tuple(
                [
                    self._claims.claim_key(self._pod_table.pod(pod_row), use)
                    for use in pod_class.spec.resource_claims
                ]
            )
            for pod_row, pod_class in self._pods(PENDING)
        }

    def _pods(self, state: int) -> Iterator[tuple[int, PodClass]]:
        table, classes = self._pod_table, self._pod_table.class_table
        has_claims = classes.has_claims & classes.is_ours
        rows = np.flatnonzero(has_claims[table.class_number] & (table.state == state))
        for pod_row in rows.tolist():
            yield pod_row, classes[int(table.class_number[pod_row])]

    def table(self) -> ClaimDevices:
        devices, shapes = self._devices, self._claims.shapes
        filtered = [devices.filtered(it.key) for it in shapes.filters]
        size = len(devices.names)
        taken = {row for use in self._uses.values() for _, row in use.devices}
        kept = {
            row for use in self._uses.values() if not use.is_releasing for _, row in use.devices
        }
        return ClaimDevices(
            names=devices.names,
            node=devices.node.copy(),
            is_gpu=devices.is_gpu.copy(),
            filters=tuple(
                [
                    DeviceFilter(it.class_name, it.counts_gpus, found.error)
                    for it, found in zip(shapes.filters, filtered, strict=True)
                ]
            ),
            selected=_table([it.selected for it in filtered], size),
            tolerated=_table([it.tolerated for it in filtered], size),
            attributes=np.array(
                [devices.attribute(it) for it in shapes.attributes], np.int32
            ).reshape(len(shapes.attributes), size),
            counters=devices.counters,
            counter_use=devices.counter_use,
            taken=frozenset(taken),
            releasing=frozenset(taken - kept),
            shared=tuple([self._shared(key) for key in self._claims.rows]),
            held=self._held(),
            left_out=devices.left_out,
            served={
                name: device_class
                for device_class, it in sorted(self._cluster.device_classes.items(), reverse=True)
                if (name := it.spec.extended_resource_name)
            },
        )

    def _shared(self, key: Key) -> SharedClaim:
        use = self._uses.get(key)
        if use is None or (use.is_releasing and not use.releasing):
            return SharedClaim(key.name)
        return SharedClaim(
            key.name,
            use.node,
            tuple([row for _, row in use.devices]),
            use.live,
            use.releasing,
            is_allocated=not (use.live or use.releasing),
        )

    def _held(self) -> Mapping[int, tuple[int, ...]]:
        """Return the devices of the claims of each running pod."""
        held = {}
        for pod_row, pod_class in self._pods(RUNNING):
            claims = self._claims.of_class(pod_class).claims
            pod, found = self._pod_table.pod(pod_row), list[int]()
            slots = _slot_names(claims)
            for n, use in enumerate(pod_class.spec.resource_claims if claims else ()):
                key = self._claims.claim_key(pod, use)
                known = self._uses.get(key) if key is not None else None
                for request, row in known.devices if known is not None else ():
                    slot = slots.get((n, request), slots.get((n, "")))
                    if slot is not None:
                        found.append(held_device(slot, row))
            if found:
                held[pod_row] = tuple(found)
        return held


def _table(rows: list[Bools], size: int) -> Bools:
    return np.array(rows, dtype=np.bool_).reshape(len(rows), size)


def _slot_names(claims: tuple[PodClaim, ...]) -> dict[tuple[int, str], int]:
    """Return the slot of each request of each claim by its name; "" is the first of a claim."""
    found: dict[tuple[int, str], int] = {}
    for slot, (c, r, a) in enumerate(slots_of(claims)):
        request = claims[c].requests[r]
        alternative = request.alternatives[a]
        name = f"{request.name}/{alternative.name}" if alternative.name else request.name
        found.setdefault((c, ""), slot)
        found[c, name] = slot
    return found
