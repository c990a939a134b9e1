"""Each simulation in a process of its own, to measure its time and memory.

Its time is in plain plans: the CPU time of a plan of a small cluster without a tenant, measured
right after it in the same process.

The program imports what simulates, once, and forks for each question on standard input: pickled
objects and options. Its answer on standard output is pickled, too; an empty one is a failure. Both
come with their length before them.
"""

import gc
import json
import os
import pickle
import resource
import sys
from pathlib import Path
from typing import Any, Final

from tests.hostile.objects import VICTIMS, cluster, pod
from tests.support.cpu_time import cpu_s
from trainer_kai.cli.commands.simulate.simulation import (
    SimulationOptions,
    SimulationResult,
    prepare,
    run,
)
from trainer_kai.cli.input.documents import Document

_MAX_BYTES: Final = 4 << 30  # a hole must not take the machine with it
_PLAIN: Final = [*cluster(20), *(pod(VICTIMS[n % 2], f"p{n}") for n in range(80))]


def _peak_mib() -> int:
    """Return the peak of this program; that of getrusage is not less than its parent's size."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(it.split()[1]) // 1024 for it in lines if it.startswith("VmHWM:"))


def _simulate(question: bytes) -> bytes:
    """Return the document, the CPU time per cycle in plain plans and the peak in MiB."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    objects, given = pickle.loads(question)
    options = SimulationOptions(**given)
    outcome, took_s = _run(objects, options)
    peak_mib = _peak_mib()
    plain_s = _run(_PLAIN, SimulationOptions())[1]
    answer: dict[str, Any] = {
        "document": json.loads(json.dumps(outcome.document)),
        "warnings": outcome.warnings,
        "plain_plans": took_s / options.cycles / plain_s,
        "peak_mib": peak_mib,
    }
    return pickle.dumps(answer)


def _run(objects: list[Any], options: SimulationOptions) -> tuple[SimulationResult, float]:
    """Return what comes of it, and the CPU seconds of its cycles."""
    scene = prepare((Document("input", dict(it)) for it in objects), options)
    outcomes: list[SimulationResult] = []
    took_s = cpu_s(lambda: outcomes.append(run(scene, options)))
    return outcomes[0], took_s


def _write(answer: bytes) -> None:
    sys.stdout.buffer.write(len(answer).to_bytes(8, "big") + answer)
    sys.stdout.buffer.flush()


def main() -> None:
    """Answer each question in a child."""
    gc.freeze()  # what was imported is no garbage of a simulation's
    while length := sys.stdin.buffer.read(8):
        question = sys.stdin.buffer.read(int.from_bytes(length, "big"))
        child = os.fork()
        if child == 0:
            _write(_simulate(question))
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            _write(b"")


if __name__ == "__main__":
    main()
