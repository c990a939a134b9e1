"""`make try`: its files are the demo's objects, and its text says what `simulate` answers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from e2e.cluster.kwok_stages import READY_SECONDS, RUN_SECONDS
from e2e.cluster.nodes import make_nodes
from e2e.demo.scenario import ACTS, NAMESPACE, NODE_BATCHES, TEAMS
from tests.support.case import Case, ids
from tests.support.repository import ROOT
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate
from trainer_kai.cli.input.documents import read_files
from trainer_kai.version import version_text

_FOLDER: Final = ROOT / "docs" / "try"
_CLUSTER: Final = _FOLDER / "cluster.yaml"
_RUNTIMES: Final = ROOT / "tests" / "fixtures" / "runtimes"
_RUNNING: Final = "Running"
_WIDTH: Final = 110
_SIMULATES_WITH: Final = """
import sys
from importlib.metadata import packages_distributions

class Absent:
    owners = packages_distributions()

    def find_spec(self, name, path=None, target=None):
        owners = self.owners.get(name.partition(".")[0])
        if owners and not {it.lower() for it in owners} & {*sys.argv[1].split(",")}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from trainer_kai.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class _Act(NamedTuple):
    """A command of the tour, and the document that it prints with `-o json`."""

    arguments: Sequence[str]
    document: dict[str, Any]

    @property
    def states(self) -> dict[str, str]:
        """Return by TrainJob the reason why it waits, or the phases of its pods."""
        phases: dict[str, set[str]] = {}
        for pod in self.document["pods"]:
            phases.setdefault(pod["name"].partition("-")[0], set()).add(pod["phase"])
        verdicts = {it["name"].split("-")[1]: it["verdict"] for it in self.document["podGroups"]}
        return {job: verdicts[job] or ",".join(sorted(found)) for job, found in phases.items()}

    @property
    def messages(self) -> dict[str, str]:
        """Return by TrainJob the message with its reason."""
        waiting = self.document["cycles"][-1]["unschedulable"]
        return {it["podGroup"].split("-")[1]: it["message"] for it in waiting}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[list[str]]]:
    """Return what the tour prints of itself, and the arguments of each command that it runs."""
    folder = tmp_path_factory.mktemp("try")
    program, calls = folder / "trainer-kai", folder / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    text = subprocess.run(
        ["bash", _FOLDER / "tour.sh", program], check=True, capture_output=True, text=True
    ).stdout
    return (
        text.replace(str(program), ".try/bin/trainer-kai"),
        [line.split() for line in calls.read_text().splitlines()],
    )


@pytest.fixture(scope="module")
def acts(printed: tuple[str, list[list[str]]]) -> list[_Act]:
    """Return the three commands with their documents."""
    return [_Act(arguments, _simulated(arguments)) for arguments in printed[1]]


