"""Lint of TrainJobs: the field of a TrainJob in each finding, and what is not checked."""

from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.trainer_kai.policy.lint.cluster import GPU, RULES, known_cluster, node, queue_spec, short
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.lint.trainjob import is_refusable, lint_trainjob

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
EIGHTS = known_cluster(*(node(f"n{i}", rack=f"r{i % 2}", zone="z") for i in range(4)))


class TrainJobInput(NamedTuple):
    job: dict[str, Any]
    runtime: dict[str, Any]
    cluster: KnownCluster = EIGHTS


def trainjob_findings(given: TrainJobInput) -> list[str]:
    job = decode(TrainJob, encode({"metadata": {"name": "job", "namespace": "x"}, **given.job}))
    runtime = decode(Runtime, encode(given.runtime))
    return [short(it) for it in lint_trainjob(job, runtime, "team", RULES, given.cluster)]


def job(nodes: int | None = None, gpus: int | None = None, **fields: Any) -> dict[str, Any]:
    trainer: dict[str, Any] = {} if nodes is None else {"numNodes": nodes}
    if gpus is not None:
        trainer["resourcesPerNode"] = {"limits": {GPU: gpus}}
    meta = {"name": "job", "namespace": "x", **fields.pop("metadata", {})}
    spec = {"runtimeRef": {"name": "torch"}, "trainer": trainer, **fields}
    return {"metadata": meta, "spec": spec}


