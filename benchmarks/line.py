"""How long large gangs wait, and what keeping room for them costs: orders of queues compared.

A loop of plans on the jobs of Microsoft's Philly cluster: 14 days, 11 queues, on nodes with 8 GPUs
sized to an offered load of 0.9. The quota of a queue is its part of the GPU-hours. No job is
evicted: each runs for as long as in the trace. *Known ends* are enforced at 1.2 to 3 times the
duration of a job; of none, half or all of them; they matter to `reserve` only. In the list `raised`
gangs with 16 GPUs or more are drawn again until they have 30 % of the GPU-hours. *Large* are gangs
with 8 GPUs or more, in `raised` those with 16 or more.

    python -m benchmarks line --data DIRECTORY [--days 14] [--seeds 3] [--known half]
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

import numpy as np

from benchmarks.line_cluster import AS_IT_IS, LARGE, RAISED, Result, VirtualCluster, jobs_of
from tests.support.machine_speed import MachineSpeed

_KNOWN: Final = {"half": 0.5, "none": 0.0, "all": 1.0}
_LARGE: Final = {AS_IT_IS: 8, RAISED: LARGE}  # by list: from so many GPUs on a gang is large
_SIZES: Final = (8, 16, 32)
_DAY_S: Final = 86_400
_MOST_S: Final = 240  # of one arm, where the machine is as fast as that of the bounds
_LEAST_PART: Final = 0.05  # of the GPU-hours: of smaller queues no loss counts
# What `reserve` may cost with half of the ends known, if it is to be the default.
_MOST_WAIT: Final = 0.5  # of the large ones, as a part of that with `best-effort`
_MOST_IDLE: Final = 2.0  # percentage points
_MOST_LOSS: Final = 2.0  # percent of the GPU-hours of a queue
_MOST_P95: Final = 1.2  # of the jobs with one GPU


class _Figures(NamedTuple):
    """What one arm came to: waits in minutes, the idle GPUs in percent."""

    mean_wait: dict[int, float]  # by least GPUs
    p95_of_one: float
    idle: float
    kept_gpu_hours: float
    gpu_hours: dict[str, float]


class _Change(NamedTuple):
    """`reserve` beside `best-effort` on the same jobs."""

    large_wait: float  # a factor, as p95
    p95: float
    idle: float  # percentage points
    worst_loss: float  # percent; less than nothing is a gain
    loser: str  # the queue


async def main() -> None:
    options = _options()
    until_s = int(options.days * _DAY_S)
    print(_HEADINGS, flush=True)
    changes: dict[tuple[str, str], list[_Change]] = defaultdict(list)
    bases: dict[str, _Figures] = {}
    for seed, name in product(range(1, options.seeds + 1), options.list or _LARGE):
        if name not in bases or name == RAISED:  # as they are the jobs do not depend on the seed
            bases[name] = _arm(options, name, "", seed, until_s)
        for known in options.known or _KNOWN:
            reserve = _arm(options, name, known, seed, until_s)
            change = _change(bases[name], reserve, _LARGE[name])
            changes[name, known].append(change)
            print(f"    {_text(change)}", flush=True)
    print()
    for (name, known), found in changes.items():
        print(f"{name}, {known} of the ends known, {len(found)} seeds: {_text(_together(found))}")
    print(
        _verdict({name: _together(it) for (name, known), it in changes.items() if known == "half"})
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks line")
    parser.add_argument("--data", required=True, help="the directory with the file of the trace")
    parser.add_argument("--days", type=float, default=14, help="of the trace")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--known", action="append", choices=[*_KNOWN], help="enforced ends")
    parser.add_argument("--list", action="append", choices=[*_LARGE])
    return parser.parse_args(sys.argv[2:])


_HEADINGS: Final = (
    "list      order        ends  seed  nodes  mean wait in min. of GPUs ≥ 8    ≥ 16    ≥ 32  "
    "p95 of 1 GPU  idle while one waits  kept GPU-h  plans  seconds"
)


def _arm(options: argparse.Namespace, name: str, known: str, seed: int, until_s: int) -> _Figures:
    """Run one arm, without *known* that of `best-effort`, and print what it came to."""
    jobs = jobs_of(Path(options.data), name, _KNOWN.get(known, 0.0), seed)
    speed, cluster = MachineSpeed(), VirtualCluster(jobs, is_reserving=bool(known))
    result = cluster.run(min(jobs[-1].submit_s, until_s))
    figures = _figures(result)
    speed.measure()
    order = "reserve" if known else "best-effort"
    waits = "".join([f"{figures.mean_wait[it]:8.1f}" for it in _SIZES])
    slow = "" if result.seconds <= _MOST_S * speed.slowdown else f", more than {_MOST_S} x slowdown"
    print(
        f"{name:9} {order:12} {known or '-':5} {seed:4} {cluster.nodes:6} {'':24}{waits}"
        f"{figures.p95_of_one:14.1f}{figures.idle:20.2f} %{figures.kept_gpu_hours:12.0f}"
        f"{result.plans:7}{result.seconds:9.0f} (slowdown {speed.slowdown:.1f}{slow})",
        flush=True,
    )
    return figures


def _figures(result: Result) -> _Figures:
    waits_s = result.waits_s
    by_size = {
        least: mean([it for gpus, each in waits_s.items() if gpus >= least for it in each] or [0])
        for least in _SIZES
    }
    return _Figures(
        {least: it / 60 for least, it in by_size.items()},
        float(np.percentile(waits_s.get(1, [0]), 95)) / 60,
        100 * result.idle,
        result.kept_gpu_hours,
        result.gpu_hours,
    )


def _change(base: _Figures, reserve: _Figures, large: int) -> _Change:
    worst, loser = max(_losses(base, reserve), default=(0.0, "-"))
    return _Change(
        _factor(reserve.mean_wait[large], base.mean_wait[large]),
        _factor(reserve.p95_of_one, base.p95_of_one),
        reserve.idle - base.idle,
        worst,
        loser,
    )


def _factor(after: float, before: float) -> float:
    return after / before if before else 1.0 if not after else float("inf")


def _losses(base: _Figures, reserve: _Figures) -> Iterator[tuple[float, str]]:
    total = sum(base.gpu_hours.values())
    for queue, hours in base.gpu_hours.items():
        if hours >= _LEAST_PART * total:
            yield 100 * (1 - reserve.gpu_hours.get(queue, 0.0) / hours), queue[:6]


def _together(changes: Sequence[_Change]) -> _Change:
    """Return the mean over the seeds, and the worst loss of a queue in any of them."""
    worst = max(changes, key=lambda it: it.worst_loss)
    large_wait, p95, idle = (mean(column) for column in list(zip(*changes, strict=True))[:3])
    return _Change(large_wait, p95, idle, worst.worst_loss, worst.loser)


def _text(change: _Change) -> str:
    return (
        f"large ones wait x {change.large_wait:.2f}, p95 of one GPU x {change.p95:.2f}, "
        f"idle {change.idle:+.2f} points, worst loss of a queue {change.worst_loss:+.1f} % "
        f"({change.loser})"
    )


def _verdict(changes: dict[str, _Change]) -> str:
    faults = [f"{name}: {fault}" for name, it in changes.items() for fault in _faults(it)]
    if not changes.keys() >= _LARGE.keys():
        faults.append("not all lists were run with half of the ends known")
    order = "best-effort" if faults else "reserve"
    return "\n  ".join([f"The default should be {order}.", *faults])


def _faults(change: _Change) -> Iterator[str]:
    if change.large_wait > _MOST_WAIT:
        yield f"large ones wait x {change.large_wait:.2f}, at most {_MOST_WAIT}"
    if change.idle > _MOST_IDLE:
        yield f"idle {change.idle:+.2f} points, at most {_MOST_IDLE}"
    if change.worst_loss >= _MOST_LOSS:
        yield f"queue {change.loser} loses {change.worst_loss:.1f} %, not less than {_MOST_LOSS}"
    if change.p95 > _MOST_P95:
        yield f"p95 of one GPU x {change.p95:.2f}, at most {_MOST_P95}"
