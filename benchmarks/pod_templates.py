"""What the decoding of pods by the text of their siblings saves, to see whether it pays.

A start with 140,000 recorded pods, from the pages of a list to the first snapshot, with templates
and with each pod parsed in full and interned; processor time and memory, each in processes of its
own. The templates stay while the ratio is 1.3 or more in one column.
"""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.support.repository import ROOT
from tests.support.workloads import recorded_pods

_PODS: Final = 140_000
_PAGE: Final = 500
_ROUNDS: Final = 3
_START: Final = """
import gc, json, sys, time
from pathlib import Path
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from trainer_kai.api import decode as decoding
from trainer_kai.api.interning import intern_conditions
from trainer_kai.api.pod import Pod

is_parsed = sys.argv[2] == "parsed in full"
if is_parsed:
    decoding._pod_page = lambda data: None
cluster, decoded = Cluster(), 0.0
for file in sorted(Path(sys.argv[1]).iterdir()):
    data = file.read_bytes()
    began = time.process_time()
    for pod in decoding.decode_page(Pod, data).items:
        if is_parsed:
            intern_conditions(pod.status.conditions)
        cluster.pods[pod.metadata.key] = pod
    decoded += time.process_time() - began
    del data
gc.collect()
lines = Path("/proc/self/status").read_text().splitlines()
memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
began = time.process_time()
encode(cluster, StateOptions(now=1_800_000_000))
built = time.process_time() - began
print(json.dumps([len(cluster.pods), decoded, built, memory / 1024]))
"""


async def main() -> None:
    """Start both ways in turns; print the best of each."""
    best: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        _write_pages(Path(folder))
        for _ in range(_ROUNDS):
            for way in ("by templates", "parsed in full"):
                count, *figures = await _start(folder, way)
                assert count == _PODS
                best[way] = [*map(min, figures, best.get(way, figures))]
    table = Table(title=f"a start with {_PODS:,} running pods, best of {_ROUNDS}")
    for heading in ("pods", "decoding, s", "first snapshot, s", "both, s", "MiB"):
        table.add_column(heading, justify="left" if heading == "pods" else "right")
    rows = {
        way: [decoded, built, decoded + built, memory]
        for way, (decoded, built, memory) in best.items()
    }
    for way, figures in rows.items():
        table.add_row(way, *(f"{it:.2f}" for it in figures[:3]), f"{figures[3]:.0f}")
    ratios = (full / ours for ours, full in zip(*rows.values(), strict=True))
    table.add_row("times", *(f"{it:.2f}" for it in ratios))
    Console(width=115).print(table)


def _write_pages(folder: Path) -> None:
    texts = [*recorded_pods.pods(recorded_pods.RUNNING, _PODS)]
    for at in range(0, _PODS, _PAGE):
        page = recorded_pods.pod_list_page(texts[at : at + _PAGE])
        (folder / f"{at:06d}").write_bytes(page)


async def _start(folder: str, way: str) -> list[float]:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _START, folder, way, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    assert program.returncode == 0
    figures: list[float] = json.loads(printed)
    return figures
