"""The tables of a README that are generated from code; `make tables` writes them.

They stand between `<!-- NAME:begin -->` and `<!-- NAME:end -->`; a test sees that they are current.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT
from trainer_kai.service.config import Setting, settings_of
from trainer_kai.service.metrics import all_metrics
from trainer_kai.service.settings import PROCESSES, AllSettings

__all__ = ["README", "TABLES", "metrics_table", "settings_table", "table_rows", "with_tables"]

README: Final = ROOT / "trainer_kai" / "README.md"


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
    return table_rows("setting", "default", "what it is", "of", "in `run all`", body=body)


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
    return table_rows("metric", "kind", "labels", "what it says", body=body)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "settings": settings_table,
    "metrics": metrics_table,
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


def main(path: Path = README) -> int:
    """Write the tables; say whether they changed."""
    old = path.read_text()
    new = with_tables(old, {name: make() for name, make in TABLES.items()})
    path.write_text(new)
    print(f"{path.relative_to(ROOT)}: {'as it was' if new == old else 'written anew'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
