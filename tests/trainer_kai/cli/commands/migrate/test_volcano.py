"""From Volcano: what its queues, runtimes and TrainJobs become."""

import copy
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.migrate.migrated import (
    Obj,
    example,
    faults_against_schema,
    migrate,
    notes,
    shares,
)
from trainer_kai.cli.commands.migrate.workloads import CLUSTER
from trainer_kai.errors import ConfigError

GPU = "nvidia.com/gpu"


def queue(name: str = "q", status: Any = None, **spec: Any) -> Obj:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    it = {**head, "metadata": {"name": name}, "spec": spec}
    return it if status is None else {**it, "status": status}


# what is asked of Volcano → GPU quota, limit and weight of the Queue
GPU_SHARES: list[Case[Obj, tuple[float, float, float]]] = [
    Case("a weight alone", queue(weight=3), (0, -1, 3)),
    Case("deserved is the quota", queue(deserved={GPU: "8"}), (8, -1, 1)),
    Case("capability is the limit", queue(capability={GPU: 16}), (0, 16, 1)),
    Case("a guarantee is quota too", queue(guarantee={"resource": {GPU: 4}}), (4, -1, 1)),
    Case(
        "the larger of both",
        queue(deserved={GPU: 8}, guarantee={"resource": {GPU: 4}}),
        (8, -1, 1),
    ),
]


@pytest.mark.parametrize("case", GPU_SHARES, ids=ids)
def test_gpu_shares(case: Case[Obj, tuple[float, float, float]]) -> None:
    """Deserved and guarantee become the quota, capability the limit."""
    assert shares(migrate("volcano", case.given), "q")["gpu"] == case.want


def test_a_resource_is_divided_if_any_queue_names_it() -> None:
    """Otherwise CPU and memory are unlimited, as `queue create` writes them."""
    found = migrate("volcano", queue("a", deserved={"cpu": 2}), queue("b", weight=2))

    assert shares(found, "a")["cpu"] == (2000, -1, 1)
    assert shares(found, "b") == {"gpu": (0, -1, 2), "cpu": (0, -1, 2), "memory": (-1, -1, 1)}


def test_the_tree_keeps_its_shape_below_the_root() -> None:
    """Volcano's root queue is no Queue; parents come before their children."""
    found = migrate("volcano", queue("root"), queue("a", parent="z"), queue("z", parent="root"))

    assert [(it["metadata"]["name"], it["spec"].get("parentQueue")) for it in found.manifests] == [
        ("z", None),
        ("a", "z"),
    ]


def test_a_closed_queue_is_closed_and_a_priority_is_added_to_the_default() -> None:
    """A Queue without a priority has 100."""
    found = migrate("volcano", queue(status={"state": "Closed"}, priority=5))
    (manifest,) = found.manifests

    assert manifest["metadata"]["annotations"] == {"trainer-kai.dev/access": "closed"}
    assert manifest["spec"]["priority"] == 105


RUNTIME: Obj = next(it for it in example("volcano") if it["kind"] == "TrainingRuntime")
TRAINJOB: Obj = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {
        "namespace": "ns",
        "name": "job",
        "annotations": {"scheduling.volcano.sh/queue-name": "q"},
    },
    "spec": {"runtimeRef": {"name": "torch-volcano"}},
}


def test_a_runtime_loses_the_policy_the_scheduler_and_the_annotation() -> None:
    """The queue is a label of the template; the webhook sets the scheduler."""
    manifest = migrate("volcano", queue("team-a"), RUNTIME).manifests[-1]
    spec = manifest["spec"]
    (job,) = spec["template"]["spec"]["replicatedJobs"]

    assert "podGroupPolicy" not in spec
    assert spec["template"]["metadata"] == {"labels": {"kai.scheduler/queue": "team-a"}}
    assert "schedulerName" not in job["template"]["spec"]["template"]["spec"]
    assert RUNTIME["spec"]["podGroupPolicy"] == {"volcano": {}}, "the input is unchanged"


def test_a_trainjob_gets_the_label_of_its_queue() -> None:
    """The annotation goes."""
    manifest = migrate("volcano", queue(), TRAINJOB).manifests[-1]

    assert manifest["metadata"] == {
        "namespace": "ns",
        "name": "job",
        "labels": {"kai.scheduler/queue": "q"},
    }


@pytest.mark.parametrize("name", ["root", "absent", "q" * 64, ["a"]])
def test_a_queue_name_that_is_no_queue_becomes_no_label(name: Any) -> None:
    """Neither of a TrainJob nor of a runtime; both are named."""
    key = "scheduling.volcano.sh/queue-name"
    runtime, job = copy.deepcopy(RUNTIME), copy.deepcopy(TRAINJOB)
    runtime["spec"]["template"]["metadata"] = {"annotations": {key: name}, "labels": ["a"]}
    job["metadata"]["annotations"] = {key: str(name)}
    found = migrate("volcano", queue("root"), queue("q" * 64), runtime, job)

    assert [it["kind"] for it in found.manifests] == ["TrainingRuntime"]
    assert found.manifests[0]["spec"]["template"]["metadata"] == {"labels": ["a"]}
    assert set(notes(found.by_hand)) >= {
        ("TrainingRuntime vision/torch-volcano", f"spec.template.metadata.annotations[{key}]"),
        ("TrainJob ns/job", f"metadata.annotations[{key}]"),
    }


