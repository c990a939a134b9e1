"""Lease: which process is the leader, and until when."""

import msgspec

from trainer_kai.api.meta import Meta


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The leader, since when and for how long."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A lease."""

    metadata: Meta
    spec: LeaseSpec = LeaseSpec()
