"""Compare what this tree and another commit print: `python -m tests.support.other_commit 6c1013e3`.

Both simulate all cases, the clusters of the fixtures and random clusters, as JSON and as a table,
over several cycles; both preview the TrainJobs of the fixtures, and migrate those of other systems.
What they print must be the same but for the words that were renamed since, which are listed in
`RENAMED`: those of a commit before `RENAMED_BY`. With `--decisions` only what `simulate` decides is
compared: its JSON without messages and without what is only told beside it.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import yaml

from tests.cases.case_files import all_cases
from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.nominated import nominated_cluster
from tests.reference.random_clusters.non_evictable import non_evictable_cluster
from tests.reference.random_clusters.shared_gpus import shared_gpu_cluster
from tests.reference.random_clusters.terminating import terminating_cluster
from tests.support.repository import ROOT

RENAMED_BY: Final = "311c41a0"
# In what the other commit prints -> as it is called now. A space may be a line break there.
RENAMED: Final[dict[str, str]] = {
    "No pod is evicted for it for now: the eviction limit of one minute is reached": (
        "Evictions are rate-limited: the limit of one minute is reached, so no pod is evicted for "
        "this PodGroup for now"
    ),
    "but reclaiming no more than that would not free enough": (
        "but what can be reclaimed is not enough"
    ),
    "that is done only for a preemptible PodGroup": "the pending PodGroup is non-preemptible",
    "--moves offered": "--relocate allowed",
    '"code": "not-built"': '"code": "jobset-not-built"',
    '"code": "wrong-amount"': '"code": "invalid-amount"',
    '"code": "pod-says-too-much"': '"code": "pod-spec-too-large"',
    '"code": "unit-too-large"': '"code": "podgroup-too-large"',
    '"code": "no-node-today"': '"code": "no-node-matches"',
    '"code": "not-understood"': '"code": "invalid-value"',
    '"code": "not-looked-at"': '"code": "not-checked"',
    "trainer-kai/plan/v1": "trainer-kai/plan/v2",
}
_RENAMED_OF_PLAN: Final[dict[str, str]] = {
    '"podGroups": [': '"manifests": [',
    '"units": [': '"podGroups": [',
}
# A flag of the other commit -> its name now.
RENAMED_FLAGS: Final[Mapping[str, str]] = {
    "--moves": "--relocate",
    "--victims=fewest-units": "--victims=fewest-podgroups",
}

_TEXTS: Final = {"message", "unusableGpus"}
_CYCLES: Final = 3
_MAX_SHOWN: Final = 20
_CLUSTERS: Final[Mapping[str, Callable[[Random], list[dict[str, Any]]]]] = {
    "plain": random_cluster,
    "crowded": lambda random: random_cluster(random, crowded=True),
    "timed": lambda random: random_cluster(random, crowded=True, timed=True),
    "borrowed": borrowed_cluster,
    "nominated": nominated_cluster,
    "non-evictable": non_evictable_cluster,
    "shared-gpus": shared_gpu_cluster,
    "terminating": terminating_cluster,
}
_OPTIONS: Final = {  # of cases, where the flag has another name
    "staleness_grace_s": "--staleness-grace-period",
    "max_termination_grace_s": "--max-termination-grace",
    "stuck_in_releasing_s": "--stuck-in-releasing-threshold",
}

# Runs in either tree, and uses only the command line; each line of standard input is a command.
_RUNNER: Final = """
import contextlib, io, json, sys
from trainer_kai.cli.main import main
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(json.loads(line))
        except SystemExit as error:
            code = error.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]), file=sys.__stdout__)
"""


class Command(NamedTuple):
    """A command line by the name of its input."""

    name: str
    argv: list[str]


def main() -> int:
    """Print the differences; exit with 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.support.other_commit"
    )
    parser.add_argument("commit")
    parser.add_argument("--clusters", type=int, default=1300, help="random clusters (1300)")
    parser.add_argument(
        "--decisions", action="store_true", help="compare what is decided, no texts"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", tree, args.commit],
            cwd=ROOT,
            check=True,
        )
        try:
            commands, is_older = [*_commands(Path(folder), args.clusters)], _is_older(tree)
            if args.decisions:
                commands = [it for it in commands if it.name.endswith(", json")]
            flags = RENAMED_FLAGS if is_older else {}
            before = _outputs(tree, commands, {new: old for old, new in flags.items()})
            now = _outputs(ROOT, commands, {})
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    if args.decisions:
        before, now = [*map(_decisions, before)], [*map(_decisions, now)]
    words = Counter[str]()
    printed = before
    if is_older:
        before = [
            [code, *(_with_renamed(text, words, command.name) for text in texts)]
            for command, (code, *texts) in zip(commands, printed, strict=True)
        ]
    # What was renamed is as long as before only by chance, so that lines break elsewhere.
    pairs = zip(commands, printed, before, strict=True)
    rewrapped = {command.name for command, was, renamed in pairs if was != renamed}
    return _report(commands, before, now, words, rewrapped)


