"""A kind as the API server serves it, and our struct for its objects."""

from typing import Generic, TypeVar

import msgspec

from trainer_kai.api.meta import Object

T = TypeVar("T", bound=Object)


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """Group, version and plural form the URL path; the struct is for the objects."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: type[T]

    @property
    def api_version(self) -> str:
        """Return group and version as in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural
