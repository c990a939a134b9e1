"""Deployment: how many of its replicas are ready."""

import msgspec

from trainer_kai.api.meta import Meta


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The number of ready replicas."""

    ready_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Deployment."""

    metadata: Meta
    status: DeploymentStatus = DeploymentStatus()
