"""`trainer-kai simulate`: what it prints, what it refuses, and how soon it answers."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import (
    group,
    node,
    pod,
    queue,
    resource_reservation_pod,
    staged_trainjob,
    trainjob,
)
from trainer_kai.api.names import ACCESS

SITE = [
    queue("all", 8),
    queue("team-a", 2, parent="all"),
    queue("team-b", 6, parent="all", limit=8),
    node("node-1", 4),
    node("node-2", 4),
    node("bare", 0),
]
WORK = [
    group("a", 3),
    *(pod(f"a-{i}", "a", 1) for i in range(3)),
    group("b", 2, "team-b"),
    *(pod(f"b-{i}", "b", 4) for i in range(2)),
    group("done", 1),
    pod("done-0", "done", 1, on="node-2", deletionTimestamp="2026-01-05T09:00:00Z"),
]


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("simulate", tmp_path, capsys)


def test_standard_output_holds_one_document(terminal: Terminal) -> None:
    """What is ignored stands on standard error."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    file = terminal.write("a.yaml", *SITE, *WORK, secret)

    code, out, err = terminal.run("-f", file, "-o", "json")

    assert code == 0
    assert json.loads(out)["schema"] == "trainer-kai/simulate/v1"
    assert err.splitlines() == ["trainer-kai: ignored: v1 Secret (1)"]


def test_nothing_is_reported_where_there_is_nothing_to_tell(terminal: Terminal) -> None:
    """All actions that were asked for are built."""
    file = terminal.write("a.yaml", *SITE, *WORK)

    assert terminal.run("-f", file, "--actions", "allocate")[2] == ""


