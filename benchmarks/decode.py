"""How fast pods become objects, and how little memory ten thousand of them take.

The pods are two that were recorded from the real chain, one waiting and one running, and their
siblings: other names, uids, indexes, nodes and times in the same text. Each way of reading runs in
a process of its own, in the same loop over the same texts, several times in turn; the best counts.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.rounds import rounds
from tests.support.repository import ROOT
from tests.support.workloads import recorded_pods

_ROUNDS: Final = 5
_LEAST_S: Final = 10.0
_TIMES_JSON: Final = 8
_TIMES_OFFICIAL: Final = 50
_MOST_BYTES: Final = 1536
_TIMES_RETAINED: Final = 3
_TIMES_PARSED: Final = 5  # the price of sharing between pods that have no siblings
_SIBLINGS: Final = 64
_JOBS: Final = 2000
_PODS: Final = 10_000
_PAGE: Final = 500
_OF_EACH_JOB: Final = (8, 64)
_KINDS: Final[Mapping[str, str]] = {
    "waiting": recorded_pods.PENDING,
    "running": recorded_pods.RUNNING,
}


class _Method(NamedTuple):
    """How one pod is made from the bytes of one."""

    setup: str
    call: str
    name: str = "pod.metadata.name"


_METHODS: Final[Mapping[str, _Method]] = {
    "json.loads": _Method("import json", "json.loads(text)", 'pod["metadata"]["name"]'),
    "ours, each parsed in full": _Method(
        "import msgspec; from trainer_kai.api.pod import Pod; read = msgspec.json.Decoder(Pod)",
        "read.decode(text)",
    ),
    "ours": _Method(
        "from trainer_kai.api.decode import decode; from trainer_kai.api.pod import Pod",
        "decode(Pod, text)",
    ),
    "kubernetes": _Method(
        "from kubernetes.client import ApiClient; read = ApiClient().deserialize",
        'read(text, "V1Pod", "application/json")',
    ),
}
_LOOP: Final = """
{way.setup}
import json, sys, time
from pathlib import Path

def measure(texts):
    names = set()
    for text in texts:
        pod = {way.call}
        names.add({way.name})
    best = 1.0
    began = time.perf_counter()
    while time.perf_counter() - began < 1.0:
        start = time.perf_counter()
        for text in texts:
            {way.call}
        best = min(best, (time.perf_counter() - start) / len(texts))
    return best, len(names)

print(json.dumps(measure(Path(sys.argv[1]).read_bytes().splitlines())))
"""

# No two pods that follow each other are siblings. Later is when each has been seen once, as in a
# watch; a list is read at first.
_RANDOM: Final = """
import json, random, sys, time
from pathlib import Path
import msgspec
from trainer_kai.api.decode import decode
from trainer_kai.api.pod import Pod

def measure(read):
    start = time.perf_counter()
    for text in texts:
        read(text)
    return (time.perf_counter() - start) / len(texts)

parse = msgspec.json.Decoder(Pod).decode
texts = Path(sys.argv[1]).read_bytes().splitlines()
random.Random(1).shuffle(texts)
first = measure(lambda text: decode(Pod, text))
later = min(measure(lambda text: decode(Pod, text)) for _ in range(4))
parsed = min(measure(lambda text: parse(text)) for _ in range(4))
print(json.dumps([len(texts), parsed, first, later]))
"""

# One page is read before the others: it fills the tables of fixed size.
_MEMORY: Final = """
import ctypes, gc, json, sys, time, tracemalloc
from pathlib import Path
from trainer_kai.api.decode import decode_page
from trainer_kai.api.pod import Pod

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def settled():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return status("VmRSS")

first, *files = sorted(Path(sys.argv[1]).iterdir())
decode_page(Pod, first.read_bytes())
if sys.argv[2] == "traced":
    tracemalloc.start()
before = settled()
kept, seconds = {}, 0.0
for file in files:
    data = file.read_bytes()
    start = time.perf_counter()
    page = decode_page(Pod, data)
    seconds += time.perf_counter() - start
    kept.update((pod.metadata.key, pod) for pod in page.items)
    del data, page