def _simulated(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the document of a command line."""
    assert arguments[0] == "simulate"
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    files = [b for a, b in zip(arguments[1::2], arguments[2::2], strict=True) if a == "-f"]
    assert {*options} <= {"-f", "--cycles"}
    return _documents_of(*(ROOT / it for it in files), cycles=int(options.get("--cycles", "1")))


def _documents_of(*files: Path, cycles: int = 1) -> dict[str, Any]:
    objects = [it.fields for it in read_files(map(str, files))]
    return simulate(objects, SimulationOptions(cycles=cycles))


def _of_kind(kind: str, *names: str) -> dict[str, dict[str, Any]]:
    objects = (it.fields for it in read_files(str(_FOLDER / name) for name in names))
    return {it["metadata"]["name"]: it for it in objects if it["kind"] == kind}


def test_its_nodes_are_those_of_the_demo() -> None:
    """By name, size and pool; and the two that it adds are as large."""
    demo = [
        node
        for prefix, count, shape in NODE_BATCHES
        for node in make_nodes(count, shape, prefix=prefix)
    ]
    more = _of_kind("Node", "more-nodes.yaml")

    assert _sizes(_of_kind("Node", "cluster.yaml").values()) == _sizes(demo)
    assert [*_sizes(more.values()).values()] == [_sizes(demo)["node-0"]] * 2


def _sizes(nodes: Any) -> dict[str, tuple[dict[str, str], str]]:
    return {
        it["metadata"]["name"]: (
            {name: str(amount) for name, amount in it["status"]["allocatable"].items()},
            it["metadata"].get("labels", {}).get("pool", ""),
        )
        for it in nodes
    }


def test_its_queues_are_those_of_the_demo() -> None:
    """With the same quotas, limits, weights and parents."""
    shown = {name: it["spec"] for name, it in _of_kind("Queue", "cluster.yaml").items()}

    assert shown == {it["metadata"]["name"]: it["spec"] for it in TEAMS}


def test_its_trainjobs_are_those_of_the_demo() -> None:
    """All nine, without the annotations that say how long a simulated pod runs."""
    shown = _of_kind("TrainJob", "first.yaml", "second.yaml")
    demo = [task.submission.trainjob() for step in ACTS for task in step.tasks]

    assert {name: _essence(it) for name, it in shown.items()} == {
        it["metadata"]["name"]: _essence(it) for it in demo
    }
    assert len(shown) == 9


def _essence(trainjob: dict[str, Any]) -> tuple[Any, ...]:
    """Return labels, namespace, runtime, trainer and patched pods of a TrainJob."""
    metadata, spec = trainjob["metadata"], trainjob["spec"]
    pods = [
        (job["name"], template)
        for patch in spec.get("runtimePatches", ())
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        if (template := _without_times(job["template"]["spec"]["template"]))
    ]
    namespace = metadata.get("namespace", NAMESPACE)
    return metadata["labels"], namespace, spec["runtimeRef"]["name"], spec["trainer"], pods


def _without_times(template: dict[str, Any]) -> dict[str, Any]:
    annotations = {
        name: value
        for name, value in template["metadata"]["annotations"].items()
        if name not in {RUN_SECONDS, READY_SECONDS}
    }
    kept = {"metadata": {"annotations": annotations}} if annotations else {}
    return kept | ({"spec": template["spec"]} if "spec" in template else {})


def test_what_runs_in_the_second_act_is_what_the_first_has_started(acts: list[_Act]) -> None:
    """The pods in running.yaml are on the same nodes and GPUs, in the same queues."""
    first = acts[0].document
    running = _documents_of(_CLUSTER, _FOLDER / "running.yaml")

    for field in ("pods", "queues", "nodes"):
        assert running[field] == first[field]
    assert [*_queues(running)] == [*_queues(first)]


def _queues(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    return ((it["name"], it["queue"]) for it in document["podGroups"])


def test_the_first_trainjobs_all_start(acts: list[_Act]) -> None:
    """Among them that of guests."""
    assert acts[0].states == dict.fromkeys(("chat", "embed", "llm", "night"), _RUNNING)


def test_the_second_act_evicts_night_and_explains_who_waits(acts: list[_Act]) -> None:
    """As the text of the tour says beforehand."""
    act = acts[1]
    first_cycle = act.document["cycles"][0]

    assert act.states == {
        **dict.fromkeys(("chat", "embed", "llm", "moe", "tune"), _RUNNING),
        **dict.fromkeys(("draft", "eval", "night"), "NoCapacity"),
        "sft": "ExceedsLimit",
    }
    assert [(it["pod"], it["action"]) for it in first_cycle["evictions"]] == [
        ("night-node-0-0", "reclaim"),
        ("night-node-0-1", "reclaim"),
    ]
    assert {it["reason"].partition(" gets")[0] for it in first_cycle["evictions"]} == {
        "default/pg-moe-UID"
    }
    assert [it["subGroup"] for it in first_cycle["reservations"]] == ["launcher-replica-0"]
    assert "at most 4 GPU on one node" in act.messages["eval"]
    assert "0.1 of a GPU free on small-0" in act.messages["draft"]


def test_two_more_nodes_start_eval_and_not_sft(acts: list[_Act]) -> None:
    """It waits for the limit of its queue, beside an idle node."""
    before, after = acts[1].states, acts[2].states

    assert {job: state for job, state in after.items() if before[job] != state} == {
        "eval": _RUNNING
    }
    assert 8 in [it["idleGpus"] for it in acts[2].document["nodes"]]
    assert acts[2].arguments == [*acts[1].arguments, "-f", "docs/try/more-nodes.yaml"]


def test_the_tour_prints_each_command_as_it_runs_it(
    printed: tuple[str, list[list[str]]],
) -> None:
    """Line by line, to be copied, and no wider than a terminal."""
    text, commands = printed
    shown = re.findall(r"^\$ (?:.*\\\n)*.*$", text, re.MULTILINE)

    assert [line.replace("\\\n", "").split()[2:] for line in shown] == commands
    assert [line for line in text.splitlines() if len(line) > _WIDTH] == []


def test_what_is_installed_is_enough(printed: tuple[str, list[list[str]]]) -> None:
    """The packages that install.sh takes from the lock are all that the commands import."""
    listed = re.search(r"/\^\((.*)\)==/", (_FOLDER / "install.sh").read_text())
    assert listed
    packages = listed[1].split("|")
    locked = re.findall(
        r"^([\w-]+)==", (ROOT / "requirements-image.lock").read_text(), re.MULTILINE
    )
    arguments = [",".join(packages), *printed[1][1], "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-c", _SIMULATES_WITH, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert {*packages} <= {*locked}
    assert json.loads(done.stdout)["schema"]


_ONLY: Final = "only plan and simulate run in .try; for all commands: pip install"
# the arguments of the program -> its exit code, and the last line of what it prints
_CALLS: list[Case[str, tuple[int, str]]] = [
    Case("help", "--help", (0, f"Here {_ONLY} ROOT")),
    Case("the version", "--version", (0, version_text(sys.version_info))),
    Case("a command that needs more packages", "why x", (2, f"trainer-kai: {_ONLY} ROOT")),
    Case("no command", "", (2, f"trainer-kai: {_ONLY} ROOT")),
    Case(
        "a command",
        "plan -f gone.yaml",
        (2, "trainer-kai: gone.yaml: cannot be read: No such file or directory"),
    ),
]


@pytest.mark.parametrize("case", _CALLS, ids=ids)
def test_the_program_runs_from_any_folder(case: Case[str, tuple[int, str]], tmp_path: Path) -> None:
    """Through a link as well, and not with the modules of the folder where it is called."""
    _, _, script = (_FOLDER / "install.sh").read_text().partition("<< 'END'\n")
    root, here = tmp_path / "checkout", tmp_path / "here"
    here.mkdir()
    (here / "argparse.py").write_text("raise SystemExit('the module of another folder')")
    (root / ".try" / "bin").mkdir(parents=True)
    (root / "trainer_kai").symlink_to(ROOT / "trainer_kai")
    for name, text in (
        ("trainer-kai", script.partition("\nEND\n")[0]),
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        program = root / ".try" / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    (here / "tk").symlink_to(root / ".try" / "bin" / "trainer-kai")
    done = subprocess.run(
        ["./tk", *case.given.split()], cwd=here, capture_output=True, text=True, check=False
    )

    code, line = case.want
    lines = f"{done.stdout}{done.stderr}".splitlines()
    assert (done.returncode, lines[-1]) == (code, line.replace("ROOT", str(root)))
