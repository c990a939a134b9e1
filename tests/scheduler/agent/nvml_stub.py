"""Build the stub of NVML, and have it found where a process loads the library."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIBRARY: Final = "libnvidia-ml.so.1"

_SOURCE: Final = Path(__file__).with_name("nvml_stub.c")
_OPTIONS: Final = ("-shared", "-fPIC", "-D_GNU_SOURCE", "-Wall", "-Werror")


def build(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        message = "no C compiler (cc or gcc) is in PATH: install one, see CONTRIBUTING.md"
        raise FileNotFoundError(message)
    library = folder / LIBRARY
    name = f"-Wl,-soname,{LIBRARY}"  # so that a process that has loaded it does not search for it
    subprocess.run([compiler, *_OPTIONS, name, "-o", library, _SOURCE], check=True, timeout=60)
    return library


def stub_environ(library: Path, devices: str) -> Mapping[str, str]:
    """Return the variables with which a process sees these devices."""
    return {"LD_LIBRARY_PATH": str(library.parent), "NVML_STUB_DEVICES": devices}
