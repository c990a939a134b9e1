"""What `plan` and `simulate` are given: what nobody would miss is told, or refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.terminal import Terminal
from tests.support.tree import ROOT
from tests.support.world import group, node, pod, queue, trainjob

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


TWICE = """\
apiVersion: v1
kind: Node
metadata:
  name: n
  name: m
status: &s
  allocatable: {cpu: 1, cpu: 2}
again: *s
"""
TWICE_IN_JSON = '{"apiVersion": "v1",\n"kind": "Node",\n"kind": "Pod"}'
# name of a file, its text -> what is said of it, beginning with where
BROKEN: list[Case[tuple[str, str], list[str]]] = [
    Case(
        "keys that are there twice, each told once",
        ("a.yaml", TWICE),
        [
            "line 5, column 3: name is there twice, first in line 4",
            "line 7, column 25: cpu is there twice, first in line 7",
        ],
    ),
    Case(
        "the same in JSON",
        ("a.json", TWICE_IN_JSON),
        ["line 3, column 1: kind is there twice, first in line 2"],
    ),
    Case(
        "JSON that is none",
        ("a.json", '{"a": [}'),
        ["is no JSON: line 1, column 8: did not find expected node content"],
    ),
    Case(
        "YAML that is none",
        ("a.yaml", "a: [}"),
        ["is no YAML: line 1, column 5: did not find expected node content"],
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_refused(
    case: Case[tuple[str, str], list[str]], simulate: Terminal, plan: Terminal
) -> None:
    """By file, line and key, by whoever reads it."""
    for command in (simulate, plan):
        file = command.write(*case.given)
        code, out, err = command.run("-f", file)
        told = [line.removeprefix(f"trainer-kai: {file}: ") for line in err.splitlines()]
        assert (code, out, told[: len(case.want)]) == (2, "", case.want)


def test_what_is_merged_may_be_there_before(simulate: Terminal) -> None:
    """So YAML has it: what stands beside a merge outranks it."""
    text = "x: &x {cpu: 1}\nkind: Node\napiVersion: v1\nmetadata: {name: n}\n"
    more = "status: {allocatable: {<<: *x, cpu: 2}}\n"

    code, _, err = simulate.run("-f", simulate.write("a.yaml", text + more))
    assert (code, "twice" in err) == (0, False)


def test_a_file_of_unknown_kinds_is_refused(simulate: Terminal, plan: Terminal) -> None:
    """Whoever names it wants it to be read; what is known and not needed is another thing."""
    foreign = {"apiVersion": "a/v1", "kind": "Foo", "metadata": {"name": "x"}}
    typo = {"apiVersion": "v1", "kind": "Nod", "metadata": {"name": "x"}}
    good = simulate.write("good.yaml", trainjob("job", "torch-plain"), node("n"), queue("team-a"))
    bad = simulate.write("bad.yaml", foreign, typo, foreign)

    for command in (simulate, plan):
        code, out, err = command.run("-f", good, "-f", RUNTIMES, "-f", bad)
        assert (code, out) == (2, "")
        found = "no kind in it is known: a/v1 Foo (2), v1 Nod; there is v1 Node (1); there are "
        assert f"trainer-kai: {bad}: {found}" in err
    mixed = simulate.write("mixed.yaml", foreign, node("m"))
    assert simulate.run("-f", good, "-f", RUNTIMES, "-f", mixed)[0] == 0


def test_what_is_not_planned_is_told_in_one_line_for_each_kind(plan: Terminal) -> None:
    """However many there are."""
    job = trainjob("job", "torch-plain")
    file = plan.write("a.yaml", job, pod("a"), group("g"), pod("b"), pod("c"))

    code, _, err = plan.run("-f", file, "-f", RUNTIMES)

    assert (code, err.splitlines()) == (
        0,
        [
            f"trainer-kai: left out: {file}: Pod default/a and 2 more",
            f"trainer-kai: left out: {file}: PodGroup default/g",
        ],
    )


@pytest.mark.parametrize("metadata", [{}, {"metadata": {"creationTimestamp": None}}])
def test_a_review_needs_no_name(metadata: dict[str, Any], simulate: Terminal) -> None:
    """The API server neither names nor keeps them."""
    what = {"verb": "use", "group": "scheduling.run.ai", "resource": "queues", "name": "a"}
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            **metadata,
            "spec": {
                "groups": [f"system:serviceaccounts:{space}"],
                "resourceAttributes": {**what, "namespace": space},
            },
            "status": {"allowed": False},
        }
        for space in ("default", "other")
    ]
    file = simulate.write("a.yaml", *reviews, node("n"), queue("a"), group("g", queue="a"))
    other = simulate.write("b.yaml", pod("p", "g"))

    code, out, err = simulate.run("-f", file, "-f", other)

    assert (code, err) == (0, "")
    assert "ForbiddenQueue" in out


def test_a_queue_that_cannot_be_is_told_once(simulate: Terminal, plan: Terminal) -> None:
    """It is not missing as well."""
    job = trainjob("job", "torch-plain", queue="Team_B")
    files = ("-f", plan.write("a.yaml", job, node("n"), queue("a")), "-f", RUNTIMES)

    code, out, err = plan.run(*files)
    assert (code, err, out.count("Team_B' must be"), "no such" in out) == (1, "", 1, False)
    code, _, err = simulate.run(*files)
    assert (code, err.count("'Team_B' must be")) == (0, 1)


def test_nobody_makes_more_pods_than_a_cluster_has(simulate: Terminal) -> None:
    """A number with some digits too many would fill the memory."""
    file = simulate.write("a.yaml", trainjob("job", "torch-plain", 2_000_000_000), node("n"))

    code, out, err = simulate.run("-f", file, "-f", RUNTIMES)

    told = "TrainJob default/job: it would make 2000000000 pods at once, and 100000 are the most"
    assert (code, out) == (2, "")
    assert f"trainer-kai: {told}: ask for fewer\n" in err
