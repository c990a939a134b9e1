"""`trainer-kai plan`: what it prints is what would happen, and bad input has plain messages."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.jobsets import RUNTIMES, recorded

FIXTURES = ROOT / "tests" / "fixtures" / "runtimes"
DEEPSPEED = "deepspeed-distributed"
TORCH = "torch-distributed"
TORCHTUNE = "torchtune-llama3.2-1b"
_PODS = 3


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return Terminal("plan", tmp_path, capsys)


def runtime(name: str) -> str:
    return str(FIXTURES / f"{name}.yaml")


def trainjob(runtime: str, nodes: int = 4, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", **metadata},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes}},
    }


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_shipped_runtime_is_planned(name: str, terminal: Terminal) -> None:
    """The table names each PodGroup; JSON has the PodGroups as they will be applied."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    file = terminal.write("job.yaml", trainjob(name), space)

    code, table, err = terminal.run("-f", file, "-f", runtime(name))
    assert (code, err) == (0, "")
    assert table.startswith(f"TrainJob default/job   runtime ClusterTrainingRuntime {name}   queue")
    code, text, _ = terminal.run("-f", file, "-f", runtime(name), "-o", "json")
    (plan,) = json.loads(text)["plans"]
    assert code == 0
    assert len(plan["podGroups"]) == len(plan["manifests"]) == table.count("\n") - 3 > 0


def test_stages_and_later_members_are_reported(terminal: Terminal) -> None:
    """The order of the stages, anticipated SubGroups, and the requests."""
    file = terminal.write("jobs.yaml", trainjob(TORCHTUNE), trainjob(DEEPSPEED))

    _, text, _ = terminal.run("-f", file, "-f", runtime(TORCHTUNE), "-f", runtime(DEEPSPEED))
    lines = text.splitlines()
    assert any("pg-job-UID-node" in it and "model-initializer Complete" in it for it in lines)
    assert any("pg-job-UID " in it and "3 node + 1 launcher later" in it for it in lines)


def test_an_unknown_field_is_reported(terminal: Terminal) -> None:
    """With the nearest name; it is left out, and a missing file hides no other mistake."""
    job = trainjob(DEEPSPEED)
    job["spec"]["trainer"] = {"numNode": 2}
    file = terminal.write("job.yaml", job)

    code, _, err = terminal.run("-f", file, "-f", runtime(DEEPSPEED))
    remark = "spec.trainer.numNode: is not a known field and is ignored; did you mean numNodes?"
    assert (code, err) == (0, f"trainer-kai: {file}: TrainJob default/job: {remark}\n")
    other = terminal.write("other.yaml", trainjob(""))
    code, _, err = terminal.run("-f", "missing", "-f", other)
    assert code == 2
    assert "missing: cannot be read" in err
    assert f"{other}: TrainJob default/job: spec.runtimeRef.name: is missing" in err


def test_the_queue_says_where_it_comes_from(terminal: Terminal) -> None:
    """The label of a TrainJob outranks the namespace's, and that the default."""
    label = {"kai.scheduler/queue": "team-a"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}}
    space["metadata"] = {"name": "lab", "labels": {"kai.scheduler/queue": "team-b"}}
    cases = {
        "team-a (the TrainJob's label)": trainjob(DEEPSPEED, namespace="lab", labels=label),
        "team-b (the namespace's label)": trainjob(DEEPSPEED, namespace="lab"),
        "spare (the setting default_queue)": trainjob(DEEPSPEED),
    }
    for want, job in cases.items():
        file = terminal.write("job.yaml", job, space)
        _, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED), "--default-queue", "spare")
        assert f"queue {want}" in text


def test_what_the_trainjob_asks_for_is_in_the_groups(terminal: Terminal) -> None:
    """Admission carries it to the JobSet, and the podgrouper from there; so does the plan."""
    labels = {"priorityClassName": "inference", "kai.scheduler/preemptibility": "preemptible"}
    notes = {"kai.scheduler/topology": "rooms", "kai.scheduler/topology-required-placement": "rack"}
    job = trainjob(DEEPSPEED, labels=labels, annotations=notes)

    file = terminal.write("job.yaml", job)
    _, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED), "-o", "json")
    spec = json.loads(text)["plans"][0]["manifests"][0]["spec"]
    assert spec["priorityClassName"] == "inference"
    assert spec["preemptibility"] == "preemptible"
    assert spec["topologyConstraint"] == {"topology": "rooms", "requiredTopologyLevel": "rack"}


