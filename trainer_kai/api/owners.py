"""The TrainJob that controls an object, by its owner references.

An owner reference is written by the author of the object. It does not prove that the owner exists
or has that uid.
"""

from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.api.resources import TRAINJOBS


def trainjob_owner(meta: Meta) -> OwnerReference | None:
    owner = meta.controller
    if owner is None or owner.kind != TRAINJOBS.kind:
        return None
    return owner if owner.api_version.partition("/")[0] == TRAINJOBS.group else None


def same_name_trainjob_owner(jobset: Meta) -> OwnerReference | None:
    """Return the TrainJob that controls a JobSet, if both have the same name.

    Trainer gives both the same name. A JobSet with another name was created by a user, and is not
    suspended together with the TrainJob that it names.
    """
    owner = trainjob_owner(jobset)
    return owner if owner is not None and owner.name == jobset.name else None
