"""An environment with the Kubeflow SDK, in the cache: its packages are not those of the product."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.paths import cache_root
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import run

_HERE: Final = Path(__file__).parent


def sdk_path() -> Path:
    """Return the folder of the packages; it is for PYTHONPATH."""
    wanted = (_HERE / "kubeflow.in").read_text().strip()
    folder = cache_root() / f"sdk-{wanted}-{sys.version_info[0]}.{sys.version_info[1]}"
    if not folder.exists():
        print(f"installing {wanted}", flush=True)
        partial = folder.with_name(f".installing-{folder.name}-{os.getpid()}")
        options = ["--target", str(partial), "--no-deps", "-r", str(_HERE / "kubeflow.lock")]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(tethered([*pip, *options], group=True))
        try:
            partial.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(partial)
    return folder
