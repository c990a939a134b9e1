"""From Kueue: what its queues, namespaces, priorities and TrainJobs become."""

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

FREE = (-1, -1, 1)


def kueue(kind: str, name: str, spec: Any = None, namespace: str = "", **fields: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    version = "v1alpha1" if kind == "Cohort" else "v1beta1"
    it = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": meta, **fields}
    return it if spec is None else {**it, "spec": spec}


def quotas(*flavors: dict[str, dict[str, Any]]) -> list[Obj]:
    """Return resource groups: for each flavor the quotas by resource."""
    return [
        {
            "coveredResources": sorted({name for flavor in flavors for name in flavor}),
            "flavors": [
                {
                    "name": f"flavor-{i}",
                    "resources": [{"name": name, **quota} for name, quota in flavor.items()],
                }
                for i, flavor in enumerate(flavors)
            ],
        }
    ]


def gpus(quota: Any, **more: Any) -> list[Obj]:
    return quotas({"nvidia.com/gpu": {"nominalQuota": quota, **more}})


def cluster_queue(name: str = "q", groups: Any = None, **spec: Any) -> Obj:
    return kueue("ClusterQueue", name, {"resourceGroups": groups or gpus(8), **spec})


# what is asked of Kueue → GPU quota, limit and weight of the Queue
GPU_SHARES: list[Case[Obj, tuple[float, float, float]]] = [
    Case("without a cohort it borrows nothing", cluster_queue(), (8, 8, 1)),
    Case("in a cohort it borrows", cluster_queue(cohort="c"), (8, -1, 1)),
    Case("the same in v1beta2", cluster_queue(cohortName="c"), (8, -1, 1)),
    Case(
        "up to its limit",
        cluster_queue(groups=gpus(8, borrowingLimit=4), cohort="c"),
        (8, 12, 1),
    ),
    Case(
        "a limit of 0 is a limit",
        cluster_queue(groups=gpus(8, borrowingLimit=0), cohort="c"),
        (8, 8, 1),
    ),
    Case(
        "flavors are added",
        cluster_queue(
            groups=quotas(
                {"nvidia.com/gpu": {"nominalQuota": 4, "borrowingLimit": 1}},
                {"nvidia.com/gpu": {"nominalQuota": "3"}},
            ),
            cohort="c",
        ),
        (7, -1, 1),
    ),
    Case(
        "GPUs of two makers are added",
        cluster_queue(
            groups=quotas(
                {"nvidia.com/gpu": {"nominalQuota": 4}, "amd.com/gpu": {"nominalQuota": 2}}
            )
        ),
        (6, 6, 1),
    ),
    Case("parts of a GPU", cluster_queue(groups=gpus("2500m")), (2.5, 2.5, 1)),
    Case(
        "a fair-sharing weight becomes the weight",
        cluster_queue(cohort="c", fairSharing={"weight": "500m"}),
        (8, -1, 0.5),
    ),
    Case(
        "a queue without GPUs gets none",
        cluster_queue(groups=quotas({"cpu": {"nominalQuota": 4}})),
        (0, 0, 0),
    ),
]


@pytest.mark.parametrize("case", GPU_SHARES, ids=ids)
def test_gpu_quotas(case: Case[Obj, tuple[float, float, float]]) -> None:
    """Nominal quota becomes quota, and what it may borrow becomes the limit."""
    assert shares(migrate("kueue", case.given), "q")["gpu"] == case.want


def test_cpu_and_memory_have_the_units_of_a_queue() -> None:
    """Millicores and megabytes; memory is rounded up."""
    groups = quotas({"cpu": {"nominalQuota": "1500m"}, "memory": {"nominalQuota": "1Gi"}})
    found = shares(migrate("kueue", cluster_queue(groups=groups)), "q")

    assert found == {"gpu": (0, 0, 0), "cpu": (1500, 1500, 1), "memory": (1074, 1074, 1)}


def test_what_a_queue_does_not_cover_is_unlimited_and_named() -> None:
    """Kueue would admit no pod with CPU; nearly all pods request some."""
    migration = migrate("kueue", cluster_queue())

    assert shares(migration, "q") == {"gpu": (8, 8, 1), "cpu": FREE, "memory": FREE}
    assert notes(migration.by_hand) == [("ClusterQueue q", "spec.resourceGroups")]
    assert "cpu and memory" in migration.by_hand[0].message


def test_a_cohort_becomes_a_parent_with_the_sum_as_quota_and_limit() -> None:
    """Kueue lends nothing that no quota of the cohort has."""
    found = migrate("kueue", cluster_queue("a", cohort="c"), cluster_queue("b", cohort="c"))

    assert [(str(it.source), str(it.target)) for it in found.becomes] == [
        ("Cohort c", "Queue c"),
        ("ClusterQueue a", "Queue a"),
        ("ClusterQueue b", "Queue b"),
    ]
    assert shares(found, "c") == {"gpu": (16, 16, 1), "cpu": FREE, "memory": FREE}
    assert [it["spec"].get("parentQueue") for it in found.manifests] == [None, "c", "c"]


def test_cohorts_below_cohorts_are_counted_from_below() -> None:
    """A quota of a cohort's own is added; below another one it borrows up to its limit."""
    top = kueue("Cohort", "top", {"resourceGroups": gpus(2)})
    low = kueue("Cohort", "low", {"parent": "top", "resourceGroups": gpus(1, borrowingLimit=3)})
    found = migrate("kueue", low, top, cluster_queue("a", cohort="low"))

    assert shares(found, "low")["gpu"] == (9, 12, 1)
    assert shares(found, "top")["gpu"] == (11, 11, 1)
    assert [it["metadata"]["name"] for it in found.manifests] == ["top", "low", "a"]


def test_a_cohort_with_the_name_of_a_queue_gets_another() -> None:
    found = migrate("kueue", cluster_queue("c", cohort="c"))

    assert [it["metadata"]["name"] for it in found.manifests] == ["c-cohort", "c"]
    assert found.manifests[1]["spec"]["parentQueue"] == "c-cohort"


def test_a_local_queue_becomes_a_grant_and_the_queue_of_its_namespace() -> None:
    """All users that may create workloads there may use it, as in Kueue."""
    local = kueue("LocalQueue", "main", {"clusterQueue": "q"}, "ns")
    found = migrate("kueue", cluster_queue(), local)
    role, binding, namespace = found.manifests[1:]

    assert role["rules"][0]["resourceNames"] == ["q"]
    assert [it["name"] for it in binding["subjects"]] == [
        "system:serviceaccounts:ns",
        "system:authenticated",
    ]
    assert namespace["metadata"] == {"name": "ns", "labels": {"kai.scheduler/queue": "q"}}


@pytest.mark.parametrize(("names", "queue"), [(("default", "x"), "to-default"), (("x", "y"), None)])
def test_of_several_local_queues_the_default_one_counts(
    names: tuple[str, ...], queue: str | None
) -> None:
    """Without one, the namespace is labelled by hand."""
    objects = [
        it
        for name in names
        for it in (
            cluster_queue(f"to-{name}"),
            kueue("LocalQueue", name, {"clusterQueue": f"to-{name}"}, "ns"),
        )
    ]
    found = migrate("kueue", *objects)
    labels = [
        it["metadata"]["labels"]["kai.scheduler/queue"]
        for it in found.manifests
        if it["kind"] == "Namespace"
    ]

    assert labels == ([queue] if queue else [])
    assert (("Namespace ns", "metadata.labels") in notes(found.by_hand)) == (queue is None)


def trainjob(labels: dict[str, str]) -> Obj:
    """Return a TrainJob as the API server writes it."""
    meta = {"name": "job", "namespace": "ns", "labels": labels, "uid": "1", "generation": 2}
    spec = {"runtimeRef": {"name": "torch-distributed"}}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return {**head, "metadata": meta, "spec": spec, "status": {"conditions": []}}


LABELS = {"kueue.x-k8s.io/queue-name": "main", "team": "x"}
LOCAL = (cluster_queue(), kueue("LocalQueue", "main", {"clusterQueue": "q"}, "ns"))


def test_a_trainjob_gets_the_label_of_its_queue() -> None:
    """Its other labels stay; what the API server wrote goes."""
    found = migrate("kueue", *LOCAL, trainjob(LABELS))

    assert found.manifests[-1] == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "job",
            "namespace": "ns",
            "labels": {"team": "x", "kai.scheduler/queue": "q"},
        },
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }


