"""The demo ends well, also with killed processes; what it says is true; it leaves nothing."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import ClientError

from e2e.cluster.api import Api
from e2e.cluster.binaries import ensure_built
from e2e.cluster.commands import credentials
from e2e.cluster.kubeconfig import ADMIN
from e2e.cluster.paths import programs_root
from e2e.cluster.patience import patience, slowdown
from e2e.cluster.process_identity import Identity
from e2e.cluster.registry import Note
from e2e.cluster.resources import PODS, TRAINJOBS
from e2e.cluster.tether import tethered
from e2e.cluster.timeline import Gap, Moment, Timeline, replay
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP
from tests.support.repository import ROOT
from trainer_kai.api.names import EVICTED_BY, JOBSET_NAME, RESERVED

_JOBS = ("night", "chat", "embed", "llm", "draft", "moe", "tune", "sft", "eval")
_KILLED = ("webhook", "podgrouper", "scheduler")  # while the demo is held
_MIDDLE = (  # of the play: night was evicted, and both wait with a reason
    "moe    starts",
    "sft    waits     stage 1/1, 0 of 1 pods  ExceedsLimit",
    "eval   waits     stage 1/1, 0 of 1 pods  NoCapacity",
)
_PAGE = ROOT / "docs" / "demo.md"


class _Run(NamedTuple):
    """A demo that ended: its output, what happened on its chain, and its processes."""

    status: int | None
    text: str
    moments: list[Moment]
    processes: set[Identity]


async def test_the_demo_ends_with_everything_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piped, it is plain text; a process that is killed is started again; no process is left."""
    (tmp_path / "programs").symlink_to(programs_root())
    monkeypatch.setenv("TRAINER_KAI_CACHE", str(tmp_path))
    picture = tmp_path / "pictures" / "demo.svg"
    run = await _run(tmp_path / "clusters" / "demo", picture)

    assert run.status == 0, run.text
    assert "\x1b" not in run.text
    for job in _JOBS:
        assert re.search(rf"^ {job} .* Complete *$", run.text, re.MULTILINE), run.text
    assert "All 9 TrainJobs are Complete after " in run.text
    assert re.search(r" night +evicted +default/moe gets its resources", run.text), run.text
    assert _was_nominated(run.moments, "moe", at_the_cost_of="night")
    assert "ExceedsLimit" in _messages(run.moments, "sft")
    assert "NoCapacity" in _messages(run.moments, "eval")
    _check_the_launcher(run.moments)
    _check_the_shared_gpu(run.text)
    assert f"The run as a picture: {picture}" in run.text
    _check_the_picture(picture.read_text(), run.moments)
    assert len(run.processes) == 7
    _check_waits(run)
    assert run.text.count("signal SIGKILL; it is started again") == 1 + len(_KILLED), run.text
    assert [it for it in run.processes if it.alive] == []
    assert list((tmp_path / "clusters").iterdir()) == []


def _was_nominated(moments: Iterable[Moment], job: str, *, at_the_cost_of: str) -> bool:
    """Look for a moment at which its pods are nominated, none is bound, and the victim is evicted.

    It may be too short for a condition.
    """
    for _, state in replay(sorted(moments, key=lambda it: it.version)):
        mine = [
            obj
            for key, obj in state.items()
            if key.resource == PODS and obj["metadata"]["labels"].get(JOBSET_NAME) == job
        ]
        podsets = [
            EVICTED_BY in obj["metadata"].get("annotations", {})
            for key, obj in state.items()
            if key.resource == TRAINJOBS and key.name == at_the_cost_of
        ]
        is_promised = any("nominatedNodeName" in pod["status"] for pod in mine)
        if is_promised and podsets == [True] and not any("nodeName" in it["spec"] for it in mine):
            return True
    return False


def _check_the_launcher(moments: Iterable[Moment]) -> None:
    """See that the launcher ran on the place that was reserved for it before it existed."""
    reserved, ran_on = "", ""
    for moment, state in replay(sorted(moments, key=lambda it: it.version)):
        if moment.key.resource == PODGROUPS and moment.key.name.startswith("pg-moe-"):
            reserved_places = moment.obj["metadata"]["annotations"].get(RESERVED, "")
            launchers = [key for key in state if key.name.startswith("moe-launcher-")]
            reserved = reserved_places if reserved_places and not launchers else reserved
        if moment.key.name.startswith("moe-launcher-"):
            ran_on = moment.obj["spec"].get("nodeName", ran_on)
    assert ran_on
    assert f'"launcher-replica-0":{{"nodes":{{"{ran_on}":1}},"cause":"anticipated"}}' in reserved


def _check_the_shared_gpu(text: str) -> None:
    """See that two TrainJobs had parts of one device, and that a third one waited for its part."""
    for job, part in (("chat", "0.7"), ("embed", "0.2"), ("draft", "0.2")):
        assert re.search(rf" {job} +runs +.*  {part} of GPU-small-0-0$", text, re.MULTILINE), text
    assert re.search(r" draft +waits +.*NoCapacity: .*0\.1 of a GPU free on small-0", text), text


def _check_the_picture(text: str, moments: Iterable[Moment]) -> None:
    """See that it has every TrainJob, the eviction, the reserved place, and reasons."""
    for told in (*(f">{job}<" for job in _JOBS), "evicted for moe", "moe's launcher"):
        assert told in text
    for job in ("sft", "eval"):  # which of its reasons held longest depends on the machine
        given = re.findall(rf"\b{job} waits from \d+ to \d+ s: (\w+)", text)
        assert set(given) & _messages(moments, job)


