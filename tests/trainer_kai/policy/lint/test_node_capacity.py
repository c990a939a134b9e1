"""What is too large to ever start is reported; what could start is not."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import (
    GPU,
    LintInput,
    findings,
    known_cluster,
    node,
    pods,
)
from tests.trainer_kai.policy.specs import jobset
from trainer_kai.policy.lint.node_index import NOTHING_KNOWN
from trainer_kai.policy.podgroups.manifests import GroupingRules

POD = "spec.replicatedJobs[0].template.spec.template.spec"
COUNT = "spec.replicatedJobs[0].template.spec.parallelism"
LIMITS = f"{POD}.containers[0].resources.limits"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
MIN = "kai.scheduler/batch-min-member"
EXTERNAL = GroupingRules("external", "kai-scheduler", "default-queue")
EIGHTS = [node(f"n{i}") for i in range(4)]  # 32 GPUs


def affinity(*requirements: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [requirement]} for requirement in requirements]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


WIDE = pods(1, 8, pod={"amounts": {"cpu": "60"}})
PODS = [
    Case("it fits", LintInput(jobset(pods(4, 8)), known_cluster(*EIGHTS)), []),
    Case(
        "more than the largest node",
        LintInput(jobset(pods(1, 16)), known_cluster(*EIGHTS, node("small", 4))),
        [
            (
                f"pod-too-large! {LIMITS}[{GPU}]: each pod of node requests 16 {GPU}, and the "
                "largest of 5 eligible nodes has 8. Request at most 8"
            )
        ],
    ),
    Case(
        "more than the one node",
        LintInput(
            jobset(pods(1, 0, pod={"amounts": {"memory": "513Gi"}})), known_cluster(node("n"))
        ),
        [
            (
                f"pod-too-large! {LIMITS}[memory]: each pod of node requests 513Gi memory, and "
                "the one eligible node has 512Gi. Request at most 512Gi"
            )
        ],
    ),
    Case(
        "each resource is somewhere, and all nowhere",
        LintInput(jobset(WIDE), known_cluster(node("gpus", cpu=32), node("cpus", 0))),
        [
            (
                f"pod-too-large! {POD}: no node, even if empty, has all resources that each pod of "
                "node requests. Request less"
            )
        ],
    ),
    Case(
        "no node has any of it today: one may come",
        LintInput(jobset(pods(1, 8)), known_cluster(node("n", 0))),
        [
            (
                f"no-node-matches? {LIMITS}[{GPU}]: no node that is eligible for pods of node "
                f"has {GPU} today. The pods wait for such a node"
            )
        ],
    ),
    Case(
        "no node today has the label",
        LintInput(
            jobset(pods(1, 8, pod={"nodeSelector": {"gpu": "h100"}})),
            known_cluster(node("n", gpu="a")),
        ),
        [
            (
                f"no-node-matches? {POD}: pods of node select gpu=h100, which no node has today; "
                "existing values are a. The pods wait for such a node"
            )
        ],
    ),
    Case(
        "each label is somewhere, and both nowhere",
        LintInput(
            jobset(pods(1, 8, pod={"nodeSelector": {"x": "1", "y": "1"}})),
            known_cluster(node("a", x="1"), node("b", y="1")),
        ),
        [
            (
                f"no-node-matches? {POD}: no node matches what pods of node select "
                "today. The pods wait for such a node"
            )
        ],
    ),
    Case(
        "no node today is what is asked for by affinity",
        LintInput(
            jobset(
                pods(1, 8, pod=affinity({"key": "gpu", "operator": "In", "values": ["b", "c"]}))
            ),
            known_cluster(node("n", gpu="a")),
        ),
        [
            (
                f"no-node-matches? {POD}: no node matches what pods of node select "
                "today. The pods wait for such a node"
            )
        ],
    ),
    Case(
        "one of two terms is enough",
        LintInput(
            jobset(
                pods(
                    1,
                    8,
                    pod=affinity(
                        {"key": "gpu", "operator": "In", "values": ["b"]},
                        {"key": "cpu", "operator": "DoesNotExist"},
                    ),
                )
            ),
            known_cluster(node("n", gpu="a")),
        ),
        [],
    ),
    Case(
        "only nodes that it selects are compared",
        LintInput(
            jobset(pods(1, 8, pod={"nodeSelector": {"pool": "s"}})),
            known_cluster(node("n"), node("s", 4, pool="s")),
        ),
        [
            (
                f"pod-too-large! {LIMITS}[{GPU}]: each pod of node requests 8 {GPU}, and the "
                "one eligible node has 4. Request at most 4"
            )
        ],
    ),
    Case(
        "taints without a toleration",
        LintInput(
            jobset(pods(1, 8)), known_cluster(node("n", 8, "team=b:NoSchedule", "x=:NoExecute"))
        ),
        [
            (
                f"no-node-matches? {POD}: pods of node tolerate no node that they select today; "
                "the taints are team=b:NoSchedule, x=:NoExecute. The pods wait for such a node"
            )
        ],
    ),
    Case(
        "taints that it tolerates",
        LintInput(
            jobset(pods(1, 8, pod={"tolerations": [{"key": "team", "operator": "Exists"}]})),
            known_cluster(node("n", 8, "team=b:NoSchedule")),
        ),
        [],
    ),
    Case(
        "taints of states that pass, and those that only advise",
        LintInput(
            jobset(pods(1, 8)),
            known_cluster(
                node("n", 8, "node.kubernetes.io/not-ready=:NoExecute", "x=:PreferNoSchedule")
            ),
        ),
        [],
    ),
    Case(
        "nodes that come by themselves: a warning",
        LintInput(jobset(pods(1, 16)), known_cluster(*EIGHTS, autoscales=True)),
        [
            (
                f"pod-too-large? {LIMITS}[{GPU}]: each pod of node requests 16 {GPU}, and the "
                "largest of 4 eligible nodes has 8. Request at most 8"
            )
        ],
    ),
    Case("nodes have not been listed yet", LintInput(jobset(pods(1, 16)), NOTHING_KNOWN), []),
    Case(
        "pods that another scheduler places",
        LintInput(jobset(pods(1, 16, scheduler="default-scheduler")), known_cluster(*EIGHTS)),
        [
            (
                f"invalid-value? {POD}.schedulerName: the pods of node are in no PodGroup: "
                "scheduler 'default-scheduler' places them"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", PODS, ids=ids)
def test_a_pod_alone(case: Case[LintInput, list[str]]) -> None:
    """It is compared with the largest node of those that take it."""
    assert findings(case.given) == case.want


def too_many(count: int, holds: int, nodes: int = 4, name: str = "node") -> str:
    return (
        f"podgroup-too-large! {COUNT}: {count} pods of {name} must start together, and the "
        f"{nodes} eligible nodes hold {holds}. Request at most {holds}"
    )


LAUNCHED = [pods(4, 8), pods(1, 8, "node Ready", name="launcher")]
PODGROUPS = [
    Case(
        "more pods than all nodes hold",
        LintInput(jobset(pods(5, 8)), known_cluster(*EIGHTS)),
        [too_many(5, 4)],
    ),
    Case(
        "room is lost where pods do not fill a node",
        LintInput(jobset(pods(6, 5)), known_cluster(*EIGHTS)),
        [too_many(6, 4)],
    ),
    Case(
        "the pods of all its Jobs",
        LintInput(jobset(pods(2, 8, replicas=3)), known_cluster(*EIGHTS)),
        [too_many(6, 4)],
    ),
    Case(
        "fewer are enough",
        LintInput(jobset(pods(8, 8, minimum="4")), known_cluster(*EIGHTS)),
        [],
    ),
    Case(
        "not even the fewest",
        LintInput(jobset(pods(8, 8, minimum="5")), known_cluster(*EIGHTS)),
        [too_many(5, 4)],
    ),
    Case(
        "those that come later, and are alike",
        LintInput(jobset(*LAUNCHED), known_cluster(*EIGHTS)),
        [too_many(5, 4, name="node and launcher")],
    ),
    Case(
        "in stages they are never there together",
        LintInput(jobset(*LAUNCHED), known_cluster(*EIGHTS), rules=EXTERNAL),
        [],
    ),
    Case(
        "what runs one after another",
        LintInput(
            jobset(pods(4, 8), pods(4, 8, "node Complete", name="eval")), known_cluster(*EIGHTS)
        ),
        [],
    ),
    Case(
        "each kind of pods has room, and both have not",
        LintInput(jobset(pods(3, 8), pods(2, 4, name="other")), known_cluster(*EIGHTS[:3])),
        [
            (
                f"podgroup-too-large! {COUNT}: the pods that must start together request 32 {GPU}, "
                "and the 3 eligible nodes have 24. Request at most 24"
            )
        ],
    ),
    Case(
        "one of two members is enough",
        LintInput(
            jobset(pods(4, 8), pods(9, 8, name="other"), annotations={MIN: "1"}),
            known_cluster(*EIGHTS),
        ),
        [],
    ),
    Case(
        "not even the smaller one of two",
        LintInput(
            jobset(pods(5, 8), pods(9, 8, name="other"), annotations={MIN: "1"}),
            known_cluster(*EIGHTS),
        ),
        [
            (
                "podgroup-too-large! spec.replicatedJobs[1].template.spec.parallelism: the pods "
                f"that must start together request 40 {GPU}, and the 4 eligible nodes have 32. "
                "Request at most 32"
            )
        ],
    ),
    Case(
        "the places of nodes count too",
        LintInput(jobset(pods(111, 0)), known_cluster(node("n"))),
        [
            (
                f"podgroup-too-large! {COUNT}: 111 pods of node must start together, and the one "
                "eligible node holds 110. Request at most 110"
            )
        ],
    ),
    Case("pods without any wish", LintInput(jobset(pods(110, 0)), known_cluster(node("n"))), []),
    Case(
        "a user that makes the PodGroup knows best",
        LintInput(
            jobset(pods(5, 8), annotations={"kai.scheduler/skip-podgrouper": "true"}),
            known_cluster(*EIGHTS),
        ),
        [],
    ),
]


@pytest.mark.parametrize("case", PODGROUPS, ids=ids)
def test_what_starts_together(case: Case[LintInput, list[str]]) -> None:
    """It is compared with all nodes, as if they were empty."""
    assert findings(case.given) == case.want
