"""What a program is built again for."""

from pathlib import Path

import pytest

from e2e.cluster.recipe import GoModule, Recipe
from tests.support.case import Case, ids

GO_MOD = """\
module trainer-kai/chain // with a comment
go 1.26.0
require go.etcd.io/etcd/server/v3 v3.6.8
require (
	k8s.io/api v0.36.1 // indirect
	k8s.io/kubernetes v1.36.2
	sigs.k8s.io/jobset v0.12.0
)
tool (
	k8s.io/kubernetes/cmd/kubectl
	sigs.k8s.io/jobset
)
replace k8s.io/api => k8s.io/api v0.36.2
"""
# package of a program -> the modules that have packages in it
MADE_OF = {
    "sigs.k8s.io/jobset": ["sigs.k8s.io/jobset", "k8s.io/api"],
    "k8s.io/kubernetes/cmd/kubectl": ["k8s.io/kubernetes", "k8s.io/api"],
    "./cmd/etcd": ["trainer-kai/chain", "go.etcd.io/etcd/server/v3"],
}
# a file, what is replaced in it and by what -> the programs that are built again
CHANGES = [
    Case("a version of one", ("go.mod", "jobset v0.12.0", "jobset v0.12.1"), {"jobset"}),
    Case("a version of two", ("go.mod", "v0.36.2", "v0.36.3"), {"jobset", "kubectl"}),
    Case("a version that is replaced", ("go.mod", "v0.36.1", "v0.36.0"), set[str]()),
    Case("a program is added", ("go.mod", "tool (", "tool (\n\tx.io/x"), set[str]()),
    Case("a module is added", ("go.mod", "require (", "require (\n\tx.io/x v1"), set[str]()),
    Case("the language", ("go.mod", "go 1.26.0", "go 1.27.0"), {"jobset", "kubectl", "etcd"}),
    Case("code of ours", ("cmd/etcd/main.go", "package main", "package main // x"), {"etcd"}),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_a_program_is_built_again_for_its_own_changes(
    cache: Path, case: Case[tuple[str, str, str], set[str]]
) -> None:
    """What shapes other programs only does not count, nor where the checkout is."""
    for recipe in recipes(cache / "before"):
        recipe.folder.mkdir(parents=True)
        (cache / recipe.name).touch()
        recipe.place(cache / recipe.name, MADE_OF[recipe.package])

    changed = recipes(cache / "after", *case.given)

    assert {it.name for it in changed if it.find() is None} == case.want


def recipes(folder: Path, name: str = "", old: str = "", new: str = "") -> list[Recipe]:
    """Write a Go module of three programs, with a change; return their recipes."""
    (folder / "cmd" / "etcd").mkdir(parents=True)
    for file, text in (("cmd/etcd/main.go", "package main"), ("go.mod", GO_MOD)):
        (folder / file).write_text(text.replace(old, new) if file == name else text)
    return [Recipe(GoModule.read(folder), package) for package in MADE_OF]