def _messages(moments: Iterable[Moment], job: str) -> set[str]:
    """Return every reason that a TrainJob was given while no pod of it had a node."""
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


def _check_waits(run: _Run) -> None:
    """Compare the waits of TrainJobs of one stage with the times on the API server's objects."""
    for job in ("night", "llm", "moe", "sft", "eval"):
        [shown_s] = re.findall(rf"^ {job} +\S+ +([0-9.]+) s ", run.text, re.MULTILINE)
        waits_s = _waits_s(run.moments, job)
        assert len(waits_s) == (2 if job == "night" else 1)
        # Times on objects are whole seconds, and what is shown is late on a slow machine.
        bound_s = (1.0 + slowdown()) * len(waits_s)
        assert float(shown_s) == pytest.approx(sum(waits_s), abs=bound_s), (job, waits_s)
    [night_s] = re.findall(r"^ night +guests +([0-9.]+) s +1 ", run.text, re.MULTILINE)
    assert float(night_s) > 5  # both its waits: the first one is short


def _waits_s(moments: Iterable[Moment], job: str) -> list[float]:
    """Return each time from creation or suspension until a new pod was scheduled."""
    begins: list[str] = []
    waits_s: list[float] = []
    scheduled: set[str] = set()
    for moment in sorted(moments, key=lambda it: it.version):
        metadata = moment.obj["metadata"]
        if moment.key.resource == TRAINJOBS and moment.key.name == job:
            begin = _since(moment, "Suspended") or metadata["creationTimestamp"]
            begins += [begin] if begin not in begins else []
        if moment.key.resource == PODS and metadata["labels"].get(JOBSET_NAME) == job:
            since = _since(moment, "PodScheduled")
            if since and metadata["uid"] not in scheduled and len(waits_s) < len(begins):
                waits_s.append(_seconds(since) - _seconds(begins[-1]))
            scheduled |= {metadata["uid"]} if since else set()
    return waits_s


def _since(moment: Moment, kind: str) -> str:
    """Return since when a condition is true, or ""."""
    conditions = moment.obj.get("status", {}).get("conditions") or ()
    true = [it for it in conditions if it["type"] == kind and it["status"] == "True"]
    return true[0]["lastTransitionTime"] if true else ""


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def _run(folder: Path, picture: Path) -> _Run:
    """Run the demo to its end, kill its processes, and watch its chain as an administrator."""
    process = await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-m", "e2e.demo", "--hold", "--recording", str(picture)]),
        stdout=asyncio.subprocess.PIPE,
    )
    demo = _Demo(process)
    watching = asyncio.create_task(_all_processes(folder, process))
    await demo.read("TrainJob ")
    note = Note.read(folder)
    async with Api.connect(credentials(note)) as api:
        seen = Timeline(api, (TRAINJOBS, PODS, PODGROUPS))
        with suppress(ClientError, Gap):  # in the end its API server ends, too
            async with seen:
                await demo.read(*_MIDDLE)
                demo.kill("scheduler")
                await demo.read("  kill -9 ")  # the last line of what can be tried
                for name in _KILLED:
                    demo.kill(name)
                await demo.read(*(f"{name} is ready again" for name in _KILLED))
                await _try_the_page(note)
                process.terminate()
                await demo.read("\0")  # to its end
    return _Run(await process.wait(), "".join(demo.lines), seen.moments, await watching)


class _Demo:
    """A demo that runs, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.lines: list[str] = []
        self._process = process

    async def read(self, *until: str) -> None:
        """Read its output until it has each of these texts, or to its end."""
        assert self._process.stdout is not None
        begin = len(self.lines)
        async for line in self._process.stdout:
            self.lines.append(line.decode())
            text = "".join(self.lines[begin:])
            if all(it in text for it in until):
                return

    def kill(self, name: str) -> None:
        """Kill the process of this name that the demo printed last."""
        found = re.findall(rf"{name}.*?process ([0-9]+)", "".join(self.lines))
        os.kill(int(found[-1]), signal.SIGKILL)


async def _try_the_page(note: Note) -> None:
    """Run the commands that the page of the demo lists for a held demo, until each succeeds."""
    section = _PAGE.read_text().partition("\n## Your own TrainJob\n")[2].partition("\n## ")[0]
    commands = re.findall(
        r"^    ((?:kubectl|\.venv/bin/trainer-kai) .*?)(?:  .*)?$", section, re.MULTILINE
    )
    assert len(commands) >= 5
    for command in commands:
        async with patience(20):  # `why` fails as long as the TrainJob waits
            while not await _succeeds(command, note):
                await asyncio.sleep(0.5)


async def _succeeds(command: str, note: Note) -> bool:
    path = f"{ensure_built().program('kubectl').parent}:{os.environ['PATH']}"
    kubeconfig = str(note.folder / "kubeconfigs" / f"{ADMIN}.yaml")
    process = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, env=os.environ | {"PATH": path, "KUBECONFIG": kubeconfig}
    )
    return await process.wait() == 0


async def _all_processes(folder: Path, demo: asyncio.subprocess.Process) -> set[Identity]:
    """Return the demo and every program of its chain."""
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
