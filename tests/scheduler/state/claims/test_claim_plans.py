"""What is planned for pods with ResourceClaims: their devices, or why they wait."""

from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.state.claim_plans import (
    BASE,
    SLICES,
    STARTED,
    Planned,
    new_gang,
    planned,
    running,
)
from tests.support.state.devices import (
    DRIVER,
    allocation,
    claiming_gang,
    claiming_pod,
    device_class,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import Fields, encode_objects, group, make_object, node, pod, queue

_QUEUED: Final = {"labels": {"kai.scheduler/queue": "q"}}
_HIGH: Final = make_object("PriorityClass", "high", value=90)


_TERMINATES: Final = {"meta": {"deletionTimestamp": "2026-01-05T08:00:00Z"}}
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_ROOTS: Final = [
    gpu(f"gpu-{n}", attributes={_ROOT: {"string": f"root-{n // 2}"}}) for n in range(4)
]
_PARTS: Final = [
    gpu(
        name,
        attributes={"type": {"string": kind}},
        consumesCounters=[{"counterSet": "gpu-0", "counters": {"memory": {"value": amount}}}],
    )
    for name, kind, amount in (
        ("gpu-0", "gpu", "80Gi"),
        ("p-0", "mig", "40Gi"),
        ("p-1", "mig", "40Gi"),
    )
]
_COUNTERS: Final = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
_PARTITIONED: Final = resource_slice("a", _PARTS, sharedCounters=_COUNTERS)
_MIG: Final = device_class(
    "mig", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
)
_TAINT: Final = {"key": "broken", "effect": "NoSchedule"}
_RULE: Final = make_object(
    "DeviceTaintRule",
    "rule",
    spec={"deviceSelector": {"pool": "a", "device": "gpu-0"}, "taint": _TAINT},
)
PLANS: list[Case[list[Fields], Planned]] = [
    Case(
        "a gang by a template",
        [*SLICES, *new_gang(4)],
        Planned(
            {"g0": "a gpu=gpu-0", "g1": "a gpu=gpu-1", "g2": "b gpu=gpu-0", "g3": "b gpu=gpu-1"}
        ),
    ),
    Case(
        "two devices each",
        [*SLICES, *new_gang(2, request(count=2))],
        Planned({"g0": "a gpu=gpu-0 gpu=gpu-1", "g1": "b gpu=gpu-0 gpu=gpu-1"}),
    ),
    Case(
        "all devices",
        [*SLICES, *new_gang(1, request(allocationMode="All"))],
        Planned({"g0": "a gpu=gpu-0 gpu=gpu-1"}),
    ),
    Case(
        "what a selector of the request asks for",
        [
            resource_slice(
                "a", [gpu("small", capacity={"memory": {"value": "40Gi"}}), gpu("large")]
            ),
            *new_gang(
                1,
                request(
                    selectors=[
                        {
                            "cel": {
                                "expression": f"device.capacity['{DRIVER}'].memory"
                                ".compareTo(quantity('60Gi')) > 0"
                            }
                        }
                    ]
                ),
            ),
        ],
        Planned({"g0": "a gpu=large"}),
    ),
    Case(
        "the first of several alternatives that there is",
        [
            *SLICES,
            _MIG,
            *new_gang(
                1,
                request(
                    firstAvailable=[
                        {"name": "part", "deviceClassName": "mig"},
                        {"name": "whole", "deviceClassName": DRIVER},
                    ]
                ),
            ),
        ],
        Planned({"g0": "a gpu/whole=gpu-0"}),
    ),
    Case(
        "devices that match in an attribute",
        [
            resource_slice("a", _ROOTS),
            *running("o", "a", "gpu-0"),
            *new_gang(1, request(count=2), constraints=[{"matchAttribute": _ROOT}]),
        ],
        Planned({"g0": "a gpu=gpu-2 gpu=gpu-3"}),
    ),
    Case(
        "parts of a GPU whose other part is taken",
        [
            _PARTITIONED,
            _MIG,
            *running("o", "a", "p-0"),
            *new_gang(1, request(deviceClassName="mig")),
        ],
        Planned({"g0": "a gpu=p-1"}),
    ),
    Case(
        "a tainted device is left",
        [*SLICES, _RULE, *new_gang(1)],
        Planned({"g0": "a gpu=gpu-1"}),
    ),
    Case(
        "a tainted device that is tolerated",
        [
            *SLICES,
            _RULE,
            *new_gang(1, request(tolerations=[{"key": "broken", "operator": "Exists"}])),
        ],
        Planned({"g0": "a gpu=gpu-0"}),
    ),
    Case(
        "a taint of the device itself",
        [resource_slice("a", [gpu("x", taints=[_TAINT]), gpu("y")]), *new_gang(1)],
        Planned({"g0": "a gpu=y"}),
    ),
    Case(
        "a taint without effect",
        [resource_slice("a", [gpu("x", taints=[{"key": "k", "effect": "None"}])]), *new_gang(1)],
        Planned({"g0": "a gpu=x"}),
    ),
    Case(
        "devices of others are taken",
        [
            *SLICES,
            resource_claim("foreign", status=allocation("a", "gpu-0")),
            *new_gang(1),
        ],
        Planned({"g0": "a gpu=gpu-1"}),
    ),
    Case(
        "only the newest generation of a pool",
        [
            resource_slice("a", [gpu("old")], name="s1"),
            resource_slice("a", [gpu("new")], name="s2", pool={"generation": 2}),
            *new_gang(1),
        ],
        Planned({"g0": "a gpu=new"}),
    ),
    Case(
        "a pool of two slices",
        [
            resource_slice("a", [gpu("x")], name="s1", pool={"resourceSliceCount": 2}),
            resource_slice("a", [gpu("y")], name="s2", pool={"resourceSliceCount": 2}),
            *new_gang(2),
        ],
        Planned({"g0": "a gpu=x", "g1": "a gpu=y"}),
    ),
    Case(
        "a claim of two pods",
        [
            *SLICES,
            group("g", minMember=2),
            claiming_pod("g0", "g", claim="s"),
            claiming_pod("g1", "g", claim="s"),
            resource_claim("s", meta=_QUEUED),
        ],
        Planned({"g0": "a gpu=gpu-0", "g1": "a gpu=gpu-0"}),
    ),
    Case(
        "a claim of two pods that one of them uses already",
        [
            *SLICES,
            group("g", minMember=1, meta=STARTED),
            claiming_pod("g0", "g", claim="s", node="b"),
            claiming_pod("g1", "g", claim="s"),
            resource_claim("s", meta=_QUEUED, status=allocation("b", "gpu-1", users=["g0"])),
        ],
        Planned({"g1": "b gpu=gpu-1"}),
    ),
    Case(
        "a claim that is allocated before its pod has a node",
        [
            *SLICES,
            group("g", minMember=1),
            claiming_pod("g0", "g"),
            resource_claim("g0-gpu", of="g0", status=allocation("b", "gpu-1", users=["g0"])),
        ],
        Planned({"g0": "b gpu=gpu-1"}),
    ),
    Case(
        "a preemptor waits for the device of its victim",
        [
            resource_slice("a", 1),
            _HIGH,
            *running("o", "a", "gpu-0"),
            group("g", minMember=1, priorityClassName="high"),
            *claiming_gang("g", 1),
        ],
        Planned({}, "g0", "o0"),
    ),
    Case(
        "a device of a terminating pod",
        [resource_slice("a", 1), *running("o", "a", "gpu-0", **_TERMINATES), *new_gang(1)],
        Planned({}, "g0"),
    ),
    Case(
        "a claim whose pod is gone is free in a moment",
        [
            resource_slice("a", 1),
            resource_claim("o0-gpu", of="o0", status=allocation("a", "gpu-0", users=["o0"])),
            *new_gang(1),
        ],
        Planned({}, "g0"),
    ),
    Case(
        "a device that kube-scheduler gave to an extended resource",
        [
            *SLICES,
            pod(
                "foreign", node="a", schedulerName="default-scheduler", asks={"example.com/gpu": 1}
            ),
            resource_claim(
                "foreign-extended-resources-x",
                of="foreign",
                status=allocation("a", "gpu-0", users=["foreign"], request="container-0-request-0"),
            ),
            *new_gang(1),
        ],
        Planned({"g0": "a gpu=gpu-1"}),
    ),
    Case(
        "a channel of a ComputeDomain",
        [
            device_class("channel", "device.driver == 'compute-domain.nvidia.com'"),
            resource_slice("a", [{"name": "channel-0"}], driver="compute-domain.nvidia.com"),
            resource_slice("b", [{"name": "channel-0"}], driver="compute-domain.nvidia.com"),
            *new_gang(2, request("channel", deviceClassName="channel")),
        ],
        Planned({"g0": "a channel=channel-0", "g1": "b channel=channel-0"}),
    ),
    Case(
        "a pod of a ComputeDomain whose daemon has the other device of the node",
        [
            device_class(
                "channel", "device.attributes['compute-domain.nvidia.com'].type == 'channel'"
            ),
            resource_slice(
                "a",
                [
                    {"name": it, "attributes": {"type": {"string": it}}}
                    for it in ("daemon", "channel")
                ],
                driver="compute-domain.nvidia.com",
            ),
            resource_claim("d", status=allocation("a", "daemon", users=["daemon"])),
            pod("daemon", node="a", schedulerName="default-scheduler", asks={}),
            *new_gang(1, request("channel", deviceClassName="channel")),
        ],
        Planned({"g0": "a channel=channel"}),
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_what_pods_get(case: Case[list[Fields], Planned]) -> None:
    assert planned(*BASE, *case.given) == case.want


@pytest.mark.parametrize(
    "name", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"]
)
def test_a_resource_that_a_class_stands_for(name: str) -> None:
    served = device_class(extendedResourceName="example.com/gpu")
    found = planned(
        served, *BASE[1:], *SLICES, group("g", minMember=1), pod("g0", "g", asks={name: "1"})
    )
    assert found == (
        f"pod g0 requests {name}, which no node has and DeviceClass gpu.nvidia.com stands for; the "
        "scheduler allocates devices only by ResourceClaims. It cannot start before it has "
        "a ResourceClaim of that class instead, or before nodes have the resource"
    )


def _queue(name: str) -> Fields:
    """Return a queue that owns two GPUs, and may borrow any."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return queue(name, resources={"cpu": free, "memory": free, "gpu": {**free, "quota": 2}})


def test_a_queue_below_its_share_reclaims_devices() -> None:
    """Two of the four devices that another queue has belong to it."""
    taken = (("a", "gpu-0"), ("b", "gpu-0"), ("a", "gpu-1"), ("b", "gpu-1"))
    owned = [it for n, at in enumerate(taken) for it in running(f"o{n}-", *at)]
    objects = [
        {**it, "spec": {**it["spec"], "queue": of}} if it["kind"] == "PodGroup" else it
        for of, some in (("rich", owned), ("poor", new_gang(2)))
        for it in some
    ]
    found = planned(_queue("rich"), _queue("poor"), *BASE, *SLICES, *objects)
    assert isinstance(found, Planned)
    assert found.nominated == "g0 g1"
    assert len(found.evicted.split()) == 2


def test_a_pod_is_moved_to_make_room_for_two_devices_on_one_node() -> None:
    """It gets a place on the other node, and the device there."""
    given = [*running("o", "a", "gpu-0"), *running("p", "b", "gpu-0")]
    found = planned(*BASE, *SLICES, *given, *new_gang(1, request(count=2)))
    assert found == Planned({}, "g0", "p0")


_AT: Final = "spec.resourceClaims[gpus] of pod g0: "
# objects → how the message begins; each shape that is not supported has one.
WAITING: list[Case[list[Fields], str]] = [
    Case(
        "admin access",
        new_gang(1, request(adminAccess=True)),
        "request 'gpu' asks for adminAccess, which is not supported.",
    ),
    Case(
        "consumable capacity",
        new_gang(1, request(capacity={"requests": {"memory": "1Gi"}})),
        "request 'gpu' asks for a part of the capacity of devices (capacity), which is not "
        "supported.",
    ),
    Case(
        "distinct attributes",
        new_gang(1, constraints=[{"distinctAttribute": _ROOT}]),
        "constraints[0] has distinctAttribute, which is not supported.",
    ),
    Case(
        "a constraint of a later version",
        new_gang(1, constraints=[{}]),
        "constraints[0] has no matchAttribute, which is not supported.",
    ),
    Case(
        "a request of a later version",
        new_gang(1, {"name": "r"}),
        "request 'r' has neither exactly nor firstAvailable, or both, which is not supported.",
    ),
    Case(
        "a mode of a later version",
        new_gang(1, request(allocationMode="Some")),
        "request 'gpu' has allocationMode 'Some', which is not supported.",
    ),
    Case(
        "no request",
        [
            make_object("ResourceClaimTemplate", "own", spec={"spec": {"devices": {}}}),
            group("g", minMember=1),
            *claiming_gang("g", 1, "own"),
        ],
        "requests no devices, which is not supported.",
    ),
    Case(
        "a claim of its PodGroup",
        [
            group("g", minMember=1),
            claiming_pod("g0", "g"),
            resource_claim(
                "g0-gpu",
                meta={
                    "ownerReferences": [
                        {
                            "apiVersion": "scheduling.k8s.io/v1",
                            "kind": "PodGroup",
                            "name": "native",
                            "uid": "u",
                            "controller": True,
                        }
                    ]
                },
            ),
        ],
        "ResourceClaim g0-gpu belongs to PodGroup native, which is not supported.",
    ),
    Case(
        "an unknown class",
        new_gang(1, request(deviceClassName="gup")),
        "request 'gpu' names DeviceClass 'gup', which does not exist. It cannot start before "
        f"the class is created, or it names one that exists ({DRIVER})",
    ),
    Case(
        "an unknown class of an alternative",
        new_gang(1, request(firstAvailable=[{"name": "x", "deviceClassName": "gup"}])),
        "request 'gpu' (x) names DeviceClass 'gup', which does not exist.",
    ),
    Case(
        "an expression that is none",
        new_gang(1, request(selectors=[{"cel": {"expression": "1 +"}}])),
        "request 'gpu': the expression of selectors[0] is no valid CEL expression: ",
    ),
    Case(
        "an expression that is too long",
        new_gang(1, request(selectors=[{"cel": {"expression": "true || " * 2000 + "true"}}])),
        "request 'gpu': the expression of selectors[0] has 16004 characters, but an expression may "
        "have at most 10240.",
    ),
    Case(
        "a costly expression",
        new_gang(1, request(selectors=[{"cel": {"expression": f"[{'1,' * 999}1].all(x, x > 0)"}}])),
        "request 'gpu': the expression of selectors[0] has 2015 characters, but an expression that "
        "repeats a part of it may have at most 1024.",
    ),
    Case(
        "more devices than a claim may have",
        new_gang(1, request(count=33)),
        "requests 33 devices, but a claim gets at most 32.",
    ),
    Case(
        "more alternatives than a request may have",
        new_gang(
            1,
            request(
                firstAvailable=[{"name": f"n{n}", "deviceClassName": DRIVER} for n in range(33)]
            ),
        ),
        "request 'gpu' has 33 alternatives, not at most 32.",
    ),
    Case(
        "more selectors than a request may have",
        new_gang(1, request(selectors=[{"cel": {"expression": "true"}}] * 33)),
        "request 'gpu' has 33 selectors, not at most 32.",
    ),
    Case(
        "more constraints than a claim may have",
        new_gang(1, constraints=[{"matchAttribute": _ROOT}] * 33),
        "has 33 constraints, not at most 32.",
    ),
    Case("a negative count", new_gang(1, request(count=-1)), "request 'gpu' has count -1."),
    Case(
        "more requests than a claim may have",
        new_gang(1, *(request(f"r{n}") for n in range(33))),
        "has 33 requests, not at most 32.",
    ),
    Case(
        "neither a claim nor a template",
        [group("g", minMember=1), claiming_pod("g0", "g", resourceClaims=[{"name": "gpus"}])],
        "names neither a ResourceClaim nor a ResourceClaimTemplate. It cannot start before it "
        "names one",
    ),
    Case(
        "a template that does not exist",
        [group("g", minMember=1), claiming_pod("g0", "g", template="x")],
        "ResourceClaimTemplate x does not exist.",
    ),
    Case(
        "a claim that is not created yet",
        [group("g", minMember=1), claiming_pod("g0", "g", has_claim=False)],
        "the ResourceClaim of template t is not created yet. It cannot start before it exists",
    ),
    Case(
        "a claim of an earlier pod of this name",
        [group("g", minMember=1), claiming_pod("g0", "g"), resource_claim("g0-gpu", of="other")],
        "ResourceClaim g0-gpu belongs to another pod.",
    ),
    Case(
        "a claim that does not exist",
        [group("g", minMember=1), claiming_pod("g0", "g", claim="s")],
        "ResourceClaim s does not exist. It cannot start before it is created",
    ),
    Case(
        "a claim that is being deleted",
        [
            group("g", minMember=1),
            claiming_pod("g0", "g", claim="s"),
            resource_claim("s", meta={"deletionTimestamp": "2026-01-05T08:00:00Z"}),
        ],
        "ResourceClaim s is being deleted. It cannot start before a new one exists",
    ),
    Case(
        "a claim of GPUs without a queue",
        [group("g", minMember=1), claiming_pod("g0", "g", claim="s"), resource_claim("s")],
        "ResourceClaim s has GPUs and no label kai.scheduler/queue, but the pods are in queue q.",
    ),
    Case(
        "a claim of GPUs of another queue",
        [
            group("g", minMember=1),
            claiming_pod("g0", "g", claim="s"),
            resource_claim("s", meta={"labels": {"kai.scheduler/queue": "x"}}),
        ],
        "ResourceClaim s has GPUs and the label kai.scheduler/queue: x, but the pods are in queue",
    ),
    Case(
        "more pods than a claim may have",
        [
            group("g", minMember=257),
            *(claiming_pod(f"g{n}", "g", claim="s") for n in range(257)),
            resource_claim("s", meta=_QUEUED),
        ],
        "257 pods name ResourceClaim s, but at most 256 can be in its status.reservedFor, so they "
        "can never run together.",
    ),
    Case(
        "more claims than a pod may have",
        [
            group("g", minMember=1),
            claiming_pod(
                "g0",
                "g",
                resourceClaims=[
                    {"name": "gpus", "resourceClaimTemplateName": "t"},
                    *({"name": f"c{n}", "resourceClaimTemplateName": "t"} for n in range(32)),
                ],
            ),
        ],
        "the pod has 33 claims, but at most 32 are supported.",
    ),
]


@pytest.mark.parametrize("case", WAITING, ids=ids)
def test_why_pods_wait(case: Case[list[Fields], str]) -> None:
    found = planned(*BASE, *SLICES, *case.given)
    assert isinstance(found, str)
    assert found.startswith(_AT + case.want)


def _allocated(*objects: Fields) -> tuple[int, int]:
    """Return what the queue has of GPUs and what it requests, in thousandths."""
    queues = encode_objects(*BASE, *SLICES, *objects).snapshot.queues
    return int(queues.allocated[0, 2]), int(queues.requested[0, 2])


def test_queues_are_charged_for_each_gpu_once() -> None:
    shared = [
        group("g", minMember=2, meta=STARTED),
        claiming_pod("g0", "g", claim="s", node="a"),
        claiming_pod("g1", "g", claim="s", node="a"),
        resource_claim(
            "s",
            request(count=2),
            meta=_QUEUED,
            status=allocation("a", "gpu-0", "gpu-1", users=["g0", "g1"]),
        ),
    ]
    assert _allocated(*running("o", "a", "gpu-0")) == (1000, 1000)
    assert _allocated(*new_gang(2, request(count=2))) == (0, 4000)
    assert _allocated(*shared) == (2000, 2000)


def test_gpus_that_a_class_stands_for() -> None:
    """The pod waits and is told; it is charged once. On a node that has them it runs as ever."""
    served = device_class(extendedResourceName="nvidia.com/gpu")
    waiting = [group("g", minMember=1), pod("g0", "g", asks={"nvidia.com/gpu": "1"})]
    objects = [served, *BASE[1:], *SLICES, *waiting]
    message = planned(*objects)
    assert isinstance(message, str)
    assert (
        "2 nodes are too small even when empty (the largest has 0 GPU; the scheduler allocates "
        "devices of DeviceClass gpu.nvidia.com by ResourceClaim only)"
    ) in message
    snapshot = encode_objects(*objects).snapshot
    assert (int(snapshot.queues.requested[0, 2]), snapshot.total[2]) == (1000, 4000)
    assert planned(*objects, node("c", gpu=1)) == Planned({"g0": "c"})


def test_the_gpus_of_a_node_are_shared_by_queues_once() -> None:
    both = node("a", gpu=2)
    objects = [device_class(), resource_slice("a"), resource_slice("b"), node("b", gpu=0)]
    assert encode_objects(both, *objects).snapshot.total[2] == 4000
