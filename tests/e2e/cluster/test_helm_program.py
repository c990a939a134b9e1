"""Helm is built once for its go.mod."""

import shutil
from pathlib import Path

import pytest

from e2e.cluster import helm_program
from e2e.cluster.helm_program import ensure_helm, helm_key

SOURCE = Path(helm_program.__file__).with_name("helm")


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_other_sources_are_another_build(tmp_path: Path, name: str) -> None:
    """The key names the content, not the folder."""
    source = tmp_path / "helm"
    shutil.copytree(SOURCE, source)
    assert helm_key(source) == helm_key(SOURCE)

    with (source / name).open("a") as file:
        file.write("\n")

    assert helm_key(source) != helm_key(SOURCE)


def test_a_built_helm_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built, and no lock is taken, if the cache holds the program."""
    monkeypatch.setenv("TRAINER_KAI_CACHE", str(tmp_path))
    program = tmp_path / "helm" / helm_key(SOURCE) / "helm"
    program.parent.mkdir(parents=True)
    program.touch()

    assert ensure_helm() == program
    assert not (tmp_path / "chain").exists()
