"""The Lease as the API server keeps it: a `LeaseStore` on the real client.

It sets our fields and leaves all others alone, so it patches; the version that it names makes the
API server compare. It never reads from a cache.
"""

from collections.abc import Awaitable
from typing import Any, TypeVar

from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import Forbidden, NotFound
from trainer_kai.kube.lease import LeaseRecord

__all__ = ["LeaseApi"]

A = TypeVar("A")


class LeaseApi:
    """One Lease by its key."""

    def __init__(self, client: Client, key: Key) -> None:
        self._client = client
        self._key = key

    async def read(self) -> LeaseRecord | None:
        """Return the newest state; None when there is no such Lease."""
        try:
            return _record(await self._allowed(self._client.get(LEASES, self._key)))
        except NotFound:
            return None

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        """Make the Lease; `AlreadyExists` when there is one."""
        metadata = {"namespace": self._key.namespace, "name": self._key.name}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        request = self._client.create(LEASES, self._key.namespace, body | {"spec": _spec(record)})
        return _record(await self._allowed(request))

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Write over exactly this version; else `Conflict`."""
        fields = {"metadata": {"resourceVersion": version}, "spec": _spec(record)}
        return _record(await self._allowed(self._client.merge_patch(LEASES, self._key, fields)))

    async def _allowed(self, request: Awaitable[A]) -> A:
        try:
            return await request
        except Forbidden as error:
            namespace, name = self._key
            needs = f"leading needs get, create and patch on {LEASES} in namespace {namespace}"
            message = f"{error.details.message}; {needs}, at least for {name}"
            raise Forbidden(error.details._replace(message=message)) from error


def _record(lease: Lease) -> LeaseRecord:
    spec = lease.spec
    return LeaseRecord(
        spec.holder_identity,
        spec.lease_duration_seconds,
        spec.acquire_time,
        spec.renew_time,
        spec.lease_transitions,
        lease.metadata.resource_version,
    )


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired or None,
        "renewTime": record.renewed or None,
        "leaseTransitions": record.transitions,
    }
