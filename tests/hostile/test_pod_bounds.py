"""H3: what a tenant's pods say, however much of it, costs the pods of others nothing.

Above the bounds of a pod its PodGroup is Misconfigured, with the field and both numbers; on a node
it keeps its room and is charged. Below them many pods together cost no more than they are.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import pytest

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.conftest import Measured, SimulateFixture
from tests.hostile.objects import GPU, TENANT, TENANT_QUEUE, VICTIMS, cluster, pod, pod_group
from tests.support.case import Case, ids
from tests.support.cpu_time import assert_cpu_ratio, cpu_s
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import NODES, QUEUES

Obj: TypeAlias = dict[str, Any]
PodFields: TypeAlias = Callable[[Obj, int], None]  # writes into a pod, by its number

_NODES: Final = 250
_MANY: Final = 250  # pods that say much
_MANY_WAITING: Final = 4_000  # pods
_HOST: Final = "kubernetes.io/hostname"
_MUST: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _resources(number: int) -> PodFields:
    def say(it: Obj, of: int) -> None:
        limits = {f"example.com/r{of}-{n}": "1" for n in range(number)}
        it["spec"]["containers"][0]["resources"] = {"limits": limits}

    return say


def _ports(number: int) -> PodFields:
    """Return one port on many addresses."""

    def say(it: Obj, of: int) -> None:
        it["spec"]["containers"][0]["ports"] = [
            {"containerPort": 1, "hostPort": 1, "hostIP": f"10.{of % 250}.{n // 250}.{n % 250}"}
            for n in range(number)
        ]

    return say


def _terms(number: int, *, everywhere: bool) -> PodFields:
    """Return terms that keep all pods away, each in other words."""
    where: Obj = {"namespaceSelector": {}} if everywhere else {}

    def say(it: Obj, of: int) -> None:
        it["metadata"]["labels"]["number"] = str(of)
        terms = [
            {
                "topologyKey": _HOST,
                **where,
                "labelSelector": {"matchExpressions": [_constraint("x", "NotIn", f"{of}-{n}")]},
            }
            for n in range(number)
        ]
        it["spec"]["affinity"] = {"podAntiAffinity": {_MUST: terms}}

    return say


def _keys(number: int) -> PodFields:
    """Return labels of nodes that no node has."""

    def say(it: Obj, of: int) -> None:
        wishes = [_constraint(f"k{of}-{n}", "DoesNotExist") for n in range(number)]
        _select(it, wishes)

    return say


def _values(number: int) -> PodFields:
    def say(it: Obj, of: int) -> None:
        _select(it, [_constraint(_HOST, "NotIn", *(f"{of}-{n}" for n in range(number)))])

    return say


def _places(number: int) -> PodFields:
    """Return terms about parts of the cluster that no node is in."""

    def say(it: Obj, of: int) -> None:
        selector = {"matchLabels": {"app": "a"}}
        terms = [{"topologyKey": f"t{of}-{n}", "labelSelector": selector} for n in range(number)]
        it["spec"]["affinity"] = {"podAntiAffinity": {_MUST: terms}}

    return say


def _tolerations(number: int) -> PodFields:
    def say(it: Obj, of: int) -> None:
        it["spec"]["tolerations"] = [{"key": f"t{of}-{n}"} for n in range(number)]

    return say


def _volumes(number: int) -> PodFields:
    def say(it: Obj, of: int) -> None:
        it["spec"]["volumes"] = [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{of}-{n}"}}
            for n in range(number)
        ]

    return say


def _constraint(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


def _select(it: Obj, wishes: list[Obj]) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": wishes}]}
    it["spec"]["affinity"] = {"nodeAffinity": {_MUST: terms}}


def _tenant(number: int, say: PodFields, **more: Any) -> list[Obj]:
    """Return pods of the tenant that ask for nothing but what they are made to say."""
    pods = []
    for of in range(number):
        it = pod(TENANT, f"t{of}", 0, **more)
        del it["spec"]["containers"][0]["resources"]
        say(it, of)
        pods.append(it)
    return pods


def _victims() -> list[Obj]:
    return [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


def _started(found: Measured) -> int:
    return sum(name.startswith(VICTIMS) for name in found.binds)


# what five pods of the tenant say → what is told of each
ABOVE = [
    Case(
        "4,000 resources are too many",
        _resources(4000),
        "spec.containers[*].resources: the pod requests 4000 resources, but at most 64 are "
        "supported; name at most 64",
    ),
    Case(
        "4,000 host ports are too many",
        _ports(4000),
        "spec.containers[*].ports: the pod uses 4000 host ports, but at most 256 are supported; "
        "name at most 256",
    ),
    Case(
        "1,000 terms about other pods are too many",
        _terms(1000, everywhere=True),
        "spec.affinity, spec.topologySpreadConstraints: the pod has 1000 terms about other pods, "
        "but at most 64 are supported; name at most 64",
    ),
    Case(
        "20,000 selector expressions are too many",
        _keys(20_000),
        "spec.nodeSelector, spec.affinity: the pod has 20000 selector expressions, but at most 256 "
        "are supported; name at most 256",
    ),
    Case(
        "100,000 values are too many",
        _values(100_000),
        "spec.nodeSelector, spec.affinity: the pod names 100000 values in selector expressions, "
        "but at most 1024 are supported; name at most 1024",
    ),
    Case(
        "10,000 tolerations are too many",
        _tolerations(10_000),
        "spec.tolerations: the pod has 10000 tolerations, but at most 256 are supported; name at "
        "most 256",
    ),
    Case(
        "5,000 volumes are too many",
        _volumes(5_000),
        "spec.volumes: the pod has 5000 volumes, but at most 256 are supported; name at most 256",
    ),
]


@pytest.mark.parametrize("case", ABOVE, ids=ids)
def test_a_pod_above_a_bound_waits_and_the_others_start(
    case: Case[PodFields, str], simulate: SimulateFixture
) -> None:
    """Its PodGroup is told the field and both numbers, and is in no table."""
    found = simulate([*cluster(_NODES), *_victims(), *_tenant(5, case.given)])

    assert _started(found) == len(found.binds) == 16
    assert {name: it["reason"] for name, it in found.waiting.items()} == {
        f"{TENANT}/pg-t{of}-{TENANT}-t{of}": "Misconfigured" for of in range(5)
    }
    message = found.waiting[f"{TENANT}/pg-t0-{TENANT}-t0"]["message"]
    assert message == f"The spec of pod t0 exceeds a limit: {case.want}"


# what many pods of the tenant say, each for itself within the bounds → how many are bound
MANY = [
    Case("resources that no node has", _resources(63), 0),
    Case("labels that no node has", _keys(256), _MANY),
    Case("a term about no part of the cluster", _places(1), _MANY),
    Case("values that no node has", _values(256), _MANY),
]


@pytest.mark.parametrize("case", MANY, ids=ids)
def test_many_pods_with_words_of_their_own(
    case: Case[PodFields, int], simulate: SimulateFixture
) -> None:
    """Only what nodes have gets a column."""
    found = simulate([*cluster(_NODES), *_victims(), *_tenant(_MANY, case.given)])

    assert _started(found) == 16
    assert len(found.binds) - 16 == case.want


# what many pods say of pods and ports, of which there is a bound for their namespace
# → what each has
MANY_RUNNING = [
    Case("all terms are counted", _terms(64, everywhere=False), "64 terms and 0 host ports"),
    Case("terms about all namespaces", _terms(64, everywhere=True), "64 terms and 0 host ports"),
    Case("terms about no part of the cluster", _places(64), "64 terms and 0 host ports"),
    Case("all host ports are counted", _ports(256), "0 terms and 256 host ports"),
]


@pytest.mark.parametrize("case", MANY_RUNNING, ids=ids)
def test_the_pods_of_a_namespace_have_a_bound_together(
    case: Case[PodFields, str], simulate: SimulateFixture
) -> None:
    """The oldest have their turn, and the others are told what they wait for."""
    found = simulate([*cluster(_NODES), *_victims(), *_tenant(_MANY, case.given)])

    assert _started(found) == 16
    assert len(found.binds) > 16
    report = {it["message"] for it in found.waiting.values()}
    message = (
        f"The pods of namespace {TENANT} have more than 2048 different terms about other pods and "
        f"host ports together; the PodGroup has {case.want}, and older ones are ahead of it. It "
        "cannot start before older ones are deleted, or before pods of the namespace have fewer in "
        "spec.affinity, spec.topologySpreadConstraints and spec.containers[*].ports (equal pods "
        "count once)"
    )
    assert report == {message}


def test_a_podgroup_above_the_bound_of_its_namespace_alone(simulate: SimulateFixture) -> None:
    """It waits for no other, and is told how much less it may say."""
    gang = [pod_group(TENANT, "job", 40), *_tenant(40, _terms(64, everywhere=False), group="job")]

    found = simulate([*cluster(_NODES), *_victims(), *gang])

    assert _started(found) == len(found.binds) == 16
    report = found.waiting[f"{TENANT}/job"]
    assert report["reason"] == "Misconfigured"
    assert report["message"] == (
        "The pods of the PodGroup have 2560 different terms about other pods and 0 host ports, but "
        f"at most 2048 are supported in a namespace ({TENANT}). It can never start unless its pods "
        "have at most 2048 in spec.affinity, spec.topologySpreadConstraints and "
        "spec.containers[*].ports (equal pods count once), or are in several PodGroups that start "
        "one after another"
    )


def test_what_no_node_has_is_named(simulate: SimulateFixture) -> None:
    """As what is in the way on all nodes."""
    found = simulate([*cluster(2), *_tenant(1, _resources(5))])

    report = found.waiting[f"{TENANT}/pg-t0-{TENANT}-t0"]
    assert report["reason"] == "NoNodeMatches"
    assert report["message"] == (
        "A pod requests 1 example.com/r0-0, 1 example.com/r0-1, 1 example.com/r0-2, …, and none of"
        " the 2 nodes fits it: 2 nodes are too small even when empty (no node has"
        " example.com/r0-0, example.com/r0-1, example.com/r0-2, …). It can start when the pod"
        " requests less, or a node that matches is added, if enough is then free there"
    )


@pytest.mark.parametrize("case", ABOVE[:3], ids=ids)
def test_a_running_pod_above_a_bound_stays_and_is_charged(
    case: Case[PodFields, str], simulate: SimulateFixture
) -> None:
    """Nothing is gained by a bound: its GPUs are taken from its node and counted for its queue."""

    def say(it: Obj, of: int) -> None:
        case.given(it, of)
        resources = it["spec"]["containers"][0].setdefault("resources", {})
        resources.setdefault("limits", {})[GPU] = "8"

    running = _tenant(1, say, node="n0")
    red = [pod_group("red", "job", 8), *(pod("red", f"p{n}", 1, "job") for n in range(8))]

    found = simulate([*cluster(2), *red, *running])

    assert len(found.binds) == 8
    assert {*found.binds.values()} == {"n1"}
    (queue,) = (it for it in found.document["queues"] if it["name"] == TENANT_QUEUE)
    assert queue["allocated"]["gpu"] == 8


def test_a_pod_above_a_bound_that_runs_gives_back_what_is_due(simulate: SimulateFixture) -> None:
    """What it has beyond its queue's quota goes to the victims like anything else."""

    def say(it: Obj, of: int) -> None:
        _terms(1000, everywhere=True)(it, of)
        it["spec"]["containers"][0]["resources"] = {"limits": {GPU: "8"}}

    found = simulate([*cluster(2), *_victims(), *_tenant(1, say, node="n0")])

    assert found.evictions == {f"{TENANT}/t0": "reclaim"}


