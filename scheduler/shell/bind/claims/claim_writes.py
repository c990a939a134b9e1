"""The writes of a ResourceClaim: allocated and reserved for a pod, or not any more.

Each is made for the version of the claim that was read: if it has changed, it is read once more.
The finalizer is there before the allocation, as with kube-scheduler; Kubernetes removes it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from scheduler.shell.bind.steps import StepFailed
from scheduler.shell.bind.writes import FIELD_MANAGER, LimitedWrites
from scheduler.state.commands import ClaimAllocationCommand
from trainer_kai.api.bounds import MOST_CLAIM_USERS
from trainer_kai.api.device_kinds import DeviceClass, ExactDeviceRequest, ResourceClaim
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CLAIM_FINALIZER
from trainer_kai.api.resources import RESOURCE_CLAIMS
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import Conflict, ErrorDetails, Invalid, NotFound

_TRIES: Final = 5  # other users of the claim write it, too
_SPEC: Final = WriteOptions(field_manager=FIELD_MANAGER)
_STATUS: Final = WriteOptions(field_manager=FIELD_MANAGER, subresource="status")
Fields = dict[str, Any]


class ClaimRefused(StepFailed):
    """A claim cannot be used any more as it was planned: the pod is planned anew."""

    def __init__(self, claim: Key, message: str) -> None:
        details = ErrorDetails(f"BIND {claim}", 0, "", f"ResourceClaim {claim}: {message}")
        super().__init__(details, "ResourceClaimRefused")


class ClaimWrites:
    def __init__(
        self, client: Client, classes: Mapping[str, DeviceClass], writes: LimitedWrites
    ) -> None:
        self._client: Final = client
        self._classes: Final = classes
        self._writes: Final = writes

    async def allocate(
        self, one: ClaimAllocationCommand, pod: Key, uid: str, node: str
    ) -> ResourceClaim:
        """Let a claim have its devices, and a pod use them; if that is so, nothing is written."""

        async def change(claim: ResourceClaim) -> ResourceClaim:
            fault = _refusal(claim, one, pod, uid)
            if fault:
                raise ClaimRefused(one.claim, fault)
            allocation = claim.status.allocation
            users = claim.status.reserved_for
            if allocation is not None and any(it.uid == uid for it in users):
                return claim
            status: Fields = {"reservedFor": [*map(_consumer, users), _pod_consumer(pod, uid)]}
            if allocation is None:
                claim = await self._with_finalizer(claim)
                status["allocation"] = self._allocation(claim, one, node)
            return await self._patch(claim, {"status": status}, _STATUS)

        return await self._retry(one.claim, change)

    async def release(self, key: Key, uid: str) -> None:
        """Let a pod not use a claim any more; without users its devices are free."""

        async def change(claim: ResourceClaim) -> ResourceClaim:
            left = [it for it in claim.status.reserved_for if it.uid != uid]
            if len(left) == len(claim.status.reserved_for):
                return claim
            status: Fields = {"reservedFor": [*map(_consumer, left)]}
            if not left:
                status = {"reservedFor": None, "allocation": None}
            return await self._patch(claim, {"status": status}, _STATUS)

        try:
            await self._retry(key, change)
        except NotFound:
            return

    async def _retry(
        self, key: Key, change: Callable[[ResourceClaim], Awaitable[ResourceClaim]]
    ) -> ResourceClaim:
        for tries_left in reversed(range(_TRIES)):
            claim = await self._writes.send(lambda: self._client.get(RESOURCE_CLAIMS, key))
            try:
                return await change(claim)
            except ClaimRefused:
                raise
            except Conflict:
                if not tries_left:
                    raise
                await self._client.clock.sleep(0.02)
        raise AssertionError("the last try returns or raises")

    async def _with_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Add the finalizer, unless the API server takes that for a change of the spec.

        It compares the parameters of drivers byte by byte, and those that were stored with spaces
        between their parts cannot be written in JSON again.
        """
        finalizers = claim.metadata.finalizers
        if CLAIM_FINALIZER in finalizers:
            return claim
        fields = {"metadata": {"finalizers": [*finalizers, CLAIM_FINALIZER]}}
        try:
            return await self._patch(claim, fields, _SPEC)
        except Invalid:
            return claim

    async def _patch(
        self, claim: ResourceClaim, fields: Fields, options: WriteOptions
    ) -> ResourceClaim:
        meta = claim.metadata
        own = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**fields, "metadata": {**fields.get("metadata", {}), **own}}
        return await self._writes.send(
            lambda: self._client.merge_patch(RESOURCE_CLAIMS, meta.key, body, options)
        )

    def _allocation(self, claim: ResourceClaim, one: ClaimAllocationCommand, node: str) -> Fields:
        """Return the allocation as kube-scheduler writes it."""
        requests = _requests(claim)
        results = []
        for it in one.devices:
            result: Fields = {"request": it.request, **it.device._asdict()}
            tolerations = requests[it.request].tolerations if it.request in requests else ()
            if tolerations:
                result["tolerations"] = [_toleration(toleration) for toleration in tolerations]
            results.append(result)
        devices: Fields = {"results": results}
        config = self._config(claim, [it.request for it in one.devices])
        if config:
            devices["config"] = config
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }

    def _config(self, claim: ResourceClaim, allocated: Sequence[str]) -> list[Fields]:
        """Return the configuration of the classes that are used, then that of the claim."""
        found: list[Fields] = []
        requests = _requests(claim)
        for name in dict.fromkeys(allocated):
            request = requests.get(name)
            device_class = self._classes.get(request.device_class_name) if request else None
            own = device_class.spec.config if device_class else ()
            found += [{"source": "FromClass", "requests": [name], **it} for it in own]
        for config in claim.spec.devices.config:
            named = config.get("requests") or []
            parents = {name.partition("/")[0] for name in allocated}
            if not named or {*named} & {*allocated, *parents}:
                found.append({"source": "FromClaim", **config})
        return found


