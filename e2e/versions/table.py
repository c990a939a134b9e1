"""The tables of docs/versions.md, from what ran. Pure."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_COMPONENTS: Final = ("Kubernetes", "etcd", "JobSet", "Trainer")
_REASON: Final = "demo: "  # how the demo begins the line that says why it fails
_LONGEST: Final = 240
_UNKNOWN: Final = "?"
_PAGE: Final = """\
# Supported versions

`make versions` writes this page. For each chain it builds the control plane from the released Go
modules, installs the manifests, starts webhook, podgrouper and scheduler, and runs the TrainJobs of
`make demo` until all are Complete. `default` is the chain of all other tests. Versions between two
rows are expected to work, and are not tested.

Kubernetes 1.32 and earlier refuse the CRD of PodGroups
([why](decisions/044-kubernetes-1-33-is-the-oldest.md)). Trainer 2.0 is not tested: it serves its
webhook only with a Secret that a kubelet mounts, and kubelets are simulated here.

{runs}

## What differs

What all of these chains have is left out. An overlay of `manifests/` cannot be installed where a
kind that it needs is not served.

{differences}
"""


class ChainRun(NamedTuple):
    """What came of the demo on one chain."""

    chain: str
    versions: dict[str, str]  # empty if the chain cannot be built
    features: frozenset[str] | None  # None: the chain does not start
    failure: str  # empty if all TrainJobs are Complete
    seconds: float
    date: str


def failure_of(status: int, errors: str) -> str:
    """Return why the demo failed, from its exit status and what it wrote; empty if it did not."""
    if status == 0:
        return ""
    lines = [line for line in errors.splitlines() if line.startswith(_REASON)]
    text = lines[-1].removeprefix(_REASON) if lines else f"exit status {status}"
    return failure_text(text)


def failure_text(text: str) -> str:
    """Return a reason as one line of bounded length, which holds on any machine."""
    return textwrap.shorten(text.replace(str(Path.home()), "~"), _LONGEST, placeholder=" …")


def kubernetes_version(run: ChainRun) -> list[int]:
    """Return the numbers of the version by which the rows are sorted; none if it is unknown."""
    return [int(number) for number in re.findall(r"[0-9]+", run.versions.get("Kubernetes", ""))]


def page(runs: Sequence[ChainRun]) -> str:
    """Return the whole page."""
    return _PAGE.format(runs=_runs(runs), differences=_differences(runs))


def _runs(runs: Sequence[ChainRun]) -> str:
    header = ["chain", *_COMPONENTS, "result", "seconds", "date"]
    rows = [
        [
            f"`{run.chain}`",
            *(run.versions.get(name, _UNKNOWN).removeprefix("v") for name in _COMPONENTS),
            f"fails: {run.failure}" if run.failure else "works",
            f"{run.seconds:.0f}",
            run.date,
        ]
        for run in runs
    ]
    return _table(header, rows)


def _differences(runs: Sequence[ChainRun]) -> str:
    known = [run.features for run in runs if run.features is not None]
    everything = frozenset[str]().union(*known)
    shared = everything.intersection(*known)
    rows = [
        [feature, *(_has(run, feature) for run in runs)] for feature in sorted(everything - shared)
    ]
    return _table(["what", *(f"`{run.chain}`" for run in runs)], rows)


def _has(run: ChainRun, feature: str) -> str:
    if run.features is None:
        return _UNKNOWN
    return "yes" if feature in run.features else "no"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in lines)