def runtime(gpus: int = 8, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    limits = {"limits": {GPU: gpus}} if gpus else {}
    pods = {"containers": [{"name": "side"}, {"name": "node", "resources": limits}]}
    one = {
        "name": "node",
        "template": {
            "metadata": {"labels": {STEP: "trainer"}},
            "spec": {"template": {"spec": {**pods, **spec.pop("pod", {})}}},
        },
    }
    template = {"metadata": metadata or {}, "spec": {"replicatedJobs": [one]}}
    return {
        "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template, **spec},
    }


IN_RUNTIME = "ClusterTrainingRuntime torch, spec.template.spec.replicatedJobs[0]"
HALF = {"annotations": {"gpu-fraction": "0.5"}}
BESIDE = (
    "whole GPUs and MIG profiles cannot be requested together with the annotation gpu-fraction. "
    "Remove one of the two. Otherwise no pod starts"
)
SHARING = runtime(0)
_TEMPLATE = SHARING["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
_TEMPLATE["metadata"] = {"annotations": {"gpu-fraction": "2"}}
PATHS = [
    Case("nothing is wrong", TrainJobInput(job(4), runtime()), []),
    Case(
        "numNodes",
        TrainJobInput(job(5), runtime()),
        [
            (
                "podgroup-too-large! spec.trainer.numNodes: 5 pods of node must start together, "
                "and the 4 eligible nodes hold 4. Request at most 4"
            )
        ],
    ),
    Case(
        "the number of the runtime",
        TrainJobInput(job(), runtime(mlPolicy={"numNodes": 5})),
        [
            (
                "podgroup-too-large! spec.runtimeRef: 5 pods of node must start together, and the "
                "4 eligible nodes hold 4. Request at most 4 "
                f"({IN_RUNTIME}.template.spec.parallelism)"
            )
        ],
    ),
    Case(
        "resourcesPerNode",
        TrainJobInput(job(gpus=16), runtime()),
        [
            (
                f"pod-too-large! spec.trainer.resourcesPerNode.limits[{GPU}]: each pod of node "
                f"requests 16 {GPU}, and the largest of 4 eligible nodes has 8. Request at "
                "most 8"
            )
        ],
    ),
    Case(
        "the amounts of the runtime",
        TrainJobInput(job(), runtime(16)),
        [
            (
                f"pod-too-large! spec.runtimeRef: each pod of node requests 16 {GPU}, and the "
                "largest of 4 eligible nodes has 8. Request at most 8 "
                f"({IN_RUNTIME}.template.spec.template.spec.containers[1].resources.limits[{GPU}])"
            )
        ],
    ),
    Case(
        "a request over the limit of the runtime",
        TrainJobInput(job(trainer={"resourcesPerNode": {"requests": {GPU: 4}}}), runtime()),
        [
            (
                f"invalid-amount! spec.trainer.resourcesPerNode.requests[{GPU}]: 4 must equal "
                "the limit, which is 8. Otherwise no pod can be created"
            )
        ],
    ),
    Case(
        "a label of the TrainJob",
        TrainJobInput(job(metadata={"labels": {"priorityClassName": "gold"}}), runtime()),
        [
            (
                "unknown-priority? metadata.labels[priorityClassName]: PriorityClass 'gold' "
                "does not exist, so the label is ignored. Name an existing one: build, train"
            )
        ],
    ),
    Case(
        "a label of the runtime outranks it",
        TrainJobInput(
            job(metadata={"labels": {"priorityClassName": "gold"}}),
            runtime(metadata={"labels": {"priorityClassName": "train"}}),
        ),
        [],
    ),
    Case(
        "an annotation of the TrainJob",
        TrainJobInput(
            job(3, metadata={"annotations": {TOPOLOGY: "racks", REQUIRED: "rack"}}),
            runtime(),
        ),
        [
            (
                f"domain-too-small! metadata.annotations[{REQUIRED}]: 3 pods of node must be "
                "in one rack of Topology racks, and the largest holds 2. Request at most 2 "
                "pods, or a coarser level"
            ),
        ],
    ),
    Case(
        "an annotation of the runtime",
        TrainJobInput(
            job(3), runtime(metadata={"annotations": {TOPOLOGY: "racks", REQUIRED: "rack"}})
        ),
        [
            (
                "domain-too-small! spec.runtimeRef: 3 pods of node must be in one rack of "
                "Topology racks, and the largest holds 2. Request at most 2 pods, or a "
                "coarser level (ClusterTrainingRuntime torch, "
                f"spec.template.metadata.annotations[{REQUIRED}])"
            ),
        ],
    ),
    Case(
        "a stage of the runtime",
        TrainJobInput(
            job(),
            runtime(
                template={
                    "spec": {
                        "replicatedJobs": [
                            {"name": "a", "dependsOn": [{"name": "b", "status": "Ready"}]}
                        ]
                    }
                }
            ),
        ),
        [
            (
                "unreachable! spec.runtimeRef: replicatedJob 'b' does not exist. Remove "
                "dependsOn (ClusterTrainingRuntime torch, "
                "spec.template.spec.replicatedJobs[0].dependsOn[0].name)"
            )
        ],
    ),
    Case(
        "what Trainer refuses to build",
        TrainJobInput(job(), runtime(template={"spec": {"replicatedJobs": []}})),
        [
            (
                "jobset-not-built! spec.runtimeRef: the runtime has no replicatedJobs, so no pods "
                "are created. Name another runtime"
            )
        ],
    ),
    Case(
        "what has no effect refuses nothing",
        TrainJobInput(job(2), runtime(template={"spec": {"replicatedJobs": [{"name": "a"}]}})),
        [
            (
                "jobset-not-built? spec.trainer.numNodes: has no effect: the runtime has no "
                f"replicatedJob with the label {STEP}=trainer"
            )
        ],
    ),
    Case(
        "the queue",
        TrainJobInput(job(2), runtime(), known_cluster(queues={"team": queue_spec(limit=8)})),
        [
            (
                "over-limit! spec.trainer.numNodes: the pods that must start together request "
                "16 GPU, and the limit of queue team is 8 GPU. Request at most 8 GPU, or name "
                "another queue"
            )
        ],
    ),
    *(
        Case(
            f"a share of the TrainJob: {name} {value}",
            TrainJobInput(job(metadata={"annotations": {name: value}}), runtime(0)),
            [f"invalid-amount! metadata.annotations[{name}]: {fault}. Otherwise no pod starts"],
        )
        for name, value, fault in (
            (
                "gpu-fraction",
                "2",
                (
                    "'2' must be a number above 0 and below 1, such as 0.5. For whole GPUs remove "
                    f"the annotation and request {GPU}: 2"
                ),
            ),
            ("gpu-memory", "3Gi", "'3Gi' must be MiB as a whole number; write 3072"),
            ("mps", "true", "can only be set together with gpu-fraction or gpu-memory"),
        )
    ),
    Case(
        "a share beside GPUs of the TrainJob",
        TrainJobInput(job(gpus=1, metadata=HALF), runtime(0)),
        [f"invalid-amount! spec.trainer.resourcesPerNode.limits[{GPU}]: {BESIDE}"],
    ),
    Case(
        "a share beside GPUs of the runtime",
        TrainJobInput(job(metadata=HALF), runtime()),
        [
            (
                f"invalid-amount! metadata.annotations[gpu-fraction]: {BESIDE} "
                f"({IN_RUNTIME}.template.spec.template.spec.containers[1].resources.limits[{GPU}])"
            )
        ],
    ),
    Case(
        "no GPUs instead of those of the runtime",
        TrainJobInput(job(gpus=0, metadata=HALF), runtime()),
        [],
    ),
    Case(
        "a share of the runtime",
        TrainJobInput(job(metadata={"annotations": {"gpu-memory": "9"}}), SHARING),
        [
            (
                "invalid-amount! spec.runtimeRef: '2' must be a number above 0 and below 1, such "
                f"as 0.5. For whole GPUs remove the annotation and request {GPU}: 2. Otherwise no "
                "pod starts "
                f"({IN_RUNTIME}.template.spec.template.metadata.annotations[gpu-fraction])"
            )
        ],
    ),
    Case(
        "a container that does not exist",
        TrainJobInput(
            job(
                metadata={
                    "annotations": {**HALF["annotations"], "gpu-fraction-container-name": "x"}
                }
            ),
            runtime(0),
        ),
        [
            (
                "invalid-amount! metadata.annotations[gpu-fraction-container-name]: the pod has no "
                "container 'x'. Name one of its containers: 'side', 'node'. Otherwise no pod starts"
            )
        ],
    ),
    Case("no pods at all", TrainJobInput(job(0, gpus=99), runtime()), []),
    Case(
        "another controller builds it",
        TrainJobInput(job(99, managedBy="kueue.x-k8s.io/multikueue"), runtime()),
        [],
    ),
    Case(
        "another scheduler places it",
        TrainJobInput(job(99), runtime(podGroupPolicy={"volcano": {}})),
        [],
    ),
]


def test_a_share_is_reported_once_and_other_amounts_at_the_runtime() -> None:
    """Several templates get one annotation; only GPUs conflict with it."""
    whole = runtime(0)
    jobs = whole["spec"]["template"]["spec"]["replicatedJobs"]
    jobs.append({**jobs[0], "name": "second"})
    wrong = {"annotations": {"gpu-memory": "3Gi"}}
    cpu = runtime(0, pod={"containers": [{"name": "node", "resources": {"limits": {"cpu": "-1"}}}]})

    twice = trainjob_findings(TrainJobInput(job(metadata=wrong), whole))
    amount = trainjob_findings(TrainJobInput(job(metadata=HALF), cpu))

    assert [it.partition(": ")[0] for it in twice] == [
        "invalid-amount! metadata.annotations[gpu-memory]"
    ]
    assert [it.partition(": ")[0] for it in amount] == ["invalid-amount! spec.runtimeRef"]


@pytest.mark.parametrize("case", PATHS, ids=ids)
def test_paths_in_the_trainjob(case: Case[TrainJobInput, list[str]]) -> None:
    """A path is a field of the TrainJob; what a runtime says is named in the message."""
    assert trainjob_findings(case.given) == case.want


SHIPPED = sorted((ROOT / "tests" / "fixtures" / "runtimes").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_runtime_has_no_findings(path: Any) -> None:
    """They all run on four such nodes."""
    whole = yaml.safe_load(path.read_text())

    assert trainjob_findings(TrainJobInput(job(2), whole)) == []


WITH_QUEUE = (
    "deadline-includes-queue? spec.activeDeadlineSeconds: counts from the creation or the last "
    "resume, so it includes the time for which the pods wait in their queue"
)
SHORT = job(activeDeadlineSeconds=3600)
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
DEADLINES = [
    Case("with GPUs", TrainJobInput(SHORT, runtime()), [WITH_QUEUE]),
    Case(
        "with a share of a GPU",
        TrainJobInput(job(metadata=HALF, activeDeadlineSeconds=86_399), runtime(0)),
        [WITH_QUEUE],
    ),
    Case("with a claim", TrainJobInput(SHORT, runtime(0, pod=CLAIM)), [WITH_QUEUE]),
    Case("without GPUs", TrainJobInput(SHORT, runtime(0)), []),
    Case("a day", TrainJobInput(job(activeDeadlineSeconds=86_400), runtime()), []),
    Case("no number of seconds", TrainJobInput(job(activeDeadlineSeconds=0), runtime()), []),
    Case(
        "for another scheduler",
        TrainJobInput(SHORT, runtime(pod={"schedulerName": "default-scheduler"})),
        [],
    ),
]


@pytest.mark.parametrize("case", DEADLINES, ids=ids)
def test_a_short_deadline_includes_the_queue(case: Case[TrainJobInput, list[str]]) -> None:
    """Said only where pods may wait for long, and never denied."""
    found = [it for it in trainjob_findings(case.given) if "deadline" in it]
    assert found == case.want


REFUSED = [
    Case("what never runs", Finding("p", "m", blocks=True, code=FindingCode.UNREACHABLE), True),
    Case("a name that does not exist", Finding("p", "m", code=FindingCode.UNKNOWN_PRIORITY), True),
    Case(
        "a topology that does not exist", Finding("p", "m", code=FindingCode.UNKNOWN_TOPOLOGY), True
    ),
    Case("a node that may come", Finding("p", "m", code=FindingCode.NO_NODE_MATCHES), False),
    Case("what is ignored", Finding("p", "m", code=FindingCode.INVALID_VALUE), False),
    Case("a deadline", Finding("p", "m", code=FindingCode.DEADLINE_INCLUDES_QUEUE), False),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_a_site_can_refuse(case: Case[Finding, bool]) -> None:
    """What cannot run, and what names something that is not there."""
    assert is_refusable(case.given) is case.want
