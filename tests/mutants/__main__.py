"""Break the product in small ways and count the breaks that its tests notice: `make mutants`.

mutmut makes the mutants and runs, for each one, the tests that reach the changed function, the
fastest first, until one fails. Here are the choice of modules and mutants, and the report.
Everything happens in a temporary copy of the checkout.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

from tests.mutants.selected_tests import DESELECTED, ENVIRONMENT, tests_of
from tests.support.repository import ROOT, project_files

PRODUCT: Final = ("scheduler", "trainer_kai", "webhook")

# The plugin keeps the time of a mutant; mutmut's own time-out is out of its way.
_OPTIONS: Final = ("-p", "no:cacheprovider", "-p", "tests.mutants.time_limit")
_SETTINGS: Final = """
[tool.mutmut]
source_paths = {product}
only_mutate = {modules}
also_copy = {others}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {options}
timeout_constant = 60.0
timeout_multiplier = 15.0
"""

_SURVIVED: Final = (0, 33)  # the tests are green, or no test reaches the function
_KILLED: Final = (1, 3, -11)  # a test failed, pytest failed, the process crashed
_TIMEOUT: Final = (-24, -9)  # ended after its seconds, of the clock or of the processor


def main(arguments: Sequence[str]) -> int:
    """Try a sample of the mutants of some modules; 0 whatever the tests notice."""
    given = _parsed(arguments)
    modules = _changed(given.base) if given.base else _below(given.room)
    if not modules:
        where = f"changed since {given.base}" if given.base else f"is in {' '.join(given.room)}"
        print(f"no module of {', '.join(PRODUCT)} {where}: there is nothing to break")
        return 0 if given.base else 2
    with tempfile.TemporaryDirectory(prefix="trainer-kai-mutants-") as folder:
        copy = Path(folder)
        _copy(copy)
        with contextlib.chdir(copy):
            _configure(modules, tests_of(modules))
            every = [name for module in modules for name in _mutants(module)]
            sample = sample_of(every, given.sample, given.seed)
            print(f"{len(sample)} of {len(every)} mutants, seed {given.seed}", flush=True)
            if sample:
                seconds = _run(sample, given.workers)
                _report(modules, sample, seconds)
    return 0


def sample_of(names: Iterable[str], size: int, seed: int) -> list[str]:
    """Draw mutants by lot; the lot of each depends on the seed and its own name alone.

    So a change of one function leaves the sample of all others as it was.
    """
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:size]


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description="Count noticed mutants.")
    parser.add_argument("--base", help="the modules that changed since this commit")
    parser.add_argument("--room", nargs="*", default=[], help="folders, or single modules")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args(arguments)
    if bool(given.base) == bool(given.room):
        parser.error("name a base or a room: make mutants BASE=HEAD~1, or ROOM=scheduler/core")
    return given


def _below(rooms: Iterable[str]) -> list[str]:
    """Return the product's modules in some folders, or named."""
    named = tuple(rooms)
    return [
        module
        for module in _modules()
        if module in named or any(module.startswith(f"{room.rstrip('/')}/") for room in named)
    ]


def _changed(base: str) -> list[str]:
    """Return the product's modules that differ from a commit, in the working tree."""
    command = ["git", "diff", "--name-only", "-z", base, "--", *PRODUCT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [module for module in _modules() if module in done.stdout.split("\0")]


def _modules() -> Iterator[str]:
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        if name.endswith(".py") and name.startswith(tuple(f"{room}/" for room in PRODUCT)):
            yield name


def _copy(target: Path) -> None:
    for file in project_files():
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    # Tests that ask git which files there are find those of the copy.
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)


def _configure(modules: Sequence[str], tests: Sequence[str]) -> None:
    """Write mutmut's settings into the copy."""
    others = [it.name for it in sorted(Path().iterdir()) if it.name not in PRODUCT]
    options = [*_OPTIONS, *(f"--deselect={test}" for test in DESELECTED)]
    text = _SETTINGS.format(
        product=list(PRODUCT), modules=list(modules), others=others, tests=tests, options=options
    )
    with Path("pyproject.toml").open("a") as file:
        file.write(text)


def _mutants(module: str) -> list[str]:
    made = mutate_file_contents(module, Path(module).read_text())
    return [get_mutant_name(Path(module), name) for name in made.mutant_names]


def _run(sample: Sequence[str], workers: int) -> float:
    """Let mutmut try the sample; return the seconds it took, preparations included."""
    began = time.monotonic()
    mutmut = Path(sys.executable).with_name("mutmut")
    done = subprocess.run(
        [mutmut, "run", "--max-children", str(workers), *sample],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:])
        raise SystemExit("mutmut failed, see above: without a mutant the tests must be green")
    return time.monotonic() - began


def _report(modules: Iterable[str], sample: Sequence[str], seconds: float) -> None:
    codes: dict[str, int | None] = {}
    for module in modules:
        data = SourceFileMutationData(path=Path(module))
        data.load()
        codes |= {name: data.exit_code_by_key[name] for name in data.exit_code_by_key}
    status = {name: _status(codes[name]) for name in sample}
    for name in sorted(name for name in sample if status[name] != "killed"):
        print(f"\n{status[name]}: {name} (lines counted in the function)")
        changed = get_diff_for_mutant(name).splitlines()[2:]
        print("\n".join(line for line in changed if line.startswith(("+", "-", "@"))))
    counts = Counter(status.values())
    noticed = counts["killed"] + counts["timeout"]
    print("\n" + ", ".join(f"{word} {count}" for word, count in sorted(counts.items())), end="; ")
    print(f"total {len(sample)}: {noticed / len(sample):.1%} noticed (killed or timeout), ", end="")
    print(f"{seconds / len(sample):.1f} s a mutant, preparations included")
    if noticed < len(sample):
        print("what survived changes nothing that a test asserts: add the assertion, if it matters")


def _status(code: int | None) -> str:
    codes = {"survived": _SURVIVED, "killed": _KILLED, "timeout": _TIMEOUT}
    return next((word for word, those in codes.items() if code in those), f"exit status {code}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
