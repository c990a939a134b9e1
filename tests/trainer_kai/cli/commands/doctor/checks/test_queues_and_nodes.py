"""Queues that are invalid, that promise too much, and that are named but take no pods."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.instruction_count import instruction_growth
from tests.support.workloads.simulate_objects import queue
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    deployment,
    healthy_installation,
    injected_jobset,
    queues,
)
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GPU
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.checks.all_checks import CHECKS, run_checks
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    InstallationFacts,
    NodeFacts,
    PodGroupQueue,
)

QUEUES = {"queues": CHECKS["queues"]}
DELETED = "Queue gone does not exist"
NONE = "Queue default-queue does not exist, and no other queue takes PodGroups"


def with_queues(*found: dict[str, Any]) -> InstallationFacts:
    return healthy_installation()._replace(queues=queues(*found))


def with_own_queue(name: str, **environment: str) -> InstallationFacts:
    """Return an installation that was tried in a namespace with a queue."""
    got: Any = injected_jobset()
    got["metadata"]["labels"]["kai.scheduler/queue"] = name
    return with_queues(DEFAULT, queue(name, -1))._replace(
        jobset=DryRun(dry_run_objects.jobset("default"), got),
        namespaces=[Meta(name="default", labels={"kai.scheduler/queue": name})],
        deployments=[deployment("trainer-kai-webhook", 2, **environment)],
    )


def classified(name: str) -> list[Any]:
    found: Any = deployment("trainer-kai-webhook")
    found["spec"]["template"]["spec"]["priorityClassName"] = name
    return [found]


def with_nodes(nodes: NodeFacts, **settings: str) -> InstallationFacts:
    environment = {f"TRAINER_KAI_{name}": value for name, value in settings.items()}
    scheduler = [deployment("trainer-kai-scheduler", 2, **environment)]
    facts = healthy_installation()._replace(nodes=nodes)
    return facts._replace(deployments=scheduler) if settings else facts


def bounded(name: str, gpus: int, limit: int = -1, parent: str = "") -> dict[str, Any]:
    """Return a queue with quotas of CPU and memory beside its GPUs."""
    found, share = queue(name, gpus, limit, parent), {"limit": -1, "overQuotaWeight": 1}
    for kind in ("cpu", "memory"):
        found["spec"]["resources"][kind] = {"quota": gpus * 1000, **share}
    return found


def with_cpu_limit(name: str) -> dict[str, Any]:
    """Return a queue whose CPU limit was meant in cores."""
    found = queue(name)
    found["spec"]["resources"]["cpu"] = {"quota": 0, "limit": 4, "overQuotaWeight": 1}
    return found


DEFAULT = queue("default-queue", -1)

CASES: list[Case[tuple[str, InstallationFacts], tuple[str, str]]] = [
    Case("no queue at all is a fault", ("queues", with_queues()), ("fault", "no queues exist")),
    Case(
        "a circle of queues is a fault",
        ("queues", with_queues(queue("a", parent="b"), queue("b", parent="a"))),
        ("fault", "Queue a is its own ancestor: a → b → a, Queue a is its own ancestor: a → b → a"),
    ),
    Case(
        "a missing parent is a fault",
        ("queues", with_queues(queue("a", parent="b"))),
        ("fault", "Queue a has the parent queue b, which does not exist"),
    ),
    Case(
        "a value that counts otherwise",
        ("queues", with_queues(queue("a", weight=-1))),
        (
            "warning",
            (
                "queue a: spec.resources.gpu.overQuotaWeight: -1 counts as 1: -1 does not mean "
                "unlimited here"
            ),
        ),
    ),
    Case(
        "children that own more than their parent",
        (
            "queues",
            with_queues(queue("a", 8), queue("b", 6, parent="a"), queue("c", 6, parent="a")),
        ),
        (
            "warning",
            (
                "queue a: spec.resources.gpu.quota: the child queues have quotas of 12 GPU in "
                "total, and this queue has a quota of 8 GPU"
            ),
        ),
    ),
    Case(
        "a child that owns without bound",
        ("queues", with_queues(queue("a", 8), queue("b", -1, parent="a"))),
        (
            "warning",
            (
                "queue b: spec.resources.gpu.quota: the quota is unlimited (-1), and the parent "
                "queue has a GPU quota of 8 GPU"
            ),
        ),
    ),
    Case(
        "a quota without bound beside others",
        ("queues", with_queues(queue("a", -1), queue("b", 8))),
        (
            "warning",
            (
                "queue a: spec.resources.gpu.quota: the quota is unlimited (-1), and sibling "
                "queues have a GPU quota (b): they can reclaim no GPU from this queue"
            ),
        ),
    ),
    Case(
        "a child that may have more",
        ("queues", with_queues(queue("a", 8, 8), queue("b", 8, 12, parent="a"))),
        (
            "warning",
            (
                "queue b: spec.resources.gpu.limit: the limit of 12 GPU is above the limit of 8 "
                "GPU of parent queue a, which counts for this queue too"
            ),
        ),
    ),
    Case(
        "a quota above its limit",
        ("queues", with_queues(queue("a", 8, 4))),
        (
            "warning",
            (
                "queue a: spec.resources.gpu.quota: the quota of 8 GPU is above the limit of 4 "
                "GPU, and the queue gets no more than its limit"
            ),
        ),
    ),
    Case(
        "cores in place of millicores, in many queues",
        ("queues", with_queues(*(with_cpu_limit(f"q{i}") for i in range(5)))),
        (
            "warning",
            ", ".join(
                f"queue q{i}: spec.resources.cpu.limit: 4 millicores are 0.004 CPU"
                for i in range(3)
            )
            + " and 2 more",
        ),
    ),
    Case(
        "a default queue that no queue can reclaim from, as it was shipped once",
        ("default queue", with_queues(DEFAULT, queue("team", 8))),
        (
            "warning",
            (
                "the GPU quota of default-queue is unlimited (-1), as in earlier versions: team "
                "cannot reclaim from workloads that name no queue"
            ),
        ),
    ),
    Case(
        "the same of its parent",
        (
            "default queue",
            with_queues(
                queue("top", -1), queue("default-queue", 0, parent="top"), queue("team", 8)
            ),
        ),
        (
            "warning",
            (
                "the GPU quota of top is unlimited (-1), as in earlier versions: team cannot "
                "reclaim from workloads that name no queue"
            ),
        ),
    ),
    Case(
        "a default queue without bound below a parent with a quota, seen from another parent",
        (
            "default queue",
            with_queues(
                queue("top", 8), queue("default-queue", -1, parent="top"), queue("team", 8)
            ),
        ),
        ("ok", "default-queue takes TrainJobs that name no queue"),
    ),
    Case(
        "the same, seen from below that parent",
        (
            "default queue",
            with_queues(
                queue("top", 8),
                queue("default-queue", -1, parent="top"),
                queue("team", 4, parent="top"),
                queue("other", 8),
            ),
        ),
        (
            "warning",
            (
                "the GPU quota of default-queue is unlimited (-1), as in earlier versions: team "
                "cannot reclaim from workloads that name no queue"
            ),
        ),
    ),
    Case(
        "a parent without bound, seen from below it",
        (
            "default queue",
            with_queues(
                queue("top", -1),
                queue("default-queue", 0, parent="top"),
                queue("team", 4, parent="top"),
            ),
        ),
        ("ok", "default-queue takes TrainJobs that name no queue"),
    ),
    Case(
        "a default queue without a quota",
        ("default queue", with_queues(queue("default-queue", 0), queue("team", 8))),
        ("ok", "default-queue takes TrainJobs that name no queue"),
    ),
    Case(
        "as much as there is",
        (
            "queues",
            with_queues(bounded("a", 8, 12), *(bounded(it, 4, 12, parent="a") for it in "bc")),
        ),
        ("ok", "3 queues, all below a root"),
    ),
    Case(
        "CPU and memory that no sibling can reclaim",
        ("queues", with_queues(bounded("a", 8), queue("b", 8))),
        (
            "warning",
            (
                "queue b: spec.resources.cpu.quota: the quota of CPU and memory is unlimited (-1), "
                "so 1 sibling queue with a GPU quota can reclaim none of it on GPU nodes"
            ),
        ),
    ),
    Case(
        "no default queue", ("default queue", with_queues(queue("a", parent="a"))), ("fault", NONE)
    ),
    Case(
        "a default queue with children",
        ("default queue", with_queues(DEFAULT, queue("a", -1, parent="default-queue"))),
        ("fault", "Queue default-queue has child queues, so it takes no PodGroups"),
    ),
    Case(
        "the queue of the namespace is not the default",
        ("default queue", with_own_queue("research", TRAINER_KAI_DEFAULT_QUEUE="nothing")),
        ("fault", "Queue nothing does not exist"),
    ),
    Case(
        "nor where the processes are told nothing",
        ("default queue", with_own_queue("research")),
        ("ok", "default-queue takes TrainJobs that name no queue"),
    ),
    Case(
        "the queue of the namespace, and nobody shows the setting",
        ("default queue", with_own_queue("research")._replace(deployments=[])),
        (
            "unknown",
            "namespace default names a queue of its own; set another one with --try-in",
        ),
    ),
    Case(
        "a queue that is named and missing",
        (
            "named queues",
            healthy_installation()._replace(
                podgroup_queues=[PodGroupQueue("a/pg", "gone")],
                namespaces=[Meta(name="a", labels={"kai.scheduler/queue": "gone"})],
            ),
        ),
        (
            "warning",
            f"{DELETED} (named by PodGroup a/pg, namespace a)",
        ),
    ),
    Case(
        "missing priority classes are a fault",
        (
            "priority classes",
            healthy_installation()._replace(priority_classes=["build", "inference", "other"]),
        ),
        ("warning", "train, build-preemptible does not exist"),
    ),
    Case(
        "not the class of our own pods",
        ("priority classes", healthy_installation()._replace(deployments=classified("mine"))),
        ("fault", "mine does not exist, but the Deployments name it"),
    ),
    Case(
        "the class of our own pods, which is there",
        (
            "priority classes",
            healthy_installation()._replace(
                deployments=classified("mine"),
                priority_classes=[*healthy_installation().manifests.classes, "mine"],
            ),
        ),
        ("ok", "train, build-preemptible, build, inference exist"),
    ),
    Case(
        "nodes without GPUs are a warning",
        ("nodes", with_nodes(NodeFacts(0, 3))),
        ("warning", "none of 3 has GPUs"),
    ),
    Case(
        "GPUs that no queue is charged for",
        (
            "nodes",
            with_nodes(NodeFacts(2, 3, (GPU, f"{GPU}.fast", "nvidia.com/mig-1c.3g.40gb"))),
        ),
        (
            "warning",
            f"no queue is charged for {GPU}.fast: a GPU limit does not hold there",
        ),
    ),
    Case(
        "they are charged by a setting",
        (
            "nodes",
            with_nodes(
                NodeFacts(2, 3, (GPU, f"{GPU}.fast")), POLICIES_GPU_REPLICAS=f"{GPU}.fast=0.5"
            ),
        ),
        ("ok", "2 of 3 have GPUs"),
    ),
    Case(
        "nodes are restricted and GPU nodes lack the label",
        (
            "nodes",
            with_nodes(
                NodeFacts(2, 3, (GPU,), unlabelled_gpus=2, cpu_workers=1),
                RESTRICT_NODE_SCHEDULING="true",
            ),
        ),
        (
            "warning",
            (
                "2 nodes with GPUs lack the label node-role.kubernetes.io/gpu-worker: with "
                "restrict_node_scheduling no GPU pod runs there"
            ),
        ),
    ),
    Case(
        "nodes are restricted and none takes other pods",
        (
            "nodes",
            with_nodes(NodeFacts(2, 3, (GPU,)), RESTRICT_NODE_SCHEDULING="true"),
        ),
        (
            "warning",
            (
                "no node has the label node-role.kubernetes.io/cpu-worker: with "
                "restrict_node_scheduling no pod without GPUs runs"
            ),
        ),
    ),
    Case(
        "closed queues and nodes that are not restricted",
        (
            "nodes",
            with_nodes(NodeFacts(2, 3, (GPU,)), QUEUE_ACCESS_UNANNOTATED="closed"),
        ),
        (
            "warning",
            (
                "pods without GPUs may run on the 2 nodes with GPUs, and what queues do not count "
                "(ephemeral-storage, hugepages, network devices) can keep GPU pods from them"
            ),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_shared(case: Case[tuple[str, InstallationFacts], tuple[str, str]]) -> None:
    """A queue that takes no pods is a fault, a sum that does not add up a warning."""
    check, facts = case.given

    assert check_results(facts, check)[0] == case.want


def test_the_time_of_the_check_grows_with_the_queues() -> None:
    """Each level is added up once, not once for each of its queues."""
    found: list[object] = []

    def work(number: int) -> Callable[[], None]:
        facts = with_queues(
            *(with_cpu_limit(f"q{i}") for i in range(number)),
            *(queue(f"open-{i}", -1, weight=-1) for i in range(number)),
        )
        return lambda: found.extend(run_checks(facts, QUEUES))

    assert instruction_growth(work, 100) < 2.5
    assert len(found) == 2 * 4


def test_a_queue_without_resources_is_reported_once() -> None:
    """The warning of the queue table says less."""
    bare = {"metadata": {"name": "bare"}, "spec": {}}
    [found] = run_checks(with_queues(bare), QUEUES)
    assert found.observed.startswith("queue bare: spec.resources.gpu: is absent")


def test_the_remedies_of_shares() -> None:
    """The number to write, with the queue; and the commands for a default queue of old."""
    top, default = queue("top", -1), queue("default-queue", -1, parent="top")
    facts = with_queues(with_cpu_limit("a"), with_cpu_limit("b"), top, default)
    found = {(it.check, it.state.value): it.remedy for it in run_checks(facts)}
    patch = (
        """'{"spec":{"resources":{"gpu":{"quota":0},"cpu":{"quota":0},"memory":{"quota":0}}}}'"""
    )

    assert found["default queue", "warning"] == (
        f"`kubectl patch queue top --type merge -p {patch}`"
    )
    remedies = [it.remedy for it in run_checks(facts, QUEUES)]
    assert "queue a: write 4000 for 4 CPU" in remedies
