"""Which Go module a program of a chain is built from."""

import pytest

from e2e.cluster.recipe import all_recipes
from e2e.cluster.toolchain import BuildError

DEFAULT = "chain chain chain helm"


@pytest.mark.parametrize(
    ("chain", "want"),
    [("", DEFAULT), ("default", DEFAULT), ("oldest", "kubernetes trainer chain helm")],
)
def test_a_program_is_of_the_last_module_that_has_it(
    monkeypatch: pytest.MonkeyPatch, chain: str, want: str
) -> None:
    """An empty variable is no variable; another chain replaces programs of the default one."""
    monkeypatch.setenv("TRAINER_KAI_CHAIN", chain)

    recipes = all_recipes()

    names = ("etcd", "jobset", "kwok", "helm")
    assert [recipes[it].module.folder.name for it in names] == want.split()
    assert len(recipes) == 12


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the chains that exist."""
    monkeypatch.setenv("TRAINER_KAI_CHAIN", "olderst")

    with pytest.raises(BuildError, match="is 'olderst'; the chains are default, newest, oldest"):
        all_recipes()
