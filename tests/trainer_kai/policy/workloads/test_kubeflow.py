"""The jobs of Kubeflow v1 as workloads: their PodGroups, as in KAI's own examples, and state."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.workloads.objects import (
    findings,
    in_words,
    manifests,
    template,
    workload,
)
from trainer_kai.api.decode import DecodeError
from trainer_kai.api.names import ANTICIPATED
from trainer_kai.policy.podgroups.anticipated import read_anticipated
from trainer_kai.policy.workloads.kubeflow import (
    JAX_KIND,
    MPI_KIND,
    MPI_V1_KIND,
    PYTORCH_KIND,
    TF_KIND,
    XGBOOST_KIND,
    kubeflow_pod_place,
)
from trainer_kai.policy.workloads.shapes import subgroup_of
from trainer_kai.policy.workloads.workload import PodPlace, Workload, WorkloadKind

SEGMENT = "kai.scheduler/segment-size"
FIELDS: dict[str, str] = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}


def job(kind: WorkloadKind, *, status: Any = None, more: Any = None, **roles: Any) -> Workload:
    """Return a job; a role is its number of pods, or its replica spec."""
    specs = {
        name.capitalize(): {"replicas": it, "template": template()} if isinstance(it, int) else it
        for name, it in roles.items()
    }
    spec = {FIELDS[kind.resource.kind]: specs, **(more or {})}
    return workload(kind, spec, status)


def pytorch(*, more: Any = None, segment: str | None = None, **roles: int) -> Workload:
    annotations = {} if segment is None else {SEGMENT: segment}
    specs = {
        name: {"replicas": pods, "template": template(annotations=annotations)}
        for name, pods in roles.items()
    }
    return job(PYTORCH_KIND, more=more, **specs)


def at_least(pods: int) -> Any:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": pods}}}


def elastic(pods: int) -> Any:
    return {"elasticPolicy": {"minReplicas": pods}}


PYTORCH: list[Case[Workload, str]] = [
    Case("all pods", pytorch(master=1, worker=3), "pg-x-U 2: master 1, worker 3"),
    Case(
        "vector 15: elastic",
        pytorch(master=1, worker=3, more=elastic(2)),
        "pg-x-U 2: master 1, worker 1",
    ),
    Case(
        "minAvailable is stronger",
        pytorch(master=1, worker=3, more={**elastic(2), **at_least(3)}),
        "pg-x-U 2: master 1, worker 2",
    ),
    Case(
        "the minimum is that of the master alone",
        pytorch(master=1, worker=3, more=at_least(1)),
        "pg-x-U 2: master 1, worker 0",
    ),
    Case("workers only", pytorch(worker=4), "pg-x-U 1: worker 4"),
    Case("no workers", pytorch(master=1, worker=0), "pg-x-U 1: master 1"),
    Case(
        "vector 16: segments",
        pytorch(worker=5, segment="2"),
        "pg-x-U 1: worker 3, worker/worker-0 2, worker/worker-1 2, worker/worker-2 1",
    ),
    Case(
        "segments beyond the minimum",
        pytorch(worker=6, segment="2", more=at_least(3)),
        "pg-x-U 1: worker 3, worker/worker-0 2, worker/worker-1 2, worker/worker-2 0",
    ),
    Case(
        "a minimum of whole segments",
        pytorch(worker=6, segment="2", more=at_least(4)),
        "pg-x-U 1: worker 3, worker/worker-0 2, worker/worker-1 2, worker/worker-2 0",
    ),
    Case("a segment of 0", pytorch(worker=2, segment="0"), "pg-x-U 1: worker 2"),
    Case("no number", pytorch(worker=2, segment="two"), "pg-x-U 1: worker 2"),
    Case("negative", pytorch(worker=2, segment="-1"), "pg-x-U 1: worker 2"),
    Case("more segments than fit", pytorch(worker=10**9, segment="1"), f"pg-x-U 1: worker {10**9}"),
]


@pytest.mark.parametrize("case", PYTORCH, ids=ids)
def test_the_podgroup_of_a_pytorch_job(case: Case[Workload, str]) -> None:
    assert in_words(case.given) == [case.want]


OTHERS: list[Case[Workload, str]] = [
    Case("TFJob", job(TF_KIND, ps=2, worker=3, chief=1), "pg-x-U 6"),
    Case("TFJob, at least", job(TF_KIND, ps=2, worker=3, more=at_least(4)), "pg-x-U 4"),
    Case("XGBoostJob", job(XGBOOST_KIND, master=1, worker=2), "pg-x-U 3"),
    Case("JAXJob", job(JAX_KIND, worker=4), "pg-x-U 4"),
    Case("MPIJob", job(MPI_KIND, launcher=1, worker=2), "pg-x-U 3"),
    Case("MPIJob v1", job(MPI_V1_KIND, launcher=1, worker=2), "pg-x-U 3"),
    Case(
        "an absent number of replicas is 1",
        job(JAX_KIND, worker={"template": template()}),
        "pg-x-U 1",
    ),
    Case(
        "a role of another scheduler counts for nothing",
        job(TF_KIND, ps={"replicas": 2, "template": template("default-scheduler")}, worker=3),
        "pg-x-U 3",
    ),
    Case(
        "a role without a scheduler is the default scheduler's",
        job(PYTORCH_KIND, master={"replicas": 1, "template": template("")}, worker=3),
        "pg-x-U 1: worker 3",
    ),
]


@pytest.mark.parametrize("case", OTHERS, ids=ids)
def test_the_podgroup_of_other_kinds(case: Case[Workload, str]) -> None:
    assert in_words(case.given) == [case.want]


def test_a_job_of_other_schedulers_has_no_podgroup_and_no_findings() -> None:
    it = job(JAX_KIND, worker={"replicas": 2, "template": template("volcano")})

    assert in_words(it) == []
    assert findings(it) == []


def waiting(**roles: Any) -> Workload:
    return job(MPI_KIND, more={"launcherCreationPolicy": "WaitForWorkersReady"}, **roles)


def test_a_launcher_that_waits_is_a_later_part_of_the_podgroup() -> None:
    """Vector 20: KAI changes the minimum from 2 to 3; here the two workers never wait for it."""
    it = waiting(launcher=1, worker=2)
    (fields,) = manifests(it)
    (later,) = read_anticipated(fields["metadata"]["annotations"][ANTICIPATED]).later

    assert in_words(it) == ["pg-x-U 2: launcher 1, worker 2"]
    assert (later.sub_group_prefix, later.replicas, later.count) == ("launcher", 1, 1)


def test_a_minimum_counts_a_launcher_that_waits() -> None:
    roles: Any = {"launcher": 1, "worker": 4}
    more = {"launcherCreationPolicy": "WaitForWorkersReady", **at_least(3)}

    assert in_words(job(MPI_KIND, more=more, **roles)) == ["pg-x-U 2: launcher 1, worker 2"]


FAULTS: list[Case[Workload, list[str]]] = [
    Case("nothing", pytorch(worker=2, segment="2"), []),
    Case(
        "a minimum of more pods than there are",
        pytorch(worker=2, more=at_least(3)),
        [
            (
                "spec.runPolicy.schedulingPolicy.minAvailable: 3 is more than the 2 pods of "
                "all roles. 2 is used"
            )
        ],
    ),
    Case(
        "a minimum of no pods",
        pytorch(worker=2, more=elastic(0)),
        ["spec.elasticPolicy.minReplicas: ignored: 0 must be 1 or more"],
    ),
    Case(
        "a segment of no pods",
        pytorch(worker=2, segment="0"),
        [
            (
                "spec.pytorchReplicaSpecs.Worker.template.metadata.annotations[kai.scheduler/segment-"
                "size]: ignored: '0' must be a whole number, 1 or more"
            )
        ],
    ),
    Case(
        "more segments than a PodGroup can have",
        pytorch(worker=10_000, segment="1"),
        [
            (
                "spec.pytorchReplicaSpecs.Worker.template.metadata.annotations[kai.scheduler/segment-"
                "size]: ignored: 10000 pods would be 10000 segments, and the maximum is 2990. Set "
                "at least 4"
            )
        ],
    ),
    Case(
        "a role that the operator needs",
        job(MPI_KIND, worker=1),
        ["spec.mpiReplicaSpecs: has no Launcher, so the operator refuses the job"],
    ),
    Case(
        "a role of another scheduler",
        job(TF_KIND, ps={"replicas": 1, "template": template("")}, worker=1),
        [
            (
                "spec.tfReplicaSpecs.Ps.template.spec.schedulerName: the pods of ps are in no "
                "PodGroup: scheduler 'default-scheduler' places them"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_the_findings_of_a_job(case: Case[Workload, list[str]]) -> None:
    assert findings(case.given) == case.want


def test_too_many_roles_are_in_no_podgroup() -> None:
    it = job(TF_KIND, **{f"r{i}": 1 for i in range(65)})

    assert in_words(it) == []
    assert findings(it) == [
        "spec.tfReplicaSpecs: has 65 roles, and the maximum is 64. Combine equal ones"
    ]


PLACES: list[Case[tuple[str, str], str]] = [
    Case("the first worker", ("worker", "0"), "worker-0"),
    Case("the last of a segment", ("worker", "1"), "worker-0"),
    Case("the last segment", ("worker", "4"), "worker-2"),
    Case("one that elasticity added", ("worker", "9"), "worker-2"),
    Case("a forged index", ("worker", "-3"), "worker-0"),
    Case("the master", ("master", "0"), "master"),
    Case("an unknown role", ("evaluator", "0"), ""),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_the_sub_group_of_a_pod(case: Case[tuple[str, str], str]) -> None:
    role, index = case.given
    place = kubeflow_pod_place(
        {
            "training.kubeflow.org/replica-type": role.capitalize(),
            "training.kubeflow.org/replica-index": index,
        }
    )
    shapes = pytorch(master=1, worker=5, segment="2").shapes
    assert shapes is not None

    assert subgroup_of(shapes[0], place) == case.want


def test_the_mpi_operator_labels_roles_only() -> None:
    labels = {"training.kubeflow.org/job-role": "launcher"}

    assert kubeflow_pod_place(labels) == PodPlace("launcher", "0", (0, 0))


def test_topologies_of_roles_and_segments() -> None:
    annotations = {
        "kai.scheduler/topology": "racks",
        "kai.scheduler/topology-required-placement": "zone",
        SEGMENT: "2",
        "kai.scheduler/segment-topology-required-placement": "rack",
    }
    spec = {"replicas": 4, "template": template(annotations=annotations)}
    (fields,) = manifests(job(PYTORCH_KIND, worker=spec))
    found = {it["name"]: it.get("topologyConstraint") for it in fields["spec"]["subGroups"]}

    assert found == {
        "worker": {"topology": "racks", "requiredTopologyLevel": "zone"},
        "worker-0": {"topology": "racks", "requiredTopologyLevel": "rack"},
        "worker-1": {"topology": "racks", "requiredTopologyLevel": "rack"},
    }


def test_the_workload_may_name_the_topology_of_its_roles() -> None:
    spec = {
        "replicas": 1,
        "template": template(annotations={"kai.scheduler/topology-preferred-placement": "rack"}),
    }
    it = workload(
        PYTORCH_KIND,
        {"pytorchReplicaSpecs": {"Worker": spec}},
        annotations={"kai.scheduler/topology": "racks"},
    )
    (subgroup,) = manifests(it)[0]["spec"]["subGroups"]

    assert subgroup["topologyConstraint"] == {
        "topology": "racks",
        "preferredTopologyLevel": "rack",
    }


def condition(kind: str, status: str = "True") -> Any:
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": "T"}]}


STATES: list[Case[tuple[Any, Any], tuple[bool, bool, bool]]] = [
    Case("it runs", ({}, {}), (False, False, True)),
    Case("it is suspended", ({"suspend": True}, {}), (True, False, True)),
    Case("it has succeeded", ({}, condition("Succeeded")), (False, True, True)),
    Case("it has failed", ({}, condition("Failed")), (False, True, True)),
    Case("not any more", ({}, condition("Failed", "False")), (False, False, True)),
    Case("it restarts", ({}, condition("Restarting")), (False, False, True)),
    Case("Kueue's other cluster", ({"managedBy": "kueue.x-k8s.io/x"}, {}), (False, False, False)),
    Case(
        "its operator", ({"managedBy": "kubeflow.org/training-operator"}, {}), (False, False, True)
    ),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
def test_the_state_of_a_job(case: Case[tuple[Any, Any], tuple[bool, bool, bool]]) -> None:
    policy, status = case.given
    it = job(JAX_KIND, worker=1, more={"runPolicy": policy}, status=status)

    assert (it.is_suspended, it.is_over, it.is_managed_here) == case.want
    assert it.is_admitted_here == it.is_managed_here


def test_a_job_is_suspended_in_its_run_policy() -> None:
    found = job(JAX_KIND, worker=1, status=condition("Suspended")).as_suspendable()

    assert found.suspend_path == ("spec", "runPolicy", "suspend")
    assert found.is_managed_here


QUEUES: list[Case[tuple[dict[str, str], dict[str, str]], str]] = [
    Case("no labels", ({}, {}), "default-queue"),
    Case("the job's own", ({"kai.scheduler/queue": "b"}, {"kai.scheduler/queue": "c"}), "b"),
    Case("that of the pods", ({}, {"kai.scheduler/queue": "c"}), "c"),
    Case("the project", ({"project": "p"}, {}), "p"),
    Case(
        "vector 12: the project and the node pool",
        ({"project": "p"}, {"kai.scheduler/node-pool": "x"}),
        "p-x",
    ),
    Case("a queue before a project", ({"project": "p"}, {"kai.scheduler/queue": "c"}), "c"),
]


@pytest.mark.parametrize("case", QUEUES, ids=ids)
def test_the_queue_of_a_job(case: Case[tuple[dict[str, str], dict[str, str]], str]) -> None:
    own, of_pods = case.given
    specs = {"Worker": {"replicas": 1, "template": template(labels=of_pods)}}
    it = workload(JAX_KIND, {"jaxReplicaSpecs": specs}, labels=own)

    assert manifests(it)[0]["spec"]["queue"] == case.want


WRONG: list[Case[Any, str]] = [
    Case(
        "replicas",
        {"Worker": {"replicas": "two"}},
        "spec.jaxReplicaSpecs[...].replicas: must be a whole number, not a string",
    ),
    Case("the roles", [], "spec.jaxReplicaSpecs: must be an object, not a list"),
]


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_a_field_of_another_type_is_named(case: Case[Any, str]) -> None:
    with pytest.raises(DecodeError) as raised:
        workload(JAX_KIND, {"jaxReplicaSpecs": case.given})

    assert str(raised.value) == case.want


def test_unknown_fields_are_ignored() -> None:
    specs = {"Worker": {"replicas": 1, "template": template(), "restartPolicy": "Never", "new": 1}}

    assert in_words(workload(JAX_KIND, {"jaxReplicaSpecs": specs, "new": {}})) == ["pg-x-U 1"]


def test_fields_have_the_names_of_the_manifest() -> None:
    """Findings are about the jobs of a JobSet: here these are roles."""
    it = pytorch(worker=3, master=1)
    job = "spec.replicatedJobs[0].template"

    assert it.own_path(f"{job}.spec.parallelism") == "spec.pytorchReplicaSpecs.Worker.replicas"
    assert it.own_path(f"{job}.spec.template.spec.schedulerName") == (
        "spec.pytorchReplicaSpecs.Worker.template.spec.schedulerName"
    )
    assert it.own_path("metadata.labels[a]") == "metadata.labels[a]"
