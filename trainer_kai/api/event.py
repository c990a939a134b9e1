"""Event: what a component reported about an object."""

import msgspec

from trainer_kai.api.meta import Meta


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The object of an event."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """An event about an object, in the format of the core group or in the newer one."""

    metadata: Meta
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
