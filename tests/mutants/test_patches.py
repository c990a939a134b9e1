"""A mutant that no longer fits the code is noticed here, not only by `make mutants`."""

import subprocess
from pathlib import Path

import pytest

from tests.mutants.__main__ import Mutant
from tests.support.tree import ROOT

PATCHES = sorted(Path(__file__).parent.glob("*.patch"))


def test_there_are_mutants() -> None:
    """A table of none would hold everything."""
    assert PATCHES


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_fits_the_code_and_names_its_test(patch: Path) -> None:
    """The patch applies as it is, and the test it names stands in the file it names."""
    mutant = Mutant.read(patch)
    file, _, name = mutant.test.partition("::")

    fits = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, check=False)

    assert fits.returncode == 0
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