@pytest.mark.parametrize("mode", ["bundled", "external"])
def test_a_required_topology_is_no_fault(mode: str, terminal: Terminal) -> None:
    """Nothing is known here of the Topologies of the cluster."""
    notes = {"kai.scheduler/topology": "rooms", "kai.scheduler/topology-required-placement": "rack"}
    file = terminal.write("job.yaml", trainjob(DEEPSPEED, annotations=notes))

    found, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED), "--mode", mode)

    assert (found, "never runs" in text, "opology level" in text) == (0, False, False)


def test_the_topology_of_a_queue_counts(terminal: Terminal) -> None:
    """The TrainJob says nothing; its queue requires one node for all pods."""
    notes = {
        "kai.scheduler/topology": "nodes",
        "kai.scheduler/topology-required-placement": "kubernetes.io/hostname",
    }
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "default-queue", "annotations": notes},
    }
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "nodes"},
        "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    }
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "2"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts},
        }
        for name in ("a", "b", "c", "d", "e")
    ]
    file = terminal.write("all.yaml", trainjob(DEEPSPEED), queue, topology, *nodes)

    found, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED))

    assert found == 1
    assert "Topology nodes (the default of queue default-queue)" in " ".join(text.split())


def test_shares_of_gpus_are_requests(terminal: Terminal) -> None:
    """Of all pods together, in GPUs and in MiB; one that is not valid is left out."""
    found = [
        _requests(terminal, annotations)
        for annotations in (
            {"gpu-fraction": "0.125"},
            {"gpu-fraction": "0.1", "gpu-fraction-num-devices": "2"},
            {"gpu-memory": "100"},
            {"gpu-memory": "100", "gpu-fraction-num-devices": "0"},
        )
    ]

    assert found == [
        {"gpu-fraction": f"{_PODS * 0.125:g}"},
        {"gpu-fraction": f"{_PODS * 0.2:g}"},
        {"gpu-memory": f"{_PODS * 100}Mi"},
        {},
    ]


def _requests(terminal: Terminal, annotations: dict[str, str]) -> dict[str, str]:
    """Return what the pods of a JobSet request if their templates have these annotations."""
    pod = {
        "metadata": {"annotations": annotations, "labels": {"trainer-kai.dev/gang": "0"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "x"}]},
    }
    job = {"parallelism": _PODS, "completions": _PODS, "template": pod}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "job", "annotations": {"trainer-kai.dev/admitted": "v1"}},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }

    _, text, _ = terminal.run("-f", terminal.write("jobset.yaml", jobset), "-o", "json")

    [podgroup] = json.loads(text)["plans"][0]["podGroups"]
    return dict(podgroup["requests"])


def test_an_external_scheduler_gets_a_group_for_each_stage(terminal: Terminal) -> None:
    """What KAI can satisfy is flat, and does not count the launcher among the nodes."""
    file = terminal.write("job.yaml", trainjob(DEEPSPEED))
    command = ("-f", file, "-f", runtime(DEEPSPEED), "--mode", "external", "-o", "json")

    _, text, _ = terminal.run(*command)
    groups = json.loads(text)["plans"][0]["manifests"]
    assert [group["spec"]["minMember"] for group in groups] == [3, 1]


def test_what_never_runs_is_reported_and_is_no_success(terminal: Terminal) -> None:
    """A circle, and two schedulers at once: exit code 1, and what to change."""
    jobset = recorded(DEEPSPEED)
    jobset["metadata"]["annotations"] = {"trainer-kai.dev/admitted": "v1"}
    first, second = jobset["spec"]["replicatedJobs"]
    first["dependsOn"] = [{"name": second["name"], "status": "Ready"}]
    code, text, _ = terminal.run("-f", terminal.write("jobset.yaml", jobset))
    assert code == 1
    assert "never runs: " in text

    shipped = yaml.safe_load(Path(runtime(DEEPSPEED)).read_text())
    shipped["spec"]["podGroupPolicy"] = {"volcano": {}}
    job = trainjob(DEEPSPEED, labels={"kai.scheduler/queue": "team-a"})
    code, text, _ = terminal.run("-f", terminal.write("both.yaml", job, shipped))
    assert code == 1
    assert "Remove podGroupPolicy.volcano from the runtime" in text