def test_labels_that_are_no_object_are_replaced() -> None:
    """The queue is the only label then."""
    runtime = copy.deepcopy(RUNTIME)
    runtime["spec"]["template"]["metadata"]["labels"] = ["a"]
    manifest = migrate("volcano", queue("team-a"), runtime).manifests[-1]

    assert manifest["spec"]["template"]["metadata"]["labels"] == {"kai.scheduler/queue": "team-a"}


def test_a_parent_that_is_not_made_is_named() -> None:
    """The child waits until it exists."""
    found = migrate("volcano", queue("a", parent="absent"), queue("default-queue"))

    assert set(notes(found.by_hand)) == {
        ("Queue a", "spec.parent"),
        ("Queue default-queue", "metadata.name"),
    }


def test_the_quota_of_a_parent_covers_its_children() -> None:
    """It is raised to their sum, and not above the limit."""
    found = migrate(
        "volcano",
        queue("top", capability={GPU: 6}),
        queue("mid", parent="top", deserved={GPU: 1}),
        queue("a", parent="mid", deserved={GPU: 4}),
        queue("b", parent="mid", deserved={GPU: 4}),
    )

    assert shares(found, "mid")["gpu"] == (8, -1, 1)
    assert shares(found, "top")["gpu"] == (6, 6, 1)


def test_objects_of_the_cluster_are_changed_by_hand() -> None:
    """A manifest could undo what a controller wrote since."""
    found = migrate("volcano", queue(), queue("team-a"), RUNTIME, TRAINJOB, file=CLUSTER)

    assert {it["kind"] for it in found.manifests} == {"Queue"}
    assert notes(found.by_hand) == [
        ("TrainingRuntime vision/torch-volcano", "spec.podGroupPolicy.volcano"),
        (
            "TrainingRuntime vision/torch-volcano",
            "spec.template.metadata.annotations[scheduling.volcano.sh/queue-name]",
        ),
        (
            "TrainingRuntime vision/torch-volcano",
            "spec.template.spec.replicatedJobs[0].template.spec.template.spec.schedulerName",
        ),
        ("TrainJob ns/job", "metadata.labels"),
    ]
    assert found.by_hand[1].message == "replace it by the label kai.scheduler/queue: team-a"


def test_what_has_no_equivalent_is_named_by_object_and_field() -> None:
    """Fields of queues and runtimes, and other kinds."""
    policy = {"volcano": {"networkTopology": {"mode": "hard"}}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"schedulerName": "volcano", "containers": []}}},
    }
    found = migrate(
        "volcano",
        queue(reclaimable=False, guarantee={"resource": {"x/rdma": 1}}, affinity={"a": 1}),
        {**RUNTIME, "spec": {**RUNTIME["spec"], "podGroupPolicy": policy}},
        job,
        deployment,
    )

    assert notes(found.unsupported) == [
        ("Queue q", "spec.guarantee.resource[x/rdma]"),
        ("Queue q", "spec.affinity"),
        ("Queue q", "spec.guarantee"),
        ("Queue q", "spec.reclaimable"),
        ("Job j", "kind"),
        ("TrainingRuntime vision/torch-volcano", "spec.podGroupPolicy.volcano.networkTopology"),
    ]
    path = "spec.template.metadata.annotations[scheduling.volcano.sh/queue-name]"
    assert notes(found.by_hand) == [
        ("TrainingRuntime vision/torch-volcano", path),
        ("Deployment d", "spec.template.spec.schedulerName"),
    ]


# what is wrong → what is reported
FAULTS: list[Case[list[Obj], str]] = [
    Case("a weight that is text", [queue(weight="two")], "Queue q: spec.weight: 'two'"),
    Case("a negative weight", [queue(weight=-1)], "spec.weight: -1 must not be negative"),
    Case(
        "an amount that is no quantity",
        [queue(capability={GPU: "x"})],
        "in.yaml: Queue q: spec.capability[nvidia.com/gpu]: 'x'",
    ),
    Case(
        "less capability than deserved",
        [queue(deserved={GPU: 8}, capability={GPU: 4})],
        "spec.capability: the gpu is less than deserved or guarantee",
    ),
    Case(
        "queues in a circle",
        [queue("a", parent="b"), queue("b", parent="a")],
        "Queue a: spec.parent: the queue is below itself: a → b → a",
    ),
    Case(
        "an unknown version",
        [{**queue(), "apiVersion": "scheduling.volcano.sh/v2"}],
        "Queue q: apiVersion: 'v2' is unknown; known are v1beta1",
    ),
    Case("a spec that is a list", [{**queue(), "spec": [1]}], "in.yaml: Queue q: spec"),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_a_fault_names_file_object_and_field(case: Case[list[Obj], str]) -> None:
    """All that is wrong is an error, and nothing is guessed."""
    with pytest.raises(ConfigError) as error:
        migrate("volcano", *case.given)

    assert case.want in str(error.value)


def test_the_example_becomes_objects_that_the_definitions_accept() -> None:
    """In any order of the files."""
    objects = example("volcano")
    found = migrate("volcano", *objects)

    assert found == migrate("volcano", *reversed(objects))
    assert [fault for it in found.manifests for fault in faults_against_schema(it)] == []
