"""The demo is the first thing a newcomer runs: it ends well, says what is so, leaves nothing."""

import asyncio
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import ClientError

from e2e.cluster.api import Api
from e2e.cluster.binaries import ensure_built
from e2e.cluster.commands import credentials
from e2e.cluster.process_identity import Identity
from e2e.cluster.registry import Note
from e2e.cluster.resources import PODS, TRAINJOBS
from e2e.cluster.tether import tethered
from e2e.cluster.timeline import Gap, Moment, Timeline, replay
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP
from trainer_kai.api.names import JOBSET_NAME

_JOBS = ("night", "llm", "moe", "tune", "sft", "eval")
_RESERVED = "trainer-kai.dev/reserved"
_EVICTED_BY = "trainer-kai.dev/evicted-by"


class _Run(NamedTuple):
    """What came of a demo: what it said, what happened on its chain, and who took part."""

    status: int | None
    text: str
    moments: list[Moment]
    processes: set[Identity]


async def test_the_demo_ends_with_everything_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piped, it is plain text; who waited was told why, and nobody is left."""
    (tmp_path / "chain").symlink_to(ensure_built().folder.parent)
    monkeypatch.setenv("TRAINER_KAI_CACHE", str(tmp_path))
    run = await _run(tmp_path / "clusters" / "demo")

    assert run.status == 0, run.text
    assert "\x1b" not in run.text
    for job in _JOBS:
        assert re.search(rf"^ {job} .* Complete *$", run.text, re.MULTILINE), run.text
    [took_s] = re.findall(r"All 6 TrainJobs are Complete after ([0-9.]+) s", run.text)
    assert float(took_s) <= 90
    assert re.search(r" night +leaves +default/moe gets its resources", run.text), run.text
    assert _was_nominated(run.moments, "moe", at_the_cost_of="night")
    assert "ExceedsLimit" in _messages(run.moments, "sft")
    assert "NoCapacity" in _messages(run.moments, "eval")
    _check_the_launcher(run.moments)
    assert len(run.processes) == 7
    assert [who for who in run.processes if who.alive] == []
    assert list((tmp_path / "clusters").iterdir()) == []


def _was_nominated(moments: Iterable[Moment], job: str, *, at_the_cost_of: str) -> bool:
    """Look for when its pods had nodes to come to, none was there yet, and another was to leave.

    It may last too short a time to be told in a verdict.
    """
    for _, state in replay(sorted(moments, key=lambda it: it.version)):
        mine = [
            obj
            for key, obj in state.items()
            if key.resource == PODS and obj["metadata"]["labels"].get(JOBSET_NAME) == job
        ]
        podsets = [
            _EVICTED_BY in obj["metadata"].get("annotations", {})
            for key, obj in state.items()
            if key.resource == TRAINJOBS and key.name == at_the_cost_of
        ]
        is_promised = any("nominatedNodeName" in pod["status"] for pod in mine)
        if is_promised and podsets == [True] and not any("nodeName" in it["spec"] for it in mine):
            return True
    return False


def _check_the_launcher(moments: Iterable[Moment]) -> None:
    """Its node was held for it before it was made, and is where it ran."""
    held, ran_on = "", ""
    for moment, state in replay(sorted(moments, key=lambda it: it.version)):
        if moment.key.resource == PODGROUPS and moment.key.name.startswith("pg-moe-"):
            reserved_places = moment.obj["metadata"]["annotations"].get(_RESERVED, "")
            launchers = [key for key in state if key.name.startswith("moe-launcher-")]
            held = reserved_places if reserved_places and not launchers else held
        if moment.key.name.startswith("moe-launcher-"):
            ran_on = moment.obj["spec"].get("nodeName", ran_on)
    assert ran_on
    assert f'"launcher-replica-0":{{"nodes":{{"{ran_on}":1}},"cause":"anticipated"}}' in held


def _messages(moments: Iterable[Moment], job: str) -> set[str]:
    """Return every verdict that a TrainJob was given while no pod of it had a node."""
    reasons = set()
    for moment, state in replay(sorted(moments, key=lambda it: it.version)):
        if moment.key.resource != PODGROUPS or not moment.key.name.startswith(f"pg-{job}-"):
            continue
        pods = [obj for key, obj in state.items() if key.resource == PODS]
        mine = [it for it in pods if it["metadata"]["annotations"].get(PODGROUP) == moment.key.name]
        for condition in moment.obj.get("status", {}).get("schedulingConditions") or ():
            assert mine
            if not any("nodeName" in pod["spec"] for pod in mine):
                reasons.add(condition["reasons"][-1]["reason"])
    return reasons


async def _run(folder: Path) -> _Run:
    """Run the demo to its end, and watch its chain with an administrator's eyes."""
    demo = await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-m", "e2e.demo"]),
        stdout=asyncio.subprocess.PIPE,
    )
    watching = asyncio.create_task(_all_processes(folder, demo))
    lines: list[str] = []
    await _read(demo, lines, until="TrainJob ")
    async with Api.connect(credentials(Note.read(folder))) as api:
        seen = Timeline(api, (TRAINJOBS, PODS, PODGROUPS))
        with suppress(ClientError, Gap):  # in the end its API server ends, too
            async with seen:
                await _read(demo, lines)
    return _Run(await demo.wait(), "".join(lines), seen.moments, await watching)


async def _read(demo: asyncio.subprocess.Process, lines: list[str], until: str = "\0") -> None:
    assert demo.stdout is not None
    async for line in demo.stdout:
        lines.append(line.decode())
        if until in lines[-1]:
            return


async def _all_processes(folder: Path, demo: asyncio.subprocess.Process) -> set[Identity]:
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
