"""Of a TrainJob that the scheduler places on an empty cluster, lint says nothing of its size.

Small clusters at random, asked by `trainer-kai simulate`: the same core that decides in production.
"""

from random import Random
from typing import Any

import pytest

from tests.trainer_kai.policy.lint.cluster import GPU, RULES
from trainer_kai.api.cluster_kinds import Node, PriorityClass
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex
from trainer_kai.policy.lint.trainjob import lint_trainjob

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
MIN = "kai.scheduler/batch-min-member"
SIZES = {
    FindingCode.POD_TOO_LARGE,
    FindingCode.PODGROUP_TOO_LARGE,
    FindingCode.NO_NODE_MATCHES,
    FindingCode.OVER_LIMIT,
    FindingCode.OVER_QUOTA,
}
Obj = dict[str, Any]
KEY = "requiredDuringSchedulingIgnoredDuringExecution"


def any_node(chance: Random, name: str) -> Obj:
    labels = {"kubernetes.io/hostname": name}
    labels |= {key: chance.choice("12") for key in ("x", "y") if chance.random() < 0.5}
    taint = {"key": "team", "value": chance.choice("ab"), "effect": "NoSchedule"}
    allocatable = {"cpu": chance.choice(["4", "7500m"]), "memory": "64Gi", "pods": "5"}
    gpus = chance.choice([0, 4, 8])
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [taint] if chance.random() < 0.3 else []},
        "status": {
            "allocatable": {**allocatable, **({GPU: str(gpus)} if gpus else {})},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def any_queue(chance: Random, name: str, parent: str = "") -> Obj:
    def share(*numbers: int) -> Obj:
        quota, limit = (chance.choice([-1, -1, *numbers]) for _ in "ql")
        return {"quota": quota, "limit": limit, "overQuotaWeight": 1}

    resources = {"gpu": share(8, 16), "cpu": share(6000), "memory": share(100_000)}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    api = "scheduling.run.ai/v2"
    return {"apiVersion": api, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def any_pod(chance: Random) -> Obj:
    amounts = {
        "cpu": chance.choice(["500m", "1", "2500m", "5"]),
        "memory": chance.choice(["1Gi", "40Gi"]),
    }
    gpus = chance.choice([0, 1, 1, 2, 4, 8, 12])
    limits = {**amounts, **({GPU: gpus} if gpus else {})}
    pod: Obj = {"containers": [{"name": "node", "resources": {"limits": limits}}]}
    if chance.random() < 0.3:
        pod["nodeSelector"] = {"x": chance.choice("123")}
    if chance.random() < 0.3:
        operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        values = [chance.choice("12")] if operator in {"In", "NotIn", "Gt", "Lt"} else []
        value = {"key": "y", "operator": operator, "values": values}
        terms = [{"matchExpressions": [value]}]
        pod["affinity"] = {"nodeAffinity": {KEY: {"nodeSelectorTerms": terms}}}
    if chance.random() < 0.5:
        pod["tolerations"] = [
            {"key": "team", "operator": chance.choice(["Exists", "Equal"]), "value": ""}
            | ({"value": "a"} if chance.random() < 0.5 else {})
        ]
    if chance.random() < 0.2:
        pod["priorityClassName"] = "build"
    return pod


def any_job(chance: Random, name: str, *, is_first: bool) -> Obj:
    """Return a replicatedJob; one that comes later waits until the first is Ready."""
    is_anticipated = not is_first and chance.random() < 0.5
    meta = {
        "annotations": {MIN: "1"} if chance.random() < 0.2 else {},
        "labels": {STEP: "trainer"} if is_first else {},
    }
    spec = {"parallelism": chance.randint(1, 3), "template": {"spec": any_pod(chance)}}
    return {
        "name": name,
        "replicas": 1 if is_first else chance.choice([1, 1, 2]),
        "template": {"metadata": meta, "spec": spec},
        "dependsOn": [{"name": "node", "status": "Ready"}] if is_anticipated else [],
    }


def any_trainjob(chance: Random) -> tuple[Obj, Obj]:
    names = ["node", "other", "last"][: chance.choice([1, 1, 2, 3])]
    jobs = [any_job(chance, name, is_first=name == "node") for name in names]
    meta: Obj = {"annotations": {MIN: "1"}} if chance.random() < 0.2 else {}
    api = "trainer.kubeflow.org/v1alpha1"
    template = {"metadata": meta, "spec": {"replicatedJobs": jobs}}
    runtime = {
        "apiVersion": api,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": template},
    }
    labels = {"kai.scheduler/queue": "team"}
    if chance.random() < 0.3:
        value = chance.choice(["preemptible", "non-preemptible"])
        labels["kai.scheduler/preemptibility"] = value
    trainer = {"numNodes": chance.choice([1, 1, 2, 3, 6])}
    job = {
        "apiVersion": api,
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "default", "labels": labels},
        "spec": {"runtimeRef": {"name": "r"}, "trainer": trainer},
    }
    return job, runtime


def any_cluster(chance: Random) -> list[Obj]:
    build = {"metadata": {"name": "build"}, "value": 100}
    return [
        *(any_node(chance, f"n{i}") for i in range(chance.randint(2, 6))),
        any_queue(chance, "all"),
        any_queue(chance, "team", "all"),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **build},
    ]


def known_cluster(cluster: list[Obj]) -> KnownCluster:
    def of(kind: str, struct: Any) -> dict[str, Any]:
        read = [decode(struct, encode(it)) for it in cluster if it["kind"] == kind]
        return {it.metadata.name: it for it in read}

    queues = {name: it.spec for name, it in of("Queue", Queue).items()}
    nodes = NodeIndex(of("Node", Node).values())
    return KnownCluster(nodes, queues, of("PriorityClass", PriorityClass), {})


def linted(cluster: list[Obj], job: Obj, runtime: Obj) -> tuple[Finding, ...]:
    read = decode(TrainJob, encode(job)), decode(Runtime, encode(runtime))
    return lint_trainjob(*read, "team", RULES, known_cluster(cluster))


def starts(cluster: list[Obj], job: Obj, runtime: Obj) -> bool:
    options = SimulationOptions(actions=("allocate",), default_queue="team")
    document = simulate([*cluster, job, runtime], options)
    return any(cycle["binds"] for cycle in document["cycles"])


@pytest.mark.parametrize("seed", range(8))
def test_what_can_start_is_not_complained_of(seed: int) -> None:
    """And what is complained of does not start, which is the same."""
    chance = Random(seed)
    started = 0
    for _ in range(25):
        cluster, (job, runtime) = any_cluster(chance), any_trainjob(chance)
        size_findings = [it for it in linted(cluster, job, runtime) if it.code in SIZES]
        if starts(cluster, job, runtime):
            assert [it for it in size_findings if it.blocks] == []
            started += 1
    assert started