def test_a_cycle_is_named_as_what_it_is(terminal: Terminal) -> None:
    """It has no PodGroup because it never runs, and not because it is none of ours."""
    shipped = yaml.safe_load(Path(runtime(DEEPSPEED)).read_text())
    jobs = shipped["spec"]["template"]["spec"]["replicatedJobs"]
    for one, other in zip(jobs, reversed(jobs), strict=True):
        one["dependsOn"] = [{"name": other["name"], "status": "Ready"}]

    code, text, _ = terminal.run("-f", terminal.write("both.yaml", trainjob(DEEPSPEED), shipped))
    assert code == 1
    assert "No PodGroup: it can never run as it is" in text
    assert "depend on each other" in text
    assert "ours" not in text


def test_who_groups_pods_himself_gets_no_group(terminal: Terminal) -> None:
    """JobSets that the podgrouper ignores are not shown."""
    notes = {"kai.scheduler/skip-podgrouper": "true"}
    file = terminal.write("job.yaml", trainjob(DEEPSPEED, annotations=notes))

    code, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED))
    assert code == 0
    assert "No PodGroup" in text


def test_a_namespace_may_be_taken_out(terminal: Terminal) -> None:
    """Its label disables admission, so nothing is ours there; other values do not."""
    for value, is_out in (("disabled", True), ("enabled", False)):
        metadata = {"name": "default", "labels": {"trainer-kai.dev/inject": value}}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        file = terminal.write("job.yaml", trainjob(DEEPSPEED), space)

        code, text, _ = terminal.run("-f", file, "-f", runtime(DEEPSPEED))
        assert code == 0
        assert ("queue -" in text) == is_out
        assert ("excluded from trainer-kai" in text) == is_out


def test_what_was_not_looked_at_is_reported(terminal: Terminal) -> None:
    """The label of a namespace in no file, and objects that cannot be planned."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    file = terminal.write("job.yaml", trainjob(DEEPSPEED), other)

    _, text, err = terminal.run("-f", file, "-f", runtime(DEEPSPEED))
    assert "note: metadata.namespace: is in no file" in text
    assert "ignored: " in err
    assert "ConfigMap x" in err


def test_a_segment_size_is_named_where_it_was_written(terminal: Terminal) -> None:
    """On the TrainJob; the pods of its nodes have it from there, unless the runtime has one."""
    annotations = {"kai.scheduler/segment-size": "four"}
    file = terminal.write("job.yaml", trainjob(TORCH, annotations=annotations))
    of_runtime = yaml.safe_load(Path(runtime(TORCH)).read_text())
    job = of_runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["template"]["metadata"] = {"annotations": annotations}

    _, text, _ = terminal.run("-f", file, "-f", runtime(TORCH))
    fault = "annotations[kai.scheduler/segment-size]: ignored: 'four' must be a whole number"
    assert f"note: metadata.{fault}" in text
    _, text, _ = terminal.run("-f", file, "-f", terminal.write("runtime.yaml", of_runtime))
    assert f"note: spec.replicatedJobs[0].template.spec.template.metadata.{fault}" in text


def test_why_pods_are_not_looked_at_is_said(terminal: Terminal) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    file = terminal.write("job.yaml", trainjob(DEEPSPEED), pod)

    _, _, err = terminal.run("-f", file, "-f", runtime(DEEPSPEED))
    assert "Pod x, because an empty cluster is compared: simulate counts pods" in err


def test_a_directory_is_no_file(terminal: Terminal, tmp_path: Path) -> None:
    code, _, err = terminal.run("-f", str(tmp_path))

    assert code == 2
    assert f"{tmp_path}: is a directory: give each of its files an -f of its own" in err


def test_what_admission_warns_of_is_a_note(terminal: Terminal) -> None:
    """Trainer keeps the warnings of its own requests to itself."""
    shipped = yaml.safe_load(Path(runtime(DEEPSPEED)).read_text())
    jobs = shipped["spec"]["template"]["spec"]["replicatedJobs"]
    pod = jobs[0]["template"]["spec"]["template"]
    pod["metadata"] = {"labels": {"kai.scheduler/queue": "team-x"}}
    job = trainjob(DEEPSPEED, labels={"kai.scheduler/queue": "team-a"})

    _, text, _ = terminal.run("-f", terminal.write("both.yaml", job, shipped))
    assert "the PodGroups use queue team-a, from the TrainJob's label" in text


def test_a_suspended_trainjob_is_planned_as_if_it_went(terminal: Terminal) -> None:
    job = trainjob(DEEPSPEED)
    job["spec"]["suspend"] = True

    _, text, _ = terminal.run("-f", terminal.write("job.yaml", job), "-f", runtime(DEEPSPEED))
    assert "3 node + 1 launcher later" in text


def test_a_jobset_that_is_not_ours_is_left_alone(terminal: Terminal) -> None:
    """Only what admission has marked is grouped."""
    code, text, _ = terminal.run("-f", terminal.write("jobset.yaml", recorded(DEEPSPEED)))

    assert code == 0
    assert "No PodGroup" in text
    assert ", so trainer-kai ignores it" in text


def test_standard_input_and_lists_are_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kubectl prints can be piped in as it is."""
    items = [trainjob(DEEPSPEED), yaml.safe_load(Path(runtime(DEEPSPEED)).read_text())]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code, out, _ = terminal.run("-f", "-")
    assert code == 0
    assert "3 node + 1 launcher later" in out


