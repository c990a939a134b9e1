"""What could never start for its size; and of what could, nothing is told."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import (
    GPU,
    Given,
    bounds,
    node,
    pods,
    told,
)
from tests.trainer_kai.policy.specs import jobset
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.lint import NOTHING_KNOWN

POD = "spec.replicatedJobs[0].template.spec.template.spec"
COUNT = "spec.replicatedJobs[0].template.spec.parallelism"
LIMITS = f"{POD}.containers[0].resources.limits"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
MIN = "kai.scheduler/batch-min-member"
EXTERNAL = Rules("external", "kai-scheduler", "default-queue")
EIGHTS = [node(f"n{i}") for i in range(4)]  # 32 GPUs


def affinity(*wishes: dict[str, Any]) -> dict[str, Any]:
    """Return what asks for one of these labels."""
    terms = [{"matchExpressions": [wish]} for wish in wishes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


WIDE = pods(1, 8, pod={"amounts": {"cpu": "60"}})
PODS = [
    Case("it fits", Given(jobset(pods(4, 8)), bounds(*EIGHTS)), []),
    Case(
        "more than the largest node",
        Given(jobset(pods(1, 16)), bounds(*EIGHTS, node("small", 4))),
        [
            (
                f"pod-too-large! {LIMITS}[{GPU}]: each pod of node asks for 16 {GPU}, and the "
                "largest "
                "of 5 nodes for it has 8; ask for that or less"
            )
        ],
    ),
    Case(
        "more than the one node",
        Given(jobset(pods(1, 0, pod={"amounts": {"memory": "513Gi"}})), bounds(node("n"))),
        [
            (
                f"pod-too-large! {LIMITS}[memory]: each pod of node asks for 513Gi memory, and "
                "the one "
                "node for it has 512Gi; ask for that or less"
            )
        ],
    ),
    Case(
        "each resource is somewhere, and all nowhere",
        Given(jobset(WIDE), bounds(node("gpus", cpu=32), node("cpus", 0))),
        [f"pod-too-large! {POD}: no node has all that a pod of node asks for; ask for less"],
    ),
    Case(
        "no node has any of it today: one may come",
        Given(jobset(pods(1, 8)), bounds(node("n", 0))),
        [
            (
                f"no-node-today? {LIMITS}[{GPU}]: no node that takes node has any {GPU} today; "
                "it waits for one"
            )
        ],
    ),
    Case(
        "no node today has the label",
        Given(
            jobset(pods(1, 8, pod={"nodeSelector": {"gpu": "h100"}})), bounds(node("n", gpu="a"))
        ),
        [
            (
                f"no-node-today? {POD}: no node has gpu=h100 today, which node selects; there is "
                "a; "
                "it waits for one"
            )
        ],
    ),
    Case(
        "each label is somewhere, and both nowhere",
        Given(
            jobset(pods(1, 8, pod={"nodeSelector": {"x": "1", "y": "1"}})),
            bounds(node("a", x="1"), node("b", y="1")),
        ),
        [f"no-node-today? {POD}: no node is what node selects today; it waits for one"],
    ),
    Case(
        "no node today is what is asked for by affinity",
        Given(
            jobset(
                pods(1, 8, pod=affinity({"key": "gpu", "operator": "In", "values": ["b", "c"]}))
            ),
            bounds(node("n", gpu="a")),
        ),
        [f"no-node-today? {POD}: no node is what node selects today; it waits for one"],
    ),
    Case(
        "one of two terms is enough",
        Given(
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
            bounds(node("n", gpu="a")),
        ),
        [],
    ),
    Case(
        "only nodes that it selects are compared",
        Given(
            jobset(pods(1, 8, pod={"nodeSelector": {"pool": "s"}})),
            bounds(node("n"), node("s", 4, pool="s")),
        ),
        [
            (
                f"pod-too-large! {LIMITS}[{GPU}]: each pod of node asks for 8 {GPU}, and the one "
                "node "
                "for it has 4; ask for that or less"
            )
        ],
    ),
    Case(
        "taints that nobody tolerates",
        Given(jobset(pods(1, 8)), bounds(node("n", 8, "team=b:NoSchedule", "x=:NoExecute"))),
        [
            (
                f"no-node-today? {POD}: node tolerates no node that it selects today; their "
                "taints are "
                "team=b:NoSchedule, x=:NoExecute; it waits for one"
            )
        ],
    ),
    Case(
        "taints that it tolerates",
        Given(
            jobset(pods(1, 8, pod={"tolerations": [{"key": "team", "operator": "Exists"}]})),
            bounds(node("n", 8, "team=b:NoSchedule")),
        ),
        [],
    ),
    Case(
        "taints of states that pass, and those that only advise",
        Given(
            jobset(pods(1, 8)),
            bounds(node("n", 8, "node.kubernetes.io/not-ready=:NoExecute", "x=:PreferNoSchedule")),
        ),
        [],
    ),
    Case(
        "nodes that come by themselves: a warning",
        Given(jobset(pods(1, 16)), bounds(*EIGHTS, grows=True)),
        [
            (
                f"pod-too-large? {LIMITS}[{GPU}]: each pod of node asks for 16 {GPU}, and the "
                "largest "
                "of 4 nodes for it has 8; ask for that or less"
            )
        ],
    ),
    Case("nodes have not been listed yet", Given(jobset(pods(1, 16)), NOTHING_KNOWN), []),
    Case(
        "pods that another scheduler places",
        Given(jobset(pods(1, 16, scheduler="default-scheduler")), bounds(*EIGHTS)),
        [
            (
                f"not-understood? {POD}.schedulerName: node is left to 'default-scheduler', "
                "which knows nothing of the others"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", PODS, ids=ids)
def test_a_pod_alone(case: Case[Given, list[str]]) -> None:
    """It is compared with the largest node of those that take it."""
    assert told(case.given) == case.want


def too_many(count: int, holds: int, nodes: int = 4, name: str = "node") -> str:
    """Write that pods are too many."""
    return (
        f"unit-too-large! {COUNT}: {count} pods of {name} start together, and the {nodes} nodes "
        f"for them hold {holds}; ask for {holds} or fewer"
    )


LAUNCHED = [pods(4, 8), pods(1, 8, "node Ready", name="launcher")]
UNITS = [
    Case(
        "more pods than all nodes hold",
        Given(jobset(pods(5, 8)), bounds(*EIGHTS)),
        [too_many(5, 4)],
    ),
    Case(
        "room is lost where pods do not fill a node",
        Given(jobset(pods(6, 5)), bounds(*EIGHTS)),
        [too_many(6, 4)],
    ),
    Case(
        "the pods of all its Jobs",
        Given(jobset(pods(2, 8, replicas=3)), bounds(*EIGHTS)),
        [too_many(6, 4)],
    ),
    Case(
        "fewer are enough",
        Given(jobset(pods(8, 8, minimum="4")), bounds(*EIGHTS)),
        [],
    ),
    Case(
        "not even the fewest",
        Given(jobset(pods(8, 8, minimum="5")), bounds(*EIGHTS)),
        [too_many(5, 4)],
    ),
    Case(
        "those that come later, and are alike",
        Given(jobset(*LAUNCHED), bounds(*EIGHTS)),
        [too_many(5, 4, name="node and launcher")],
    ),
    Case(
        "in stages they are never there together",
        Given(jobset(*LAUNCHED), bounds(*EIGHTS), rules=EXTERNAL),
        [],
    ),
    Case(
        "what runs one after another",
        Given(jobset(pods(4, 8), pods(4, 8, "node Complete", name="eval")), bounds(*EIGHTS)),
        [],
    ),
    Case(
        "each kind of pods has room, and both have not",
        Given(jobset(pods(3, 8), pods(2, 4, name="other")), bounds(*EIGHTS[:3])),
        [
            (
                f"unit-too-large! {COUNT}: what starts together asks for 32 {GPU}, and the 3 "
                "nodes for "
                "them have 24; ask for that or less"
            )
        ],
    ),
    Case(
        "one of two members is enough",
        Given(
            jobset(pods(4, 8), pods(9, 8, name="other"), annotations={MIN: "1"}), bounds(*EIGHTS)
        ),
        [],
    ),
    Case(
        "not even the smaller one of two",
        Given(
            jobset(pods(5, 8), pods(9, 8, name="other"), annotations={MIN: "1"}), bounds(*EIGHTS)
        ),
        [
            (
                "unit-too-large! spec.replicatedJobs[1].template.spec.parallelism: what starts "
                "together "
                f"asks for 40 {GPU}, and the 4 nodes for them have 32; ask for that or less"
            )
        ],
    ),
    Case(
        "the places of nodes count too",
        Given(jobset(pods(111, 0)), bounds(node("n"))),
        [
            (
                f"unit-too-large! {COUNT}: 111 pods of node start together, and the one node for "
                "them "
                "holds 110; ask for 110 or fewer"
            )
        ],
    ),
    Case("pods without any wish", Given(jobset(pods(110, 0)), bounds(node("n"))), []),
    Case(
        "who groups them himself knows best",
        Given(
            jobset(pods(5, 8), annotations={"kai.scheduler/skip-podgrouper": "true"}),
            bounds(*EIGHTS),
        ),
        [],
    ),
]


@pytest.mark.parametrize("case", UNITS, ids=ids)
def test_what_starts_together(case: Case[Given, list[str]]) -> None:
    """It is compared with all nodes, as if they were empty."""
    assert told(case.given) == case.want