def test_the_same_out_of_many_files_lists_and_forms(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YAML, JSON, a List, lists of one kind, several files, standard input."""
    objects = [*SITE, *WORK]
    expected = terminal.run("-f", terminal.write("a.yaml", *objects), "-o", "json")[1]
    first = terminal.write("1.yaml", *objects[5:])
    second = terminal.write("2.yaml", *objects[:5])
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(whole.encode())))

    assert terminal.run("-f", first, "-f", second, "-o", "json")[1] == expected
    assert terminal.run("-f", "-", "-o", "json")[1] == expected


def test_a_list_of_one_kind_is_read(terminal: Terminal) -> None:
    """The API server leaves the kind out of its items."""
    items = [{"metadata": it["metadata"], "status": it["status"]} for it in SITE[3:]]
    nodes = {"apiVersion": "v1", "kind": "NodeList", "items": items}
    file = terminal.write("a.yaml", nodes)

    assert len(json.loads(terminal.run("-f", file, "-o", "json")[1])["nodes"]) == 3


def test_json_is_not_read_as_yaml(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take fifty times as long."""
    path = terminal.folder / "a.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*SITE, *WORK]}))
    monkeypatch.delattr(yaml, "load_all")

    assert terminal.run("-f", str(path), "-o", "json")[0] == 0


def test_a_snapshot_of_kai_is_read(terminal: Terminal) -> None:
    """As it is downloaded."""
    raw = {"nodes": SITE[3:], "queues": SITE[:3], "pods": [pod("p")], "podGroups": None}
    with zipfile.ZipFile(terminal.folder / "snapshot.zip", "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"rawObjects": raw}))

    code, out, _ = terminal.run("-f", str(terminal.folder / "snapshot.zip"), "-o", "json")

    assert code == 0
    assert len(json.loads(out)["nodes"]) == 3


REFUSED = [
    Case(
        "no cycle at all is refused", ("--cycles", "0"), "--cycles: 0 must be between 1 and 10000"
    ),
    Case("a word as time is refused", ("--now", "today"), "--now: 'today' must be a time such as"),
    Case(
        "a grace period without a unit is refused",
        ("--staleness-grace-period", "60"),
        "--staleness-grace-period: '60' is not a dur",
    ),
    Case(
        "a negative threshold is refused",
        ("--stuck-in-releasing-threshold", "-1s"),
        "--stuck-in-releasing-threshold: '-1s' must not be negative",
    ),
    Case(
        "grace of pods",
        ("--max-termination-grace", "-1h"),
        "--max-termination-grace: '-1h' must not be negative",
    ),
    Case(
        "an unknown action is refused",
        ("--actions", "allocate,x"),
        "--actions: 'x' is unknown; valid names are all",
    ),
    Case(
        "an empty list of actions is refused", ("--actions", ""), "--actions: '' has an empty name"
    ),
    Case(
        "an empty name of an action is refused",
        ("--actions", "allocate,"),
        "--actions: 'allocate,' has an empty name",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_is_refused(case: Case[tuple[str, str], str], terminal: Terminal) -> None:
    """With what would be right, and exit code 2."""
    code, out, err = terminal.run("-f", terminal.write("a.yaml", *SITE), "=".join(case.given))

    assert (code, out) == (2, "")
    assert err.startswith(f"trainer-kai: {case.want}")


def test_every_mistake_is_reported_at_once(terminal: Terminal) -> None:
    """One line for each, with file, kind, name, field and reason."""
    broken = pod("p", labels={"a": "b c"})
    missing = str(terminal.folder / "missing.yaml")
    one = terminal.write("1.yaml", broken, group("g", -2))
    other = terminal.write("2.yaml", broken, resource_reservation_pod(placementStrategy={"gpu": 1}))

    wrong = ("--cycles", "0", "--actions", "allocat")
    code, out, err = terminal.run("-f", missing, "-f", one, "-f", other, *wrong)

    assert (code, out) == (2, "")
    of_options, of_actions, unread, *lines = err.splitlines()
    assert of_options == "trainer-kai: --cycles: 0 must be between 1 and 10000"
    assert of_actions.startswith(
        "trainer-kai: --actions: 'allocat' is unknown; valid names are allocate"
    )
    assert unread == f"trainer-kai: {missing}: cannot be read: No such file or directory"
    assert len(lines) == 4
    assert lines[0].startswith(f"trainer-kai: {one}: Pod default/p: metadata.labels[a]: 'b c' must")
    assert lines[1].startswith(f"trainer-kai: {one}: PodGroup default/g: spec.minMember: -2 must")
    assert lines[2] == (
        f"trainer-kai: {other}: Pod default/p: metadata.name: exists twice, first in {one}"
    )


@pytest.mark.parametrize("text", ["", "---\n"])
def test_files_without_objects_are_refused(text: str, terminal: Terminal) -> None:
    """There would be nothing to say."""
    (terminal.folder / "a.yaml").write_text(text)

    code, _, err = terminal.run("-f", str(terminal.folder / "a.yaml"))

    assert code == 2
    assert "no object found in" in err


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]\n" for i in range(9))
UNREADABLE = [
    Case("a missing file is named", None, ": cannot be read: No such file or directory"),
    Case(
        "a file that is no text is refused", b"\x7fELF\xd0", ": is not UTF-8 text: byte 5 is 0xd0"
    ),
    Case(
        "a list of something else than objects is refused",
        b"{kind: List, items: [1, {}, 2]}",
        ": List: items[0]: must be an object",
    ),
    Case(
        "items that are no list are refused",
        b"{kind: List, items: {}}",
        ": List: items: must be a list, not dict",
    ),
    Case(
        "nothing in a list", b"{kind: PodList, apiVersion: v1, items: null}", "no object found in "
    ),
    Case(
        "a value inside itself is refused",
        b"a: 1\nb: &b {c: *b}",
        ": line 2, column 11: *b is inside the value that it ref",
    ),
    Case(
        "aliases that expand without end are refused",
        BOMB.encode(),
        ": its aliases, such as *a4, expand to too many values",
    ),
    Case(
        "JSON nested too deep is refused",
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        ": line 1, column 1001: it is nested d",
    ),
    Case(
        "YAML nested too deep is refused",
        b"[" * 200_000,
        ": line 1, column 201: it is nested deeper than 200 levels",
    ),
    Case(
        "blocks nested too deep are refused",
        b"- " * 200_000,
        ": line 1, column 401: it is nested deeper than 200 lev",
    ),
]


@pytest.mark.parametrize("case", UNREADABLE, ids=ids)
def test_what_cannot_be_read(case: Case[bytes | None, str], terminal: Terminal) -> None:
    """The message is plain."""
    if case.given is not None:
        (terminal.folder / "a").write_bytes(case.given)

    code, out, err = terminal.run("-f", str(terminal.folder / "a"))

    assert (code, out) == (2, "")
    assert case.want in err


def test_an_alias_is_what_it_stands_for(terminal: Terminal) -> None:
    """One name may stand for one thing here and another one in the next document."""
    text = "kind: List\nitems:\n- &n {kind: Node, apiVersion: v1, metadata: &m {name: n}}\n"
    other = "kind: Node\napiVersion: v1\nmetadata: &n {name: o}\nx: *n\n"

    code, out, _ = terminal.run("-f", terminal.write("a.yaml", text, other), "-o", "json")

    assert code == 0
    assert [it["name"] for it in json.loads(out)["nodes"]] == ["n", "o"]


@pytest.mark.parametrize("data", [b"PK\x03\x04\xf5", b"\xf5\x00", b""])
def test_standard_input_may_be_anything(
    data: bytes, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as bytes, as files are."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    code, _, err = terminal.run("-f", "-")

    assert code == 2
    assert "standard input" in err


def test_what_is_left_aside_is_reported_once(terminal: Terminal) -> None:
    """Both queues are above themselves, by the same way."""
    circle = terminal.write("a.yaml", queue("a", parent="b"), queue("b", parent="a"), node("n"))

    assert terminal.run("-f", circle)[2].count("Queue a is its own ancestor") == 1


def test_what_is_not_looked_at_is_reported(terminal: Terminal) -> None:
    """Otherwise the user would take the result for a decision."""
    pooled = group("pooled")
    pooled["metadata"]["labels"] = {"kai.scheduler/node-pool": "a"}
    file = terminal.write("a.yaml", *SITE, pooled)

    (line,) = terminal.run("-f", file)[2].splitlines()

    assert line.endswith("node-pool has no effect: all nodes are considered for default/pooled")


def test_a_topology_that_does_not_exist_is_waited_for(terminal: Terminal) -> None:
    """As its TrainJob asks for it; nothing is bound, though there is room."""
    job, runtime = staged_trainjob()
    job["metadata"]["annotations"] = {
        "kai.scheduler/topology": "dc",
        "kai.scheduler/topology-required-placement": "rack",
    }

    file = terminal.write("a.yaml", *SITE, job, runtime)
    code, out, err = terminal.run("-f", file)

    (line,) = (it for it in out.splitlines() if it.startswith("default/pg-job"))
    asked = "The topologyConstraint of the PodGroup names Topology dc, which does not exist."
    assert (code, err) == (0, "")
    assert line.endswith(" TopologyUnfit")
    assert asked in " ".join(out.split())
    assert "bound to" not in out


CLASS: dict[str, Any] = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


def test_a_priority_class_that_is_unknown_is_reported(terminal: Terminal) -> None:
    """With what is assumed: of PodGroups, and of single pods, but not of other schedulers' pods."""
    known = {**CLASS, "metadata": {"name": "known"}, "value": 70, "globalDefault": True}
    alone, other = pod("alone"), pod("other")
    alone["spec"]["priorityClassName"] = other["spec"]["priorityClassName"] = "high"
    other["spec"]["schedulerName"] = "default-scheduler"
    groups = [group("a", priorityClassName="high"), group("b", priorityClassName="known")]
    class_name = group("c", priorityClassName="train")

    def message(*objects: Any) -> list[str]:
        file = terminal.write("a.yaml", *SITE, *objects)
        lines = terminal.run("-f", file, "--actions", "allocate")[2].splitlines()
        return [line.removeprefix("trainer-kai: PriorityClass ") for line in lines]

    high, class_note = message(known, *groups, alone, other, class_name)
    assert high == (
        "high is in no file: the priority of default/a and 1 more is assumed to be 70, "
        "but a cluster without it refuses such pods"
    )
    assert class_note == "train is in no file: the priority of default/c is assumed to be 70"
    assert message(class_name) == []  # KAI's own, and the default one


def test_a_terminal_that_cannot_show_a_name_is_no_failure(terminal: Terminal) -> None:
    """What it cannot show is a question mark."""
    file = terminal.write("a.yaml", *SITE, pod("p" * 120))
    program = [sys.executable, "-m", "trainer_kai.cli", "simulate", "-f", file]
    settings = {**os.environ, "PYTHONIOENCODING": "ascii"}

    found = subprocess.run(program, cwd=ROOT, env=settings, check=False, capture_output=True)

    assert found.returncode == 0
    assert b"ppp?" in found.stdout


def test_pods_of_groups_that_are_left_to_others_are_reported(terminal: Terminal) -> None:
    """Otherwise they look like pods of ours without a reason."""
    theirs, bound, alone, unknown_class = (
        pod("b", "a"),
        pod("c", "a", on="node-1"),
        pod("d"),
        pod("e", "a"),
    )
    for it in (theirs, bound, alone):
        it["spec"]["schedulerName"] = "kai-sched"
    del unknown_class["spec"]["schedulerName"]
    labelled = pod("f")
    labelled["metadata"]["labels"] = {"kai.scheduler/queue": "team-a"}
    del labelled["spec"]["schedulerName"]
    pods = (pod("a", "a"), theirs, bound, alone, unknown_class, labelled)
    file = terminal.write("a.yaml", *SITE, group("a"), *pods)

    lines = terminal.run("-f", file, "--actions", "allocate")[2].splitlines()

    ignored, ours = "trainer-kai: ignored: Pod", "scheduler is kai-scheduler"
    named = "with a PodGroup or a queue: spec.schedulerName is"
    assert lines == [
        f"{ignored} default/e and 1 more, {named} default-scheduler, and this {ours}",
        f"{ignored} default/b, {named} kai-sched, and this {ours}",
    ]


def test_without_allocate_simulate_says_that_podgroups_with_room_are_not_bound(
    terminal: Terminal,
) -> None:
    """A PodGroup that there is room for has no reason then."""
    file = terminal.write("a.yaml", *SITE, group("z", 1), pod("z-0", "z"))

    code, _, err = terminal.run("-f", file, "--actions", "reclaim")

    assert code == 0
    assert err.startswith(
        "trainer-kai: without the action allocate, a PodGroup that fits on free resources is not "
    )
    assert terminal.run("-f", file, "--actions", "allocate,reclaim")[2] == ""


def test_an_invalid_annotation_stops_no_plan(terminal: Terminal) -> None:
    """As in a cluster: it is reported, and affects only its object; an empty label names none."""
    invalid = {"kai.scheduler/preemptibility": "sometimes", "kai.scheduler/queue": ""}
    jobs = [trainjob(name, "plain") for name in ("a", "b")]
    for job in jobs:
        job["metadata"]["labels"] = invalid
    lost = pod("lost")
    lost["metadata"]["labels"] = {"kai.scheduler/queue": "Team_B"}
    theirs = group("theirs", queue="Team_C")
    file = terminal.write(
        "a.yaml", *SITE, *WORK, *staged_trainjob(), *jobs, lost, theirs, pod("t", "theirs")
    )

    code, out, err = terminal.run("-f", file, "--actions", "allocate")

    path = "metadata.labels[kai.scheduler/preemptibility]"
    right = "'sometimes' must be 'preemptible' or 'non-preemptible'"
    assert code == 0
    assert f"{file}: TrainJob default/a and 1 more: {path}: {right}" in err
    assert f"{file}: Pod default/lost: metadata.labels[kai.scheduler/queue]: 'Team_B' must" in err
    assert err.count("kai.scheduler/queue") == 1
    assert "Queue Team_C does not exist. It cannot start before queue Team_C" in out


def test_the_flags_of_the_site(terminal: Terminal) -> None:
    """Its default queue, and the name of its scheduler."""
    own_pods, theirs = pod("mine"), pod("theirs")
    own_pods["spec"]["schedulerName"] = "ours"
    file = terminal.write("a.yaml", *SITE, own_pods, theirs)
    site = ("--default-queue", "team-b", "--scheduler-name", "ours")

    found = json.loads(terminal.run("-f", file, "-o", "json", *site)[1])

    assert [it["pod"] for it in found["cycles"][0]["binds"]] == ["mine"]
    assert {it["queue"] for it in found["podGroups"]} == {"team-b"}


def test_a_node_that_is_in_no_file_is_reported(terminal: Terminal) -> None:
    """Once, with the pods that run there; finished pods do not count."""
    pods = [pod("a", "g", on="far"), pod("b", "g", on="away"), pod("c", on="c", phase="Failed")]

    err = terminal.run("-f", terminal.write("a.yaml", *SITE, group("g"), *pods))[2]

    message = "Node away and 1 more are in no file, but pods run there: default/a and 1 more"
    assert err.splitlines()[0] == f"trainer-kai: {message}"


def test_a_closed_queue_that_no_file_grants_is_reported(terminal: Terminal) -> None:
    """A review in no file stops no PodGroup; an answer does, where the queue is closed."""
    closed, free = ({ACCESS: it} for it in ("closed", "open"))
    site = [node("node-1"), queue("team-a", annotations=closed), queue("b", annotations=free)]
    use = {
        "verb": "use",
        "group": "scheduling.run.ai",
        "resource": "queues",
        "namespace": "default",
    }
    accounts = ["system:serviceaccounts:default"]
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"groups": accounts, "resourceAttributes": {**use, "name": name}},
            "status": {"allowed": False},
        }
        for name in ("team-a", "b")
    ]
    groups = [group("g"), pod("g0", "g"), group("h", queue="b"), pod("h0", "h")]

    code, out, err = terminal.run("-f", terminal.write("a.yaml", *site, *groups))
    assert (code, "ForbiddenQueue" in out) == (0, False)
    assert err == (
        "trainer-kai: queue team-a is closed, and no SubjectAccessReview in the input says whether "
        "namespace default may use it: this is assumed\n"
    )
    code, out, err = terminal.run(
        "-f", terminal.write("b.yaml", *site, *groups, *reviews), "-o", "json"
    )
    (cycle,) = json.loads(out)["cycles"]
    assert (code, err) == (0, "")
    assert [it["podGroup"] for it in cycle["unschedulable"]] == ["g"]
    assert [it["pod"] for it in cycle["binds"]] == ["h0"]


def test_the_queue_of_a_pod_on_its_own_is_named(terminal: Terminal) -> None:
    """Also where it does not exist: the sentence below says so."""
    labelled = pod("q", labels={"kai.scheduler/queue": "lost"})

    file = terminal.write("a.yaml", *SITE, pod("p"), labelled)
    groups = json.loads(terminal.run("-f", file, "-o", "json")[1])["podGroups"]

    assert [it["queue"] for it in groups] == ["default-queue", "lost"]


def test_who_is_going_does_not_wait(terminal: Terminal) -> None:
    """It is still on its node."""
    going = pod("p", "g", on="node-1", deletionTimestamp="2026-01-05T09:00:00Z")

    out = terminal.run("-f", terminal.write("a.yaml", *SITE, group("g"), going))[1]

    (line,) = (it for it in out.splitlines() if it.startswith("default/g "))
    assert line.split() == ["default/g", "team-a", "0", "0", "-"]


def test_something_that_waits_is_no_failure(terminal: Terminal) -> None:
    """The document has the rest."""
    file = terminal.write("a.yaml", *SITE, group("z", 1, "none"), pod("z-0", "z"))

    assert terminal.run("-f", file)[0] == 0


def test_other_commands_do_not_wait_for_what_plans() -> None:
    """Nor does its own help: they do not load numpy."""
    program = (
        "import sys; from trainer_kai.cli.main import main\n"
        "try: main(['simulate', '--help'])\n"
        "except SystemExit: sys.exit('numpy' in sys.modules or 'scheduler' in sys.modules)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True
    )

    assert (found.returncode, found.stderr) == (0, b"")
