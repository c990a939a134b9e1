"""PriorityClass: a number with a name."""

import msgspec

from trainer_kai.api.meta import Meta


class PriorityClass(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The name of a priority."""

    metadata: Meta
    value: int = 0
    global_default: bool = False
