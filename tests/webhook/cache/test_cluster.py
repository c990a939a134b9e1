"""What lint compares with: no kind that was not listed, and no object that is gone."""

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.node import Node
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, QUEUES, TOPOLOGIES
from trainer_kai.api.topology import Topology
from trainer_kai.policy.lint import KnownCluster
from webhook.cache.cluster import MAX_TEXT_BYTES, ClusterObjects, RuntimeText

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


def text(spec: object) -> RuntimeText:
    """Return a runtime as it is read off the wire, with nulls as Kubernetes writes them."""
    metadata = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return decode(RuntimeText, encode({"metadata": metadata, "spec": spec}))


LONG = {"template": {"metadata": {"annotations": {"a": "x" * MAX_TEXT_BYTES}}}}
TEXTS: list[Case[list[RuntimeText], int | None]] = [
    Case("one", [text({"mlPolicy": {"numNodes": 3, "torch": None}})], 3),
    Case(
        "a later one", [text({"mlPolicy": {"numNodes": 3}}), text({"mlPolicy": {"numNodes": 4}})], 4
    ),
    Case("one that is too long", [text({"mlPolicy": {"numNodes": 3}}), text(LONG)], None),
    Case("one that cannot be read", [text({"mlPolicy": 3})], None),
]


@pytest.mark.parametrize("case", TEXTS, ids=ids)
def test_runtimes_are_read_when_they_are_named(case: Case[list[RuntimeText], int | None]) -> None:
    """The last text counts."""
    cluster = ClusterObjects()
    for runtime in case.given:
        cluster.put_runtime(runtime)

    found = cluster.runtime(KEY)
    cluster.drop_runtime(KEY)

    policy = found.spec.ml_policy if found else None
    assert (policy.num_nodes if policy else None) == case.want
    assert cluster.runtime(KEY) is None


def test_a_runtime_is_kept_as_its_own_text() -> None:
    """Not as a part of the page that it came with."""
    cluster = ClusterObjects()
    cluster.put_runtime(RuntimeText(metadata=A, spec=msgspec.Raw(b'{"mlPolicy":{"numNodes":2}}')))

    found = cluster.runtime(KEY)

    assert found is not None
    assert found.metadata.name == "a"
