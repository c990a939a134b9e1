"""The import contracts of pyproject.toml, run on a copy of the packages with something planted."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Contracts",
    "Verdict",
    "arrow",
    "copy_packages",
    "let_off",
    "lint",
    "plant",
    "read_contracts",
]


class Contracts(NamedTuple):
    """The import linter's part of pyproject.toml."""

    roots: tuple[str, ...]
    by_id: Mapping[str, Mapping[str, Any]]


class Verdict(NamedTuple):
    """What the import linter said; *broken* holds contract ids."""

    broken: frozenset[str]
    exit_code: int


def read_contracts(pyproject: Path) -> Contracts:
    """Read packages and contracts; every contract must have an id of its own."""
    settings = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]
    by_id = {contract["id"]: contract for contract in settings["contracts"]}
    assert len(by_id) == len(settings["contracts"]), "two contracts share an id"
    return Contracts(tuple(settings["root_packages"]), by_id)


def arrow(expression: str) -> tuple[str, str]:
    """Split "importer -> imported"."""
    importer, _, imported = expression.partition(" -> ")
    return importer, imported


def let_off(contract: Mapping[str, Any]) -> set[str]:
    """Return the modules whose every import *contract* overlooks."""
    arrows = map(arrow, contract["ignore_imports"])
    return {importer for importer, imported in arrows if imported == "**"}


def copy_packages(root: Path, packages: Iterable[str], target: Path) -> None:
    """Copy pyproject.toml and the Python modules of *packages*, nothing else."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "pyproject.toml", target)
    for package in packages:
        for module in (root / package).rglob("*.py"):
            copy = target / module.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(module, copy)


def plant(tree: Path, plants: Iterable[str]) -> None:
    """Add each "module: line" to the end of its module, creating it where it does not exist."""
    for module, line in (planted.split(":", 1) for planted in plants):
        (tree / module).parent.mkdir(exist_ok=True)
        with (tree / module).open("a") as file:
            file.write(f"\n{line.strip()}\n")


def lint(tree: Path, contracts: Contracts) -> tuple[Verdict, str]:
    """Check every contract in *tree*; return the verdict and what was printed."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=tree,
        env=os.environ | {"COLUMNS": "300", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    results = dict(re.findall(r"^(.+) (KEPT|BROKEN)(?: \(.*\))?$", done.stdout, re.MULTILINE))
    names = {contract["name"]: name for name, contract in contracts.by_id.items()}
    assert results.keys() == names.keys(), f"not every contract was checked:\n{done.stdout}"
    broken = frozenset(names[name] for name, result in results.items() if result == "BROKEN")
    return Verdict(broken, done.returncode), done.stdout
