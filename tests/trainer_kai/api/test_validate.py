"""Objects that break their own rules: every fault is reported at once."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.workloads import recorded_pods
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import PodGroup, Queue, Topology
from trainer_kai.api.pod import Pod
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.api.validate import (
    jobset_faults,
    pod_faults,
    podgroup_faults,
    queue_faults,
    runtime_faults,
    topology_faults,
    trainjob_faults,
)
from trainer_kai.errors import FieldWarning

FIXTURES = Path(__file__).parents[2] / "fixtures"
Obj = dict[str, Any]
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def fault_texts(faults: tuple[Any, ...]) -> list[str]:
    return [str(fault) for fault in faults]


# a queue's spec -> its faults
QUEUE_CASES: list[Case[Obj, list[str]]] = [
    Case("a queue without bounds", {"resources": {"gpu": FREE, "cpu": FREE, "memory": FREE}}, []),
    Case("parts of a GPU", {"resources": {"gpu": {"quota": 0.5, "limit": 1e3}}}, []),
    Case("what is left out is nothing, and no fault", {"resources": {}}, []),
    Case(
        "a queue without resources is a fault",
        {},
        ["spec.resources: is missing; -1 for quota and limit means unlimited"],
    ),
    Case(
        "numbers that KAI admits count, if not as they are",
        {"resources": {"gpu": {"quota": -2, "limit": -0.5, "overQuotaWeight": -1}}},
        [],
    ),
    Case(
        "what is no number",
        {"resources": {"gpu": {"quota": "NaN", "limit": "Infinity"}}},
        [
            "spec.resources.gpu.quota: NaN must be a number",
            "spec.resources.gpu.limit: Infinity must be a number",
        ],
    ),
    Case(
        "its own parent; and times that KAI admits",
        {"parentQueue": "q", "preemptMinRuntime": "5", "reclaimMinRuntime": "-1s", "resources": {}},
        ["spec.parentQueue: a queue cannot be its own parent"],
    ),
]

# a pod group's spec -> its faults
GROUP_CASES: list[Case[Obj, list[str]]] = [
    Case("what KAI takes and ignores", {"preemptionDelay": "-1s", "schedulingBackoff": 7}, []),
    Case("a flat group", {"queue": "a", "minMember": 4, "stalenessGracePeriod": "-1s"}, []),
    Case(
        "a tree as KAI writes it",
        {
            "minSubGroup": 2,
            "subGroups": [
                {"name": "node", "minSubGroup": 1},
                {"name": "node-replica-0", "parent": "node", "minMember": 3},
                {"name": "launcher", "minSubGroup": 1},
                {"name": "launcher-replica-0", "parent": "launcher", "minMember": 0},
            ],
        },
        [],
    ),
    Case(
        "a root with both minima",
        {"minMember": 1, "minSubGroup": 1},
        ["spec.minMember: cannot be set together with minSubGroup"],
    ),
    Case(
        "minima below zero",
        {"minMember": -1, "subGroups": [{"name": "a", "minMember": -2}]},
        [
            "spec.minMember: -1 must be 0 or more",
            "spec.subGroups[0].minMember: -2 must be 0 or more",
        ],
    ),
    Case(
        "one name twice",
        {"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]},
        [f"spec.subGroups[{i}].name: 'a' exists 2 times" for i in (0, 1)],
    ),
    Case(
        "a name with a capital",
        {"subGroups": [{"name": "A", "minMember": 1}]},
        [
            (
                "spec.subGroups[0].name: 'A' must be 1 to 63 lower-case letters, digits and '-', "
                "and begin and end with a letter or digit"
            )
        ],
    ),
    Case(
        "a parent that is not there",
        {"subGroups": [{"name": "a", "parent": "b", "minMember": 1}]},
        ["spec.subGroups[0].parent: sub-group 'b' does not exist"],
    ),
    Case(
        "a circle, and who only leads into it",
        {
            "subGroups": [
                {"name": "a", "parent": "b", "minSubGroup": 1},
                {"name": "b", "parent": "a", "minSubGroup": 1},
                {"name": "c", "parent": "a", "minMember": 1},
            ]
        },
        [
            "spec.subGroups[0].parent: 'a' is its own ancestor",
            "spec.subGroups[1].parent: 'b' is its own ancestor",
        ],
    ),
    Case(
        "counts of the wrong kind",
        {
            "subGroups": [
                {"name": "inner", "minMember": 1},
                {"name": "leaf", "parent": "inner", "minSubGroup": 1},
            ]
        },
        [
            (
                "spec.subGroups[1].minSubGroup: must not be set on a sub-group without "
                "children; its minMember counts pods"
            ),
            "spec.subGroups[1].minMember: is missing: it is the minimum number of pods",
        ],
    ),
    Case(
        "a wish that KAI refuses, and one that it admits",
        {"preemptibility": "yes", "preemptionDelay": "-1"},
        ["spec.preemptibility: 'yes' must be 'preemptible' or 'non-preemptible'"],
    ),
]

# levels of a topology -> its faults
TOPOLOGY_CASES: list[Case[list[Obj], list[str]]] = [
    Case(
        "racks of nodes",
        [
            {"nodeLabel": "example.org/rack", "alias": "rack"},
            {"nodeLabel": "kubernetes.io/hostname"},
        ],
        [],
    ),
    Case(
        "a topology without levels is a fault",
        [],
        ["spec.levels: 0 levels; between 1 and 16 are allowed"],
    ),
    Case("sixteen levels are allowed", [{"nodeLabel": f"l{i}"} for i in range(16)], []),
    Case(
        "seventeen levels are a fault",
        [{"nodeLabel": f"l{i}"} for i in range(17)],
        ["spec.levels: 17 levels; between 1 and 16 are allowed"],
    ),
    Case(
        "the node is not the last",
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}],
        ["spec.levels[0].nodeLabel: a single node is the finest level, so it must be last"],
    ),
    Case(
        "a label and an alias twice",
        [{"nodeLabel": "a", "alias": "x"}, {"nodeLabel": "a", "alias": "x"}],
        [
            "spec.levels[0].nodeLabel: 'a' exists twice",
            "spec.levels[0].alias: 'x' exists twice",
            "spec.levels[1].nodeLabel: 'a' exists twice",
            "spec.levels[1].alias: 'x' exists twice",
        ],
    ),
    Case(
        "an alias that is a label",
        [{"nodeLabel": "a", "alias": "b"}, {"nodeLabel": "b"}],
        ["spec.levels[0].alias: 'b' is the label of a level"],
    ),
]


@pytest.mark.parametrize("case", QUEUE_CASES, ids=ids)
def test_queues(case: Case[Obj, list[str]]) -> None:
    """Bounds are there, and none below zero but -1."""
    queue = decode(Queue, encode({"metadata": {"name": "q"}, "spec": case.given}))

    assert fault_texts(queue_faults(queue)) == case.want


@pytest.mark.parametrize("case", GROUP_CASES, ids=ids)
def test_pod_groups(case: Case[Obj, list[str]]) -> None:
    """Sub-groups are a tree; PodSets count pods and SubGroupSets count children."""
    group = decode(PodGroup, encode({"metadata": {"name": "g"}, "spec": case.given}))

    assert fault_texts(podgroup_faults(group)) == case.want


@pytest.mark.parametrize("case", TOPOLOGY_CASES, ids=ids)
def test_topologies(case: Case[list[Obj], list[str]]) -> None:
    """Levels are distinct, from the coarsest to the node."""
    topology = decode(Topology, encode({"metadata": {"name": "t"}, "spec": {"levels": case.given}}))

    assert fault_texts(topology_faults(topology)) == case.want


def share_faults(annotations: Obj, spec: Obj) -> list[str]:
    obj = {"metadata": {"annotations": annotations}, "spec": spec}
    found = pod_faults(decode(Pod, encode(obj)))
    assert all(isinstance(it, FieldWarning) for it in found)  # a dump of a cluster is still read
    return fault_texts(found)


def test_a_share_of_a_gpu_stands_alone() -> None:
    """A pod asks for a part of a GPU, for some of its memory or for whole ones."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"initContainers": [limits], "containers": [{}, limits]}
    annotations = {"gpu-fraction": "0.5", "gpu-memory": "100", "mps": "true"}

    both = "whole GPUs and MIG profiles cannot be requested together with the annotation"
    end = "Remove one of the two"
    assert share_faults({}, spec) == []
    assert share_faults({"mps": "false"}, spec) == []
    assert share_faults({"gpu-memory": "100", "mps": "true"}, {}) == []
    assert share_faults({"mps": "true"}, {}) == [
        "metadata.annotations[mps]: can only be set together with gpu-fraction or gpu-memory"
    ]
    assert share_faults({"gpu-memory": "100"}, {"containers": [limits]}) == [
        (f"spec.containers[0].resources.limits[nvidia.com/gpu]: {both} gpu-memory. {end}")
    ]
    assert share_faults(annotations, spec) == [
        f"metadata.annotations[gpu-memory]: cannot be set together with gpu-fraction. {end}",
        *(
            f"spec.{at}.resources.limits[nvidia.com/gpu]: {both} gpu-fraction. {end}"
            for at in ("initContainers[0]", "containers[1]")
        ),
    ]


