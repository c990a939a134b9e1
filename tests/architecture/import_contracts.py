"""The import contracts of pyproject.toml, checked on one import graph with something planted in it.

The graph of the repository is built once. Each case adds imports to a copy of it. The repository
itself breaks no contract, so whatever breaks one leads along a planted import: of the copy only
the modules that lead to such an import, or can be reached from it, are kept.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import grimp
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import Contract

PlantedImports = Sequence[str]  # each "file of a module: line planted there"

_KINDS: Final[Mapping[str, type[Contract]]] = {
    kind.type_name: kind
    for kind in (ForbiddenContract, IndependenceContract, LayersContract, ProtectedContract)
}


class Contracts(NamedTuple):
    """The import linter's part of pyproject.toml."""

    roots: tuple[str, ...]
    by_id: Mapping[str, Mapping[str, Any]]


class LintResult(NamedTuple):
    """The ids of the contracts that broke, and which module may not import which, and does."""

    broken: frozenset[str]
    forbidden: frozenset[tuple[str, str]]


def read_contracts(pyproject: Path) -> Contracts:
    """Read packages and contracts; every contract must have an id of its own."""
    settings = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]
    by_id = {contract["id"]: contract for contract in settings["contracts"]}
    assert len(by_id) == len(settings["contracts"]), "two contracts share an id"
    return Contracts(tuple(settings["root_packages"]), by_id)


def import_chain(expression: str) -> tuple[str, str]:
    """Split "importer -> imported"."""
    importer, _, imported = expression.partition(" -> ")
    return importer, imported


def exempted_imports(contract: Mapping[str, Any]) -> set[str]:
    """Return the modules of which *contract* overlooks every import."""
    arrows = map(import_chain, contract["ignore_imports"])
    return {importer for importer, imported in arrows if imported == "**"}


class Linter:
    """The contracts of a repository, and the graph of its imports."""

    def __init__(self, root: Path) -> None:
        configuration = read_configuration(str(root / "pyproject.toml"))
        session = configuration["session_options"]
        self._contracts = {
            options["id"]: _KINDS[options["type"]](options["name"], session, options)
            for options in configuration["contracts_options"]
        }
        self._protected = {
            module
            for options in configuration["contracts_options"]
            for module in options.get("protected_modules", ())
        }
        self._graph = grimp.build_graph(
            *session["root_packages"], include_external_packages=True, cache_dir=None
        )

    def check(self, plants: PlantedImports = ()) -> LintResult:
        """Check every contract with the planted imports; without any, on the whole graph."""
        graph = self._planted(plants)
        broken, forbidden = set[str](), set[tuple[str, str]]()
        for name, contract in self._contracts.items():
            found = contract.check(deepcopy(graph), verbose=False)
            if not found.kept:
                broken.add(name)
                chains = found.metadata.get("invalid_chains", ())
                if isinstance(contract, ForbiddenContract):
                    forbidden |= {(it["downstream_module"], it["upstream_module"]) for it in chains}
        return LintResult(frozenset(broken), frozenset(forbidden))

    def breaks(self, name: str, plants: PlantedImports) -> bool:
        """Say whether planted imports break a contract."""
        return not self._contracts[name].check(self._planted(plants), verbose=False).kept

    def _planted(self, plants: PlantedImports) -> grimp.ImportGraph:
        graph = deepcopy(self._graph)
        importers = _plant(graph, plants)
        if importers:
            _keep_imports(graph, importers, self._protected)
        return graph


def _plant(graph: grimp.ImportGraph, plants: PlantedImports) -> set[str]:
    """Add the planted modules, then what they import; return the modules."""
    lines = [(_module(file), line.strip()) for file, line in (it.split(":", 1) for it in plants)]
    for module, _ in lines:
        graph.add_module(module)
    roots = {module.partition(".")[0] for module in graph.modules if "." in module}
    for module, line in lines:
        for name in _imported(line):
            imported = _resolved(graph, name, roots)
            if imported not in graph.modules:
                graph.add_module(imported, is_squashed=True)
            graph.add_import(importer=module, imported=imported, line_number=1, line_contents=line)
    return {module for module, _ in lines}


def _module(file: str) -> str:
    return ".".join(PurePosixPath(file).with_suffix("").parts).removesuffix(".__init__")


def _imported(line: str) -> Iterator[str]:
    """Yield what a line imports, wherever in it; `from a import b` as `a.b`."""
    for node in ast.walk(ast.parse(line)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _resolved(graph: grimp.ImportGraph, name: str, roots: set[str]) -> str:
    """Return the module of the graph that is meant; of another library its top alone counts."""
    top, _, _ = name.partition(".")
    if top not in roots:
        return top
    while name not in graph.modules:
        name = name.rpartition(".")[0]
    return name


def _keep_imports(
    graph: grimp.ImportGraph, importers: Iterable[str], protected: AbstractSet[str]
) -> None:
    """Leave what leads to the importers and what they reach; contracts name the rooms, too."""
    kept = {module for module in graph.modules if module.count(".") < 2} | protected
    for module in importers:
        kept |= {module, *graph.find_downstream_modules(module)}
        kept |= graph.find_upstream_modules(module)
    kept |= {str(it).replace("/", ".") for name in kept for it in _parents(name)}
    for module in graph.modules - kept:
        graph.remove_module(module)


def _parents(module: str) -> Iterable[PurePosixPath]:
    return list(PurePosixPath(module.replace(".", "/")).parents)[:-1]


def copy_packages(root: Path, packages: Iterable[str], target: Path) -> None:
    """Copy pyproject.toml and the Python modules of *packages*, nothing else."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "pyproject.toml", target)
    for package in packages:
        for module in (root / package).rglob("*.py"):
            copy = target / module.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(module, copy)


def plant_files(tree: Path, plants: PlantedImports) -> None:
    """Add each "file: line" to the end of its file, creating it where it does not exist."""
    for file, line in (planted.split(":", 1) for planted in plants):
        (tree / file).parent.mkdir(exist_ok=True)
        with (tree / file).open("a") as module:
            module.write(f"\n{line.strip()}\n")


def lint(tree: Path, contracts: Contracts) -> tuple[frozenset[str], int]:
    """Run the command line in *tree*; return the ids of what broke, and the exit status."""
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
    return broken, done.returncode
