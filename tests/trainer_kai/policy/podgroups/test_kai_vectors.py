"""KAI's worked examples of grouping, one a row: the same PodGroups, or why ours differ.

The numbers are those of KAI 0.13; letters are the examples of 0.17. docs/workloads.md argues what
differs for users.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from tests.support.workloads.jobsets import UID, admitted, recorded
from tests.trainer_kai.policy.podgroups.default_groups import (
    CLASS,
    CLASSES,
    POOL,
    PROJECT,
    QUEUE,
    group_of,
    owner,
)
from tests.trainer_kai.policy.workloads.jobs import workload as job
from tests.trainer_kai.policy.workloads.objects import in_words, manifests, template, workload
from trainer_kai.policy.podgroups.default_group import default_podgroup
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.queueing.kind_defaults import NO_CHANGES
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.queueing.queue_resolution import (
    RequestedQueues,
    queue_of_owner,
    resolve_queue,
)
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.kubeflow import MPI_KIND, PYTORCH_KIND
from trainer_kai.policy.workloads.leader_worker_set import LWS_KIND, lws_pod_place
from trainer_kai.policy.workloads.ray import RAY_CLUSTER_KIND
from trainer_kai.policy.workloads.shapes import subgroup_of
from trainer_kai.policy.workloads.workload import Workload

_NOTHING: Final = SelectablePriorityClasses({})


class Vector(NamedTuple):
    number: str
    what: str
    given: Workload
    want: Sequence[str]
    why: str = ""  # KAI does something else; "": the same


def _replicated(name: str, replicas: int, **spec: Any) -> Any:
    template = {"spec": {**spec, "template": {"spec": {}}}}
    return {"name": name, "replicas": replicas, "template": template}


def _jobset(order: str, *jobs: Any) -> Workload:
    meta = {"name": "js", "namespace": "team"}
    spec = {"startupPolicy": {"startupPolicyOrder": order}, "replicatedJobs": [*jobs]}
    return jobset_workload(admitted({"metadata": meta, "spec": spec}))


def _trainjob(runtime: str, nodes: str = "4") -> Workload:
    return jobset_workload(admitted(recorded(runtime, nodes)))


def _leaf(job: str, pods: int, replicas: int = 1) -> str:
    leaves = (f"{job}/{job}-replica-{it} {pods}" for it in range(replicas))
    return ", ".join((f"{job} {replicas}", *leaves))


def _pytorch(worker: int, master: int = 0, segment: str = "", **spec: Any) -> Workload:
    annotations = {"kai.scheduler/segment-size": segment} if segment else {}
    specs = {
        name: {"replicas": pods, "template": template(annotations=annotations)}
        for name, pods in (("Master", master), ("Worker", worker))
        if pods
    }
    return workload(PYTORCH_KIND, {"pytorchReplicaSpecs": specs, **spec})


def _mpi() -> Workload:
    specs = {
        name: {"replicas": pods, "template": template()}
        for name, pods in (("Launcher", 1), ("Worker", 2))
    }
    policy = "WaitForWorkersReady"
    return workload(MPI_KIND, {"mpiReplicaSpecs": specs, "launcherCreationPolicy": policy})


def _lws(*, size: int = 5, segment: int = 2, startup: str = "LeaderCreated") -> Workload:
    pods = {"size": size, "workerTemplate": template(), "subGroupPolicy": {"subGroupSize": segment}}
    return workload(LWS_KIND, {"startupPolicy": startup, "leaderWorkerTemplate": pods})


def _ray() -> Workload:
    def group(name: str, least: int, replicas: int, hosts: int) -> Any:
        return {
            "groupName": name,
            "minReplicas": least,
            "replicas": replicas,
            "numOfHosts": hosts,
            "template": template(),
        }

    groups = [group("a", 1, 3, 2), group("b", 0, 2, 1)]
    head = {"template": template()}
    return workload(RAY_CLUSTER_KIND, {"headGroupSpec": head, "workerGroupSpecs": groups})


_LEADER_AND_WORKERS: Final = (
    _replicated("leader", 1, parallelism=1, completions=1),
    _replicated("worker", 2, parallelism=4, completions=4),
)
_TREE: Final = f"pg-js-{UID} 2: {_leaf('leader', 1)}, {_leaf('worker', 4, 2)}"
_STAGES: Final = "each stage is complete in itself: KAI never starts the pods of a later one"
VECTORS: Final = (
    Vector("1", "a JobSet in order", _jobset("InOrder", *_LEADER_AND_WORKERS), [_TREE],
           "0.13 has two PodGroups and 0.17 a minimum of one: half a workload would hold GPUs"),
    Vector("2", "a JobSet in any order", _jobset("AnyOrder", *_LEADER_AND_WORKERS), [_TREE]),
    Vector("3", "fewer completions",
           _jobset("InOrder", _replicated("worker", 2, parallelism=4, completions=3)),
           [f"pg-js-{UID} 1: {_leaf('worker', 3, 2)}"],
           "0.17 does not read completions, and waits for a pod that never exists"),
    Vector("5", "no parallelism", _jobset("AnyOrder", _replicated("worker", 2)),
           [f"pg-js-{UID} 1: {_leaf('worker', 1, 2)}"]),
    Vector("5", "parallelism 0", _jobset("AnyOrder", _replicated("worker", 2, parallelism=0)), [],
           "0 means no pods, so that there is nothing to group until it is raised"),
    Vector("8, a", "torch on 4 nodes", _trainjob("torch-distributed"),
           [f"pg-job-{UID} 1: {_leaf('node', 4)}"]),
    Vector("9, b", "deepspeed: the launcher after the nodes", _trainjob("deepspeed-distributed"),
           [f"pg-job-{UID} 2: {_leaf('node', 3)}, {_leaf('launcher', 1)}"],
           "the tree is that of KAI, and the launcher's leaf does not count before its pod exists"),
    Vector("10, c", "torchtune: nodes after two initializers",
           _trainjob("torchtune-llama3.2-1b", "2"),
           [f"pg-job-{UID}-{name} 1: {_leaf(name, pods)}"
            for name, pods in (("dataset-initializer", 1), ("model-initializer", 1), ("node", 2))],
           _STAGES),
    Vector("15", "elastic", _pytorch(3, 1, elasticPolicy={"minReplicas": 2}),
           ["pg-x-U 2: master 1, worker 1"]),
    Vector("16", "segments", _pytorch(5, segment="2"),
           ["pg-x-U 1: worker 3, worker/worker-0 2, worker/worker-1 2, worker/worker-2 1"]),
    Vector("16", "a segment size of 0", _pytorch(2, segment="0"), ["pg-x-U 1: worker 2"],
           "KAI divides by zero; the size is ignored, with an Event"),
    Vector("16", "segments of an elastic job",
           _pytorch(5, segment="2", elasticPolicy={"minReplicas": 2}),
           ["pg-x-U 1: worker 3, worker/worker-0 2, worker/worker-1 0, worker/worker-2 0"]),
    Vector("18", "segments with a leader", _lws(),
           ["pg-x-U-group-0 2: segment-0 2, segment-0/leader 1, segment-0/workers 2, segment-1 2"]),
    Vector("18", "LeaderReady", _lws(startup="LeaderReady"),
           ["pg-x-U-group-0 2: segment-0 2, segment-0/leader 1, segment-0/workers 2, segment-1 2"],
           "KAI's minimum depends on the moment, and its leader never starts; ours anticipates"),
    Vector("19", "Ray", _ray(), ["pg-x-U 3: headgroup 1, a 2, b 2"]),
    Vector("20", "MPI before its launcher", _mpi(), ["pg-x-U 2: launcher 1, worker 2"],
           "KAI's minimum is 2 and then 3; here the launcher is a sub-group whose pod comes later"),
    Vector("21", "a bare Job of three pods", job(parallelism=3, completions=3),
           ["pg-train-1-2-3 1"], "0.13 has one for each pod; 0.17 one, as here"),
    Vector("22", "a run of a CronJob", job(parallelism=3, completions=3, ownerReferences=[
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}
    ]), ["pg-train-1-2-3 1"]),
)  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda it: f"{it.number}: {it.what}")
def test_the_podgroups(vector: Vector) -> None:
    assert in_words(vector.given) == [*vector.want]


def test_a_pod_without_the_label_of_its_job() -> None:
    """Vector 7: KAI repeats an error; here the pod is in no PodGroup, and its state says so."""
    plan = plan_podgroups(_jobset("AnyOrder", *_LEADER_AND_WORKERS), "kai-scheduler")
    assert plan.podgroup_of("") is None


def test_the_places_of_the_pods_of_a_group_with_segments() -> None:
    """Vector 18: the leader and two workers are the first segment."""
    (shape,) = _lws().shapes or ()
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    found = [subgroup_of(shape, lws_pod_place({index: f"{it}"})) for it in range(5)]
    assert found == ["leader", "workers", "workers", "segment-1", "segment-1"]


def test_labels_of_the_queue_at_three_places() -> None:
    """Vector 11: KAI takes the JobSet's, which a user of TrainJobs does not write."""
    named = RequestedQueues(trainjob={QUEUE: "a"}, jobset={QUEUE: "b"}, templates=({QUEUE: "c"},))
    assert resolve_queue(named, "d").queue == "a"
    assert resolve_queue(named._replace(trainjob={}), "d").queue == "b"
    assert resolve_queue(named._replace(trainjob={}, jobset={}), "d").queue == "c"