def test_a_port_of_a_pod_above_a_bound_that_runs_is_taken(simulate: SimulateFixture) -> None:
    """A pod that requests it goes to another node."""

    def takes(it: Obj, _: int) -> None:
        ports = [{"containerPort": n, "hostPort": n} for n in range(1, 4001)]
        it["spec"]["containers"][0]["ports"] = ports

    victim = pod("red", "p", 1)
    victim["spec"]["containers"][0]["ports"] = [{"containerPort": 4000, "hostPort": 4000}]

    found = simulate([*cluster(2), victim, *_tenant(1, takes, node="n0")])

    assert found.binds == {"red/p": "n1"}


# pods that come to a cluster that is known, one batch after another
EXPECTED: list[Case[tuple[int, PodFields], None]] = [
    *(Case(case.name, (5, case.given), None) for case in ABOVE),
    *(Case(f"many: {case.name}", (100, case.given), None) for case in MANY),
    *(Case(f"many: {case.name}", (100, case.given), None) for case in MANY_RUNNING),
]


@pytest.mark.parametrize("case", EXPECTED, ids=ids)
def test_a_snapshot_holds_the_event_loop_shortly(case: Case[tuple[int, PodFields], None]) -> None:
    """What comes, one more of it and that all of it goes: 2,000 pods of others run meanwhile."""
    number, say = case.given
    pods = _decoded(_tenant(number, say))
    assert_cpu_ratio(50, lambda: _longest_change(pods), lambda: _plain_change(number))