peak = status("VmHWM")
retained = settled() - before
traced, most_traced = tracemalloc.get_traced_memory()
count = len(kept)
print(json.dumps([
    count, seconds / count, retained / count, (peak - before) / count,
    traced / count, most_traced / count,
]))
"""


class _Memory(NamedTuple):
    pods: int
    seconds: float
    retained: float
    peak: float
    traced: float
    most_traced: float


async def main() -> None:
    """Measure both, check that every pod was read, and print the tables."""
    speed = Table(title=f"one pod of a JobSet, the best of {_ROUNDS} processes each")
    for heading in (
        "pod",
        "bytes",
        "read by",
        "microseconds",
        "times json.loads",
        "times kubernetes",
    ):
        speed.add_column(heading, justify="left" if heading in ("pod", "read by") else "right")
    memory = Table(title=f"{_PODS:,} pods in pages of {_PAGE}, kept in a dict; bytes of each pod")
    order = Table(
        title=f"pods of {_JOBS:,} jobs of {_OF_EACH_JOB[0]} in random order, microseconds"
    )
    for heading in ("pods", "each parsed in full", "ours at first", "ours later", "times parsed"):
        order.add_column(heading, justify="left" if heading == "pods" else "right")
    for heading in ("pods", "of each Job", "microseconds", "retained", "peak", "traced", "peak"):
        memory.add_column(heading, justify="left" if heading == "pods" else "right")
    with TemporaryDirectory() as folder:
        for kind, text in _KINDS.items():
            await _add_speed(speed, kind, text, Path(folder))
            await _add_order(order, kind, text, Path(folder))
        for kind, text in _KINDS.items():
            for of_each_job in _OF_EACH_JOB:
                await _add_memory(memory, f"{kind} {of_each_job}", text, Path(folder))
    console = Console(width=115)
    console.print(speed)
    console.print(order)
    console.print(memory)
    console.print(
        "retained, peak: of the process's resident memory; traced: by tracemalloc, other run"
    )


async def _add_speed(table: Table, kind: str, text: str, folder: Path) -> None:
    file = folder / f"{kind}.txt"
    texts = [recorded_pods.similar_pod(text, 0, index) for index in range(_SIBLINGS)]
    file.write_text("\n".join(texts))
    seconds: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for method, source in _METHODS.items():
            best, names = await _run(_LOOP.format(way=source), str(file))
            assert names == _SIBLINGS
            seconds[method] = min(best, seconds.get(method, best))
    assert seconds["json.loads"] / seconds["ours"] >= _TIMES_JSON
    assert seconds["kubernetes"] / seconds["ours"] >= _TIMES_OFFICIAL
    size = f"{sum(map(len, texts)) // _SIBLINGS:,}"
    for method, best in seconds.items():
        faster = (f"{seconds[floor] / best:.1f}" for floor in ("json.loads", "kubernetes"))
        table.add_row(kind, size, method, f"{best * 1e6:.1f}", *faster)


async def _add_order(table: Table, kind: str, text: str, folder: Path) -> None:
    file = folder / f"{kind}-random.txt"
    file.write_text("\n".join(recorded_pods.pods(text, _JOBS * _OF_EACH_JOB[0])))
    runs: list[list[float]] = []

    def is_met() -> bool:
        _, parsed, _, warm = map(min, zip(*runs, strict=True))
        return bool(warm <= _TIMES_PARSED * parsed)

    for _ in rounds(_ROUNDS, _LEAST_S, is_met):
        runs += [await _run(_RANDOM, str(file))]
    count, parsed, first, warm = map(min, zip(*runs, strict=True))
    assert count == _JOBS * _OF_EACH_JOB[0]
    assert warm <= _TIMES_PARSED * parsed
    row = (f"{seconds * 1e6:.1f}" for seconds in (parsed, first, warm))
    table.add_row(kind, *row, f"{warm / parsed:.2f}")


async def _add_memory(table: Table, name: str, text: str, folder: Path) -> None:
    kind, of_each_job = name.split()
    pages = folder / name
    pages.mkdir()
    items = list(recorded_pods.pods(text, _PODS + _PAGE, of_each_job=int(of_each_job)))
    for number, start in enumerate(range(0, len(items), _PAGE)):
        (pages / f"{number:03d}").write_bytes(
            recorded_pods.pod_list_page(items[start : start + _PAGE], "more")
        )
    del items
    runs = [_Memory(*await _run(_MEMORY, str(pages), "plain")) for _ in range(_ROUNDS)]
    traced = _Memory(*await _run(_MEMORY, str(pages), "traced"))
    assert {run.pods for run in [*runs, traced]} == {_PODS}
    best = _Memory(*map(min, zip(*runs, strict=True)))
    assert best.retained <= _MOST_BYTES
    assert best.peak < _TIMES_RETAINED * best.retained
    figures = (best.retained, best.peak, traced.traced, traced.most_traced)
    row = [f"{best.seconds * 1e6:.1f}", *(f"{figure:,.0f}" for figure in figures)]
    table.add_row(kind, of_each_job, *row)


async def _run(source: str, *arguments: str) -> list[Any]:
    """Run a script in a Python of its own; it prints numbers."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    assert program.returncode == 0
    figures: list[Any] = json.loads(printed)
    return figures
