"""Bytes of a watch into lines, lines and pages into objects. Pure.

An object that cannot be read is set aside, and the rest goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from trainer_kai.api.decode import DecodeError, PageMeta, decode, decode_page
from trainer_kai.api.meta import Meta, Object, PartialObject

T = TypeVar("T", bound=Object)

_NO_METADATA: Final = Meta()


class LineSplitter:
    """Give it pieces, take whole lines. A line that is never finished is never given out.

    A line may come in thousands of pieces (an object of some MiB does): they are joined once.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their ends."""
        if b"\n" not in piece:
            self._unfinished.append(piece)
            return []
        *lines, rest = piece.split(b"\n")
        if self._unfinished:
            lines[0] = b"".join((*self._unfinished, lines[0]))
        self._unfinished = [rest] if rest else []
        return [line for line in lines if line]


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object of which only the metadata can be read."""

    metadata: Meta
    error: DecodeError


@dataclass(frozen=True, slots=True)
class DecodedPage(Generic[T]):
    """A page, every object of it."""

    metadata: PageMeta
    items: Sequence[T | UnreadableObject]


class _RawPage(msgspec.Struct, frozen=True):
    metadata: PageMeta
    items: tuple[msgspec.Raw, ...] = ()


def read_page(struct: type[T], data: bytes) -> DecodedPage[T]:
    """Read a page; an object that cannot be read does not spoil the others."""
    try:
        page = decode_page(struct, data)
    except DecodeError:
        raw = decode(_RawPage, data)
        return DecodedPage(raw.metadata, tuple(read_object(struct, item) for item in raw.items))
    return DecodedPage(page.metadata, page.items)


def read_object(struct: type[T], data: bytes | msgspec.Raw) -> T | UnreadableObject:
    """Read one object, or at least its metadata; raise `DecodeError` if not even that."""
    try:
        return decode(struct, data)
    except DecodeError as error:
        meta = decode(PartialObject, data).metadata
        if meta == _NO_METADATA:
            raise
        return UnreadableObject(meta, error)
