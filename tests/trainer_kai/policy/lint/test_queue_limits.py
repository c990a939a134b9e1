"""What is more than a queue may ever have, or than any domain of a topology holds."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import (
    RULES,
    LintInput,
    decode_spec,
    findings,
    known_cluster,
    node,
    pods,
    queue_spec,
)
from tests.trainer_kai.policy.specs import jobset
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import QueueSpec
from trainer_kai.policy.lint.queue_limits import quota_shortage
from trainer_kai.policy.podgroups.manifests import GroupingRules

POD = "spec.replicatedJobs[0].template.spec.template.spec"
COUNT = "spec.replicatedJobs[0].template.spec.parallelism"
LIMITS = f"{POD}.containers[0].resources.limits"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
MIN = "kai.scheduler/batch-min-member"
EXTERNAL = GroupingRules("external", "kai-scheduler", "default-queue")
EIGHTS = [node(f"n{i}") for i in range(4)]  # 32 GPUs


def required_level(level: str) -> dict[str, str]:
    """Return the annotations that ask for one domain."""
    return {TOPOLOGY: "racks", REQUIRED: level}


QUEUES = {
    "all": queue_spec(limit=16),
    "team": queue_spec("all", limit=8, quota=4),
    "guests": queue_spec("all"),
    "lost": queue_spec("nowhere", limit=8),
    "circle": queue_spec("circle", limit=8),
}
BUILD = {"priorityClassName": "build"}
NON_PREEMPTIBLE = {"kai.scheduler/preemptibility": "non-preemptible"}
PREEMPTIBLE = {"kai.scheduler/preemptibility": "preemptible"}


def over_limit_text(requests: int, most: int, queue: str = "team") -> str:
    return (
        f"over-limit! {COUNT}: the pods that must start together request {requests} GPU, and the "
        f"limit of queue {queue} is {most} GPU. Request at most {most} GPU, or name another queue"
    )


def over_quota_text(requests: int, most: int, queue: str = "team") -> str:
    return (
        f"over-quota! {COUNT}: the TrainJob is non-preemptible and requests {requests} GPU, and "
        f"the quota of queue {queue} is {most} GPU. Set kai.scheduler/preemptibility: "
        f"preemptible, name another queue, or request at most {most} GPU"
    )


CHARGED = [
    Case("as much as the limit", (jobset(pods(1, 8)), "team"), []),
    Case("more than the limit", (jobset(pods(2, 8)), "team"), [over_limit_text(16, 8)]),
    Case(
        "more than the limit above",
        (jobset(pods(3, 8)), "guests"),
        [over_limit_text(24, 16, "all, a parent of guests,")],
    ),
    Case("a queue that is not there", (jobset(pods(3, 8)), "new"), []),
    Case(
        "a parent that is not there", (jobset(pods(2, 8)), "lost"), [over_limit_text(16, 8, "lost")]
    ),
    Case("a queue above itself", (jobset(pods(1, 8)), "circle"), []),
    Case(
        "both kinds of devices are one to a queue",
        (jobset(pods(1, 8, pod={"amounts": {"amd.com/gpu": "1"}})), "team"),
        [over_limit_text(9, 8)],
    ),
    Case(
        "slices count as devices",
        (jobset(pods(3, 0, pod={"amounts": {"nvidia.com/mig-3g.20gb": "1"}})), "team"),
        [over_limit_text(9, 8)],
    ),
    Case("fewer are enough", (jobset(pods(2, 8, minimum="1")), "team"), []),
    Case(
        "what cannot be preempted, by its class",
        (jobset(pods(1, 8), labels=BUILD), "team"),
        [over_quota_text(8, 4)],
    ),
    Case(
        "the same by its label",
        (jobset(pods(1, 8), labels=NON_PREEMPTIBLE), "team"),
        [over_quota_text(8, 4)],
    ),
    Case(
        "what may be, whatever its class",
        (jobset(pods(1, 8), labels={**BUILD, **PREEMPTIBLE}), "team"),
        [],
    ),
    Case(
        "the class of its pods",
        (jobset(pods(1, 8, pod={"priorityClassName": "build"})), "team"),
        [over_quota_text(8, 4)],
    ),
    Case("no bound on the quota", (jobset(pods(1, 8), labels=BUILD), "guests"), []),
]


@pytest.mark.parametrize("case", CHARGED, ids=ids)
def test_what_queues_may_have(case: Case[tuple[JobSet, str], list[str]]) -> None:
    """The first queue on the way up that could never take it is named."""
    whole, queue = case.given

    assert findings(LintInput(whole, known_cluster(queues=QUEUES), queue)) == case.want


# spec.resources.cpu of the queue -> the limit in the message, and the remedy
CPU_LIMITS = [
    Case(
        "a limit that is absent is 0 CPU",
        {},
        ("0 CPU (spec.resources.cpu is absent)", "Request no CPU"),
    ),
    Case(
        "written as 0",
        {"cpu": {"limit": 0}},
        ("0 CPU (spec.resources.cpu.limit is absent or 0)", "Request no CPU"),
    ),
    Case(
        "millicores that look like cores",
        {"cpu": {"limit": 4}},
        ("4m CPU (spec.resources.cpu.limit: 4 is in millicores)", "Request at most 4m CPU"),
    ),
    Case("a limit is in millicores", {"cpu": {"limit": 1000}}, ("1 CPU", "Request at most 1 CPU")),
]


@pytest.mark.parametrize("case", CPU_LIMITS, ids=ids)
def test_limits_of_cpu(case: Case[dict[str, object], tuple[str, str]]) -> None:
    """The message has the unit of the field; what a queue leaves out is 0, as in the scheduler."""
    resources = {"gpu": {"limit": -1, "quota": -1}, **case.given}
    queues = {"team": decode_spec(QueueSpec, {"resources": resources})}
    whole = jobset(pods(1, 8, pod={"amounts": {"cpu": "2"}}))
    limit, remedy = case.want

    assert findings(LintInput(whole, known_cluster(queues=queues))) == [
        (
            f"over-limit! {COUNT}: the pods that must start together request 2 CPU, and the "
            f"limit of queue team is {limit}. {remedy}, or name another queue"
        )
    ]


RACKS = [
    node("a1", zone="z", rack="r1"),
    node("a2", zone="z", rack="r1"),
    node("b1", zone="z", rack="r2"),
    node("c1", 4, zone="y", rack="r1"),  # a rack of the same name elsewhere
    node("d1"),  # in none
    node("e1", zone="z"),  # in none, as it has no rack
]


def too_small_text(count: int, level: str, best: int) -> str:
    return (
        f"domain-too-small! metadata.annotations[{REQUIRED}]: {count} pods of node must be in "
        f"one {level} of Topology racks, and the largest holds {best}. Request at most {best} "
        "pods, or a coarser level"
    )


TOGETHER = [
    Case("a rack holds it", jobset(pods(2, 8), annotations=required_level("rack")), []),
    Case(
        "no rack does",
        jobset(pods(3, 8), annotations=required_level("rack")),
        [too_small_text(3, "rack", 2)],
    ),
    Case("a zone does", jobset(pods(3, 8), annotations=required_level("zone")), []),
    Case(
        "a node without a rack is in no zone",
        jobset(pods(4, 8), annotations=required_level("zone")),
        [too_small_text(4, "zone", 3)],
    ),
    Case(
        "a node does not",
        jobset(pods(2, 8), annotations=required_level("kubernetes.io/hostname")),
        [too_small_text(2, "kubernetes.io/hostname", 1)],
    ),
    Case(
        "of nodes the largest counts",
        jobset(pods(2, 4), annotations=required_level("kubernetes.io/hostname")),
        [],
    ),
    Case(
        "each kind has room in a rack, and both in none",
        jobset(pods(2, 8), pods(1, 4, name="other"), annotations=required_level("rack")),
        [
            (
                f"domain-too-small! metadata.annotations[{REQUIRED}]: 3 pods of node and other "
                "must be in one rack of Topology racks, and none holds them. Request less, or "
                "a coarser level"
            )
        ],
    ),
    Case(
        "those of one Job",
        jobset(pods(3, 8, annotations=required_level("rack"))),
        [
            (
                "domain-too-small! "
                f"spec.replicatedJobs[0].template.metadata.annotations[{REQUIRED}]: 3 pods of "
                "node must be in one rack of Topology racks, and the largest holds 2. Request "
                "at most 2 pods, or a coarser level"
            )
        ],
    ),
    Case(
        "those of each Job in its own",
        jobset(pods(1, 8, replicas=3, annotations=required_level("rack"))),
        [],
    ),
    Case(
        "preferred is not required",
        jobset(
            pods(3, 8), annotations={TOPOLOGY: "racks", f"{TOPOLOGY}-preferred-placement": "rack"}
        ),
        [],
    ),
    Case(
        "no node that takes them is in a rack today",
        jobset(
            pods(1, 8, pod={"nodeSelector": {"kubernetes.io/hostname": "d1"}}),
            annotations=required_level("rack"),
        ),
        [
            (
                f"no-node-matches? metadata.annotations[{REQUIRED}]: no node that is eligible "
                "for the pods has all of the labels zone, rack, kubernetes.io/hostname today. "
                "The pods wait for such a node"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", TOGETHER, ids=ids)
def test_what_must_be_in_one_domain(case: Case[JobSet, list[str]]) -> None:
    """Domains of one name in two zones are two, and a node without all labels is in none."""
    for rules in (RULES, EXTERNAL):
        found = findings(LintInput(case.given, known_cluster(*RACKS), rules=rules))
        assert found == case.want


def of_queue_text(count: int, level: str, best: int, queue: str = "all") -> str:
    return (
        too_small_text(count, level, best)
        .replace(f"metadata.annotations[{REQUIRED}]", COUNT)
        .replace("Topology racks", f"Topology racks (the default of queue {queue})")
    )


BY_QUEUE = [
    Case("a rack holds it", jobset(pods(2, 8)), []),
    Case("no rack does", jobset(pods(3, 8)), [of_queue_text(3, "rack", 2)]),
    Case("one pod is near itself", jobset(pods(1, 8)), []),
    Case("its own constraint counts", jobset(pods(3, 8), annotations=required_level("zone")), []),
    Case(
        "that of a Job as well",
        jobset(pods(3, 8, replicas=1, annotations=required_level("zone"))),
        [],
    ),
    Case(
        "a Topology without a level is no constraint",
        jobset(pods(3, 8), annotations={TOPOLOGY: "racks"}),
        [of_queue_text(3, "rack", 2)],
    ),
]


@pytest.mark.parametrize("case", BY_QUEUE, ids=ids)
def test_what_a_queue_wants_in_one_domain(case: Case[JobSet, list[str]]) -> None:
    """The default of the parent holds; mode external leaves it to KAI, which knows none."""
    cluster = known_cluster(*RACKS, queues={"all": queue_spec(), "team": queue_spec("all")})
    cluster = cluster._replace(topology_defaults={"all": required_level("rack"), "team": {}})
    assert findings(LintInput(case.given, cluster)) == case.want
    assert findings(LintInput(case.given, cluster, rules=EXTERNAL)) == []


DEFAULTS = [
    Case("the nearest counts", {"all": required_level("rack"), "team": required_level("zone")}, []),
    Case("of a Topology that does not exist", {"all": {TOPOLOGY: "x", REQUIRED: "rack"}}, []),
    Case("of a level that does not exist", {"all": required_level("row")}, []),
    Case("of another queue", {"guests": required_level("rack")}, []),
    Case("its own", {"team": required_level("rack")}, [of_queue_text(3, "rack", 2, "team")]),
]


@pytest.mark.parametrize("case", DEFAULTS, ids=ids)
def test_which_default_counts(case: Case[dict[str, dict[str, str]], list[str]]) -> None:
    """What does not exist is ignored, as the scheduler does."""
    cluster = known_cluster(*RACKS, queues={"all": queue_spec(), "team": queue_spec("all")})
    given = LintInput(jobset(pods(3, 8)), cluster._replace(topology_defaults=case.given))
    assert findings(given) == case.want


def test_queues_that_are_above_themselves_have_no_default() -> None:
    cluster = known_cluster(
        *RACKS, queues={"team": queue_spec("other"), "other": queue_spec("team")}
    )
    cluster = cluster._replace(topology_defaults={"all": required_level("rack")})
    assert findings(LintInput(jobset(pods(3, 8)), cluster)) == []


MILLI = {"cpu": 1000, "memory": 10**12, "nvidia.com/gpu": 1000}  # of 1 CPU, 1 GB, 1 GPU
# What pods request, the quota of cpu (millicores) or memory (megabytes), what is in use -> short of
SHORTAGES: list[Case[tuple[str, int, dict[str, Any], dict[str, str]], str]] = [
    Case("CPU within the quota is no shortage", ("cpu", 4, {"cpu": {"quota": 4000}}, {}), ""),
    Case("CPU in use", ("cpu", 4, {"cpu": {"quota": 4000}}, {"cpu": "1m"}), "4 CPU, 4 CPU, 1m CPU"),
    Case(
        "memory within the quota is no shortage", ("memory", 2, {"memory": {"quota": 2000}}, {}), ""
    ),
    Case(
        "memory in use",
        ("memory", 2, {"memory": {"quota": 2000}}, {"memory": "1Gi"}),
        "1953125Ki memory, 1953125Ki memory, 1Gi memory",
    ),
    Case(
        "a quota of another resource is no shortage",
        ("cpu", 4, {"memory": {"quota": 0}, "cpu": {"quota": -1}}, {}),
        "",
    ),
    Case("a number beyond all", ("cpu", 4, {"cpu": {"quota": 1e300}}, {}), ""),
]


@pytest.mark.parametrize("case", SHORTAGES, ids=ids)
def test_a_quota_without_enough_left(
    case: Case[tuple[str, int, dict[str, Any], dict[str, str]], str],
) -> None:
    """The units of a queue are millicores and megabytes, those of its status cores and bytes."""
    kind, units, resources, used = case.given
    queues = {"team": decode_spec(QueueSpec, {"resources": resources})}
    needs = {kind: units * MILLI[kind]}
    found = quota_shortage(needs, ("nvidia.com/gpu",), "team", queues, {"team": used})
    assert (", ".join(found[1:]) if found else "") == case.want
