"""Names of labels, annotations and API groups are spelled in one file and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT, project_files
from trainer_kai.api import names
from trainer_kai.api.syntax import label_name_fault

ROOMS = ("trainer_kai", "webhook", "scheduler")
NAMES = {name: value for name, value in vars(names).items() if name.isupper()}
PRODUCT = [
    path
    for path in project_files()
    if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ROOMS
]

_QUALIFIED = re.compile(r"(?:[a-z0-9-]+\.)+(?:ai|com|dev|io|org|scheduler)\b(?:/[A-Za-z0-9._-]*)?")
_WORDS = re.compile(r"[a-z]+")  # such as cpu or policy: no name of ours, wherever it is spelled


def spelled(module: str) -> list[str]:
    """Return the names that a module spells: qualified ones, and those of KAI without a prefix."""
    tree = ast.parse(module)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    bare = {name for name in NAMES.values() if "-" in name and not _WORDS.fullmatch(name)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
        if _QUALIFIED.match(node.value) or node.value in bare
    ]


CASES: list[Case[str, list[str]]] = [
    Case("a label", 'X = "kai.scheduler/queue"', ["kai.scheduler/queue"]),
    Case("a prefix", 'X = f"trainer-kai.dev/{y}"', ["trainer-kai.dev/"]),
    Case("an annotation without a prefix", 'X = {"gpu-fraction": y}', ["gpu-fraction"]),
    Case("an API group", 'f("batch", "jobset.x-k8s.io")', ["jobset.x-k8s.io"]),
    Case("a docstring only speaks of it", '"""kai.scheduler/queue"""', []),
    Case("a word is no name", 'X = "cpu", "policy"', []),
    Case("an address is no name", 'X = "https://kubernetes.io/docs"', []),
    Case("a field is no name", 'X = "spec.schedulerName="', []),
    Case("a content type is no name", 'X = "application/json"', []),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_spelled_name_is_found(case: Case[str, list[str]]) -> None:
    assert spelled(case.given) == case.want


def test_no_other_file_spells_a_name() -> None:
    """A module that needs a name imports it, and a name that changes changes in one place."""
    here = Path(names.__file__)
    found = {
        str(path.relative_to(ROOT)): spelled(path.read_text()) for path in PRODUCT if path != here
    }

    assert here in PRODUCT
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_no_name_is_listed_twice() -> None:
    """Two constants for one name would drift apart."""
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize("name", [n for n in NAMES.values() if "/" in n and n[-1] not in "/-="])
def test_every_name_is_one_that_the_api_server_takes(name: str) -> None:
    """A slip of the pen is noticed here and not by a refused request."""
    assert label_name_fault(name) is None
