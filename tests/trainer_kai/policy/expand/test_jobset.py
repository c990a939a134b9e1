"""What Trainer builds is known before it builds it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.instruction_count import count_instructions
from tests.trainer_kai.policy.specs import STEP, expanded
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.pod import Container
from trainer_kai.errors import FieldError
from trainer_kai.policy.expand.jobset import Expansion

FIXTURES = Path(__file__).parents[3] / "fixtures"
RECORDED = sorted((FIXTURES / "jobsets").glob("*/*.yaml"))
CORNERS = sorted((FIXTURES / "corners").glob("*.yaml"))
Obj = dict[str, Any]


def replicated(name: str, *containers: Obj, step: str = "") -> Obj:
    """Write a replicatedJob; its one container is called node unless there are others."""
    labels = {STEP: step} if step else {}
    pod = {"spec": {"containers": list(containers) or [{"name": "node"}]}}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}


def runtime_of(*jobs: Obj, policy: Obj | None = None, **spec: Any) -> Obj:
    """Write a runtime; no policy is none."""
    policies = {} if policy is None else {"mlPolicy": policy}
    return {"spec": {**policies, "template": {"spec": {"replicatedJobs": list(jobs)}}, **spec}}


def patch(**job: Any) -> Obj:
    return {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def pod_patch(**spec: Any) -> Obj:
    return patch(name="node", template={"spec": {"template": {"spec": spec}}})


TRAINER = replicated("node", step="trainer")
TORCH = runtime_of(TRAINER, policy={"torch": {}})


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_shipped_runtimes(file: Path) -> None:
    """Every JobSet recorded from a shipped runtime is what we say, and has no faults."""
    trainjob, built = documents(file)
    name = trainjob["spec"]["runtimeRef"]["name"]
    [runtime] = documents(FIXTURES / "runtimes" / f"{name}.yaml")

    assert expanded(trainjob, runtime) == Expansion(decode(JobSet, encode(built)))


@pytest.mark.parametrize("file", CORNERS, ids=lambda file: file.stem)
def test_corners(file: Path) -> None:
    """So is what Trainer made of runtimes that are not shipped; all their patches are valid."""
    runtime, trainjob, built = documents(file)

    found = expanded(trainjob, runtime)

    assert found.jobset == decode(JobSet, encode(built))
    assert not any("runtimePatches" in fault.path for fault in found.faults)


def test_there_are_recordings() -> None:
    """Neither of the two tests above passes because it finds nothing to look at."""
    assert len(RECORDED) == 9 * 4 * 2
    assert len(CORNERS) >= 14


# a runtime's podGroupPolicy -> labels and annotations of its pods, where they had others before
STAMPED: list[Case[Obj, tuple[Obj, Obj]]] = [
    Case("no other scheduler", {}, ({"a": "b"}, {"a": "b"})),
    Case(
        "coscheduling",
        {"coscheduling": {"scheduleTimeoutSeconds": 60}},
        ({"a": "b", "scheduling.x-k8s.io/pod-group": "job"}, {"a": "b"}),
    ),
    Case(
        "volcano",
        {"volcano": {}},
        ({"a": "b"}, {"a": "b", "scheduling.k8s.io/group-name": "job"}),
    ),
    Case(
        "both, which is allowed",
        {"coscheduling": {}, "volcano": {}},
        (
            {"a": "b", "scheduling.x-k8s.io/pod-group": "job"},
            {"a": "b", "scheduling.k8s.io/group-name": "job"},
        ),
    ),
]


@pytest.mark.parametrize("case", STAMPED, ids=ids)
def test_groups_of_other_schedulers(case: Case[Obj, tuple[Obj, Obj]]) -> None:
    """Every pod is put into the one PodGroup, whatever its label was."""
    one, two = replicated("one"), replicated("two", step="trainer")
    before = {"scheduling.x-k8s.io/pod-group": "x"} if "coscheduling" in case.given else {}
    pod = one["template"]["spec"]["template"]
    pod["metadata"] = {"labels": {"a": "b", **before}, "annotations": {"a": "b"}}
    two["template"]["spec"]["template"]["metadata"] = pod["metadata"]

    jobset = expanded({}, runtime_of(one, two, podGroupPolicy=case.given)).jobset

    metadata = [job.template.spec.template.metadata for job in jobset.spec.replicated_jobs]
    assert [(each.labels, each.annotations) for each in metadata] == [case.want, case.want]
    assert (jobset.metadata.labels, jobset.metadata.annotations) == ({}, {})


def test_a_runtime_out_of_a_file() -> None:
    """What the API server would have filled in is filled in."""
    spec: Obj = {"replicatedJobs": [TRAINER], "failurePolicy": {"maxRestarts": 1}, "suspend": True}

    jobset = expanded({}, {"spec": {"template": {"spec": spec}}}).jobset

    assert jobset.spec.failure_policy is not None
    assert jobset.spec.failure_policy.restart_strategy == "Recreate"
    assert jobset.spec.startup_policy.startup_policy_order == "AnyOrder"
    assert not jobset.spec.suspend
    (job,) = jobset.spec.replicated_jobs
    assert (job.replicas, job.group_name) == (1, "default")
    assert job.template.spec.completion_mode == "Indexed"


def test_what_no_patch_can_set_stays() -> None:
    """The API server drops it before Trainer sees it."""
    spec = {
        "schedulerName": "x",
        "containers": [{"name": "node", "resources": {"limits": {"a": 1}}}],
    }
    change = pod_patch(**spec)
    (job,) = change["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    job |= {"replicas": 4, "dependsOn": [{"name": "node", "status": "Ready"}]}
    job["template"]["spec"]["parallelism"] = 3
    change["trainingRuntimeSpec"]["template"]["spec"]["managedBy"] = "x"

    found = expanded({"spec": {"runtimePatches": [change]}}, TORCH)

    at = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec"
    node = f"{at}.replicatedJobs[0]"
    pod = f"{node}.template.spec.template.spec"
    assert found.jobset == expanded({}, TORCH).jobset
    assert [str(fault) for fault in found.faults] == [
        f"{path}: a runtime patch cannot set this field"
        for path in (
            f"{at}.managedBy",
            f"{node}.replicas",
            f"{node}.dependsOn",
            f"{node}.template.spec.parallelism",
            f"{pod}.schedulerName",
            f"{pod}.containers[0].resources",
        )
    ]


def test_names_that_the_runtime_does_not_have() -> None:
    """A replicatedJob has the JobSet refused; a container is added, and cannot start."""
    init = {"name": "node", "resources": {"limits": {"cpu": 1}}}
    spec = {"initContainers": [init], "containers": [{"name": "x"}, {"name": "node"}]}
    patches = [patch(name="nodes"), pod_patch(**spec)]

    found = expanded({"spec": {"runtimePatches": patches}}, TORCH)

    (job,) = found.jobset.spec.replicated_jobs
    pod = job.template.spec.template.spec
    assert pod.init_containers == (Container(name="node"),)
    assert pod.containers == (Container(name="x"), Container(name="node"))
    jobs = "trainingRuntimeSpec.template.spec.replicatedJobs[0]"
    pods = f"spec.runtimePatches[1].{jobs}.template.spec.template.spec"
    missing = (
        "replicatedJob 'node' of the runtime has no container {!r} in {}, so it is "
        "added without an image. Name one of the runtime: {}"
    )
    assert found.faults == (
        FieldError(
            f"spec.runtimePatches[0].{jobs}.name",
            "the runtime has no replicatedJob 'nodes', so the JobSet is refused. Name one of "
            "the runtime: node",
        ),
        FieldError(f"{pods}.initContainers[0].resources", "a runtime patch cannot set this field"),
        FieldError(
            f"{pods}.initContainers[0].name", missing.format("node", "initContainers", "none")
        ),
        FieldError(f"{pods}.containers[0].name", missing.format("x", "containers", "node")),
    )


def test_faults_of_a_large_template_name_few_containers() -> None:
    """A list of all names in each fault would grow with the square of the names."""
    runtime = runtime_of(replicated("node", *({"name": f"c{i:03}"} for i in range(600))))
    change = pod_patch(containers=[{"name": f"x{i}"} for i in range(550)])

    faults = expanded({"spec": {"runtimePatches": [change]}}, runtime).faults

    assert len(faults) == 550
    assert max(len(str(fault)) for fault in faults) < 400
    assert faults[0].message.endswith("runtime: c000, c001, c002, c003, c004 and 595 more")


NODES = "spec.trainer.numNodes: "
LABELLED = f"with the label {STEP}=trainer"
UNLABELLED = f"{NODES}has no effect: the runtime has no replicatedJob {LABELLED}"
NO_CONTAINER = (
    "spec.trainer.resourcesPerNode: has no effect: the runtime has no mlPolicy, or no container "
    f"'node' in a replicatedJob {LABELLED}"
)
REFUSED = (
    f"{NODES}must be 1: the runtime lacks replicatedJob 'node' or 'launcher', and the TrainJob "
    "is refused"
)
AS_NODE: Obj = {"mpi": {"runLauncherAsNode": True}}
GPU: Obj = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}


def ports(container: str) -> str:
    """Return the fault of a container with ports that Trainer considers the same."""
    return (
        f"spec.runtimeRef: in the runtime, container '{container}' of replicatedJob 'node' has "
        "two ports with the same number or without a name, so the JobSet is refused. Name all "
        "ports"
    )


def listening(name: str, *given: Obj) -> Obj:
    return {"name": name, "ports": [{"containerPort": 53, **port} for port in given]}


# a TrainJob's spec and its runtime -> its faults; what the real chain does is said with each
FAULTS: list[Case[tuple[Obj, Obj], list[str]]] = [
    Case("nothing is wrong", ({"trainer": {"numNodes": 2, **GPU}}, TORCH), []),
    Case(
        "nodes and resources without a receiver are ignored",
        (
            {"trainer": {"numNodes": 2, **GPU}},
            runtime_of(replicated("node"), policy={"torch": {}}),
        ),
        [UNLABELLED, NO_CONTAINER],
    ),
    Case(
        "resources without an mlPolicy are ignored, nodes are not",
        ({"trainer": {"numNodes": 2, **GPU}}, runtime_of(TRAINER)),
        [NO_CONTAINER],
    ),
    Case(
        "resources without a container called node are ignored",
        (
            {"trainer": GPU},
            runtime_of(replicated("node", {"name": "x"}, step="trainer"), policy={}),
        ),
        [NO_CONTAINER],
    ),
    Case(
        "a launcher that is one of several nodes, without the others, is refused",
        (
            {"trainer": {"numNodes": 2}},
            runtime_of(replicated("launcher", step="trainer"), policy=AS_NODE),
        ),
        [REFUSED],
    ),
    Case(
        "so are nodes without a launcher",
        ({"trainer": {"numNodes": 2}}, runtime_of(TRAINER, policy=AS_NODE)),
        [REFUSED],
    ),
    Case(
        "a launcher can be the only node",
        (
            {"trainer": {"numNodes": 1}},
            runtime_of(replicated("launcher", step="trainer"), policy=AS_NODE),
        ),
        [],
    ),
    Case(
        "a launcher that is no node, without nodes: ignored",
        (
            {"trainer": {"numNodes": 2}},
            runtime_of(replicated("launcher", step="trainer"), policy={"mpi": {}}),
        ),
        [f"{NODES}has no effect: the runtime has no replicatedJob named 'node'"],
    ),
    Case(
        "Flux without a trainer: Trainer dereferences nil, again and again",
        ({}, runtime_of(TRAINER, policy={"flux": {}})),
        ["spec.trainer: must be set: Trainer fails without it if the runtime uses Flux"],
    ),
    Case("Flux with one", ({"trainer": {}}, runtime_of(TRAINER, policy={"flux": {}})), []),
    Case(
        "a runtime without jobs: a JobSet in which nothing happens",
        ({}, runtime_of(policy={"torch": {}})),
        [
            (
                "spec.runtimeRef: the runtime has no replicatedJobs, so no pods are created. Name "
                "another runtime"
            )
        ],
    ),
    Case(
        "another manager: Trainer leaves it alone",
        ({"managedBy": "kueue.x-k8s.io/other"}, TORCH),
        [
            (
                "spec.managedBy: 'kueue.x-k8s.io/other' manages this TrainJob, so "
                "Trainer creates no JobSet"
            )
        ],
    ),
    Case(
        "Trainer's own manager",
        ({"managedBy": "trainer.kubeflow.org/trainjob-controller"}, TORCH),
        [],
    ),
    Case(
        "two ports without names: one is written over the other, then both are the same",
        ({}, runtime_of(replicated("node", listening("side", {}, {"containerPort": 54})))),
        [ports("side")],
    ),
    Case(
        "two protocols of a port",
        (
            {},
            runtime_of(
                replicated(
                    "node", listening("side", {"name": "a"}, {"name": "b", "protocol": "UDP"})
                )
            ),
        ),
        [ports("side")],
    ),
    Case(
        "Trainer's own port takes the place of one, and then is there twice",
        (
            {"trainer": {}},
            runtime_of(
                replicated(
                    "node",
                    listening("node", {}, {"containerPort": 29500, "name": "x"}),
                    step="trainer",
                ),
                policy={"torch": {}},
            ),
        ),
        [ports("node")],
    ),
    Case(
        "ports that are told apart",
        (
            {"trainer": {}},
            runtime_of(
                replicated(
                    "node",
                    listening("node", {"name": "a"}, {"containerPort": 54}),
                    step="trainer",
                ),
                policy={"torch": {}},
            ),
        ),
        [],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_what_comes_to_nothing(case: Case[tuple[Obj, Obj], list[str]]) -> None:
    """All that the chain refuses, ignores or fails on is a fault of the TrainJob."""
    spec, runtime = case.given

    assert [str(fault) for fault in expanded({"spec": spec}, runtime).faults] == case.want


def test_ports_are_not_compared_each_with_each() -> None:
    """Admission reads other people's runtimes, and all others wait meanwhile."""
    many = [{"containerPort": i + 1, "name": f"p{i}"} for i in range(1000)]
    whole = runtime_of(replicated("node", listening("node", *many), step="trainer"))

    assert count_instructions(lambda: expanded({"spec": {"trainer": {}}}, whole)) < 100 * len(many)
