"""The limits on modules and names as plain functions: text in, faults out."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, TypeAlias

MAX_FILE_LINES: Final = 600
MAX_BODY_LINES: Final = 40
MAX_ENTRIES: Final = 15  # of a folder of the product, beside __init__.py and README.md

# Folders with entries of one sort only: a kind of object, a command, a check.
_ONE_SORT: Final = frozenset({"trainer_kai/api", "trainer_kai/cli/commands"})
_PRODUCT: Final = frozenset({"scheduler", "trainer_kai", "webhook"})

_NESTED: Final = frozenset({"scheduler", "trainer_kai"})

_VAGUE_WORDS: Final = frozenset({"common", "handler", "helper", "info", "manager", "util"})

# Addresses of package registries, and options that name one: they belong to a machine, not to us.
_REGISTRY: Final = re.compile(
    r"""https?://(?![^\s"'/]*127\.0\.0\.1)[^\s"'/]*(?:artifactory|devpi|mirror|nexus|proxy(?=[.-])|pypi|pythonhosted|registry)\S*
    | https?://\S+/simple(?![\w-])
    | --(?:(?:extra-)?index-url|find-links|trusted-host)\b
    | \b(?:GOPROXY|\w*INDEX_URL)=["']?https?:\S+""",
    re.VERBOSE,
)

# Folders of a user. Containers may have a home as well: what Trainer mounts there is not a trace.
_HOME: Final = re.compile(
    r"(?<![\w.~$}*-])/(?:home/(?!mpiuser\b)\w+|Users/\w+|root(?!/\.ssh)|work)/"
)

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def module_faults(text: str) -> list[str]:
    """Name each limit that a module's *text* exceeds."""
    tree = ast.parse(text)
    return [*_size(text), *_missing_docstring(tree), *_long_bodies(tree)]


def vague_names(path: str) -> list[str]:
    """Return the parts of a module's *path* that name a drawer instead of a thing."""
    parts = PurePosixPath(path).with_suffix("").parts
    return [
        part
        for part in parts
        if _VAGUE_WORDS & {word.removesuffix("s") for word in part.split("_")}
    ]


def machine_traces(text: str, own_paths: Iterable[str] = ()) -> list[str]:
    """Return what in *text* belongs to one machine: registry addresses, homes, *own_paths*."""
    found = [match.group() for rule in (_REGISTRY, _HOME) for match in rule.finditer(text)]
    return found + [path for path in own_paths if path in text]


def listed_folders(markdown: str) -> set[str]:
    """Return the rooms named first in the rows of a table: "| `trainer_kai/api/` | ..."."""
    return set(re.findall(r"^\| `([\w/]+)/` \|", markdown, re.MULTILINE))


def folders(files: Collection[str], packages: Iterable[str]) -> set[str]:
    """Return the rooms among *files*: the packages, the rooms in the nested ones, the manifests."""
    inner = {
        path.rsplit("/", 1)[0]
        for path in files
        if path.split("/")[0] in _NESTED and path.endswith("/__init__.py") and path.count("/") == 2
    }
    return {*packages, *inner, "manifests"}


def crowded_folders(files: Iterable[str]) -> dict[str, int]:
    """Return the folders of the product with too many entries among *files*, and how many."""
    entries: dict[str, set[str]] = {}
    for path in map(PurePosixPath, files):
        if path.parts[0] in _PRODUCT and path.name not in ("__init__.py", "README.md"):
            for entry in (path, *path.parents):
                entries.setdefault(str(entry.parent), set()).add(entry.name)
    return {
        folder: len(names)
        for folder, names in entries.items()
        if folder.partition("/")[0] in _PRODUCT
        and folder not in _ONE_SORT
        and len(names) > MAX_ENTRIES
    }


def repeated_class_names(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the public classes of the product that have one name, and the modules they are in."""
    found: dict[str, list[str]] = {}
    for path, text in modules.items():
        if path.partition("/")[0] in _PRODUCT:
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(path)
    return {name: sorted(paths) for name, paths in found.items() if len(paths) > 1}


def unmirrored(files: Collection[str]) -> list[str]:
    """Return the folders of unit tests of the product that have no folder of the product's."""
    product = {str(path.parent) for path in map(PurePosixPath, files) if path.suffix == ".py"}
    tested = {
        folder.removeprefix("tests/")
        for folder in product
        if folder.startswith("tests/") and folder.split("/")[1] in _PRODUCT
    }
    return sorted(tested - product)


def without_readme(found: Iterable[str], files: Collection[str]) -> list[str]:
    """Return the rooms that do not say what they are for."""
    return sorted(room for room in found if f"{room}/README.md" not in files)


def _size(text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{lines} lines"


def _missing_docstring(tree: ast.Module) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield "no docstring"


def _long_bodies(tree: ast.Module) -> Iterator[str]:
    for function in ast.walk(tree):
        if isinstance(function, _Function) and (lines := _body_lines(function)) > MAX_BODY_LINES:
            yield f"{function.name}: a body of {lines} lines"


def _body_lines(function: _Function) -> int:
    """Count the lines after signature and docstring."""
    skipped = 1 if ast.get_docstring(function, clean=False) is not None else 0
    statements = function.body[skipped:]
    if not statements:
        return 0
    return (function.end_lineno or 0) - statements[0].lineno + 1
