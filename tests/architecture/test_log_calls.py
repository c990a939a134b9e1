"""What the product logs are fixed phrases, so that they can be searched and counted."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.support.repository import ROOT, project_files

_PRODUCT: Final = ("trainer_kai", "webhook", "scheduler")
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
_PHRASE: Final = re.compile(r"[a-z][a-z0-9 ,;'-]*")
_KEYS_OF_EVERY_LINE: Final = frozenset({"event", "level", "logger", "time", "exception"})


def _faults(module: str) -> Iterator[tuple[int, str]]:
    """Yield the lines where a logger is called with more than a phrase and values with keys."""
    for call in ast.walk(ast.parse(module)):
        if not isinstance(call, ast.Call) or not _is_log_call(call.func):
            continue
        phrase = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
        if not isinstance(phrase, str) or not _PHRASE.fullmatch(phrase):
            yield call.lineno, "the event is no fixed phrase in lower case"
        if len(call.args) > 1:
            yield call.lineno, "a value has no key"
        if taken := _KEYS_OF_EVERY_LINE.intersection(it.arg or "" for it in call.keywords):
            yield call.lineno, f"every line has the key {min(taken)}"


def _is_log_call(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in _LEVELS:
        return False
    return ast.unparse(function.value).rpartition(".")[2] in {"log", "_log"}


def test_the_product_logs_phrases() -> None:
    """In every module; and a call of each kind of fault is found."""
    planted = (
        'self._log.info(f"pod {key}")\nlog.error("Bound.")\nlog.info("a", 1)\n'
        'log.info("it broke", level=3)\nlog.info("pod bound", pod=key)\nself.error(text)'
    )
    paths = {it.relative_to(ROOT).as_posix(): it for it in project_files() if it.suffix == ".py"}
    texts = {name: it.read_text() for name, it in paths.items() if name.startswith(_PRODUCT)}

    assert [line for line, _ in _faults(planted)] == [1, 2, 3, 4]
    assert sum("_log.info(" in text for text in texts.values()) > 5
    assert [f"{name}:{at}: {it}" for name, text in texts.items() for at, it in _faults(text)] == []
