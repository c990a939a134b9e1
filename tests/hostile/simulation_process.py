"""One simulation in a process of its own, to measure its time and memory.

Standard input is the pickled objects and options, standard output the pickled answer.
"""

import json
import pickle
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, prepare, run
from trainer_kai.cli.input.documents import Document

_MAX_BYTES: Final = 4 << 30  # a hole must not take the machine with it


def _peak_mib() -> int:
    """Return the peak of this program; that of getrusage is not less than its parent's size."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(it.split()[1]) // 1024 for it in lines if it.startswith("VmHWM:"))


def main() -> None:
    """Simulate, and answer with the document, CPU seconds per cycle and the peak in MiB."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    objects, given = pickle.load(sys.stdin.buffer)
    options = SimulationOptions(**given)
    began = time.process_time()
    scene = prepare((Document("input", dict(it)) for it in objects), options)
    prepared = time.process_time()
    outcome = run(scene, options)
    ended = time.process_time()
    answer: dict[str, Any] = {
        "document": json.loads(json.dumps(outcome.document)),
        "warnings": outcome.warnings,
        "prepare_s": prepared - began,
        "plan_s": (ended - prepared) / options.cycles,
        "peak_mib": _peak_mib(),
    }
    pickle.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
