"""Whose an object is, by what it says of its controller.

An owner reference is what its author wrote: it is no proof that there is such an object, or that it
has that uid.
"""

from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.api.resources import TRAINJOBS

__all__ = ["trainjob_owner"]


def trainjob_owner(meta: Meta) -> OwnerReference | None:
    """Return the TrainJob that a JobSet names as its controller; None if it is of none.

    Trainer calls a JobSet like its TrainJob. One of another name was made by hand: nothing would
    suspend it together with the TrainJob that it names.
    """
    owner = meta.controller
    if owner is None or owner.kind != TRAINJOBS.kind or owner.name != meta.name:
        return None
    return owner if owner.api_version.partition("/")[0] == TRAINJOBS.group else None