def test_a_trainjob_of_the_cluster_is_relabelled_by_a_command() -> None:
    """A manifest could undo what a controller wrote since."""
    found = migrate("kueue", *LOCAL, trainjob(LABELS), file=CLUSTER)

    assert "TrainJob" not in {it["kind"] for it in found.manifests}
    assert (
        "kubectl -n ns label trainjob job kai.scheduler/queue=q kueue.x-k8s.io/queue-name-"
        in found.by_hand[-1].message
    )


@pytest.mark.parametrize(("value", "preemptible"), [(99, False), (100, True)])
def test_a_large_priority_stays_preemptible(value: int, preemptible: bool) -> None:
    """From 100 on a PodGroup is non-preemptible unless a label says otherwise."""
    labels = {**LABELS, "kueue.x-k8s.io/priority-class": "high"}
    priority = kueue("WorkloadPriorityClass", "high", value=value)
    found = migrate("kueue", *LOCAL, priority, trainjob(labels))
    got = found.manifests[-1]["metadata"]["labels"]

    assert got["priorityClassName"] == "high"
    assert ("kai.scheduler/preemptibility" in got) == preemptible
    assert (("WorkloadPriorityClass high", "value") in notes(found.by_hand)) == preemptible


def test_what_has_no_equivalent_is_named_by_object_and_field() -> None:
    """Fields and kinds; values that are the default are not."""
    groups = quotas({"nvidia.com/gpu": {"nominalQuota": 1, "lendingLimit": 0}, "x/rdma": {}})
    spec: Obj = {"queueingStrategy": "StrictFIFO", "admissionChecks": ["a"], "stopPolicy": "Hold"}
    found = migrate(
        "kueue",
        cluster_queue(groups=groups, **spec),
        cluster_queue("plain", queueingStrategy="BestEffortFIFO", stopPolicy="None"),
        kueue("AdmissionCheck", "a", {"controllerName": "c"}),
        kueue("ResourceFlavor", "f", {"nodeLabels": {"a": "b"}, "topologyName": "t"}),
        kueue("Topology", "t", {"levels": [{"nodeLabel": "rack"}]}),
    )

    assert notes(found.unsupported) == [
        ("ClusterQueue q", "spec.resourceGroups[0].flavors[0].resources[1]"),
        ("ClusterQueue plain", "spec.preemption"),
        ("ClusterQueue q", "spec.queueingStrategy"),
        ("ClusterQueue q", "spec.admissionChecks"),
        ("ClusterQueue q", "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit"),
        ("ClusterQueue q", "spec.preemption"),
        ("ResourceFlavor f", "spec.topologyName"),
        ("AdmissionCheck a", "spec"),
    ]
    assert ("ClusterQueue q", "spec.stopPolicy") in notes(found.by_hand)
    assert ("ResourceFlavor f", "spec.nodeLabels") in notes(found.by_hand)