@pytest.mark.parametrize(
    ("resources", "at"),
    [
        ({"requests": {"nvidia.com/gpu": "1"}}, "requests[nvidia.com/gpu]"),
        ({"requests": {"amd.com/gpu": "1"}}, "requests[amd.com/gpu]"),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, "limits[nvidia.com/mig-1g.5gb]"),
        (
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
            "limits[nvidia.com/gpu]",
        ),
        ({"limits": {"nvidia.com/gpu": "0"}}, ""),
        ({"limits": {"cpu": "1", "example.com/gpu": "1"}}, ""),
    ],
)
def test_whole_gpus_beside_a_share(resources: Obj, at: str) -> None:
    """GPUs of each vendor and MIG profiles, in limits or requests; none of them is fine."""
    found = share_faults({"gpu-fraction": "0.5"}, {"containers": [{"resources": resources}]})

    assert [it.partition(": ")[0] for it in found] == (
        [f"spec.containers[0].resources.{at}"] if at else []
    )


@pytest.mark.parametrize("text", ["16Pi", "8Ei", "1e30", "1500e-2", "2000m", "0.5k", "0"])
def test_a_large_number_of_devices_is_whole(text: str) -> None:
    """However large, and however it is written."""
    limits = {"resources": {"limits": {"example.com/bytes": text}}}

    pod = decode(Pod, encode({"metadata": {}, "spec": {"containers": [limits]}}))

    assert pod_faults(pod) == ()


