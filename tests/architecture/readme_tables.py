"""The tables of docs that are generated from code; `make tables` writes them.

They stand between `<!-- NAME:begin -->` and `<!-- NAME:end -->`; a test sees that they are current.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.support.chart_values import ChartValue, chart_values
from tests.support.repository import ROOT
from trainer_kai.cli.main import build_parser
from trainer_kai.service.config import Setting, settings_of
from trainer_kai.service.metrics import all_metrics
from trainer_kai.service.settings import PROCESSES, AllSettings

_DOCS: Final = ROOT / "docs"


def table_rows(*columns: str, body: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in body]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def settings_table() -> str:
    """Return every setting of every process, those that several share once."""
    by_process = {name: settings_of(model) for name, model in PROCESSES.items()}
    every = dict.fromkeys(name for table in by_process.values() for name in table)
    in_one = settings_of(AllSettings)
    body = []
    for name in every:
        having = {it: table[name] for it, table in by_process.items() if name in table}
        doc = next(iter(having.values())).doc
        names = ", ".join(f"`{it}.{name}`" for it in having)
        called = "the same" if name in in_one else names
        body.append([f"`{name}`", _default(having), doc, _processes_of(having), called])
    return table_rows(
        "setting", "default", "meaning", "process", "name in `trainer-kai run all`", body=body
    )


def _default(having: Mapping[str, Setting]) -> str:
    values = {process: setting.default for process, setting in having.items()}
    shown = dict.fromkeys(f"`{value}`" if value != "" else "empty" for value in values.values())
    return ", ".join(shown)


def _processes_of(having: Mapping[str, Setting]) -> str:
    return "all" if having.keys() == PROCESSES.keys() else ", ".join(having)


def metrics_table() -> str:
    """Return every metric."""
    body = [
        [f"`{it.name}`", it.kind.__name__.lower(), ", ".join(it.labels) or "none", it.doc]
        for it in all_metrics().values()
    ]
    return table_rows("metric", "type", "labels", "meaning", body=body)


def chart_tables() -> Mapping[str, str]:
    """Return the values of the Helm chart: ours, and those of KAI's chart that it accepts."""
    ours = [it for it in chart_values() if not it.is_of_kai]
    theirs = [it for it in chart_values() if it.is_of_kai]
    return {
        "values": table_rows(
            "value",
            "default",
            "meaning",
            body=[[f"`{it.name}`", _shown(it), it.meaning] for it in ours],
        ),
        "kai-values": table_rows(
            "value of KAI's chart", "meaning", body=[[f"`{it.name}`", it.meaning] for it in theirs]
        ),
    }


def _shown(value: ChartValue) -> str:
    return "empty" if value.default in (None, "", [], {}) else f"`{json.dumps(value.default)}`"


def command_tables() -> dict[str, str]:
    """Return usage, flags and exit codes of each command, by a name such as `flags-queue-list`."""
    return {
        "flags" + "".join(f"-{word}" for word in words): _command_table(words, parser)
        for words, parser in _commands((), build_parser())
    }


def _commands(
    words: tuple[str, ...], parser: argparse.ArgumentParser
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the commands below a parser that have no commands below them."""
    below = [it for it in parser._actions if isinstance(it, argparse._SubParsersAction)]
    for action in below:
        for word, inner in action.choices.items():
            yield from _commands((*words, word), inner)
    if not below:
        yield words, parser


def _command_table(words: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    rows = [
        (f"`{_names(it)}`", it.help or "")
        for it in parser._actions
        if not isinstance(it, argparse._HelpAction) and it.help != argparse.SUPPRESS
    ]
    required = [it for it in parser._actions if it.required and it.nargs != argparse.REMAINDER]
    usage = " ".join(("trainer-kai", *words, *map(_names, required), "[FLAGS]"))
    table = table_rows("flag", "meaning", body=rows)
    return f"`{usage}`\n\n{table}\n\n{parser.epilog}"


def _names(action: argparse.Action) -> str:
    """Return the names of a flag with its value, or the name of an argument."""
    choices = ",".join(map(str, action.choices or ()))
    value = str(action.metavar or (f"{{{choices}}}" if choices else action.dest.upper()))
    if not action.option_strings:
        return "…" if action.nargs == argparse.REMAINDER else value
    takes_value = action.nargs != 0
    return ", ".join(action.option_strings) + (f" {value}" if takes_value else "")


# The tables of each page, by the name in their marks.
PAGES: Final[Mapping[Path, Callable[[], Mapping[str, str]]]] = {
    _DOCS / "settings.md": lambda: {"settings": settings_table()},
    _DOCS / "metrics.md": lambda: {"metrics": metrics_table()},
    _DOCS / "cli.md": command_tables,
    _DOCS / "install.md": chart_tables,
}


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """Return *text* with each table between its two marks; a mark that is missing is an error."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
        if not (text.count(begin) == text.count(end) == 1 and text.index(begin) < text.index(end)):
            message = f"the marks of the table {name} are not there once"
            raise ValueError(message)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> int:
    """Write the tables; say whether they changed."""
    for path, tables in PAGES.items():
        old = path.read_text()
        new = with_tables(old, tables())
        path.write_text(new)
        print(f"{path.relative_to(ROOT)}: {'as it was' if new == old else 'written anew'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