# what is wrong → what is reported
FAULTS: list[Case[list[Obj], str]] = [
    Case(
        "a quota that is no quantity",
        [cluster_queue(groups=gpus("many"))],
        "in.yaml: ClusterQueue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: "
        "'many'",
    ),
    Case("a negative quota", [cluster_queue(groups=gpus(-1))], "-1 must not be negative"),
    Case(
        "a list where an object belongs",
        [kueue("ClusterQueue", "q", [])],
        "in.yaml: ClusterQueue q: spec: ",
    ),
    Case(
        "a queue without a name is reported",
        [kueue("ClusterQueue", "", {})],
        "metadata.name: is missing",
    ),
    Case(
        "a queue that exists twice is reported",
        [cluster_queue(), cluster_queue()],
        "exists twice, first in in.yaml",
    ),
    Case(
        "an unknown version",
        [{**cluster_queue(), "apiVersion": "kueue.x-k8s.io/v9"}],
        "apiVersion: 'v9' is unknown; known are v1beta2, v1beta1, v1alpha1",
    ),
    Case(
        "cohorts in a circle",
        [kueue("Cohort", "a", {"parent": "b"}), kueue("Cohort", "b", {"parentName": "a"})],
        "in.yaml: Cohort a: spec.parentName: the cohort is below itself: a → b → a",
    ),
    Case(
        "a LocalQueue without a queue",
        [cluster_queue(), kueue("LocalQueue", "l", {}, "ns")],
        "in.yaml: LocalQueue ns/l: spec.clusterQueue: is missing",
    ),
    Case("nothing of Kueue", [trainjob({})], "no object of kueue found in in.yaml"),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_a_fault_names_file_object_and_field(case: Case[list[Obj], str]) -> None:
    """All that is wrong is an error, and nothing is guessed."""
    with pytest.raises(ConfigError) as error:
        migrate("kueue", *case.given)

    assert case.want in str(error.value)


def test_a_name_that_is_no_label_is_left_out() -> None:
    """Pods name their queue in a label of 63 characters."""
    found = migrate("kueue", cluster_queue("q" * 64))

    assert found.manifests == []
    assert notes(found.by_hand)[-1][1] == "metadata.name"


@pytest.mark.parametrize("name", ["q" * 64, "default-queue", "default-parent-queue"])
def test_nothing_names_a_queue_that_is_not_made(name: str) -> None:
    """No grant, no label of the namespace, and no label of the TrainJob."""
    local = kueue("LocalQueue", "main", {"clusterQueue": name}, "ns")
    found = migrate("kueue", cluster_queue(name), local, trainjob(LABELS))

    assert found.manifests == []
    assert set(notes(found.by_hand)) >= {
        (f"ClusterQueue {name}", "metadata.name"),
        ("LocalQueue ns/main", "spec.clusterQueue"),
        ("Namespace ns", "metadata.labels"),
        ("TrainJob ns/job", "metadata.labels[kueue.x-k8s.io/queue-name]"),
    }


def test_a_cohort_with_the_name_of_an_installed_queue_gets_another() -> None:
    """The installation owns its queues."""
    found = migrate("kueue", cluster_queue("a", cohort="default-queue"))

    assert found.manifests[0]["metadata"]["name"] == "default-queue-cohort"


@pytest.mark.parametrize("name", ["train", "inference", "system-a"])
def test_a_priority_class_that_others_own_is_not_made(name: str) -> None:
    """The TrainJob names no class in its place."""
    labels = {**LABELS, "kueue.x-k8s.io/priority-class": name}
    given = (kueue("WorkloadPriorityClass", name, value=1000), trainjob(labels))
    found = migrate("kueue", *LOCAL, *given)

    assert "PriorityClass" not in {it["kind"] for it in found.manifests}
    assert "priorityClassName" not in found.manifests[-1]["metadata"]["labels"]
    assert set(notes(found.by_hand)) >= {
        (f"WorkloadPriorityClass {name}", "metadata.name"),
        ("TrainJob ns/job", "metadata.labels[kueue.x-k8s.io/priority-class]"),
    }


@pytest.mark.parametrize("file", ["in.yaml", CLUSTER])
def test_a_trainjob_that_has_ended_is_left_out(file: str) -> None:
    """Nothing of it runs again."""
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    found = migrate("kueue", *LOCAL, {**trainjob(LABELS), "status": ended}, file=file)

    assert "TrainJob" not in {it["kind"] for it in found.manifests}
    assert "TrainJob ns/job" not in [source for source, _ in notes(found.by_hand)]


def test_a_trainjob_that_would_not_start_is_named() -> None:
    """It is suspended, or another cluster runs it."""
    job = trainjob(LABELS)
    job["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    found = notes(migrate("kueue", *LOCAL, job).by_hand)

    assert set(found) >= {
        ("TrainJob ns/job", "spec.managedBy"),
        ("TrainJob ns/job", "spec.suspend"),
    }


def test_memory_of_a_cohort_is_the_sum_of_what_is_written() -> None:
    """Each amount is rounded up to a megabyte before it is added; 4 GiB are 4295 megabytes."""
    groups = quotas({"memory": {"nominalQuota": "1Gi"}})
    queues = [cluster_queue(name, groups=groups, cohort="lab") for name in "abcd"]

    assert shares(migrate("kueue", *queues), "lab")["memory"] == (4296, 4296, 1)


@pytest.mark.parametrize("level", [[1], 1, "", None])
def test_a_topology_without_the_label_of_a_level_is_made_by_hand(level: Any) -> None:
    """A level has the name of a node label."""
    given = kueue("Topology", "t", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": level}]})
    found = migrate("kueue", given)

    assert (found.manifests, notes(found.by_hand)) == ([], [("Topology t", "spec.levels")])


def test_node_labels_with_keys_of_any_type_are_sorted() -> None:
    """YAML has numbers as keys."""
    found = migrate("kueue", kueue("ResourceFlavor", "f", {"nodeLabels": {1: "x", "a": "y"}}))

    assert found.by_hand[0].message.endswith("1: x, a: y")


def test_the_order_of_the_files_does_not_matter() -> None:
    """Nor do the objects that are made depend on it."""
    objects = example("kueue")

    assert migrate("kueue", *objects) == migrate("kueue", *reversed(objects))


def test_the_example_becomes_objects_that_the_definitions_accept() -> None:
    """Queues have the fields and types of the CRD."""
    manifests = migrate("kueue", *example("kueue")).manifests

    assert {it["kind"] for it in manifests} >= {"Queue", "Role", "RoleBinding", "TrainJob"}
    assert [fault for it in manifests for fault in faults_against_schema(it)] == []