def _is_older(tree: Path) -> bool:
    """Say whether a tree has the words of before they were renamed."""
    command = ["git", "merge-base", "--is-ancestor", RENAMED_BY, "HEAD"]
    return subprocess.run(command, cwd=tree, check=False).returncode != 0


def _commands(folder: Path, number: int) -> Iterator[Command]:
    for case in all_cases():
        file = _written(folder / f"{case.name}.yaml", case.objects)
        yield from _simulations(
            f"case {case.name}", file, [*_flags({"cycles": _CYCLES, **case.options})]
        )
    for path in [*ROOT.glob("tests/fixtures/clusters/*.yaml"), *ROOT.glob("docs/try/*.yaml")]:
        yield from _simulations(path.name, path, [f"--cycles={_CYCLES}"])
    for seed in range(number):
        kind = [*_CLUSTERS][seed % len(_CLUSTERS)]
        file = _written(folder / f"{seed}.yaml", _CLUSTERS[kind](Random(seed)))
        yield from _simulations(f"{kind} cluster {seed}", file, [f"--cycles={_CYCLES}"])
    for path in sorted(ROOT.glob("tests/fixtures/corners/*.yaml")):
        for output in ("json", "table"):
            yield Command(f"plan {path.name} {output}", ["plan", "-f", str(path), "-o", output])
    for path in sorted(ROOT.glob("tests/fixtures/migrate/*.yaml")):
        for system in ("kai", "kueue", "volcano"):
            yield Command(f"migrate {system} {path.name}", ["migrate", system, "-f", str(path)])


def _simulations(name: str, file: Path, flags: list[str]) -> Iterator[Command]:
    for output in ("json", "table"):
        yield Command(f"{name}, {output}", ["simulate", "-f", str(file), "-o", output, *flags])


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            yield flag
        elif value is not False:
            yield f"{flag}={value}{'s' if name.endswith('_s') else ''}"


def _written(file: Path, objects: Iterable[Mapping[str, Any]]) -> Path:
    file.write_text(yaml.safe_dump_all(map(dict, objects), sort_keys=False))
    return file


def _outputs(
    tree: Path, commands: Iterable[Command], renamed: Mapping[str, str]
) -> list[list[Any]]:
    """Run the commands in a tree; return the exit code and both outputs of each."""
    lines = []
    for command in commands:
        line = json.dumps(command.argv)
        for name, other in renamed.items():
            line = line.replace(name, other)
        lines.append(line)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUNNER],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "COLUMNS": "100"},
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _report(
    commands: list[Command],
    before: list[list[Any]],
    now: list[list[Any]],
    words: Mapping[str, int],
    rewrapped: set[str],
) -> int:
    different = 0
    for command, old, new in zip(commands, before, now, strict=True):
        if old != new and not (command.name in rewrapped and _words(old) == _words(new)):
            different += 1
            if different <= _MAX_SHOWN:
                print(f"--- {command.name}: exit code {old[0]} -> {new[0]}")
                for was, text in zip(old[1:], new[1:], strict=True):
                    lines = difflib.unified_diff(
                        was.split("\n"), text.split("\n"), "", "", "", "", 0
                    )
                    print("\n".join([*lines][2:12]))
    failed = [it.name for it, old in zip(commands, before, strict=True) if old[0] not in (0, None)]
    print(f"{len(commands)} commands, {different} differ")
    print(f"{len(failed)} end with an error: {', '.join(failed)}")
    for word, count in sorted(words.items()):
        print(f"renamed, {count} times: {word} -> {(RENAMED | _RENAMED_OF_PLAN)[word]}")
    return 1 if different else 0


def _decisions(printed: list[Any]) -> list[Any]:
    code, out, _ = printed
    return [code, json.dumps(_without_texts(json.loads(out)), indent=2) if out else "", ""]


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_texts(it) for key, it in value.items() if key not in _TEXTS}
    return [*map(_without_texts, value)] if isinstance(value, list) else value


def _words(printed: list[Any]) -> list[Any]:
    return [printed[0], *(text.split() for text in printed[1:])]


def _with_renamed(text: str, words: Counter[str], name: str) -> str:
    """Return what a command printed with the words of today."""
    for old, new in (RENAMED | (_RENAMED_OF_PLAN if name.startswith("plan") else {})).items():
        pattern = re.escape(old)
        if '"' not in old:  # of a message, which may be wrapped here
            pattern = pattern.replace(r"\ ", r"\s+")
        text, count = re.subn(pattern, new, text)
        words[old] += count
    return text


if __name__ == "__main__":
    sys.exit(main())
