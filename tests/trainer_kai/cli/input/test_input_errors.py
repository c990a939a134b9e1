"""The input of `plan` and `simulate`: what is ignored is reported, or refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.jobsets import recorded
from tests.support.workloads.simulate_objects import group, node, pod, queue, trainjob

RUNTIMES = str(ROOT / "manifests" / "examples" / "runtimes.yaml")
UNREAD = (
    "metadata.labels[kai.scheduler/queu]: has no effect: unknown name. Did you mean "
    "kai.scheduler/queue?"
)


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("simulate", tmp_path, capsys)


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("plan", tmp_path, capsys)


def test_a_name_that_no_process_reads_is_reported(simulate: Terminal, plan: Terminal) -> None:
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


def test_a_jobset_is_looked_at_as_its_trainjob_is(simulate: Terminal, plan: Terminal) -> None:
    """Nor is the key read there."""
    one = recorded("torch-distributed")
    one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), "kai.scheduler/queu": "a"}
    file = plan.write("jobset.yaml", one)

    code, out, err = plan.run("-f", file)
    assert (code, err, out.count(f"note: {UNREAD}\n")) == (0, "", 1)
    code, _, err = simulate.run("-f", file)
    assert (code, err.count(UNREAD)) == (0, 1)


def test_notes_of_queues_and_groups_are_reported_too(simulate: Terminal, plan: Terminal) -> None:
    """Those of queues by the scheduler, which tells them in its log as well."""
    one, other = queue("a"), group("g", queue="a")
    one["metadata"]["annotations"] = {"trainer-kai.dev/consolidatoin": "on"}
    other["metadata"]["annotations"] = {"trainer-kai.dev/reservd": "x"}

    code, _, err = simulate.run("-f", simulate.write("a.yaml", one, other, node("n")))

    assert code == 0
    assert err.count("Did you mean trainer-kai.dev/consolidation?") == 1
    assert err.count("Did you mean trainer-kai.dev/reserved?") == 1
    assert "ignored" not in err
    job = plan.write("job.yaml", trainjob("job", "torch-plain", queue="a"), one)
    _, _, err = plan.run("-f", job, "-f", RUNTIMES)
    assert err.count("Did you mean trainer-kai.dev/consolidation?") == 1


def test_what_counts_otherwise_is_not_left_aside(simulate: Terminal) -> None:
    """A queue with a number that is too large is there, one without its parent is not."""
    one, lost = queue("a", 10**30), queue("b", parent="none")

    code, _, err = simulate.run("-f", simulate.write("a.yaml", one, lost, node("n")))

    messages = sorted(err.splitlines())
    assert (code, len(messages)) == (0, 2)
    assert messages[0].startswith("trainer-kai: ignored: Queue b has the parent queue none")
    assert messages[1].startswith("trainer-kai: queue a: spec.resources.gpu.quota is 1e+30")


def test_what_kai_admits_makes_no_input_unusable(simulate: Terminal, plan: Terminal) -> None:
    """Each value is named with what counts in its place; a parent that cannot be is missing."""
    invalid = queue("odd", -2, limit=-3, weight=-1)
    invalid["spec"] |= {"priority": -5.0, "preemptMinRuntime": "soon", "reclaimMinRuntime": "-1s"}
    lost = queue("lost", parent="No Queue")
    bare = {**queue("bare"), "spec": {}}
    waits = group("g", 0, "odd", preemptionDelay="later", schedulingBackoff=7)
    waits["status"] = {"schedulingConditions": [{"nodePool": "default"}]}
    objects = (invalid, lost, bare, waits, pod("p", "g"), group("l", 1, "lost"), pod("q", "l"))

    code, out, err = simulate.run("-f", simulate.write("a.yaml", *objects, node("n")))

    messages = [
        line.removeprefix("trainer-kai: ").partition(" it counts as ") for line in err.splitlines()
    ]
    assert code == 0
    assert "bound to n: default/p" in out
    assert "QueueMissing" in next(it for it in out.splitlines() if it.startswith("default/l"))
    assert [(what.split(": ")[:2], counts) for what, _, counts in messages] == [
        (["queue bare", "spec.resources"], ""),
        (["ignored", "Queue lost has the parent queue No Queue, which does not exist"], ""),
        (["queue odd", "spec.preemptMinRuntime"], "absent"),
        (["queue odd", "spec.reclaimMinRuntime"], "0s"),
        (["queue odd", "spec.resources.gpu.limit"], "-1"),
        (["queue odd", "spec.resources.gpu.overQuotaWeight"], "1"),
        (["queue odd", "spec.resources.gpu.quota"], "-1"),
        (["PodGroup default/g", "spec.preemptionDelay"], "absent"),
    ]
    job = plan.write("job.yaml", trainjob("job", "torch-plain", queue="odd"), invalid)
    assert plan.run("-f", job, "-f", RUNTIMES)[2].count("it counts as") == 5


def test_an_invalid_annotation_is_reported_once(plan: Terminal) -> None:
    """With the TrainJob, whether it gets as far as its JobSet or not."""
    job = trainjob("job", "torch-plain")
    job["metadata"]["labels"] = {"kai.scheduler/preemptibility": "sometimes"}
    job["metadata"]["annotations"] = {"kai.scheduler/preemption-delay": "soon"}

    code, out, err = plan.run("-f", plan.write("job.yaml", job), "-f", RUNTIMES)

    assert (code, err) == (0, "")
    assert out.count("'sometimes' must be") == out.count("'soon' is not a duration") == 1


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
THRICE = "kind: Node\napiVersion: v1\nmetadata: {name: n}\nspec: {}\nspec: {}\nspec: {}\n"
TOO_LONG = '{"apiVersion": "v1", "kind": "Node",\n"spec": ' + "9" * 5000 + "}"
TWICE_IN_JSON = '{"apiVersion": "v1",\n"kind": "Node",\n"kind": "Pod"}'
# name of a file, its text -> what is said of it, beginning with where
BROKEN: list[Case[tuple[str, str], list[str]]] = [
    Case(
        "keys that are there twice, each told once",
        ("a.yaml", TWICE),
        [
            "line 5, column 3: name exists twice, first in line 4",
            "line 7, column 25: cpu exists twice, first in line 7",
        ],
    ),
    Case(
        "the same in JSON",
        ("a.json", TWICE_IN_JSON),
        ["line 3, column 1: kind exists twice, first in line 2"],
    ),
    Case(
        "a key that is there thrice",
        ("a.yaml", THRICE),
        [f"line {line}, column 1: spec exists twice, first in line 4" for line in (5, 6)],
    ),
    Case(
        "keys that are written alike and are two",
        ("a.yaml", "kind: Node\nspec: {1: a, '1': b}\n"),
        ["document 1: spec has a key that is not a string: 1"],
    ),
    Case(
        "a number that nobody can mean",
        ("a.json", TOO_LONG),
        ["is not valid JSON: line 2, column 9: a number must have digits, and at most 4300"],
    ),
    Case(
        "a malformed number is refused",
        ("a.yaml", "spec: {a: 0x_}"),
        ["is not valid YAML: line 1, column 11: a number must have digits, and at most 4300"],
    ),
    Case(
        "JSON that is none",
        ("a.json", '{"a": [}'),
        ["is not valid JSON: line 1, column 8: did not find expected node content"],
    ),
    Case(
        "YAML that is none",
        ("a.yaml", "a: [}"),
        ["is not valid YAML: line 1, column 5: did not find expected node content"],
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_refused(
    case: Case[tuple[str, str], list[str]], simulate: Terminal, plan: Terminal
) -> None:
    """By file, line and key, by both commands."""
    for command in (simulate, plan):
        file = command.write(*case.given)
        code, out, err = command.run("-f", file)
        messages = [line.removeprefix(f"trainer-kai: {file}: ") for line in err.splitlines()]
        assert (code, out, messages[: len(case.want)]) == (2, "", case.want)


def test_what_is_merged_may_be_there_before(simulate: Terminal) -> None:
    """So YAML has it: what stands beside a merge outranks it."""
    text = "x: &x {cpu: 1}\nkind: Node\napiVersion: v1\nmetadata: {name: n}\n"
    more = "status: {allocatable: {<<: *x, cpu: 2}}\n"

    code, _, err = simulate.run("-f", simulate.write("a.yaml", text + more))
    assert (code, "twice" in err) == (0, False)


def test_a_file_of_mistyped_kinds_is_refused(simulate: Terminal, plan: Terminal) -> None:
    """A file of only unknown kinds is an error; beside known kinds they are only reported."""
    foreign = {"apiVersion": "a/v1", "kind": "Foo", "metadata": {"name": "x"}}
    typo = {"apiVersion": "v1", "kind": "Nod", "metadata": {"name": "x"}}
    good = simulate.write("good.yaml", trainjob("job", "torch-plain"), node("n"), queue("team-a"))
    bad = simulate.write("bad.yaml", foreign, typo, foreign)

    for command in (simulate, plan):
        code, out, err = command.run("-f", good, "-f", RUNTIMES, "-f", bad)
        assert (code, out) == (2, "")
        found = (
            "has no known kind: a/v1 Foo (2), v1 Nod; did you mean v1 Node? (1); known kinds are "
        )
        assert f"trainer-kai: {bad}: {found}" in err
    mixed = simulate.write("mixed.yaml", typo, node("m"))
    assert simulate.run("-f", good, "-f", RUNTIMES, "-f", mixed)[0] == 0


MISTYPED = [
    Case(
        "a misspelt kind is named",
        {"apiVersion": "v1", "kind": "Nodes"},
        "v1 Nodes; did you mean v1 Node? (1)",
    ),
    Case(
        "a misspelt group is named",
        {"apiVersion": "trainer.kubeflow.or/v1alpha1", "kind": "TrainJob"},
        "TrainJob; did you mean trainer.kubeflow.org/v1alpha1 TrainJob? (1)",
    ),
    Case("an object without a kind is named", {"apiVersion": "v1"}, "an object without a kind (1)"),
    Case(
        "an object without a version is named",
        {"kind": "TrainJob"},
        "TrainJob without an apiVersion (1)",
    ),
]


@pytest.mark.parametrize("case", MISTYPED, ids=ids)
def test_what_is_taken_for_mistyped(case: Case[dict[str, Any], str], simulate: Terminal) -> None:
    """In a file of its own, among files that are read."""
    good, bad = simulate.write("a.yaml", node("n")), simulate.write("b.yaml", case.given)

    code, out, err = simulate.run("-f", good, "-f", bad)

    assert (code, out) == (2, "")
    assert f"trainer-kai: {bad}: has no known kind: " in err
    assert f"{case.want}; known kinds are " in err


NEEDLESS = (
    ("v1", "Service"),
    ("v1", "Endpoints"),
    ("v1", "PodTemplate"),
    ("apps/v1", "ControllerRevision"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSINode"),
    ("storage.k8s.io/v1", "CSIStorageCapacity"),
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("kueue.x-k8s.io/v1beta1", "Topology"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    ("kai.scheduler/v1", "Config"),
)


def test_who_dumps_a_kind_per_file_may(simulate: Terminal, plan: Terminal) -> None:
    """Unneeded kinds are reported; only if no file has others they are refused, file by file."""
    files = []
    for version, kind in NEEDLESS:
        fields = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
        files += ["-f", simulate.write(f"{kind}.yaml", fields)]
    good = simulate.write("good.yaml", trainjob("job", "torch-plain"), node("n"), queue("team-a"))

    code, _, err = simulate.run("-f", good, "-f", RUNTIMES, *files)
    assert (code, err.count("trainer-kai: ignored: ")) == (0, len(NEEDLESS))
    code, _, err = plan.run("-f", good, "-f", RUNTIMES, *files)
    assert (code, err.count("trainer-kai: ignored: ")) == (0, len(NEEDLESS))
    code, _, err = simulate.run(*files)
    assert (code, err.count(": has no known kind: ")) == (2, len(NEEDLESS))


WHY_NO_PODS = "because an empty cluster is compared: simulate counts pods"


def test_what_is_not_planned_is_reported_in_one_line_for_each_kind(plan: Terminal) -> None:
    """However many there are."""
    job = trainjob("job", "torch-plain")
    file = plan.write("a.yaml", job, pod("a"), group("g"), pod("b"), pod("c"))

    code, _, err = plan.run("-f", file, "-f", RUNTIMES)

    assert (code, err.splitlines()) == (
        0,
        [
            f"trainer-kai: ignored: {file}: Pod default/a and 2 more, {WHY_NO_PODS}",
            f"trainer-kai: ignored: {file}: PodGroup default/g",
        ],
    )


@pytest.mark.parametrize("metadata", [["a"], "abc", 1, [], ""])
@pytest.mark.parametrize("kind", ["SubjectAccessReview", "Node"])
def test_metadata_is_an_object(metadata: object, kind: str, simulate: Terminal) -> None:
    """Whatever else it is, is an error that names it."""
    version = "authorization.k8s.io/v1" if kind == "SubjectAccessReview" else "v1"
    fields = {"apiVersion": version, "kind": kind, "metadata": metadata}
    file = simulate.write("a.yaml", fields, queue("a"))

    code, out, err = simulate.run("-f", file)

    messages = f"trainer-kai: {file}: {kind}: metadata: must be an object with a name\n"
    assert (code, out, err) == (2, "", messages)


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
    other = simulate.write("b.yaml", pod("p", "g"), *reviews)  # the same once more changes nothing

    code, out, err = simulate.run("-f", file, "-f", other)

    assert (code, err) == (0, "")
    assert "ForbiddenQueue" in out


def test_a_queue_that_cannot_be_is_reported_once(simulate: Terminal, plan: Terminal) -> None:
    """It is not missing as well."""
    job = trainjob("job", "torch-plain", queue="Team_B")
    files = ("-f", plan.write("a.yaml", job, node("n"), queue("a")), "-f", RUNTIMES)

    code, out, err = plan.run(*files)
    assert (code, err, out.count("Team_B' must be"), "no such" in out) == (1, "", 1, False)
    code, _, err = simulate.run(*files)
    assert (code, err.count("'Team_B' must be")) == (0, 1)


def test_no_job_makes_more_pods_than_a_cluster_has(simulate: Terminal) -> None:
    """A number with some digits too many would fill the memory."""
    file = simulate.write("a.yaml", trainjob("job", "torch-plain", 2_000_000_000), node("n"))

    code, out, err = simulate.run("-f", file, "-f", RUNTIMES)

    messages = (
        "TrainJob default/job: it would create 2000000000 pods at once, but at most 100000 are "
        "supported"
    )
    assert (code, out) == (2, "")
    assert f"trainer-kai: {messages}\n" in err