@cache
def _plain_change(number: int) -> float:
    """Return the time of as many pods that say nothing, the best of three."""
    pods = _decoded(_tenant(number, lambda *_: None))
    return min(_longest_change(pods) for _ in range(3))


def _longest_change(pods: list[Pod]) -> float:
    """Return the longest time of what comes, one more of it and that all of it goes."""
    live = _running()
    return max(
        _apply_change(live, pods[:-1]),
        _apply_change(live, pods[-1:]),
        _apply_change(live, pods, is_there=False),
    )


def test_what_waits_beyond_the_bound_costs_no_snapshot() -> None:
    """Neither one more of many thousands, nor one of the others."""
    pods = _decoded(_tenant(_MANY_WAITING, _terms(1, everywhere=False)))
    newest = _decoded(_tenant(_MANY_WAITING + 5, _newest)[_MANY_WAITING:])
    others = _decoded([pod("red", f"more{n}", 1) for n in range(5)])
    live = _running()
    _apply_change(live, pods)
    more, other = iter(newest), iter(others)
    alone, plain = _running(), iter(_decoded([pod("red", f"more{n}", 1) for n in range(10)]))

    def change_plain() -> float:
        return _apply_change(alone, [next(plain)])

    change_plain()
    _apply_change(live, [next(more)])
    assert_cpu_ratio(50, lambda: _apply_change(live, [next(more)]), change_plain)
    _apply_change(live, [next(other)])
    assert_cpu_ratio(20, lambda: _apply_change(live, [next(other)]), change_plain)