# the text of a file -> what is said of it
MISTAKES: list[Case[str, str]] = [
    Case("a text that is no YAML is refused", "a: [", "is not valid YAML: line "),
    Case("a list is refused", "- a\n- b\n", "document 1 is a list, not an object"),
    Case("a word is refused", "hello\n", "document 1 is 'hello', not an object"),
    Case("a number is refused", "3\n", "document 1 is 3, not an object"),
    Case(
        "a label that is a number",
        yaml.safe_dump(trainjob("x", labels={"kai.scheduler/queue": "a", "build": 7})),
        "metadata.labels[build]: 7 must be a string, not a whole number",
    ),
    Case(
        "nothing to plan",
        "kind: ConfigMap\nmetadata: {name: x}\n",
        "no TrainJob, JobSet, Job, CronJob or other workload found",
    ),
    Case(
        "a TrainJob without a name is refused",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {}\n",
        "metadata.name: is missing",
    ),
    Case(
        "a number that is none",
        yaml.safe_dump({**trainjob("x"), "spec": {"trainer": {"numNodes": "four"}}}),
        "spec.trainer.numNodes",
    ),
    Case(
        "a queue that is no name",
        yaml.safe_dump(trainjob("x", labels={"kai.scheduler/queue": "-a-"})),
        "metadata.labels[kai.scheduler/queue]",
    ),
    Case(
        "fewer nodes than none",
        yaml.safe_dump(trainjob("x", nodes=-3)),
        "spec.trainer.numNodes: -3 must be between 0 and 2147483647",
    ),
    Case("what is not valid JSON", "a: {b: [.nan]}\n", "document 1: a.b[0] must be a JSON value"),
    Case(
        "bytes in a field are refused",
        "a: {b: !!binary AAAA}\n",
        "document 1: a.b must be a JSON value",
    ),
    Case(
        "a name that is no text", "a: {1: b}\n", "document 1: a has a key that is not a string: 1"
    ),
    Case(
        "another version is refused",
        yaml.safe_dump({**trainjob("x"), "apiVersion": "trainer.kubeflow.org/v2"}),
        "apiVersion: 'trainer.kubeflow.org/v2' must be 'trainer.kubeflow.org/v1alpha1'",
    ),
    Case(
        "a name that no TrainJob can have",
        yaml.safe_dump({**trainjob("x"), "metadata": {"name": "Under_score"}}),
        "metadata.name: 'Under_score' must be",
    ),
    Case(
        "a TrainJob without a runtime is refused",
        yaml.safe_dump({**trainjob("x"), "spec": {}}),
        "spec.runtimeRef.name: is missing",
    ),
    Case("a runtime in no file", yaml.safe_dump(trainjob("nowhere")), "nowhere with another -f"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=ids)
def test_mistakes_are_reported_in_plain_words(case: Case[str, str], terminal: Terminal) -> None:
    """Exit code 2, the place and what would be right; never a stack trace."""
    code, out, err = terminal.run("-f", terminal.write("file.yaml", case.given))

    assert (code, out) == (2, "")
    assert case.want in err
    assert "Traceback" not in err


def test_all_mistakes_are_reported_at_once(terminal: Terminal) -> None:
    bad = trainjob("x", labels={"kai.scheduler/queue": "-a-", "priorityClassName": "B!"})
    _, _, err = terminal.run("-f", terminal.write("file.yaml", bad, bad))

    assert err.count("labels[kai.scheduler/queue]") == err.count("labels[priorityClassName]") >= 2


def test_a_file_that_is_not_there_is_named(terminal: Terminal) -> None:
    code, _, err = terminal.run("-f", "here.yaml", "-f", "there.yaml")

    assert code == 2
    assert "here.yaml" in err
    assert "there.yaml" in err
