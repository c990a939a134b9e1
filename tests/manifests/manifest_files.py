"""The files in `manifests/` and the objects in them."""

from functools import cache
from itertools import chain
from typing import Any, Final

from tests.support.documents import documents as read_documents
from tests.support.repository import ROOT, project_files

Obj = dict[str, Any]

HOME: Final = "trainer-kai"
MANIFESTS: Final = ROOT / "manifests"
CHARTS: Final = (MANIFESTS / "chart", MANIFESTS / "chart-crds")  # test_chart.py
FILES: Final = [
    path
    for path in project_files()
    if path.is_relative_to(MANIFESTS) and not any(map(path.is_relative_to, CHARTS))
]
YAML: Final = [path for path in FILES if path.suffix == ".yaml"]

documents = cache(read_documents)  # each is looked through by many tests


def objects(*kinds: str) -> list[Obj]:
    """Return every object of some kinds, examples and all."""
    found = chain.from_iterable(documents(path) for path in YAML)
    return [obj for obj in found if isinstance(obj, dict) and obj.get("kind") in kinds]


def named(kind: str, name: str) -> Obj:
    """Return one object, of our namespace if it is in one."""
    found = [obj for obj in objects(kind) if obj["metadata"]["name"] == name]
    [ours] = [obj for obj in found if obj["metadata"].get("namespace", HOME) == HOME]
    return dict(ours)


def spec_of(process: str) -> Obj:
    """Return what the pods of a process are like."""
    return dict(named("Deployment", f"trainer-kai-{process}")["spec"]["template"]["spec"])