def _newest(it: Obj, of: int) -> None:
    it["metadata"]["creationTimestamp"] = "2026-01-05T07:00:00Z"
    _terms(1, everywhere=False)(it, of)


def _decoded(some: list[Obj]) -> list[Pod]:
    return [decode(Pod, json.dumps(it).encode()) for it in some]


def _apply_change(live: ClusterCache, some: list[Pod], *, is_there: bool = True) -> float:
    """Return how long it takes to take note of pods and make a snapshot."""

    def apply() -> None:
        for it in some:
            live.update_pod(it.metadata.key, it if is_there else None)
        live.snapshot()

    return cpu_s(apply)


def _running() -> ClusterCache:
    """Return a cluster on which the victims have all GPUs."""
    live = ClusterCache(lambda: StateOptions(now=1_800_000_000))
    nodes_and_queues, groups, pods = _running_objects()
    for it in nodes_and_queues:
        if isinstance(it, Node):
            live.update(NODES, it.metadata.key, it)
        else:
            live.update(QUEUES, it.metadata.key, it)
    for group in groups:
        live.update_group(group.metadata.key, group)
    for one in pods:
        live.update_pod(one.metadata.key, one)
    live.snapshot()
    return live


@cache
def _running_objects() -> tuple[list[Node | Queue], list[PodGroup], list[Pod]]:
    """Return them decoded: that takes longer than to apply them."""
    nodes_and_queues: list[Node | Queue] = []
    for it in cluster(_NODES):
        text = json.dumps(it).encode()
        is_node = it["kind"] == "Node"
        nodes_and_queues.append(decode(Node, text) if is_node else decode(Queue, text))
    groups, pods = [], []
    for n in range(_NODES):
        team, job = VICTIMS[n % 2], f"job{n}"
        groups.append(decode(PodGroup, json.dumps(pod_group(team, job, 8)).encode()))
        for i in range(8):
            it = pod(team, f"{job}-{i}", 1, job, node=f"n{n}")
            it["metadata"]["labels"]["job-name"] = job
            pods.append(it)
    return nodes_and_queues, groups, _decoded(pods)
