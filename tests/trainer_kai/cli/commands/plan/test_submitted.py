"""`trainer-kai plan` of Jobs, CronJobs and JobSets of users, as admission sees them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import cron_job, job, node, queue, user_jobset

QUEUE = "kai.scheduler/queue"
MIN_MEMBER = "kai.scheduler/batch-min-member"
TEAM = {QUEUE: "team-a"}


class Planned(NamedTuple):
    """The exit code, and lines of the text that are shown."""

    code: int
    lines: tuple[str, ...]


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return Terminal("plan", tmp_path, capsys)


def space(**labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": labels},
    }


def with_pods(it: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    it["spec"]["template"]["metadata"] = metadata
    return it


def without_scheduler(it: dict[str, Any]) -> dict[str, Any]:
    del it["spec"]["template"]["spec"]["schedulerName"]
    return it


def with_deadline(it: dict[str, Any]) -> dict[str, Any]:
    it["activeDeadlineSeconds"] = 3600
    return it


def controlled(kind: str) -> dict[str, Any]:
    owner = {"apiVersion": "x/v1", "kind": kind, "name": "boss", "uid": "u", "controller": True}
    return job("train", ownerReferences=[owner])


NO_PODGROUP = "No PodGroup: it is not for this scheduler"
WITH_QUEUE = (
    "counts from the creation or the last resume, so it includes the time for which the pods wait "
    "in their queue"
)
# the objects -> what is planned
CASES: list[Case[list[dict[str, Any]], Planned]] = [
    Case(
        "a Job starts with its first pod",
        [job("train", 4, labels=TEAM)],
        Planned(
            0,
            (
                "Job default/train queue team-a (the Job's label) mode bundled",
                "1/1 pg-train-UID - 4 pods 1 pod nvidia.com/gpu 4",
            ),
        ),
    ),
    Case(
        "a Job of one pod",
        [job("train", 1, labels=TEAM)],
        Planned(0, ("1/1 pg-train-UID - 1 pod 1 pod nvidia.com/gpu 1",)),
    ),
    Case(
        "a Job has a short deadline",
        [{**job("train"), "spec": with_deadline(job("train")["spec"])}],
        Planned(0, (f"note: spec.activeDeadlineSeconds: {WITH_QUEUE}",)),
    ),
    Case(
        "a Job asks for a gang",
        [job("train", 4, labels=TEAM, annotations={MIN_MEMBER: "4"})],
        Planned(0, ("1/1 pg-train-UID - 4 pods 4 pods nvidia.com/gpu 4",)),
    ),
    Case(
        "the pods of a Job name the queue",
        [with_pods(job("train"), labels=TEAM)],
        Planned(0, ("Job default/train queue team-a (the label of a pod template) mode bundled",)),
    ),
    Case(
        "the namespace names the queue",
        [job("train"), space(**TEAM)],
        Planned(0, ("Job default/train queue team-a (the namespace's label) mode bundled",)),
    ),
    Case(
        "the namespace is in no file",
        [job("train")],
        Planned(
            0,
            (
                (
                    "note: metadata.namespace: is in no file; a label of the namespace could name"
                    " the queue"
                ),
            ),
        ),
    ),
    Case(
        "the namespace is excluded",
        [job("train"), space(**{"trainer-kai.dev/inject": "disabled"})],
        Planned(
            0,
            (
                NO_PODGROUP,
                (
                    "note: metadata.namespace: is excluded from trainer-kai by its label"
                    " trainer-kai.dev/inject"
                ),
            ),
        ),
    ),
    Case(
        "a Job for another scheduler",
        [job("train", scheduler="default-scheduler")],
        Planned(
            0,
            (
                "Job default/train queue - mode bundled",
                NO_PODGROUP,
                (
                    "note: spec.template.spec.schedulerName: the pods are for scheduler"
                    " default-scheduler. To have trainer-kai schedule the Job, set kai-scheduler"
                    " here"
                ),
            ),
        ),
    ),
    Case(
        "a Job that names no scheduler",
        [without_scheduler(job("train"))],
        Planned(
            0,
            (
                NO_PODGROUP,
                (
                    "note: spec.template.spec.schedulerName: the pods are for scheduler"
                    " default-scheduler. To have trainer-kai schedule the Job, set kai-scheduler"
                    " here"
                ),
            ),
        ),
    ),
    Case(
        "a Job of another controller",
        [controlled("RayJob")],
        Planned(
            0,
            (
                NO_PODGROUP,
                (
                    "note: metadata.ownerReferences: the Job belongs to RayJob boss. Plan that"
                    " instead"
                ),
            ),
        ),
    ),
    Case(
        "another controller manages the Job",
        [{**job("train"), "spec": {**job("train")["spec"], "managedBy": "example.org/other"}}],
        Planned(0, (NO_PODGROUP, "note: spec.managedBy: another controller manages the Job")),
    ),
    Case(
        "the user groups the pods",
        [job("train", labels=TEAM, annotations={"kai.scheduler/skip-podgrouper": "true"})],
        Planned(0, (NO_PODGROUP,)),
    ),
    Case(
        "no node has enough GPUs for a pod of a Job",
        [job("train", gpus=16, labels=TEAM), node("a", 8)],
        Planned(
            1,
            (
                (
                    "never runs: spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]:"
                    " each pod requests 16 nvidia.com/gpu, and the one eligible node has 8. Request"
                    " at most 8"
                ),
            ),
        ),
    ),
    Case(
        "an invalid minimum is ignored",
        [job("train", labels=TEAM, annotations={MIN_MEMBER: "many"})],
        Planned(
            0,
            (
                "1/1 pg-train-UID - 2 pods 1 pod nvidia.com/gpu 2",
                (
                    f"note: metadata.annotations[{MIN_MEMBER}]: ignored: 'many' must be a whole"
                    " number, 1 or more"
                ),
            ),
        ),
    ),
    Case(
        "the queue does not exist",
        [job("train", labels={QUEUE: "lost"}), queue("team-a")],
        Planned(
            0,
            (
                (
                    f"note: metadata.labels[{QUEUE}]: queue 'lost' does not exist. Create the"
                    " queue, or name an existing one"
                ),
            ),
        ),
    ),
    Case(
        "a label resembles one of ours",
        [job("train", labels={"kai.scheduler/queu": "team-a"})],
        Planned(
            0,
            (
                (
                    "note: metadata.labels[kai.scheduler/queu]: has no effect: unknown name. Did"
                    " you mean kai.scheduler/queue?"
                ),
            ),
        ),
    ),
    Case(
        "a CronJob is planned by one of its Jobs",
        [cron_job("nightly", job("x", gpus=16, labels=TEAM)), node("a", 8)],
        Planned(
            1,
            (
                "CronJob default/nightly queue team-a (the CronJob's label) mode bundled",
                "1/1 pg-nightly-TIME-UID - 2 pods 1 pod nvidia.com/gpu 32",
                (
                    "never runs: spec.jobTemplate.spec.template.spec.containers[0].resources"
                    ".limits[nvidia.com/gpu]: each pod requests 16 nvidia.com/gpu, and the one"
                    " eligible node has 8. Request at most 8"
                ),
            ),
        ),
    ),
    Case(
        "a JobSet of a user is a gang",
        [user_jobset("steps", labels=TEAM)],
        Planned(
            0,
            (
                "JobSet default/steps queue team-a (the JobSet's label) mode bundled",
                "1/1 pg-steps-UID - 4 node 4 pods nvidia.com/gpu 4",
            ),
        ),
    ),
    Case(
        "a JobSet of a user for another scheduler",
        [user_jobset("steps", scheduler="volcano")],
        Planned(
            0,
            (
                NO_PODGROUP,
                (
                    "note: spec.replicatedJobs[0].template.spec.template.spec.schedulerName: the"
                    " pods are for scheduler volcano. To have trainer-kai schedule the JobSet, set"
                    " kai-scheduler here"
                ),
            ),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_workload_of_a_user(
    case: Case[list[dict[str, Any]], Planned], terminal: Terminal
) -> None:
    """Its paths are those of its own manifest."""
    code, text, err = terminal.run("-f", terminal.write("objects.yaml", *case.given))

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert (code, err) == (case.want.code, "")
    assert [line for line in case.want.lines if line not in lines] == []


# the mode -> what is said of a minimum of 5 pods of 3
MINIMA = {
    "bundled": (
        0,
        "note: {}: 5 is more than the pods of each Job at the same time. 3 is used",
    ),
    "external": (
        1,
        "never runs: {}: 5 is more than its 3 pods, so it can never start. Lower it to 3",
    ),
}


@pytest.mark.parametrize("mode", MINIMA)
def test_more_than_the_pods_of_a_job(mode: str, terminal: Terminal) -> None:
    """We lower the minimum; KAI, which groups the Job in mode external, takes it as it is."""
    given = job("train", 3, labels=TEAM, annotations={MIN_MEMBER: "5"})
    code, text, _ = terminal.run("-f", terminal.write("job.yaml", given), "--mode", mode)

    said = [line for line in text.splitlines() if MIN_MEMBER in line]
    want, line = MINIMA[mode]
    assert (code, said) == (want, [line.format(f"metadata.annotations[{MIN_MEMBER}]")])


def test_a_job_without_pods_is_no_error(terminal: Terminal) -> None:
    """Its `parallelism` is raised later, as the replicas of a Deployment are."""
    given = job("train", 0, labels=TEAM, annotations={MIN_MEMBER: "5"})
    code, text, _ = terminal.run("-f", terminal.write("job.yaml", given), "--mode", "external")

    assert (code, "never" in text) == (0, False)


def test_several_kinds_in_one_file(terminal: Terminal) -> None:
    """Each is planned, in the order of the file."""
    objects = [job("train"), user_jobset("steps"), cron_job("nightly", job("x"))]

    code, text, _ = terminal.run("-f", terminal.write("all.yaml", *objects), "-o", "json")

    plans = json.loads(text)["plans"]
    assert code == 0
    assert [(it["kind"], it["name"]) for it in plans] == [
        ("Job", "train"),
        ("JobSet", "steps"),
        ("CronJob", "nightly"),
    ]
    assert plans[0]["queue"] == {"name": "default-queue", "source": "default"}
    (manifest,) = plans[0]["manifests"]
    assert manifest["spec"]["minMember"] == 1
    assert "subGroups" not in manifest["spec"]
    assert manifest["metadata"]["ownerReferences"][0]["kind"] == "Job"


def test_a_misspelled_field_of_a_job(terminal: Terminal) -> None:
    """Also in the template of a CronJob; an invalid amount is an error."""
    wrong = job("train")
    wrong["spec"]["paralelism"] = 3
    nightly = cron_job("nightly", wrong)
    file = terminal.write("job.yaml", wrong, nightly)

    code, _, err = terminal.run("-f", file)

    remark = "paralelism: is not a known field and is ignored; did you mean parallelism?"
    assert code == 0
    assert err.splitlines() == [
        f"trainer-kai: {file}: CronJob default/nightly: spec.jobTemplate.spec.{remark}",
        f"trainer-kai: {file}: Job default/train: spec.{remark}",
    ]
    wrong["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "-1"}
    code, _, err = terminal.run("-f", terminal.write("job.yaml", wrong, nightly))
    path = "spec.template.spec.containers[0].resources.limits[cpu]: -1 must not be negative"
    assert code == 2
    assert f"Job default/train: {path}" in err
    assert f"CronJob default/nightly: spec.jobTemplate.{path}" in err


def test_workloads_that_admission_does_not_mark(terminal: Terminal) -> None:
    """They are planned by the podgrouper's code alone."""
    pods = {"spec": {"schedulerName": "kai-scheduler"}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pods}}}
    it = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}}
    code, text, _ = terminal.run("-f", terminal.write("job.yaml", {**it, "spec": spec}))

    assert code == 0
    assert "1/1 pg-x-UID - 2 worker 2 pods -" in [" ".join(it.split()) for it in text.splitlines()]


