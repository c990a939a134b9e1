"""Deployment: whether what it runs is ready."""

import msgspec

from trainer_kai.api.meta import Meta

__all__ = ["Deployment", "DeploymentStatus"]


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many of its pods are ready."""

    ready_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Deployment."""

    metadata: Meta
    status: DeploymentStatus = DeploymentStatus()
