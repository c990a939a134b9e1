"""What is written down: the form of a line, and that writing it never fails."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.service.log import Layout, Level, configure, logger

CLOCK = VirtualClock(datetime(2026, 3, 4, 5, 6, 7, 89_999, tzinfo=UTC))


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def begin(layout: Layout = "json", level: Level = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(CLOCK, layout=layout, level=level, stream=stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Key(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Untold:
    def __str__(self) -> str:
        raise KeyError(self)


class Colour(Enum):
    RED = 1


LOOP: list[Any] = []
LOOP.append(LOOP)

# a value -> what is written of it
VALUES: list[Case[Any, Any]] = [
    Case(
        "text, numbers, truth and nothing stay",
        ["a", 1, 2.5, True, None],
        ["a", 1, 2.5, True, None],
    ),
    Case("a key is written as people write it", Key("ns", "pod"), "ns/pod"),
    Case("lists and mappings stay", {"a": [1, (2, 3)]}, {"a": [1, [2, 3]]}),
    Case("a set is a list", {7}, [7]),
    Case("a key of a mapping becomes text", {Key("a", "b"): 1, None: 2}, {"a/b": 1, "None": 2}),
    Case("a path is text", Path("/etc/hosts"), "/etc/hosts"),
    Case("a choice is text", Colour.RED, "Colour.RED"),
    Case("an error keeps its kind", ValueError("no"), "ValueError('no')"),
    Case("bytes are text", b"\xff", "b'\\xff'"),
    Case("no number at all is text", float("nan"), "nan"),
    Case("half of a character survives", "\ud800", "\ud800"),
    Case("what cannot be written is named", Untold(), "<Untold, of which str() raised KeyError>"),
    Case("a number without end is named", 10**5000, "<int, of which str() raised ValueError>"),
    Case("what contains itself has an end", LOOP, [[[["[[...]]"]]]]),
    Case("a long text is cut", "x" * 9000, "x" * 8192 + "… (9000 characters)"),
]


@pytest.mark.parametrize("case", VALUES, ids=ids)
def test_values(case: Case[Any, Any]) -> None:
    stream = begin()

    logger("room.module").info("phrase", value=case.given)

    (line,) = lines(stream)
    assert line["value"] == case.want


@pytest.mark.parametrize("case", VALUES, ids=ids)
def test_values_for_people(case: Case[Any, Any]) -> None:
    stream = begin("console")

    logger("room.module").info("phrase", value=case.given)

    assert "phrase" in stream.getvalue()


SECRETS: list[Case[dict[str, Any], dict[str, Any]]] = [
    Case(f"the value of {key}", {key: "s3cret"}, {key: "(not shown)"})
    for key in (
        *("authorization", "access_token", "bearerToken", "db_password", "private_key"),
        *("secret", "client_secret", "clientSecret", "secret_key", "secrets", "credential"),
        *("credentials", "aws_credentials"),
    )
]
SECRETS += [
    Case(f"but that of {key}", {key: "kai/tls"}, {key: "kai/tls"})
    for key in ("secret_name", "secretName", "secret_namespace", "secretKeyRef", "credentials_ref")
]
SECRETS += [
    Case(
        "inside a mapping in a list",
        {"headers": [{"Authorization": "Bearer s3cret", "Accept": "*/*"}]},
        {"headers": [{"Authorization": "(not shown)", "Accept": "*/*"}]},
    ),
    Case("a name that only resembles one", {"key": "ns/pod"}, {"key": "ns/pod"}),
]


@pytest.mark.parametrize("case", SECRETS, ids=ids)
@pytest.mark.parametrize("layout", ["json", "console"])
def test_secrets_are_left_out(case: Case[dict[str, Any], dict[str, Any]], layout: Layout) -> None:
    """By the name of the key, wherever it stands."""
    stream = begin(layout)

    logger("room.module").info("phrase", **case.given)

    assert "s3cret" not in stream.getvalue()
    if layout == "json":
        (line,) = lines(stream)
        assert {key: line[key] for key in case.want} == case.want


def test_a_line_begins_with_when_how_grave_who_and_what() -> None:
    """In this order, for people who read raw lines; the time is UTC, to the millisecond."""
    stream = begin()

    logger("room.module").bind(cycle=7).warning("pod bound", pod=Key("ns", "p"))

    assert stream.getvalue() == (
        '{"time": "2026-03-04T05:06:07.089Z", "level": "warning", "logger": "room.module",'
        ' "event": "pod bound", "cycle": 7, "pod": "ns/p"}\n'
    )


def test_for_people_the_same_is_in_a_line_without_colours() -> None:
    """What is no terminal gets no colours."""
    stream = begin("console")

    logger("room.module").warning("pod bound", pod=Key("ns", "p"))

    words = " ".join(stream.getvalue().split())
    assert words == "2026-03-04T05:06:07.089Z [warning ] pod bound [room.module] pod=ns/p"


def test_an_error_is_one_field() -> None:
    """With its cause, and without the values of variables, which may be secret."""
    stream = begin()
    hidden = "terces"[::-1]

    try:
        try:
            raise KeyError(len(hidden))
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError:
        logger("room.module").exception("reconcile failed")

    (line,) = lines(stream)
    assert [it["exc_type"] for it in line["exception"]] == ["ValueError", "KeyError"]
    assert line["exception"][0]["frames"][-1]["name"] == "test_an_error_is_one_field"
    assert "secret" not in stream.getvalue()


def test_for_people_an_error_is_a_traceback_without_variables() -> None:
    """The other renderer must not show them either."""
    stream = begin("console")
    hidden = "terces"[::-1]

    try:
        raise KeyError(len(hidden))
    except KeyError:
        logger("room.module").exception("reconcile failed")

    assert "KeyError: 6" in stream.getvalue()
    assert "secret" not in stream.getvalue()


# level -> which of the four are written
LEVELS: list[Case[Level, list[str]]] = [
    Case("debug is everything", "debug", ["debug", "info", "warning", "error"]),
    Case("info is no debug", "info", ["info", "warning", "error"]),
    Case("warning is trouble only", "warning", ["warning", "error"]),
    Case("error is errors only", "error", ["error"]),
]


@pytest.mark.parametrize("case", LEVELS, ids=ids)
def test_levels(case: Case[Level, list[str]]) -> None:
    stream = begin(level=case.given)
    log = logger("room.module")

    for tell in (log.debug, log.info, log.warning, log.error):
        tell("phrase")

    assert [line["level"] for line in lines(stream)] == case.want


@pytest.mark.parametrize("case", LEVELS, ids=ids)
def test_levels_of_libraries(case: Case[Level, list[str]]) -> None:
    """Libraries are never heard below a warning: they would tell bodies and headers."""
    stream = begin(level=case.given)
    log = logging.getLogger("some.library")

    for tell in (log.debug, log.info, log.warning, log.error):
        tell("took %d s", 3)

    found = [(line["level"], line["logger"], line["event"]) for line in lines(stream)]
    assert found == [
        (level, "some.library", "took 3 s") for level in case.want if level in ("warning", "error")
    ]


def test_the_error_of_a_library_is_one_field_too() -> None:
    """The event loop reports this way the errors of tasks that no code waited for."""
    stream = begin()

    try:
        raise KeyError("lost")
    except KeyError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")

    (line,) = lines(stream)
    assert (line["level"], line["event"]) == ("error", "Task exception was never retrieved")
    assert line["exception"][0]["exc_value"] == "'lost'"


def test_a_record_whose_arguments_do_not_fit_is_written_all_the_same() -> None:
    """It is some library's mistake, and no reason to lose the message."""
    stream = begin()

    logging.getLogger("some.library").error("took %d s", "long")

    assert lines(stream)[0]["event"] == "took %d s ('long',)"


