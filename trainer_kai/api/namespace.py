"""Namespace: its labels choose a queue, and whether its workloads are handled."""

import msgspec

from trainer_kai.api.meta import Meta


class NamespaceStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Active or Terminating."""

    phase: str = ""


class Namespace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A namespace."""

    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()
