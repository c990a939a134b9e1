"""Which clusters live on this machine: one run folder each, with a note of who runs in it."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from e2e.cluster.paths import clusters_root, kept_logs_root
from e2e.cluster.process_identity import Identity, identify

_NOTE = "cluster.json"
_KEPT = 10
_ASKED_FOR = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)  # an end, not a failure
_NAMELESS_S = 60.0  # a folder gets its note within a moment, or its maker died


class Note(NamedTuple):
    """What is known of one cluster from its run folder."""

    name: str
    owner: Identity  # the process that holds the cluster and ends it
    by_hand: bool  # started by `up`, not by a test
    ready: bool
    started_at: float
    url: str
    programs: dict[str, Identity]

    @classmethod
    def of_us(cls, name: str, url: str, *, by_hand: bool) -> Self:
        """Return the first note of a cluster held by this process."""
        us = identify(os.getpid())
        assert us is not None
        return cls(name, us, by_hand, ready=False, started_at=time.time(), url=url, programs={})

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return clusters_root() / self.name

    @property
    def state(self) -> str:
        """Return ready, starting, or dead when its owner is gone."""
        if not self.owner.alive:
            return "dead"
        return "ready" if self.ready else "starting"

    def write(self) -> None:
        """Replace the note in the run folder at once and as a whole."""
        partial = self.folder / f".{_NOTE}"
        partial.write_text(json.dumps(self._asdict()))
        partial.replace(self.folder / _NOTE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` wrote."""
        raw = json.loads((folder / _NOTE).read_bytes())
        raw["owner"] = Identity(*raw["owner"])
        raw["programs"] = {name: Identity(*who) for name, who in raw["programs"].items()}
        return cls(**raw)


def known() -> Mapping[str, Note]:
    """Return every cluster that has a run folder with a note, by name."""
    notes = {}
    for file in sorted(clusters_root().glob(f"*/{_NOTE}")):
        with contextlib.suppress(FileNotFoundError):  # it went down while we looked
            notes[file.parent.name] = Note.read(file.parent)
    return notes


class RunFolder:
    """The folder of one running cluster; `with` makes it and removes it.

    When it is left by an error, or with `keep_logs` set, the logs in it are kept elsewhere.
    """

    def __init__(self, wish: str) -> None:
        self.name = wish  # with a number when the wish is taken
        self.keep_logs = False

    @property
    def path(self) -> Path:
        """Return where it is."""
        return clusters_root() / self.name

    def __enter__(self) -> Self:
        self.name = _make_free_folder(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failed = kind is not None and not issubclass(kind, _ASKED_FOR)
        if (failed or self.keep_logs) and (self.path / "logs").is_dir():
            print(f"the logs of {self.name} are in {_keep_logs(self.path)}", file=sys.stderr)
        remove(self.path)


def _make_free_folder(wish: str) -> str:
    clusters_root().mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        name = wish if number == 1 else f"{wish}-{number}"
        try:
            (clusters_root() / name).mkdir()
        except FileExistsError:
            continue
        return name
    message = f"a thousand clusters are called {wish}: `down --all` ends them"
    raise RuntimeError(message)


def _keep_logs(folder: Path) -> Path:
    """Copy the logs of a run to where they survive it; drop the oldest kept ones."""
    root = kept_logs_root()
    root.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = root / f"{stamp}-{folder.name}-{os.getpid()}"
    shutil.copytree(folder / "logs", kept, dirs_exist_ok=True)
    for old in sorted(root.iterdir())[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def sweep() -> None:
    """Remove the run folders of clusters whose owner is gone; the kernel ended their processes."""
    root = clusters_root()
    for folder in root.iterdir() if root.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # somebody else removed it meanwhile
            if folder.is_dir() and _is_abandoned(folder):
                remove(folder)


def remove(folder: Path) -> None:
    """Remove a run folder and all in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Say whether nobody holds a run folder and nothing runs in it."""
    if not (folder / _NOTE).exists():
        return time.time() - folder.stat().st_mtime > _NAMELESS_S
    note = Note.read(folder)
    return note.state == "dead" and not any(who.alive for who in note.programs.values())
