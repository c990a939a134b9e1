"""One situation a reason: the PodGroup waits, what its message says is done, and it starts."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple

import pytest

from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.state.objects import encode_objects
from tests.support.state.objects import group as state_group
from tests.support.state.objects import node as state_node
from tests.support.state.objects import pod as state_pod
from tests.support.state.objects import queue as state_queue
from tests.support.workloads.simulate_objects import Fields, group, node, pod, queue
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

Objects = dict[str, Fields]  # by kind and name
T: Final = 1767604200  # 2026-01-05T09:10:00Z
OWNER: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r"}


class Situation(NamedTuple):
    reason: UnschedulableReason
    objects: list[Fields]
    says: str  # the end of the message, or a part of it
    apply: Callable[[Objects], object]  # what it says
    name: str = ""

    @property
    def title(self) -> str:
        return f"{self.reason}{self.name and f': {self.name}'}"


def with_limit(gpus: int) -> Callable[[Objects], object]:
    return lambda it: it["Queue team-a"]["spec"]["resources"]["gpu"].update(limit=gpus)


def free(*names: str) -> Callable[[Objects], object]:
    return lambda it: [it.pop(f"Pod {name}") for name in names]


def both(*changes: Callable[[Objects], object]) -> Callable[[Objects], object]:
    return lambda it: [change(it) for change in changes]


def job(gpus: int = 8, **spec: Any) -> list[Fields]:
    return [group("job", **spec), pod("job-0", "job", gpus)]


def used(name: str, gpus: int, on: str = "n", of: str = "team-b", **spec: Any) -> list[Fields]:
    return [group(name, queue=of, **spec), pod(f"{name}-0", name, gpus, on)]


def held(name: str, **spec: Any) -> Fields:
    it = queue(name, -1, annotations={"trainer-kai.dev/stop-policy": "Hold"})
    it["spec"] |= spec
    return it


def release(it: Objects) -> None:
    it["Queue team-a"]["metadata"]["annotations"] = {}


def closed() -> list[Fields]:
    use = {"group": "scheduling.run.ai", "resource": "queues", "verb": "use", "name": "team-a"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {"name": "review"},
        "spec": {
            "groups": ["system:serviceaccounts:default"],
            "resourceAttributes": {**use, "namespace": "default"},
        },
        "status": {"allowed": False},
    }
    return [queue("team-a", -1, annotations={"trainer-kai.dev/queue-access": "closed"}), review]


def grant(it: Objects) -> None:
    it["SubjectAccessReview review"]["status"]["allowed"] = True


def behind_head() -> list[Fields]:
    strict = queue("team-a", -1, annotations={"trainer-kai.dev/queue-order": "strict"})
    head = [group("big", 2), *(pod(f"big-{i}", "big", 8) for i in range(2))]
    return [strict, *head, *job()]


def selecting(key: str) -> list[Fields]:
    one = job(1)
    one[1]["spec"]["nodeSelector"] = {key: "h200"}
    return one


def in_rack() -> list[Fields]:
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]},
    }
    constraint = {"topology": "dc", "requiredTopologyLevel": "rack"}
    nodes = [node(it, labels={"block": "a", "rack": it}) for it in ("r1", "r2")]
    gang = [group("job", 2, topologyConstraint=constraint)]
    return [*nodes, topology, *gang, *(pod(f"job-{i}", "job", 8) for i in range(2))]


def widen(it: Objects) -> None:
    it["PodGroup job"]["spec"]["topologyConstraint"]["requiredTopologyLevel"] = "block"


def stage(phase: str) -> list[Fields]:
    after = (
        '{"after": [{"replicatedJob": "data", "status": "Complete", "group": "data", '
        '"subGroupPrefix": "data-replica-", "replicas": 1, "count": 1, "before": []}]}'
    )
    replica = {"name": "data-replica-0", "parent": "data", "minMember": 1}
    first = group("data", minSubGroup=1, subGroups=[{"name": "data", "minSubGroup": 1}, replica])
    del first["spec"]["minMember"]
    second = group("job")
    second["metadata"]["annotations"] = {"trainer-kai.dev/anticipated": after}
    labels = {"kai.scheduler/subgroup-name": "data-replica-0"}
    data = pod("data-0", "data", 1, "n", phase, labels=labels)
    return [first, data, second, pod("job-0", "job", 1)]


def complete(it: Objects) -> None:
    it["Pod data-0"]["status"]["phase"] = "Succeeded"


def delayed() -> list[Fields]:
    one = job(preemptionDelay="10m")
    one[0]["metadata"]["creationTimestamp"] = "2026-01-05T09:05:00Z"
    return one


def add(*objects: Fields) -> Callable[[Objects], object]:
    return lambda it: it.update(named(objects))


def named(objects: Any) -> Objects:
    return {f"{it['kind']} {it['metadata']['name']}": deepcopy(it) for it in objects}


A, B, N = queue("team-a", -1), queue("team-b", -1), node("n")
FIXED: Final[dict[str, Any]] = {"preemptibility": "non-preemptible"}
FULL: Final = used("other", 8)
R = UnschedulableReason
SITUATIONS: Final = (
    Situation(
        R.MISCONFIGURED,
        [N, queue("top", -1), queue("team-a", -1, parent="top"), *job(queue="top")],
        "Queue top has child queues, so it takes no PodGroups. It cannot start before it names a "
        "descendant of queue top: team-a",
        lambda it: it["PodGroup job"]["spec"].update(queue="team-a"),
    ),
    Situation(
        R.FORBIDDEN_QUEUE,
        [N, *closed(), *job()],
        "It can start when group system:serviceaccounts:default is granted the verb use on",
        grant,
    ),
    Situation(
        R.FORBIDDEN_QUEUE,
        [N, *closed(), B, *FULL, *job()],
        "After that it can start when a node that it fits has 8 GPU free",
        both(grant, free("other-0")),
        "on a full node",
    ),
    Situation(
        R.QUEUE_HELD,
        [N, held("team-a"), *job()],
        "It can start when the queue is released: trainer-kai queue release team-a",
        release,
    ),
    Situation(
        R.QUEUE_HELD,
        [N, held("team-a"), B, *FULL, *job()],
        "trainer-kai queue release team-a. After that it can start when a node that it fits has 8 "
        "GPU free",
        both(release, free("other-0")),
        "on a full node",
    ),
    Situation(
        R.QUEUE_MISSING,
        [N, B, *job()],
        "It cannot start before queue team-a is created, or before it names another queue (suspend "
        "its workload, change the label kai.scheduler/queue, and resume it): team-b",
        add(A),
    ),
    Situation(
        R.PODS_MISSING,
        [N, A, group("job", 2), pod("job-0", "job", 1)],
        "Pods are missing: 1 of 2 exist. It cannot start before the missing pods exist",
        add(pod("job-1", "job", 1)),
    ),
    Situation(
        R.WAITING_FOR_STAGE,
        [N, A, *stage("Running")],
        "It cannot start before that earlier stage is complete",
        complete,
    ),
    Situation(
        R.WAITING_FOR_HEAD,
        [N, node("m"), B, *FULL, *behind_head()],
        "It cannot start before default/big has started",
        both(free("other-0"), add(node("k"))),
    ),
    Situation(
        R.EXCEEDS_LIMIT,
        [node("n", 16), queue("team-a", -1, limit=8), *used("own", 8, of="team-a"), *job()],
        "It can start when pods of queue team-a release 8 GPU or its limit is raised to 16 GPU",
        with_limit(16),
    ),
    Situation(
        R.EXCEEDS_LIMIT,
        [N, queue("team-a", -1, limit=8), *used("own", 8, of="team-a"), *job()],
        "It cannot start before pods of queue team-a release 8 GPU or its limit is raised to 16 "
        "GPU. After that it can start when a node that it fits has 8 GPU free",
        both(with_limit(16), add(node("m"))),
        "on a full node",
    ),
    Situation(
        R.EXCEEDS_LIMIT,
        [N, queue("team-a", 0, limit=4), *job(**FIXED)],
        "It can never start unless the limit of queue team-a is raised to 8 GPU, or the PodGroup "
        "requests less. After that it can start when the PodGroup becomes preemptible (label "
        "kai.scheduler/preemptibility: preemptible)",
        both(
            with_limit(8),
            lambda it: it["PodGroup job"]["spec"].update(preemptibility="preemptible"),
        ),
        "and the quota after it",
    ),
    Situation(
        R.NON_PREEMPTIBLE_OVER_QUOTA,
        [N, queue("team-a", 4), *job(**FIXED)],
        "or the quota of queue team-a is raised to 8 GPU",
        lambda it: it["Queue team-a"]["spec"]["resources"]["gpu"].update(quota=8),
    ),
    Situation(
        R.NO_NODE_MATCHES,
        [N, A, *selecting("gpu")],
        "It can start when the pod selects other nodes, or a node that matches is added, if enough "
        "is then free there",
        lambda it: it["Pod job-0"]["spec"].pop("nodeSelector"),
    ),
    Situation(
        R.TOPOLOGY_UNFIT,
        [A, *in_rack()],
        "It can start when it requires a wider level (block), it requests less, or a domain",
        widen,
    ),
    Situation(
        R.FRAGMENTED,
        [N, node("m"), A, B, *used("x", 4, **FIXED), *used("y", 4, "m", **FIXED), *job()],
        "It can start when one of the nodes has 8 GPU free",
        free("x-0"),
    ),
    Situation(
        R.NO_CAPACITY,
        [N, A, B, *FULL, *job()],
        "It can start when that node has 8 GPU free",
        free("other-0"),
    ),
    Situation(
        R.PREEMPTION_DELAY,
        [
            N,
            queue("team-a", 8),
            queue("team-b", 0),
            *FULL,
            *delayed(),
        ],
        "No pod is evicted for it before",
        lambda it: it["PodGroup job"]["spec"].pop("preemptionDelay"),
    ),
    Situation(
        R.WAITING_FOR_VICTIMS,
        [N, queue("team-a", 8), queue("team-b", 0), *FULL, *job()],
        "",  # its pods are nominated
        free("other-0"),
    ),
)


def first_cycle(objects: Mapping[str, Fields], cycles: int = 1) -> list[Mapping[str, Any]]:
    options = SimulationOptions(now=T, cycles=cycles)
    found: list[Mapping[str, Any]] = simulate(deepcopy([*objects.values()]), options)["cycles"]
    return found


def waits_with(cycle: Mapping[str, Any]) -> tuple[str, str]:
    for it in cycle["unschedulable"]:
        if it["podGroup"] == "job":
            return it["reason"], it["message"]
    is_nominated = any(it["pod"] == "job-0" for it in cycle["nominations"])
    return (R.WAITING_FOR_VICTIMS.value if is_nominated else "", "")


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda it: it.title)
def test_what_a_message_says_lets_the_podgroup_start(situation: Situation) -> None:
    objects = named(situation.objects)
    reason, message = waits_with(first_cycle(objects)[0])
    assert (reason, situation.says in message) == (situation.reason.value, True), message

    situation.apply(objects)

    bound = {it["pod"] for cycle in first_cycle(objects, 3) for it in cycle["binds"]}
    assert "job-0" in bound


def test_a_pod_starts_when_its_podgroup_exists() -> None:
    """Only the running scheduler waits for PodGroups, so it is no simulation."""
    meta = {"creationTimestamp": "2026-01-05T08:00:00Z", "ownerReferences": [OWNER]}
    site = (state_node("a"), state_queue())

    def planned(*objects: Fields) -> Plan:
        encoded = encode_objects(*site, *objects, ungrouped_wait_s=30)
        return plan(encoded.snapshot, build_policies(PolicySelection()))

    (waits,) = planned(state_pod("w", meta=meta)).rejections
    assert waits.reason == R.GROUP_MISSING
    (started,) = planned(state_group("g"), state_pod("w", "g", meta=meta)).allocations
    assert started.is_start


def test_each_reason_of_the_scheduler_is_staged() -> None:
    staged = {it.reason for it in SITUATIONS} | {R.GROUP_MISSING}
    assert staged == SCHEDULER_REASONS
