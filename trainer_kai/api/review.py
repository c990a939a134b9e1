"""SubjectAccessReview: whether a user may do something, as it was asked and answered."""

import msgspec

from trainer_kai.api.meta import Meta

__all__ = ["AccessReview", "AccessSpec", "AccessStatus", "ResourceAttributes"]


class ResourceAttributes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What would be done, and to what."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""


class AccessSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Which user or groups would do it."""

    resource_attributes: ResourceAttributes = ResourceAttributes()
    user: str = ""
    groups: tuple[str, ...] = ()


class AccessStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the authorizers say."""

    allowed: bool = False
    reason: str = ""


class AccessReview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One question, and its answer if there is one."""

    metadata: Meta
    spec: AccessSpec = AccessSpec()
    status: AccessStatus | None = None
