"""Apply each mutant to a copy of the project and see its test fail: `make mutants`.

A mutant is a patch in this folder. Its first lines say which rule it breaks and which test must
notice. The tests are run once without any mutant first: a test that is red anyway notices nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from tests.support.tree import ROOT, project_files

_HEADER: Final = re.compile(r"\ARule: (?P<rule>.+)\nTest: (?P<test>.+::.+)\n\n(?=diff --git )")


class Mutant(NamedTuple):
    """One patch, the rule it breaks and the test that must notice."""

    patch: Path
    rule: str
    test: str

    @classmethod
    def read(cls, patch: Path) -> Self:
        """Read the two lines above the diff."""
        match = _HEADER.match(patch.read_text())
        if match is None:
            message = f"{patch.name} begins with 'Rule: …', 'Test: FILE::NAME' and an empty line"
            raise SystemExit(message)
        return cls(patch, match["rule"], match["test"])


def main(wanted: list[str]) -> int:
    """Try the mutants whose file names are given, or all; 1 when one survived."""
    patches = sorted(Path(__file__).parent.glob("*.patch"))
    mutants = [Mutant.read(p) for p in patches if not wanted or p.stem in wanted]
    if not mutants:
        print(f"no such mutant; there is {', '.join(p.stem for p in patches)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trainer-kai-mutants-") as folder:
        sound = _copy(Path(folder) / "sound")
        print(f"without a mutant: {len(mutants)} mutants' tests", flush=True)
        if _run(sound, {mutant.test for mutant in mutants}, show=True) != "green":
            print("the tests must be green before a mutant can turn one red")
            return 1
        survivors = [mutant for mutant in mutants if not _is_caught(mutant, Path(folder))]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants were caught")
    return 1 if survivors else 0


def _is_caught(mutant: Mutant, folder: Path) -> bool:
    began = time.monotonic()
    tree = _copy(folder / mutant.patch.stem)
    applied = subprocess.run(["git", "apply", mutant.patch], cwd=tree, check=False)
    if applied.returncode != 0:
        print(f"OUTDATED  {mutant.patch.name}: the code it changes has changed")
        return False
    colour = _run(tree, {mutant.test})
    shutil.rmtree(tree)
    word = {"red": "caught", "green": "SURVIVED"}.get(colour, "BROKEN")
    seconds = time.monotonic() - began
    print(f"{word:<9} {seconds:5.1f} s  {mutant.rule}\n{'':19}{mutant.test}", flush=True)
    return colour == "red"


def _run(tree: Path, tests: Iterable[str], *, show: bool = False) -> str:
    """Run tests; return green, red when one's own assertion failed, else broken.

    A fixture that fails, or a test that is not found, shows nothing about the rule.
    """
    report = tree / ".report.xml"
    options = ["-q", "--no-header", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *sorted(tests)],
        cwd=tree,
        stdout=None if show else subprocess.DEVNULL,
        stderr=None if show else subprocess.DEVNULL,
        check=False,
    )
    text = report.read_text() if report.exists() else "<error"
    if done.returncode == pytest.ExitCode.OK:
        return "green"
    failed = done.returncode == pytest.ExitCode.TESTS_FAILED and "<failure" in text
    return "red" if failed and "<error" not in text else "broken"


def _copy(target: Path) -> Path:
    """Copy what git would commit, and make it a repository, for tests that ask git."""
    for file in project_files():
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