def test_warnings_are_logged() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        stream = begin()
        warnings.warn("beware", UserWarning, stacklevel=1)

    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")
    assert "UserWarning: beware" in line["event"]
    assert line["event"] == line["event"].strip()


class Broken(io.StringIO):
    def write(self, _: str, /) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_stream_that_fails_ends_nothing() -> None:
    configure(CLOCK, stream=Broken())

    logger("room.module").info("phrase")
    logging.getLogger("some.library").error("phrase")


def test_a_stream_of_few_characters_gets_those() -> None:
    """What the encoding has no word for is escaped."""
    raw = io.BytesIO()
    configure(CLOCK, layout="console", stream=io.TextIOWrapper(raw, "ascii", write_through=True))

    logger("room.module").info("phrase", name="é")

    assert b"name=\\xe9" in raw.getvalue()


def test_set_up_twice_it_writes_once() -> None:
    """The second set-up replaces the first."""
    first = begin()
    second = begin()

    logger("room.module").info("ours")
    logging.getLogger("some.library").error("theirs")

    assert first.getvalue() == ""
    assert [line["event"] for line in lines(second)] == ["ours", "theirs"]


def test_a_logger_made_before_the_set_up_follows_it() -> None:
    """Modules make theirs when they are imported."""
    log = logger("room.module")

    stream = begin()
    log.info("phrase")

    assert [line["event"] for line in lines(stream)] == ["phrase"]


def test_tests_can_read_what_was_logged() -> None:
    """Also from a logger that was used before."""
    begin()
    log = logger("room.module")
    log.info("before")

    with capture_logs() as captured:
        log.info("pod bound", pod="ns/p")

    assert captured == [
        {"event": "pod bound", "pod": "ns/p", "log_level": "info", "logger_name": "room.module"}
    ]
