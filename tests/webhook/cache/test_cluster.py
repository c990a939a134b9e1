"""What lint compares with: no kind that was not listed, and no object that is gone."""

import msgspec

from trainer_kai.api.cluster_kinds import Node, PriorityClass
from trainer_kai.api.device_kinds import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    RequestedClass,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from trainer_kai.api.kai_kinds import Queue, QueueStatus, Topology
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NODES,
    PRIORITY_CLASSES,
    QUEUES,
    TOPOLOGIES,
)
from trainer_kai.policy.lint.node_index import KnownCluster
from webhook.cache.admission_cache import ClusterObjects

KEY = Key("", "a")
A = Meta(name="a", annotations={"some": "note"})


def listed_objects() -> ClusterObjects:
    """Return a cache with one object of each kind."""
    cluster = ClusterObjects()
    cluster.put_node(Node(metadata=A))
    cluster.put_queue(Queue(metadata=A))
    cluster.put_priority_class(PriorityClass(metadata=A, value=7))
    cluster.put_topology(Topology(metadata=A))
    return cluster


def counts(found: KnownCluster) -> list[int | None]:
    """Return how many nodes, queues, classes and topologies are known; None: unknown."""
    nodes = None if found.nodes is None else found.nodes.all.bit_count()
    others = (found.queues, found.priorities, found.topologies)
    return [nodes, *(None if one is None else len(one) for one in others)]


def test_what_was_not_listed_is_not_known() -> None:
    """One kind after the other is."""
    cluster, seen = listed_objects(), []
    for kind in (NODES, QUEUES, PRIORITY_CLASSES, TOPOLOGIES):
        seen.append(counts(cluster.known_cluster(autoscales=False)))
        cluster.mark_listed(kind.plural)

    assert seen[0] == [None] * 4
    assert seen[3] == [1, 1, 1, None]
    assert counts(cluster.known_cluster(autoscales=False)) == [1] * 4
    assert cluster.known_cluster(autoscales=True).autoscales


def test_what_is_gone_is_forgotten() -> None:
    """And a second deletion does no harm."""
    cluster = listed_objects()
    for kind in (NODES, QUEUES, PRIORITY_CLASSES, TOPOLOGIES):
        cluster.mark_listed(kind.plural)
    for _ in range(2):
        cluster.drop_node(KEY)
        cluster.drop_queue(KEY)
        cluster.drop_priority_class(KEY)
        cluster.drop_topology(KEY)

    assert counts(cluster.known_cluster(autoscales=False)) == [0] * 4


def test_of_a_class_only_what_a_rule_reads_is_kept() -> None:
    """Its annotations are not."""
    cluster = listed_objects()
    cluster.mark_listed(PRIORITY_CLASSES.plural)

    found = cluster.known_cluster(autoscales=False).priorities

    assert found == {"a": PriorityClass(metadata=Meta(name="a"), value=7)}


def test_the_default_topology_of_a_queue_is_known() -> None:
    """As it is written, without other annotations, until the queue is deleted."""
    cluster, topology = ClusterObjects(), {"kai.scheduler/topology": "racks"}
    cluster.put_queue(
        Queue(metadata=msgspec.structs.replace(A, annotations={**topology, "x": "y"}))
    )
    assert cluster.known_cluster(autoscales=False).topology_defaults == {"a": topology}

    cluster.drop_queue(KEY)
    assert cluster.known_cluster(autoscales=False).topology_defaults == {}


def test_the_usage_of_a_queue_is_that_of_its_status() -> None:
    """Until the queue is deleted."""
    cluster, used = ClusterObjects(), {"nvidia.com/gpu": "4"}
    cluster.put_queue(Queue(metadata=A, status=QueueStatus(allocated_non_preemptible=used)))
    assert cluster.non_preemptible_usage == {"a": used}

    cluster.drop_queue(KEY)
    assert cluster.non_preemptible_usage == {}


def _template(name: str, *requests: str) -> ResourceClaimTemplate:
    """Return a template whose requests name a class each."""
    asked = tuple(
        DeviceRequest(name=it, exactly=ExactDeviceRequest(device_class_name="gpu"))
        for it in requests
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=asked))
    return ResourceClaimTemplate(
        metadata=Meta(namespace="team", name=name), spec=ResourceClaimTemplateSpec(spec=spec)
    )


def test_what_claims_of_devices_name_is_known_once_it_is_listed() -> None:
    """A template that is too large may name anything: nothing is said about it."""
    cluster = ClusterObjects()
    cluster.put_device_class(DeviceClass(metadata=A))
    cluster.put_claim_template(_template("small", "r"))
    cluster.put_claim_template(_template("large", *("r" * 63 for _ in range(99))))
    unlisted = cluster.known_cluster(autoscales=False)
    assert (unlisted.device_classes, unlisted.claim_template) == (None, None)

    cluster.mark_listed(DEVICE_CLASSES.plural)
    cluster.mark_listed(CLAIM_TEMPLATES.plural)
    known = cluster.known_cluster(autoscales=False)

    assert known.device_classes == {"a"}
    assert known.claim_template is not None
    found = [known.claim_template(Key("team", it)) for it in ("small", "large", "none")]
    assert found == [(RequestedClass("r", "gpu"),), (), None]

    cluster.drop_device_class(KEY)
    for name in ("small", "large"):
        cluster.drop_claim_template(Key("team", name))
    assert not known.device_classes
    assert [known.claim_template(Key("team", it)) for it in ("small", "large")] == [None] * 2
