"""Devices of claims that we allocate: they are taken from when it is planned, not when it is seen.

An assumed allocation counts as long as one of its pods is on a node, as it was seen or is assumed.
"""

from collections.abc import Iterable
from typing import Final

from scheduler.core.model.claims import DeviceName
from scheduler.state.commands import ClaimAllocationCommand
from scheduler.state.inputs import AssumedClaim, Cluster
from trainer_kai.api.device_kinds import (
    AllocatedDevice,
    AllocatedDevices,
    ClaimAllocation,
    ResourceClaim,
)
from trainer_kai.api.meta import Key, NodeSelector, NodeSelectorTerm, Requirement


class AssumedClaims:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster
        self._assumed: Final = cluster.assumed_claims
        self.owner_of: Final[dict[DeviceName, Key]] = {}  # the claim that has a device, as seen
        self._devices: Final[dict[Key, tuple[DeviceName, ...]]] = {}  # by claim

    def bind(self, pod: Key, node: str, claims: Iterable[ClaimAllocationCommand]) -> None:
        """Assume that a pod has the devices of its claims."""
        uid = self._cluster.pods[pod].metadata.uid
        for one in claims:
            claim = self._cluster.resource_claims.get(one.claim)
            if claim is None:
                continue
            known = self._assumed.get(one.claim)
            is_same = known is not None and known.uid == claim.metadata.uid
            pods = known.pods if known is not None and is_same else ()
            self._assumed[one.claim] = AssumedClaim(
                claim.metadata.uid, node_allocation(node, one), (*pods, (pod, uid))
            )

    def seen(self, key: Key, claim: ResourceClaim | None) -> None:
        """Forget what a watch shows: the claim is allocated, and for all of these pods."""
        self._note_devices(key, claim)
        known = self._assumed.get(key)
        if known is None:
            return
        if claim is None or claim.metadata.uid != known.uid:
            del self._assumed[key]
        elif claim.status.allocation is not None:
            users = {it.uid for it in claim.status.reserved_for}
            if all(uid in users for _, uid in known.pods):
                del self._assumed[key]

    def _note_devices(self, key: Key, claim: ResourceClaim | None) -> None:
        for device in self._devices.pop(key, ()):
            if self.owner_of.get(device) == key:
                del self.owner_of[device]
        allocation = claim.status.allocation if claim is not None else None
        devices = tuple(
            [
                DeviceName(it.driver, it.pool, it.device)
                for it in (allocation.devices.results if allocation is not None else ())
                if not it.admin_access
            ]
        )
        if devices:
            self._devices[key] = devices
            self.owner_of.update(dict.fromkeys(devices, key))

    def forget_others(self) -> None:
        """Forget the pods that are on no node after all."""
        for key, known in [*self._assumed.items()]:
            pods = tuple([it for it in known.pods if self._is_on_node(*it)])
            if not pods:
                del self._assumed[key]
            elif len(pods) < len(known.pods):
                self._assumed[key] = known._replace(pods=pods)

    def _is_on_node(self, key: Key, uid: str) -> bool:
        pod = self._cluster.pods.get(key)
        return pod is not None and pod.metadata.uid == uid and bool(pod.spec.node_name)


def node_allocation(node: str, one: ClaimAllocationCommand) -> ClaimAllocation:
    """Return the allocation of a claim whose devices are all on one node."""
    name = Requirement(key="metadata.name", operator="In", values=(node,))
    return ClaimAllocation(
        devices=AllocatedDevices(
            results=tuple(
                [
                    AllocatedDevice(
                        request=it.request,
                        driver=it.device.driver,
                        pool=it.device.pool,
                        device=it.device.device,
                    )
                    for it in one.devices
                ]
            )
        ),
        node_selector=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),)),
    )
