"""Objects from files: YAML or JSON, several in one file, lists as kubectl prints them.

All files that cannot be read are reported together. JSON is parsed as JSON, which takes a fiftieth
of the time.
"""

import json
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from trainer_kai.api.decode import DecodeError, decode, encode
from trainer_kai.api.meta import Object
from trainer_kai.cli.input.yaml_text import (
    DuplicateKeys,
    non_json_fault,
    size_fault,
    yaml_documents,
    yaml_error_text,
)
from trainer_kai.errors import ConfigError, FieldError

T = TypeVar("T", bound=Object)

_STDIN: Final = "-"
_MAX_BYTES: Final = 256 * 1024 * 1024
# Longer JSON is written by programs, without duplicate keys.
_MAX_HANDWRITTEN_BYTES: Final = 1024 * 1024
_LIST: Final = "List"
_ZIP: Final = b"PK\x03\x04"

Unpack = Callable[[str, bytes], "Iterable[Document]"]


class Document(NamedTuple):
    file: str
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.fields.get("kind", ""))

    @property
    def group(self) -> str:
        return str(self.fields.get("apiVersion", "")).rpartition("/")[0]

    def __str__(self) -> str:
        metadata = self.fields.get("metadata")
        meta = metadata if isinstance(metadata, dict) else {}
        names = filter(None, (meta.get("namespace"), meta.get("name") or meta.get("generateName")))
        return f"{self.file}: {self.kind or 'object'} {'/'.join(map(str, names))}".rstrip()


def read_files(
    files: Iterable[str], unpack: Unpack | None = None, faults: list[FieldError] | None = None
) -> list[Document]:
    """Return all objects in the files; `-` is standard input. *unpack* opens zip archives.

    Files that cannot be read are added to *faults*, to be reported with other faults.
    """
    found: list[FieldError] = []
    documents: list[Document] = []
    for file in files:
        name = display_name(file)
        try:
            documents += _objects(file, unpack)
        except IsADirectoryError:
            found.append(
                FieldError(name, "is a directory: give each of its files an -f of its own")
            )
        except OSError as error:
            found.append(FieldError(name, f"cannot be read: {error.strerror or error}"))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            message = f"is not UTF-8 text: byte {error.start + 1} is {byte:#04x}"
            found.append(FieldError(name, message))
        except yaml.YAMLError as error:
            what = "JSON" if file.lower().endswith(".json") else "YAML"
            found.append(FieldError(name, f"is not valid {what}: {yaml_error_text(error)}"))
        except DuplicateKeys as error:
            found += (FieldError(name, fault) for fault in error.faults)
        except ConfigError as error:
            found += error.faults
    if faults is not None:
        faults += found
    elif found:
        raise ConfigError(found)
    return documents


def display_name(file: str) -> str:
    return "standard input" if file == _STDIN else file


def read_object(struct: type[T], document: Document) -> T:
    """Read an object; raise `ConfigError` for a field of the wrong type."""
    try:
        return decode(struct, encode(document.fields))
    except DecodeError as error:
        path, message = error.fault
        path = _path_with_key(document.fields, path)
        value = _value_at(document.fields, path)
        described = f"{value!r} {message}" if isinstance(value, str | int | float) else message
        raise ConfigError([FieldError(str(document), str(FieldError(path, described)))]) from error
    except RecursionError as error:
        raise ConfigError([FieldError(str(document), "is nested too deeply")]) from error


def _objects(file: str, unpack: Unpack | None) -> Iterator[Document]:
    name = display_name(file)
    data = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    if unpack is not None and data.startswith(_ZIP):
        yield from unpack(name, data)
        return
    if len(data) > _MAX_BYTES:
        raise ConfigError([FieldError(name, "is larger than 256 MiB")])
    whole = _decode_json(data)
    if whole is not None:
        yield from flattened(Document(name, whole))
        return
    text = data.decode()
    fault = size_fault(text)
    if fault:
        raise ConfigError([FieldError(name, fault)])
    for number, document in enumerate(yaml_documents(text), 1):
        if document is None:
            continue
        if not isinstance(document, dict):
            what = "a list" if isinstance(document, list) else reprlib.repr(document)
            raise ConfigError([FieldError(name, f"document {number} is {what}, not an object")])
        fault = non_json_fault(document)
        if fault:
            raise ConfigError([FieldError(f"{name}: document {number}", fault)])
        yield from flattened(Document(name, document))


def _path_with_key(fields: dict[str, Any], path: str) -> str:
    """Return a path with the key of the label or annotation with a value that is not a string."""
    parent, is_open, _ = path.partition("[...]")
    is_of_texts = is_open and parent.endswith((".labels", ".annotations"))
    texts = _value_at(fields, parent) if is_of_texts else None
    odd = [key for key, value in (texts or {}).items() if not isinstance(value, str)]
    return f"{parent}[{odd[0]}]" if odd else path


def _value_at(value: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit():
            value = value[int(step)]
        else:
            return None
    return value


def _decode_json(data: bytes) -> dict[str, Any] | None:
    """Return the object in a JSON text; None for other texts, which are parsed as YAML."""
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        whole = msgspec.json.decode(data)
        if len(data) <= _MAX_HANDWRITTEN_BYTES:
            json.loads(data, object_pairs_hook=_reject_duplicates)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return whole if isinstance(whole, dict) else None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Raise `ValueError` for a duplicate name: the YAML parser then reports it with its line."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError


def flattened(document: Document) -> Iterator[Document]:
    """Yield the objects of a list, also of nested lists; another object is yielded itself."""
    if not document.kind.endswith(_LIST) or "items" not in document.fields:
        yield document
        return
    items = document.fields["items"]
    if items is None:  # an empty list, as Go writes it
        return
    if not isinstance(items, list):
        what = type(items).__name__
        raise ConfigError([FieldError(str(document), f"items: must be a list, not {what}")])
    wrong = [f"items[{i}]" for i, item in enumerate(items) if not isinstance(item, dict)]
    if wrong:
        raise ConfigError([FieldError(str(document), f"{it}: must be an object") for it in wrong])
    kind = document.kind.removesuffix(_LIST)  # the API server omits it in items
    for item in items:
        named = {"apiVersion": document.fields.get("apiVersion", ""), "kind": kind} if kind else {}
        yield from flattened(Document(document.file, {**named, **item}))
