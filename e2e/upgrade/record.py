"""Record what 515b908 leaves behind, and upgrade it: `python -m e2e.upgrade.record`.

`python -m e2e.upgrade.record COMMIT` upgrades from any commit, and writes nothing.

The tree of that commit comes out of the history, and its processes run on a chain until the scene
is there. What they leave is written beside this file. Then the same chain is upgraded as in the
test, but from processes that ran until then.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.fixtures.install import apply_all, build
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.upgrade.before_upgrade import furnish, play
from e2e.upgrade.leftovers import FOLDER, Leftovers, collected, write
from e2e.upgrade.run_upgrade import upgrade
from tests.support.repository import ROOT

_QUIET_S: Final = 5.0  # in which controllers do what is left to do


async def record(folder: Path, commit: str | None) -> None:
    """Play the scene with the older version in a *folder*, write it down, and upgrade."""
    tree = _unpacked(folder / "tree", commit or FOLDER.name)
    async with (
        running_cluster(Options(name="record-upgrade", say=_say)) as cluster,
        AsyncExitStack() as old,
    ):
        await _play(cluster, tree, folder, old)
        _say("the scene is there")
        await asyncio.sleep(_QUIET_S)
        if commit is None:
            manifests = await build(_overlay(tree))
            write(Leftovers(manifests, await collected(cluster)))
            _say(f"written to {FOLDER}")
        new = folder / "new"
        new.mkdir()
        await upgrade(cluster, new, old)
        _say("upgraded: nothing was disturbed")


async def _play(cluster: Cluster, tree: Path, folder: Path, old: AsyncExitStack) -> None:
    await furnish(cluster)
    await apply_all(cluster, await build(_overlay(tree)), webhook_port(cluster))
    # Neither the working directory nor this checkout may come before that tree.
    theirs = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    for part in (WEBHOOK, PODGROUPER):
        await old.enter_async_context(running(cluster, part, folder, theirs))
    async with AsyncExitStack() as scheduler:
        await scheduler.enter_async_context(running(cluster, SCHEDULER, folder, theirs))
        await play(cluster, scheduler)


def _overlay(tree: Path) -> Path:
    return tree / "manifests" / "overlays" / "local"


def _unpacked(folder: Path, commit: str) -> Path:
    """Return the tree of the older version, out of the history."""
    command = ("git", "-c", f"safe.directory={ROOT}", "archive", commit)
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        message = f"{' '.join(command)}: {packed.stderr.decode().strip()}; fetch the whole history"
        raise SystemExit(message)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(record(Path(name), next(iter(sys.argv[1:]), None)))
