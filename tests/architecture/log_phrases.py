"""The phrases of our logs as a plain function: a module's text in, faults out."""

import ast
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["phrase_faults"]

_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
_MAKERS: Final = frozenset({"logger", "bind", "new", "unbind"})
_PHRASE: Final = re.compile(r"[a-z][a-z0-9 ,;'-]*")
_RESERVED_KEYS: Final = frozenset(
    {"event", "level", "logger", "time", "exception"}
)  # of every line


def phrase_faults(text: str) -> list[str]:
    """Name each call of a logger with an event other than a fixed phrase with key-values."""
    tree = ast.parse(text)
    loggers = _loggers(tree)
    return [
        f"line {call.lineno}: {fault}"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _is_log_call(call, loggers)
        for fault in _faults(call)
    ]


def _loggers(tree: ast.Module) -> set[str]:
    """Return the names and attributes that hold a logger."""
    found = {"log", "_log"}  # by habit, wherever they come from
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _makes_logger(node.value, found):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {_name(target) for target in targets}
        elif isinstance(node, ast.arg) and "BoundLogger" in ast.dump(node):
            found.add(node.arg)
    return found - {""}


def _makes_logger(value: ast.expr | None, known: set[str]) -> bool:
    if not isinstance(value, ast.Call) or _name(value.func) not in _MAKERS:
        return False
    return not isinstance(value.func, ast.Attribute) or _is_logger(value.func.value, known)


def _is_logger(node: ast.expr, known: set[str]) -> bool:
    """Say whether this is a logger, or one made of it on the spot."""
    return _name(node) in known or _makes_logger(node, known)


def _is_log_call(call: ast.Call, loggers: set[str]) -> bool:
    target = call.func
    if not isinstance(target, ast.Attribute) or target.attr not in _LEVELS:
        return False
    return _is_logger(target.value, loggers)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _faults(call: ast.Call) -> Iterator[str]:
    event = call.args[0] if call.args else None
    if not isinstance(event, ast.Constant) or not isinstance(event.value, str):
        yield "the event is no fixed text"
    elif not _PHRASE.fullmatch(event.value):
        yield f"{event.value!r} is no lower-case phrase"
    if len(call.args) > 1:
        yield "a value without a key"
    for keyword in call.keywords:
        if keyword.arg in _RESERVED_KEYS:
            yield f"the key {keyword.arg} is taken"
