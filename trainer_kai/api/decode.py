"""Bytes of JSON into structs and back: the one place that knows how an object arrives.

Kubernetes means the same by `null` and by nothing, so a field that is null has its default. Fields
that a struct does not name are skipped without being read.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from trainer_kai.api.meta import Object
from trainer_kai.errors import FieldError, TrainerKaiError

__all__ = [
    "DecodeError",
    "Line",
    "Page",
    "PageMeta",
    "decode",
    "decode_line",
    "decode_page",
    "encode",
]

T = TypeVar("T", bound=Object)
S = TypeVar("S")
_ENCODER = msgspec.json.Encoder()


class DecodeError(TrainerKaiError):
    """Bytes that are no JSON, or a field whose type is not the one we read."""

    def __init__(self, fault: FieldError) -> None:
        self.fault = fault
        super().__init__(str(fault))


class PageMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where a page stands in its list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A piece of a list."""

    metadata: PageMeta = PageMeta()
    items: tuple[T, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch; its object is still JSON, and lives in the line's own bytes."""

    type: str
    object: msgspec.Raw


def decode(struct: type[S], data: bytes | msgspec.Raw) -> S:
    """Read one object; raise `DecodeError` for what is not one."""
    read: S = _decode(struct, data)
    return read


def decode_page(struct: type[T], data: bytes) -> Page[T]:
    """Read a page of a list."""
    page: Page[T] = _decode(Page[struct], data)  # type: ignore[valid-type]
    return page


def decode_line(data: bytes) -> Line:
    """Read what a line of a watch is about; `decode` reads the object."""
    line: Line = _decode(Line, data)
    return line


def encode(obj: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Write plain dicts and lists as JSON."""
    return _ENCODER.encode(obj)


def _decode(struct: Any, data: Any) -> Any:
    try:
        return _decoder(struct).decode(data)
    except msgspec.ValidationError as error:
        if "`null`" not in str(error):
            raise DecodeError(_fault(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(FieldError("", f"must be JSON: {error}")) from error
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), struct)
    except msgspec.ValidationError as error:
        raise DecodeError(_fault(error)) from error


@cache
def _decoder(struct: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _fault(error: msgspec.ValidationError) -> FieldError:
    message, _, path = str(error).partition(" - at `$")
    return FieldError(path.rstrip("`").removeprefix("."), message)
