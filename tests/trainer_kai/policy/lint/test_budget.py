"""Whatever a user writes into a runtime or a TrainJob, all others wait for it only a moment.

Work is counted in instructions of Python: 20 ms are about two million of them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.trainer_kai.policy.lint.cluster import GPU, RULES, known_cluster, node
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.lint.trainjob import lint_trainjob

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
REQUIRED = "kai.scheduler/topology-required-placement"
MOST = 2_000_000
FEW = known_cluster(
    *(node(f"n{i}", 8, zone="z") for i in range(10)),
    *(node(f"t{i}", 8, "team=a:NoSchedule") for i in range(10)),
)
Obj = dict[str, Any]


def linting(
    jobs: list[Obj], known: KnownCluster = FEW, **spec: Any
) -> Callable[[], tuple[Finding, ...]]:
    template = {"spec": {"replicatedJobs": jobs}}
    runtime = {"metadata": {"name": "r"}, "spec": {"mlPolicy": {}, "template": template}}
    whole = {"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": "r"}, **spec}}
    job, of = decode(TrainJob, encode(whole)), decode(Runtime, encode(runtime))
    return lambda: lint_trainjob(job, of, "team", RULES, known)


def rjob(name: str = "node", *after: str, pod: Obj | None = None, **spec: Any) -> Obj:
    pods = {"containers": [{"name": "node", "resources": {"limits": {GPU: 8}}}], **(pod or {})}
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {STEP: spec.pop("step", "")}},
            "spec": {"template": {"spec": pods}, **spec},
        },
        "dependsOn": [{"name": one, "status": "Complete"} for one in after],
    }


def with_ports(count: int) -> list[Obj]:
    ports = [{"containerPort": i + 1, "name": f"p{i}"} for i in range(count)]
    return [rjob(pod={"containers": [{"name": "node", "ports": ports}]})]


def requirement(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


def selecting(*terms: list[Obj]) -> Obj:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: required}}}


INITS = [rjob(f"i{i}", step="dataset-initializer") for i in range(32)]
AFTER = [rjob(f"j{i}", *(f"i{k}" for k in range(20))) for i in range(32)]
MONSTERS: list[Case[Callable[[], tuple[Finding, ...]], int]] = [
    Case("12,000 ports exceed the budget", linting(with_ports(12_000)), MOST),
    Case(
        "10,000 variables exceed the budget",
        linting([rjob(pod={"containers": [{"name": "node", "env": [{"name": "A"}] * 10_000}]})]),
        MOST,
    ),
    Case(
        "3,000 containers exceed the budget",
        linting([rjob(pod={"containers": [{"name": "c"}] * 3000})]),
        MOST,
    ),
    Case(
        "900 containers exceed the budget",
        linting([rjob(pod={"containers": [{"name": "c"}] * 900})]),
        MOST,
    ),
    Case(
        "8,000 resources exceed the budget",
        linting(
            [
                rjob(
                    pod={
                        "containers": [
                            {"resources": {"limits": {f"a/{i}": 1 for i in range(8000)}}}
                        ]
                    }
                )
            ]
        ),
        MOST,
    ),
    Case(
        "20,000 tolerations exceed the budget",
        linting([rjob(pod={"tolerations": [{"key": str(i)} for i in range(20_000)]})]),
        MOST,
    ),
    Case(
        "4,000 terms exceed the budget",
        linting([rjob(pod=selecting(*([requirement("zone", "Exists")] for _ in range(4000))))]),
        MOST,
    ),
    Case(
        "500 comparisons with a number",
        linting(
            [rjob(pod=selecting(*([requirement("size", "Gt", "9")] for _ in range(500))))],
            known_cluster(*(node(f"n{i}", 8, size=str(i)) for i in range(64))),
        ),
        MOST,
    ),
    Case(
        "20,000 values exceed the budget",
        linting([rjob(pod=selecting([requirement("zone", "In", *map(str, range(20_000)))]))]),
        MOST,
    ),
    Case("1,000,000,000 pods in a Job", linting([rjob(parallelism=10**9)]), MOST),
    Case(
        "64 replicatedJobs that begin at the same time",
        linting([rjob(f"j{i}") for i in range(64)]),
        MOST,
    ),
    Case("64 after all initializers", linting([*INITS, *AFTER]), MOST),
    Case(
        "64 one after another",
        linting([rjob(f"j{i}", *((f"j{i - 1}",) if i else ())) for i in range(64)]),
        MOST,
    ),
    Case(
        "1,000 replicatedJobs exceed the budget",
        linting([rjob(f"j{i}") for i in range(1000)]),
        MOST,
    ),
    Case(
        "16 patches of all of them",
        linting(
            [rjob(f"j{i}") for i in range(64)],
            runtimePatches=[
                {
                    "manager": f"a.b/{k}",
                    "trainingRuntimeSpec": {
                        "template": {
                            "spec": {"replicatedJobs": [{"name": f"j{i}"} for i in range(64)]}
                        }
                    },
                }
                for k in range(16)
            ],
        ),
        MOST,
    ),
]


@pytest.mark.parametrize("case", MONSTERS, ids=ids)
def test_a_moment_for_each(case: Case[Callable[[], tuple[Finding, ...]], int]) -> None:
    """What would take longer is not looked at."""
    assert count_instructions(case.given) < case.want
