"""Runs a command beside busy loops, as on a machine that has much else to do.

    python -m e2e.busy --loops 4 -- .venv/bin/python -m pytest e2e/scheduling

The loops end with the command, however that ends.
"""

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Final

from e2e.cluster.tether import tethered
from tests.support.machine_speed import slowdown_now

_LOOP: Final = [sys.executable, "-c", "while True: pass"]


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.busy", description=__doc__)
    parser.add_argument("--loops", type=int, default=4, help="how many, each for one core")
    parser.add_argument("command", nargs="+", help="after --, with its arguments")
    options = parser.parse_args(arguments)
    print(f"without the loops this machine is {slowdown_now():.1f} times slower than usual")
    with ExitStack() as stack:
        for _ in range(options.loops):
            loop = stack.enter_context(subprocess.Popen(tethered(_LOOP)))
            stack.callback(loop.kill)
        time.sleep(1)  # until all of them have begun
        print(f"beside {options.loops} loops it is {slowdown_now():.1f} times slower", flush=True)
        began = time.monotonic()
        status = subprocess.run(options.command, check=False).returncode
        seconds = time.monotonic() - began
        print(f"exit status {status} after {seconds:.0f} s, at a slowdown of {slowdown_now():.1f}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