def _refusal(claim: ResourceClaim, one: ClaimAllocationCommand, pod: Key, uid: str) -> str:
    """Return why a pod cannot use a claim as it was planned, or ""."""
    users, allocation = claim.status.reserved_for, claim.status.allocation
    owner = claim.metadata.controller
    if claim.metadata.deletion_timestamp:
        return "it is being deleted"
    if owner is not None and owner.kind == "Pod" and owner.uid != uid:
        return f"it belongs to pod {owner.name}, not to pod {pod.name}"
    if len(users) >= MOST_CLAIM_USERS and all(it.uid != uid for it in users):
        return f"{len(users)} pods use it, and no more may"
    if allocation is None:
        return "" if one.devices else "no devices were planned for it"
    has = {(it.driver, it.pool, it.device) for it in allocation.devices.results}
    wanted = {(*it.device,) for it in one.devices}
    return "" if has == wanted else "another scheduler has allocated other devices meanwhile"


def _requests(claim: ResourceClaim) -> dict[str, ExactDeviceRequest]:
    """Return the requests by the names that results have."""
    found = {}
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found[request.name] = request.exactly
        for it in request.first_available:
            found[f"{request.name}/{it.name}"] = it
    return found


def _consumer(it: Any) -> Fields:
    fields = {"resource": it.resource, "name": it.name, "uid": it.uid}
    return {"apiGroup": it.api_group, **fields} if it.api_group else fields


def _pod_consumer(pod: Key, uid: str) -> Fields:
    return {"resource": "pods", "name": pod.name, "uid": uid}


def _toleration(it: Any) -> Fields:
    fields = {"key": it.key, "operator": it.operator, "value": it.value, "effect": it.effect}
    found: Fields = {name: value for name, value in fields.items() if value}
    if it.toleration_seconds is not None:
        found["tolerationSeconds"] = it.toleration_seconds
    return found
