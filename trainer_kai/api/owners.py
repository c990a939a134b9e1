"""The owner of an object, by what it says of its controller.

An owner reference is what its author wrote: it is no proof that there is such an object, or that it
has that uid.
"""

from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.api.resources import TRAINJOBS

__all__ = ["same_name_trainjob_owner", "trainjob_owner"]


def trainjob_owner(meta: Meta) -> OwnerReference | None:
    """Return the TrainJob that an object names as its controller; None if that is another kind."""
    owner = meta.controller
    if owner is None or owner.kind != TRAINJOBS.kind:
        return None
    return owner if owner.api_version.partition("/")[0] == TRAINJOBS.group else None


def same_name_trainjob_owner(jobset: Meta) -> OwnerReference | None:
    """Return the TrainJob that a JobSet names as its controller, if it is called like it.

    Trainer calls a JobSet like its TrainJob. One of another name was made by hand: nothing would
    suspend it together with the TrainJob that it names.
    """
    owner = trainjob_owner(jobset)
    return owner if owner is not None and owner.name == jobset.name else None
