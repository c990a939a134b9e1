"""JSON into structs and back; the only module that knows how an object arrives.

To Kubernetes `null` means the same as a missing field, so a null field gets its default; and 2.0
means 2. Fields that a struct does not have are skipped. Equal labels of many objects are one object
in memory, like the other values that `interning` handles.

The API server stores objects with 10,000 levels: any user can write such managedFields. An object
that is nested too deeply for the recursive parser is read a second time without its deepest levels;
no field that we read is deeper than 100 levels.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from trainer_kai.api.interning import intern_meta, intern_spec
from trainer_kai.api.meta import Meta, Object
from trainer_kai.api.pod import Pod
from trainer_kai.api.pod_text import NEXT, intern_and_learn, read_matching
from trainer_kai.api.resized_pod import ResizedPod, may_be_resized, with_resize
from trainer_kai.errors import FieldError, TrainerKaiError

T = TypeVar("T", bound=Object)
S = TypeVar("S")
Text: TypeAlias = bytes | bytearray | memoryview | msgspec.Raw

_ITEMS: Final = b'"items":['
_POD: Final = b'{"kind":"Pod","apiVersion":"v1","metadata":{'
_POD_METADATA: Final = len(_POD) - 1
_ITEM: Final = b'{"metadata":{'
_ITEM_METADATA: Final = len(_ITEM) - 1
_BRACE: Final = ord("}")
_LEVELS: Final = 100
# A bracket, and the text up to the next one; strings are skipped together with brackets in them.
_BRACKET: Final = re.compile(rb'[{}\[\]](?:[^{}\[\]"]+|"[^"\\]*(?:\\.[^"\\]*)*")*')
_OPENING: Final = b"{["
_PAGE_HEAD: Final = 1024  # the items begin within this number of bytes
_WATCH_EVENT: Final = b'{"type":"'
_OBJECT: Final = b'","object":'
_TYPE_BYTES: Final = 32
_TYPES: Final = re.compile("Expected `(.*)`, got `(.*)`")
_FLOAT: Final = re.compile("Expected `int( \\| null)?`, got `float`")
_MISSING: Final = re.compile("Object missing required field `(.*)`")
_NO_DECIMAL: Final = "Invalid decimal string"
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "decimal": "a number",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "a string",
}


class DecodeError(TrainerKaiError):
    """Invalid JSON, or a field with another type than ours."""

    def __init__(self, fault: FieldError) -> None:
        self.fault = fault
        super().__init__(str(fault))


class PageMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    metadata: PageMeta = PageMeta()
    items: tuple[T, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch; `decode` reads its object once the type is known."""

    type: str
    object: bytes


class _AnyWatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


def decode(struct: type[S], data: Text) -> S:
    """Raise `DecodeError` if the object is invalid."""
    if struct is Pod:
        text = data if type(data) is bytes else bytes(data)
        stop = len(text) - 1
        matched = None
        if text.startswith(_POD) and text[stop] == _BRACE:
            matched = read_matching(text, _POD_METADATA, stop, alone=True)
        whole: Any = matched[0] if matched else _pod(text)
    else:
        whole = _parse(struct, data)
        metadata = getattr(whole, "metadata", None)
        if isinstance(metadata, Meta):
            intern_meta(metadata)
    read: S = whole
    return read


def decode_page(struct: type[T], data: bytes) -> Page[T]:
    if struct is Pod:
        page: Page[Any] | None = _pod_page(data)
        if page is not None:
            return page
    page = _parse(Page[struct], data)  # type: ignore[valid-type]
    for item in page.items:
        intern_meta(item.metadata)
        if isinstance(item, Pod):
            intern_spec(item)
    pods: tuple[Any, ...] = page.items
    if struct is Pod and any(map(may_be_resized, pods)):
        resizes: Any = _parse(Page[ResizedPod], data).items  # type: ignore[type-var]
        counted = map(with_resize, pods, (it.status for it in resizes))
        return Page(metadata=page.metadata, items=tuple(counted))  # type: ignore[arg-type]
    return page


def decode_watch_event(data: bytes) -> WatchEvent:
    if data.startswith(_WATCH_EVENT):  # the API server writes all events like this
        end = data.find(b'"', len(_WATCH_EVENT), _TYPE_BYTES)
        if data.startswith(_OBJECT, end) and data.endswith((b"}}\n", b"}}")):
            stop = -2 if data.endswith(b"\n") else -1
            return WatchEvent(
                type=data[len(_WATCH_EVENT) : end].decode(), object=data[end + len(_OBJECT) : stop]
            )
    line = _parse(_AnyWatchEvent, data)
    return WatchEvent(type=line.type, object=bytes(line.object))


