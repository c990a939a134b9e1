"""YAML restricted to what JSON can express, with limits on depth and on alias expansion.

Depth and expansion are counted before objects are built: a few lines of YAML can expand to more
than fits into memory, or refer to themselves.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import yaml

_MAX_DEPTH: Final = 200
_MERGE: Final = "<<"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_NO_NUMBER: Final = "a number must have digits, and at most 4300"
_MAX_REPEATED: Final = 1_000_000


class DuplicateKeys(Exception):
    """Only one of the values of duplicate keys could be used."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__(*faults)


def yaml_documents(text: str) -> Iterator[object]:
    """Yield the documents; raise `yaml.YAMLError` for invalid YAML, or `DuplicateKeys`."""
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            faults = tuple(_duplicate_keys(node)) if node else ()
            if faults:
                raise DuplicateKeys(faults)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def yaml_error_text(error: yaml.YAMLError) -> str:
    position = _position(getattr(error, "problem_mark", None))
    return f"{position}{getattr(error, 'problem', None) or error}"


def size_fault(text: str) -> str | None:
    """Return why a text is refused before it is built; raise `yaml.YAMLError` for invalid YAML."""
    sizes: dict[str | None, int] = {}  # values by anchor; 0 until the anchored node ends
    open_nodes: list[tuple[str | None, int]] = []  # anchor, and number of values before
    count = repeated = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor)
            if size == 0:
                place = f"{_position(event.start_mark)}*{event.anchor}"
                return f"{place} is inside the value that it refers to"
            count, repeated = count + (size or 0), repeated + (size or 0)
            if repeated > _MAX_REPEATED:
                return f"its aliases, such as *{event.anchor}, expand to too many values"
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, count))
            count += 1
            sizes |= {event.anchor: 0} if event.anchor else {}
            if len(open_nodes) > _MAX_DEPTH:
                return f"{_position(event.start_mark)}it is nested deeper than {_MAX_DEPTH} levels"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes |= {anchor: count - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            sizes |= {event.anchor: 1} if event.anchor else {}
    return None


def _duplicate_keys(root: yaml.Node) -> Iterator[str]:
    visited: set[int] = set()  # an alias is the node that it refers to
    remaining = [root]
    while remaining:
        node = remaining.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            remaining += reversed(node.value)
        elif isinstance(node, yaml.MappingNode):
            remaining += (value for _, value in reversed(node.value))
            lines: dict[tuple[str, str], int] = {}  # 1 and "1" are different keys
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                first = lines.get((key.tag, key.value))
                if first and key.value != _MERGE:
                    place = f"{_position(key.start_mark)}{key.value}"
                    yield f"{place} exists twice, first in line {first}"
                lines.setdefault((key.tag, key.value), key.start_mark.line + 1)


def non_json_fault(value: object, path: str = "") -> str | None:
    """Return what JSON cannot express in a document; None for nothing."""
    if isinstance(value, dict):
        for name, it in value.items():
            if not isinstance(name, str):
                return f"{path.lstrip('.') or 'the top'} has a key that is not a string: {name!r}"
            fault = non_json_fault(it, f"{path}.{name}")
            if fault:
                return fault
        return None
    if isinstance(value, list):
        faults = (non_json_fault(it, f"{path}[{i}]") for i, it in enumerate(value))
        return next(filter(None, faults), None)
    if value is None or isinstance(value, str | bool | int):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return None
    return f"{path.lstrip('.')} must be a JSON value, not {value!r}"


def _position(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


class _Loader(yaml.CSafeLoader):
    """Reads dates as strings; an invalid number is an error with its place."""

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        build = self.construct_yaml_int if node.tag == _INT else self.construct_yaml_float
        try:
            return build(node)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=_NO_NUMBER, problem_mark=node.start_mark) from error


for _tag in (_INT, _FLOAT):
    _Loader.add_constructor(_tag, _Loader.construct_number)
_Loader.yaml_implicit_resolvers = {
    letter: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
    for letter, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
