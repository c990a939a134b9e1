"""The dump of the cluster cache is what `simulate` reads."""

import json
from pathlib import Path

import pytest

from scheduler.shell.main import dump_cluster
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, make_object, node, pod
from trainer_kai.cli.main import main


async def test_simulate_reads_it(
    harness: SchedulerHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What waits in the cluster waits in the simulation, with the same reason."""
    pods = (pod(f"g{i}", "g") for i in range(9))
    job = make_object("TrainJob", "job", spec={"runtimeRef": {"name": "r"}, "suspend": True})
    harness.api.put(node("a"), group("g", minMember=9), *pods, pod("other"), job)
    async with harness.leading():
        await harness.advance(1)
        pieces = [piece async for piece in dump_cluster(harness.cache.cluster)]
    text = b"".join(pieces).decode()
    file = tmp_path / "snapshot.json"
    file.write_text(text)

    kinds = [it["kind"] for it in json.loads(text)["items"]]
    assert sorted(set(kinds)) == ["Node", "Pod", "PodGroup", "Queue", "TrainJob"]
    capsys.readouterr()
    assert main(["simulate", "-f", str(file), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (cycle,) = answer["cycles"]
    assert cycle["binds"] == []
    assert [(it["podGroup"], it["reason"]) for it in cycle["unschedulable"]] == [
        ("g", "NoCapacity")
    ]