def test_amounts_of_a_pod() -> None:
    wrong = {"cpu": "2 cores", "memory": "-1Gi", "nvidia.com/gpu": "0.5", "pods": "1"}
    container = {"resources": {"requests": wrong, "limits": {"cpu": "500m"}}}
    spec = {"initContainers": [container], "containers": [{}], "overhead": {"cpu": "x"}}

    faults = pod_faults(decode(Pod, encode({"metadata": {}, "spec": spec})))

    at = "spec.initContainers[0].resources.requests"
    right = 'write one such as "2", "500m", "1.5", "16Gi" or "1e3"'
    assert fault_texts(faults) == [
        f"{at}[cpu]: '2 cores' is not a quantity; {right}",
        f"{at}[memory]: -1Gi must not be negative",
        (
            f"{at}[nvidia.com/gpu]: 0.5 must be an integer; a fraction of a GPU is requested by "
            "the annotation gpu-fraction"
        ),
        f"spec.overhead[cpu]: 'x' is not a quantity; {right}",
    ]


BAD: Obj = {"labels": {"kai.scheduler/queue": "Q"}}
LABEL = "labels[kai.scheduler/queue]"
TEMPLATE: Obj = {
    "metadata": BAD,
    "spec": {
        "replicatedJobs": [
            {
                "name": "node",
                "dependsOn": [{"name": "node", "status": "Ready"}],
                "template": {"metadata": BAD, "spec": {"template": {"metadata": BAD}}},
            }
        ]
    },
}
BELOW = [
    "spec.replicatedJobs[0].dependsOn[0].name",
    f"spec.replicatedJobs[0].template.metadata.{LABEL}",
    f"spec.replicatedJobs[0].template.spec.template.metadata.{LABEL}",
]


def test_every_level_of_a_trainjob_is_looked_at() -> None:
    """What it asks for itself, and what it patches."""
    spec = {
        "trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": -1}}},
        "runtimePatches": [{"trainingRuntimeSpec": {"template": TEMPLATE}}],
    }
    patch = "spec.runtimePatches[0].trainingRuntimeSpec.template"

    faults = trainjob_faults(decode(TrainJob, encode({"metadata": BAD, "spec": spec})))

    assert [fault.path for fault in faults] == [
        f"metadata.{LABEL}",
        "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]",
        f"{patch}.metadata.{LABEL}",
        *(f"{patch}.{path}" for path in BELOW),
    ]


def test_every_level_of_a_runtime_and_a_jobset_is_looked_at() -> None:
    policy = {"kaiScheduler": {"queue": "Q"}}
    spec = {"podGroupPolicy": policy, "template": TEMPLATE}

    of_runtime = runtime_faults(decode(Runtime, encode({"metadata": {}, "spec": spec})))
    of_jobset = jobset_faults(decode(JobSet, encode(TEMPLATE)))

    assert [fault.path for fault in of_runtime] == [
        "spec.podGroupPolicy.kaiScheduler.queue",
        f"spec.template.metadata.{LABEL}",
        *(f"spec.template.{path}" for path in BELOW),
    ]
    assert [fault.path for fault in of_jobset] == [f"metadata.{LABEL}", *BELOW]


def test_what_the_chain_made_has_no_fault() -> None:
    """Nothing that Trainer, JobSet and the API server wrote is refused by us."""
    for file in (FIXTURES / "jobsets").rglob("*.yaml"):
        submitted, built = documents(file)
        assert trainjob_faults(decode(TrainJob, encode(submitted))) == ()
        assert jobset_faults(decode(JobSet, encode(built))) == ()
    for file in (FIXTURES / "runtimes").glob("*.yaml"):
        assert runtime_faults(decode(Runtime, encode(*documents(file)))) == ()
    for text in (recorded_pods.PENDING, recorded_pods.RUNNING):
        assert pod_faults(decode(Pod, text.encode())) == ()
