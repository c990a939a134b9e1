"""`trainer-kai plan` beside the nodes, queues and classes that are among its files."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import node, queue

RUNTIME = str(ROOT / "tests" / "fixtures" / "runtimes" / "torch-distributed.yaml")
HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 100}


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return Terminal("plan", tmp_path, capsys)


def trainjob() -> dict[str, Any]:
    labels = {"kai.scheduler/queue": "team-a", "priorityClassName": "urgent"}
    trainer = {"numNodes": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "labels": labels},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }


QUEUE_IS = "note: metadata.labels[kai.scheduler/queue]: queue 'team-a' "
# Objects beside it -> exit code, and the findings below the table.
BOUNDS: list[Case[list[dict[str, Any]], tuple[int, list[str]]]] = [
    Case("nothing to compare it with", [], (0, [])),
    Case("room for all", [node(f"n{i}", gpus=8) for i in range(4)], (0, [])),
    Case(
        "too few nodes",
        [node("n1", gpus=8), node("n2", gpus=8)],
        (1, ["never runs: spec.trainer.numNodes: 4 pods of node must start together, and the 2"]),
    ),
    Case(
        "a limit",
        [queue("team-a", limit=16)],
        (
            1,
            ["never runs: spec.trainer.numNodes: the pods that must start together request 32 GPU"],
        ),
    ),
    Case("the queue, and others", [queue("team-a"), queue("team-b")], (0, [])),
    Case(
        "another queue",
        [queue("team-b")],
        (0, [f"{QUEUE_IS}does not exist. Did you mean 'team-b'?"]),
    ),
    Case(
        "a queue with others below it",
        [queue("team-a"), queue("below", parent="team-a")],
        (
            0,
            [
                (
                    f"{QUEUE_IS}has child queues and cannot hold workloads. Name one of "
                    "the children: below"
                )
            ],
        ),
    ),
    Case(
        "another priority class",
        [{**HIGH, "metadata": {"name": "high"}}],
        (0, ["note: metadata.labels[priorityClassName]: PriorityClass 'urgent' does not exist"]),
    ),
]


@pytest.mark.parametrize("case", BOUNDS, ids=ids)
def test_what_can_never_start_is_reported(
    case: Case[list[dict[str, Any]], tuple[int, list[str]]], terminal: Terminal
) -> None:
    """With the field that says so; kinds that no file has are not checked."""
    code, text, err = terminal.run(
        "-f", terminal.write("job.yaml", trainjob(), *case.given), "-f", RUNTIME
    )
    lines = text.splitlines()[4:]

    expected, beginnings = case.want
    assert (code, err, len(lines)) == (expected, "", len(beginnings))
    assert all(line.startswith(it) for line, it in zip(lines, beginnings, strict=True))
