"""Where programs are built: by one process alone, beside the place where finished ones are."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.paths import programs_root

LOCK = "build.lock"


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """Hold the lock of all builds, which may also install Go; say so when another holds it."""
    lock = programs_root() / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building programs: waiting for it", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def partial_folder() -> Iterator[Path]:
    """Return an empty folder, to move from what is finished; the rest of it is removed.

    The caller holds the lock of all builds.
    """
    for leftover in programs_root().glob(".building-*"):
        shutil.rmtree(leftover)  # of a build that was cut off
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=programs_root()))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
