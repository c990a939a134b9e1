"""Amounts of resources in columns (rules 1 to 3)."""

from typing import Any

import pytest

from scheduler.core.model.resources import MAX_REQUEST, NONE, ResourceKind
from tests.support.case import Case, ids
from tests.support.state.objects import (
    encode_objects,
    node,
    pod,
    prefilter_failure_of,
    signature_of,
)


def test_columns() -> None:
    """Resources that nodes have, and none that only pods request."""
    encoded = encode_objects(
        node("a", has={"hugepages-2Mi": "4Gi", "rdma/hca": "2", "amd.com/gpu": "1"}),
        pod("p", asks={"cpu": "1", "example.com/fpga": "1", "zero": "0"}),
        pod("running", node="a", asks={"running.com/only": "1"}),
        pod("foreign", schedulerName="x", asks={"foreign.com/only": "1"}),
    )

    axes = encoded.snapshot.resources
    others = ("amd.com/gpu", "hugepages-2Mi", "nvidia.com/gpu", "rdma/hca")
    assert axes.names == ("cpu", "memory", "pods", *others)
    assert axes.kinds == (
        ResourceKind.CPU,
        ResourceKind.MEMORY,
        NONE,
        ResourceKind.GPU,
        NONE,
        ResourceKind.GPU,
        NONE,
    )
    assert (axes.cpu, axes.pods, sorted(axes.gpus)) == (0, 2, [3, 5])
    assert signature_of(encoded, "p").unknown_resources == (("example.com/fpga", 1),)


# resource, amount on both sides → the request of a pod, and what queues count
REQUESTS = [
    Case("thousandths of a CPU", ("cpu", "1500m"), (1500, (1500, 0, 0))),
    Case("less than a thousandth", ("cpu", "1u"), (1, (1, 0, 0))),
    Case("memory is counted in bytes", ("memory", "1Ki"), (1024, (0, 1024, 0))),
    Case("a part of a byte", ("memory", "1500m"), (2, (0, 2, 0))),
    Case("bytes of a disk", ("ephemeral-storage", "1Gi"), (2**30, (0, 0, 0))),
    Case("GPUs are counted in thousandths", ("nvidia.com/gpu", "2"), (2000, (0, 0, 2000))),
    Case("devices of another maker", ("amd.com/gpu", "2"), (2000, (0, 0, 2000))),
    Case("queues do not count other resources", ("rdma/hca", "3"), (3, (0, 0, 0))),
    Case(
        "queues count the slices of a profile", ("nvidia.com/mig-3g.20gb", "2"), (2, (0, 0, 6000))
    ),
    Case("a profile with media engines", ("nvidia.com/mig-1g.5gb.me", "2"), (2, (0, 0, 2000))),
    Case("a profile without them", ("nvidia.com/mig-2g.48gb-me", "1"), (1, (0, 0, 2000))),
    Case("a compute instance", ("nvidia.com/mig-2c.3g.40gb", "2"), (2, (0, 0, 4000))),
    Case("replicas by time slicing", ("nvidia.com/gpu.shared", "2"), (2, (0, 0, 2000))),
    Case("no profile", ("nvidia.com/mig-large", "2"), (2, (0, 0, 0))),
    Case("more than there is anywhere", ("memory", "8Ei"), (MAX_REQUEST, (0, 2**45, 0))),
]


@pytest.mark.parametrize("case", REQUESTS, ids=ids)
def test_requests(case: Case[tuple[str, str], tuple[int, tuple[int, int, int]]]) -> None:
    """A pod counts as one pod, too; a node always has less than the most that can be requested."""
    name, amount = case.given

    encoded = encode_objects(node("a", has={name: amount}), pod("p", asks={name: amount}))

    column = encoded.snapshot.resources.names.index(name)
    signature = signature_of(encoded, "p")
    assert (signature.request[column], signature.queue_request) == case.want
    assert signature.request[encoded.snapshot.resources.pods] == 1
    assert encoded.snapshot.nodes.allocatable[0, column] == min(case.want[0], MAX_REQUEST - 1)


def test_queues_count_a_replica_as_the_part_of_a_gpu_that_a_setting_says() -> None:
    """On nodes, too: with four replicas of each GPU eight of them are two GPUs."""
    name = "nvidia.com/gpu.fast"
    encoded = encode_objects(
        node("a", has={name: "8"}), pod("p", asks={name: "3"}), gpu_replicas=((name, 250),)
    )

    assert signature_of(encoded, "p").queue_request == (0, 0, 750)
    assert encoded.snapshot.resources.weights[encoded.snapshot.resources.names.index(name)] == 250


def test_queues_count_also_what_no_node_has() -> None:
    """A node that is gone takes nothing from what its pods are charged."""
    slices = {"nvidia.com/mig-3g.20gb": "2", "nvidia.com/mig-1g.5gb": "1", "amd.com/gpu": "1500m"}
    encoded = encode_objects(node("a"), pod("p", asks={**slices, "cpu": "1"}))

    signature = signature_of(encoded, "p")
    assert signature.queue_request == (1000, 0, 6000 + 1000 + 1500)
    assert signature.unknown_resources == (
        ("amd.com/gpu", 2),
        ("nvidia.com/mig-1g.5gb", 1),
        ("nvidia.com/mig-3g.20gb", 2),
    )


def test_a_request_is_the_most_that_a_pod_needs_at_once() -> None:
    """Sidecars run beside the containers, and the overhead is added."""
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    encoded = encode_objects(
        pod("p", asks={"cpu": "2"}, initContainers=[sidecar], overhead={"cpu": "100m"})
    )

    assert signature_of(encoded, "p").request[0] == 3100


# amounts → the message for the pod
WRONG = [
    Case(
        "a text that is no quantity is told",
        {"cpu": "many"},
        "The requests of pod p are invalid: 'many' is not a quantity",
    ),
    Case(
        "a negative request is told",
        {"cpu": "-1"},
        "The requests of pod p are invalid: the request of cpu is negative",
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_an_invalid_request_is_reported_for_the_pod_alone(case: Case[dict[str, Any], str]) -> None:
    """A running pod is charged for the amounts that are valid."""
    encoded = encode_objects(
        node("a"), pod("p", asks=case.given), pod("r", node="a", asks=case.given)
    )

    reason, message = prefilter_failure_of(encoded, "pg-p-p") or ("", "")
    assert (reason, message[: len(case.want)]) == ("Misconfigured", case.want)
    assert encoded.snapshot.nodes.idle[0, :3].tolist() == [64000, 256 * 2**30, 109]


def test_a_limit_is_read_even_where_a_request_outranks_it() -> None:
    """It is invalid nevertheless."""
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "many"}}}

    encoded = encode_objects(node("a"), pod("p", containers=[container]))

    assert (prefilter_failure_of(encoded, "pg-p-p") or ("", ""))[0] == "Misconfigured"
