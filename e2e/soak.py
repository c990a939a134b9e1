"""The tests of the chain that draw by lot, kill and repeat, at full size: `make soak-e2e`.

Round after round with another seed, as long as the next one still fits into the minutes; a round
that fails ends it, and its seed repeats it.
"""

import argparse
import os
import subprocess
import sys
import time
from typing import Final

_TESTS: Final = ["-m", "soak or sized", "-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder"]


def main(arguments: list[str]) -> int:
    """Run the rounds; return the exit status of pytest in the last one."""
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="time for all rounds")
    parser.add_argument("--seed", type=int, default=7, help="of the first round")
    options = parser.parse_args(arguments)
    began, last_s, seed = time.monotonic(), 0.0, options.seed
    while seed == options.seed or time.monotonic() - began + last_s <= options.minutes * 60:
        round_began = time.monotonic()
        print(f"round {seed - options.seed + 1}, seed {seed}", flush=True)
        if status := _round(seed):
            print(f"failed with SEED={seed}")
            return status
        last_s = time.monotonic() - round_began
        seed += 1
    minutes = (time.monotonic() - began) / 60
    print(
        f"green: {seed - options.seed} rounds from seed {options.seed} on in {minutes:.1f} minutes"
    )
    return 0


def _round(seed: int) -> int:
    soak = {"SOAK_TIMES": "10", "SOAK_SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "e2e", *_TESTS]
    return subprocess.run(command, env=os.environ | soak, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