def test_the_cluster_of_a_ray_job_is_planned_with_it(terminal: Terminal) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "controller": True}
    meta = {"name": "x", "ownerReferences": [owner]}
    it = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": {}}
    _, text, _ = terminal.run("-f", terminal.write("cluster.yaml", it))

    message = "the RayCluster belongs to RayJob j. Plan that instead"
    assert f"note: metadata.ownerReferences: {message}" in text


_PYTORCH = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "x"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {"template": {"spec": {"schedulerName": "kai-scheduler"}}}
        }
    },
}


def test_the_defaults_of_a_kind_and_the_queue_of_the_namespace(terminal: Terminal) -> None:
    """They are what the podgrouper with this setting writes."""
    labels = {"kai.scheduler/queue": "team-n"}
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": labels},
    }
    files = [terminal.write("job.yaml", _PYTORCH), terminal.write("space.yaml", space)]
    chosen = "PyTorchJob.kubeflow.org=build/non-preemptible"
    flags = ["-f", files[0], "-f", files[1], "-o", "json", "--kind-defaults", chosen]
    _, text, _ = terminal.run(*flags)

    (plan,) = json.loads(text)["plans"]
    (group,) = plan["manifests"]
    spec = group["spec"]
    assert (spec["queue"], spec["priorityClassName"]) == ("team-n", "build")
    assert spec["preemptibility"] == "non-preemptible"
    assert plan["queue"] == {"name": "team-n", "source": "namespace"}


def test_defaults_of_a_kind_that_cannot_be_read(terminal: Terminal) -> None:
    file = terminal.write("job.yaml", _PYTORCH)
    code, _, errors = terminal.run("-f", file, "--kind-defaults", "PyTorchJob")

    assert code == 2
    assert "--kind-defaults: 'PyTorchJob' must be a kind and a PriorityClass" in errors
