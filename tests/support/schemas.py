"""Which properties of an API schema our structs do not read."""

from collections.abc import Mapping
from typing import Any

from msgspec import inspect

Schema = Mapping[str, Any]


def crd_schema(crd: Schema, version: str) -> Schema:
    """Return the schema of a version of a kind."""
    (found,) = (it for it in crd["spec"]["versions"] if it["name"] == version)
    schema: Schema = found["schema"]["openAPIV3Schema"]
    return schema


def unread_properties(struct: type, schema: Schema) -> dict[str, set[str]]:
    """Return, by the name of each struct, the properties that it does not read."""
    found: dict[str, set[str]] = {}
    _walk(inspect.type_info(struct), schema, found)
    return found


def _walk(kind: Any, schema: Schema, found: dict[str, set[str]]) -> None:
    if isinstance(kind, inspect.UnionType):
        for it in kind.types:
            _walk(it, schema, found)
    elif isinstance(kind, inspect.VarTupleType):
        _walk(kind.item_type, schema.get("items", {}), found)
    elif isinstance(kind, inspect.StructType) and "properties" in schema:
        properties = schema["properties"]
        read = {field.encode_name: field.type for field in kind.fields}
        found.setdefault(kind.cls.__name__, set()).update(properties.keys() - read)
        for name in properties.keys() & read:
            _walk(read[name], properties[name], found)
