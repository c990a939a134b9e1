"""A folder of built programs in the cache: complete or absent, and built by one process alone."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.paths import cache_root

__all__ = ["build_lock", "built_beside"]


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """Hold the lock of all builds, which may also install Go; say so when another holds it."""
    lock = cache_root() / "chain" / "build.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building the chain: waiting for it", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def built_beside(finished: Path) -> Iterator[Path]:
    """Return an empty folder beside *finished*, and move it there when nothing has failed.

    The caller holds the lock of all builds.
    """
    finished.parent.mkdir(parents=True, exist_ok=True)
    for leftover in finished.parent.glob(".building-*"):
        shutil.rmtree(leftover)  # of a build that was cut off
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=finished.parent))
    try:
        yield partial
        partial.rename(finished)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
