"""What `plan` and `simulate` are given: what nobody would miss is told, or refused."""

from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.tree import ROOT
from tests.support.world import group, node, queue, trainjob

RUNTIMES = str(ROOT / "manifests" / "examples" / "runtimes.yaml")
UNREAD = (
    "metadata.labels[kai.scheduler/queu]: nobody reads this name; is kai.scheduler/queue meant?"
)


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Return a place to run `simulate` in."""
    return Terminal("simulate", tmp_path, capsys)


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Return a place to run `plan` in."""
    return Terminal("plan", tmp_path, capsys)


def test_a_name_that_nobody_reads_is_told(simulate: Terminal, plan: Terminal) -> None:
    """As admission does: with the TrainJob that is planned, and beside a simulation."""
    job = trainjob("job", "torch-plain")
    job["metadata"]["labels"] = {"kai.scheduler/queu": "team-a"}
    file = plan.write("job.yaml", job)

    code, out, err = plan.run("-f", file, "-f", RUNTIMES)
    assert (code, err) == (0, "")
    assert f"note: {UNREAD}\n" in out
    code, _, err = simulate.run("-f", file, "-f", RUNTIMES)
    assert code == 0
    assert f"trainer-kai: {file}: TrainJob default/job: {UNREAD}\n" in err


def test_notes_of_queues_and_groups_are_told_too(simulate: Terminal) -> None:
    """Those of queues by the scheduler, which tells them in its log as well."""
    one, other = queue("a"), group("g", queue="a")
    one["metadata"]["annotations"] = {"trainer-kai.dev/consolidatoin": "on"}
    other["metadata"]["annotations"] = {"trainer-kai.dev/reservd": "x"}

    code, _, err = simulate.run("-f", simulate.write("a.yaml", one, other, node("n")))

    assert code == 0
    assert err.count("is trainer-kai.dev/consolidation meant?") == 1
    assert err.count("is trainer-kai.dev/reserved meant?") == 1


def test_a_wish_that_cannot_be_meant_is_told_once(plan: Terminal) -> None:
    """With the TrainJob, whether it gets as far as its JobSet or not."""
    job = trainjob("job", "torch-plain")
    job["metadata"]["labels"] = {"kai.scheduler/preemptibility": "sometimes"}
    job["metadata"]["annotations"] = {"kai.scheduler/preemption-delay": "soon"}

    code, out, err = plan.run("-f", plan.write("job.yaml", job), "-f", RUNTIMES)

    assert (code, err) == (0, "")
    assert out.count("'sometimes' must be") == out.count("'soon' is no duration") == 1