def test_a_project_with_a_node_pool() -> None:
    """Vector 12, for the kinds without admission."""
    assert queue_of_owner({PROJECT: "p"}, {POOL: "x"}) == "p-x"


DEFAULTS: list[tuple[str, str, str, str]] = [  # number, kind, PodGroup, class
    ("13", "example.com/v1/Sweep", "pg-sweep-u-sweep", "train"),
    ("23", "apps/v1/Deployment", "pg-deployment-u-deployment", "inference"),
    ("26", "example.com/v1/Model", "pg-model-u-model", "train"),
]


@pytest.mark.parametrize("case", DEFAULTS, ids=lambda it: f"{it[0]}: {it[1]}")
def test_kinds_without_a_rule_of_their_own(case: tuple[str, str, str, str]) -> None:
    """Vector 23: KAI has one for each pod of a Deployment up to 0.17, and from 0.18 on one."""
    _, kind, name, priority_class = case
    fields = default_podgroup(group_of(owner(kind)), "default-queue", _NOTHING, NO_CHANGES)
    assert fields["metadata"]["name"] == name
    assert fields["spec"] == {
        "queue": "default-queue",
        "priorityClassName": priority_class,
        "minMember": 1,
    }


def test_an_owner_that_may_not_be_read() -> None:
    """Vector 25: each pod is a PodGroup."""
    fields = default_podgroup(group_of(), "default-queue", _NOTHING, NO_CHANGES)
    assert (fields["metadata"]["name"], fields["spec"]["minMember"]) == ("pg-p-u", 1)


def test_a_class_that_does_not_exist() -> None:
    """Vector 14: the label hides the class of the pod from KAI; here that counts."""
    given = group_of(owner(labels={CLASS: "none"}), priority_class="low")
    fields = default_podgroup(given, "q", CLASSES, NO_CHANGES)
    assert fields["spec"]["priorityClassName"] == "low"


def test_the_minimum_of_a_job_of_a_user() -> None:
    """KAI 0.17: 1, or the annotation."""
    found = job(parallelism=3, completions=3, annotations={"kai.scheduler/batch-min-member": "2"})
    (fields,) = manifests(found)
    assert fields["spec"]["minMember"] == 2
