"""Structured logs of the processes: fixed phrases with key-values, one line each.

A module that logs has `log = logger(__name__)` and calls `log.info("pod bound", pod=key)`: the
phrase is constant, so that it can be searched and counted, and the values vary. A `__main__` calls
`configure` once. The logs and warnings of libraries go through the same pipeline.

Logging never fails and never raises: a value that JSON cannot express is written as text. A value
is redacted if its key looks secret, inside a mapping too. A secret in a phrase or in the text of an
error is not detected, so none may be put there.
"""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO, TypeAlias, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from trainer_kai.service.clock import Clock

Layout: TypeAlias = Literal["json", "console"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_FIRST: Final = ("time", "level", "logger", "event")  # of a line, in this order
_SECRET: Final = re.compile(
    r"authorization|cookie|passphrase|password|private.?key|token"
    # the name of a Secret is not secret: secret_name, secretNamespace, secretKeyRef
    r"|(secret|credential)(?!s?.?(key.?)?(name|ref))",
    re.IGNORECASE,
)
_MAX_TEXT: Final = 8192  # characters of one value; container runtimes split lines at 16 KiB
_MAX_DEPTH: Final = 4  # of nested mappings and lists; a value may contain itself


def logger(name: str) -> FilteringBoundLogger:
    """Return the logger of a module; it may be created before `configure` is called."""
    return cast("FilteringBoundLogger", structlog.get_logger(logger_name=name))


def configure(
    clock: Clock, *, layout: Layout = "json", level: Level = "info", stream: TextIO | None = None
) -> None:
    """Send all logs of this process to *stream*, by default standard error.

    Libraries log warnings and errors only, whatever *level* is: their lower levels contain bodies
    and headers of requests.
    """
    target = _SafeStream(stream or sys.stderr)
    structlog.configure(
        processors=_pipeline(clock, layout, colours=target.isatty()),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", target)),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_LibraryLogHandler()], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)


def _pipeline(clock: Clock, layout: Layout, *, colours: bool) -> list[Processor]:
    def stamp(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["time"] = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event["logger"] = event.pop("logger_name", "")
        return event

    shared: list[Processor] = [structlog.processors.add_log_level, stamp, _cleaned]
    if layout == "console":
        renderer = structlog.dev.ConsoleRenderer(
            colors=colours,
            timestamp_key="time",
            # the default formatter shows local variables, which may hold secrets
            exception_formatter=structlog.dev.plain_traceback,
        )
        return [*shared, renderer]
    exception_as_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [*shared, structlog.processors.ExceptionRenderer(exception_as_dict), _as_json]


def _as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    first = {key: event.pop(key) for key in _FIRST if key in event}
    return json.dumps(first | dict(event))


def _cleaned(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {
        key: value if key == "exc_info" else _redacted(key, value, 0)
        for key, value in event.items()
    }


def _redacted(key: str, value: object, depth: int) -> Any:
    return "(not shown)" if _SECRET.search(key) else _plain(value, depth)


def _plain(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        named = ((_text(key), item) for key, item in value.items())
        return {key: _redacted(key, item, depth + 1) for key, item in named}
    if type(value) in (list, tuple, set, frozenset) and depth < _MAX_DEPTH:
        return [_plain(item, depth + 1) for item in cast("list[object]", value)]
    return _text(value)


def _text(value: object) -> str:
    try:
        text = repr(value) if isinstance(value, BaseException) else str(value)
    except Exception as error:  # noqa: BLE001 - a value that is logged must not end the process
        return f"<{type(value).__name__}, of which str() raised {type(error).__name__}>"
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


class _LibraryLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, LookupError):  # the arguments do not fit the message
            text = f"{record.msg} {record.args}"
        names = ("critical", "error", "warning", "info", "debug")
        levels = logging.getLevelNamesMapping()
        method = next((it for it in names if record.levelno >= levels[it.upper()]), "debug")
        log_method = getattr(logger(record.name), method)
        if record.exc_info:
            log_method(text.strip(), exc_info=record.exc_info)
        else:
            log_method(text.strip())


class _SafeStream:
    """A stream that ignores write errors: a full disk or a closed pipe must not stop the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self._stream.write(text.encode("ascii", "backslashreplace").decode())
        except (OSError, ValueError):
            return

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return
