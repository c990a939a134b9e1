"""The demo is the first thing a newcomer runs: it ends well and leaves nothing."""

import asyncio
import os
import re
import sys
import time
from pathlib import Path

from e2e.cluster.binaries import ensure_chain
from e2e.cluster.identity import Identity
from e2e.cluster.registry import Note
from e2e.cluster.tether import tethered


async def test_the_demo_shows_who_waits_and_leaves_nothing(tmp_path: Path) -> None:
    """Piped, it is plain text; it names every pod with its group, and exits 0."""
    (tmp_path / "chain").symlink_to(ensure_chain().folder.parent)
    began = time.monotonic()
    demo = await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-m", "e2e.demo"]),
        env=os.environ | {"TRAINER_KAI_CACHE": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )
    watching = asyncio.create_task(_everyone(tmp_path / "clusters" / "demo", demo))

    output, _ = await demo.communicate()

    text = output.decode()
    assert demo.returncode == 0
    assert time.monotonic() - began <= 60
    assert "\x1b" not in text
    assert text.count("Pending, for kai-scheduler, ") == 8
    assert len(re.findall(r"kai-scheduler, in pg-(?:llm|moe|tune)-", text)) == 8
    assert "does not exist before node is Ready" in text
    assert "2 node + 1 launcher later" in text
    assert "8 pods wait" in text
    everyone = await watching
    assert len(everyone) == 7
    assert [who for who in everyone if who.alive] == []
    assert list((tmp_path / "clusters").iterdir()) == []


async def _everyone(folder: Path, demo: asyncio.subprocess.Process) -> set[Identity]:
    """Return the demo and every program it was ever seen to run."""
    seen: set[Identity] = set()
    while demo.returncode is None:
        for note in _notes(folder):
            seen |= {note.owner, *note.programs.values()}
        await asyncio.sleep(0.05)
    return seen


def _notes(folder: Path) -> list[Note]:
    try:
        return [Note.read(folder)]
    except FileNotFoundError:
        return []