def encode(obj: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Encode dicts and lists as JSON; the labels of a pod may be an `IndexedLabels`."""
    return msgspec.json.encode(obj, enc_hook=_mapping_as_dict)


def _pod(data: bytes) -> Pod:
    """Decode a pod that matched no template, or that has a line break after it."""
    text = data.rstrip(b"\n")
    if not text.startswith(_POD):
        return _with_resize(intern_and_learn(_parse(Pod, text), text, 0, 0), text)
    stop = len(text) - 1
    matched = None
    if len(text) < len(data) and text[stop] == _BRACE:
        matched = read_matching(text, _POD_METADATA, stop, alone=True)
    if matched:
        return matched[0]
    return _with_resize(intern_and_learn(_parse(Pod, text), text, _POD_METADATA, stop), text)


def _pod_page(data: bytes) -> Page[Pod] | None:
    """Decode a page pod by pod; None if its text is not formatted as the API server does it."""
    at = data.find(_ITEMS, 0, _PAGE_HEAD) + len(_ITEMS)
    stop = data.rfind(b"}]")
    if at < len(_ITEMS) or stop < at:
        return None
    pods = []
    try:
        page = _decoder(Page[Pod]).decode(data[:at] + data[stop + 1 :])
        while at < stop:
            if not data.startswith(_ITEM, at):
                return None
            matched = read_matching(data, at + _ITEM_METADATA, stop, alone=False)
            if matched is None:
                end = data.find(NEXT, at, stop)
                end = stop if end < 0 else end
                text = data[at : end + 1]
                pod = intern_and_learn(_read(Pod, text), data, at + _ITEM_METADATA, end)
                matched = _with_resize(pod, text), end
            pods.append(matched[0])
            at = matched[1] + 2
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # decoded as a whole page, for the right result or the right error
    return Page(metadata=page.metadata, items=tuple(pods))


def _with_resize(pod: Pod, text: bytes) -> Pod:
    return with_resize(pod, _parse(ResizedPod, text).status) if may_be_resized(pod) else pod


def _parse(struct: Any, data: Text) -> Any:
    try:
        try:
            return _read(struct, data)
        except msgspec.ValidationError as error:
            if "`null`" not in str(error) and not _FLOAT.match(str(error)):
                raise
        return msgspec.convert(_without_nulls(_read(Any, data)), struct)
    except msgspec.ValidationError as error:
        raise DecodeError(_fault(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(FieldError("", f"is not valid JSON: {error}")) from error


def _read(struct: Any, data: Text) -> Any:
    try:
        return _decoder(struct).decode(data)
    except RecursionError:
        return _decoder(struct).decode(without_deep_nesting(bytes(data)))


def _mapping_as_dict(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


@cache
def _decoder(struct: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)


def _without_nulls(value: Any) -> Any:
    """Return JSON without nulls, and with 2.0 written as 2 where an integer is expected."""
    if isinstance(value, dict):
        return {key: _without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _fault(error: msgspec.ValidationError) -> FieldError:
    message, _, at = str(error).partition(" - at `$")
    path = at.rstrip("`").removeprefix(".")
    types = _TYPES.fullmatch(message)
    missing = _MISSING.fullmatch(message)
    if types:
        right = " or ".join(_WORDS.get(it, it) for it in types[1].split(" | ") if it != "null")
        message = f"must be {right}, not {_WORDS.get(types[2], types[2])}"
    elif missing:
        path, message = f"{path}.{missing[1]}".removeprefix("."), "is missing"
    elif message == _NO_DECIMAL:
        message = f"must be {_WORDS['decimal']}"
    return FieldError(path, message)


def without_deep_nesting(text: bytes) -> bytes:
    depth = kept_to = cut_from = 0
    pieces = []
    for bracket in _BRACKET.finditer(text):
        at = bracket.start()
        if text[at] in _OPENING:
            depth += 1
            if depth == _LEVELS + 1:
                cut_from = at
        else:
            if depth == _LEVELS + 1:
                pieces += [text[kept_to:cut_from], b"null"]
                kept_to = at + 1
            depth -= 1
    return b"".join((*pieces, text[kept_to:]))
