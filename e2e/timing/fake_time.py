"""Processes whose date is not that of the machine: libfaketime, from PyPI, in the cache.

Only what asks for the date is lied to; durations stay true, as on a machine whose date is set.
"""

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.cluster.paths import cache_root
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import run

_HERE: Final = Path(__file__).parent
_LIBRARY: Final = Path("libfaketime/vendor/libfaketime/src/libfaketime.so.1")


class DateOf:
    """The date as some processes see it; it can jump while they run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "date-offset"
        self._library = _installed()
        self.jump_to(0)

    def jump_to(self, seconds: int) -> None:
        """Set the date so many seconds off the true one, now."""
        text = self._file.with_suffix(".new")
        text.write_text(f"{seconds:+d}")
        text.rename(self._file)  # nobody reads half of it

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what a process must be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def _installed() -> Path:
    wanted = (_HERE / "libfaketime.in").read_text().strip()
    folder = cache_root() / wanted
    if not (folder / _LIBRARY).exists():
        print(f"installing {wanted}", flush=True)
        partial = folder.with_name(f".installing-{folder.name}-{os.getpid()}")
        options = ["--target", str(partial), "--no-deps", "-r", str(_HERE / "libfaketime.lock")]
        if platform.machine() != "x86_64":  # its wheel is for that; from source it needs a compiler
            options += ["--no-binary", ":all:"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(tethered([*pip, *options], group=True))
        try:
            partial.rename(folder)
        except OSError:  # somebody was faster
            shutil.rmtree(partial)
    return folder / _LIBRARY
