"""Helm, built from a go.mod of its own and cached by its content.

It is no program of the chain: it requires newer libraries than the chain's Kubernetes.
"""

import hashlib
import platform
from pathlib import Path
from typing import Final

from e2e.cluster.build_folder import build_lock, built_beside
from e2e.cluster.paths import cache_root
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import find_go, go_environment, run

__all__ = ["ensure_helm", "helm_key"]

_SOURCE: Final = Path(__file__).with_name("helm")
_FLAGS: Final = ("-trimpath", "-ldflags", "-s -w")


def helm_key(source: Path) -> str:
    """Return a name that changes with the sources of Helm."""
    digest = hashlib.sha256(platform.machine().encode() + repr(_FLAGS).encode())
    for name in ("go.mod", "go.sum"):
        digest.update(name.encode() + b"\0" + (source / name).read_bytes())
    return digest.hexdigest()[:16]


def ensure_helm() -> Path:
    """Return the program, building it if the cache does not hold it."""
    program = cache_root() / "helm" / helm_key(_SOURCE) / "helm"
    if program.exists():
        return program
    with build_lock():
        if not program.exists():
            print("building helm: this takes minutes, once", flush=True)
            _build_into(program.parent)
    return program


def _build_into(finished: Path) -> None:
    with built_beside(finished) as partial:
        go = find_go()
        build = [str(go), "build", *_FLAGS, "-o", f"{partial}/", "tool"]
        run(tethered(build, group=True), _SOURCE, go_environment(go))
