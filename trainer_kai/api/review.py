"""SubjectAccessReview: whether a user has a permission, as a request and its response."""

import msgspec

from trainer_kai.api.meta import Meta


class ResourceAttributes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The verb and the object."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""


class AccessSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The user or the groups."""

    resource_attributes: ResourceAttributes = ResourceAttributes()
    user: str = ""
    groups: tuple[str, ...] = ()


class AccessStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The response of the authorizers."""

    allowed: bool = False
    reason: str = ""


class AccessReview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request, and its response if there is one."""

    metadata: Meta
    spec: AccessSpec = AccessSpec()
    status: AccessStatus | None = None
