"""The chain of owners: how far it is read, why it ends, and what is remembered of it."""

from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock
from tests.trainer_kai.podgrouper.running_podgrouper import FakeApiServer, owned, reference
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.meta import OwnerReference
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.podgrouper.owner_reader import OwnerReader
from trainer_kai.policy.workloads.owner_chain import ChainEnd, OwnerChain

DEPLOYMENT = owned("apps.Deployment", "web", labels={"kai.scheduler/queue": "a", "app": "web"})
REPLICA_SET = owned("apps.ReplicaSet", "web-1", DEPLOYMENT)
FOO = owned("example.com.Foo", "foo")
BAR = owned("example.com.Bar", "bar", FOO)
ELSEWHERE = owned("example.com.Foo", "foo", namespace="other")
CLUSTER = owned("example.com.Cluster", "all")
LOOP = owned("example.com.Foo", "loop")
LOOP["metadata"]["ownerReferences"] = [reference(owned("example.com.Bar", "back"))]
BACK = owned("example.com.Bar", "back", LOOP)
TWO = owned("example.com.Bar", "two")
TWO["metadata"]["ownerReferences"] = [reference(it, controller=False) for it in (FOO, DEPLOYMENT)]
ONE_OF_TWO = owned("example.com.Bar", "one-of-two")
ONE_OF_TWO["metadata"]["ownerReferences"] = [
    reference(DEPLOYMENT, controller=False),
    reference(FOO),
]
DEEP = [owned("example.com.Foo", "deep-0")]
for number in range(1, 12):
    DEEP.append(owned("example.com.Foo", f"deep-{number}", DEEP[-1]))


class Case(NamedTuple):
    words: str
    owner: Any
    expected: tuple[str, ...]  # the names of the owners
    end: ChainEnd = ChainEnd.TOP
    forbidden: tuple[str, ...] = ()
    objects: tuple[Any, ...] = (
        DEPLOYMENT,
        REPLICA_SET,
        FOO,
        BAR,
        TWO,
        ONE_OF_TWO,
        LOOP,
        BACK,
        *DEEP,
    )


CASES = [
    Case("a Deployment by its ReplicaSet", REPLICA_SET, ("web-1", "web")),
    Case("a kind that only discovery knows", BAR, ("bar", "foo")),
    Case("one step is forbidden", BAR, ("bar",), ChainEnd.FORBIDDEN, ("foos",)),
    Case("all are forbidden", BAR, (), ChainEnd.FORBIDDEN, ("bars",)),
    Case("it is gone", owned("example.com.Foo", "gone"), (), ChainEnd.MISSING),
    Case("its kind is not served", owned("example.com.Baz", "x"), (), ChainEnd.MISSING),
    Case("another has its name", owned("example.com.Foo", "foo", uid="old"), (), ChainEnd.MISSING),
    Case("it has no uid", owned("example.com.Foo", "foo", uid=""), (), ChainEnd.MISSING),
    Case("its name is no name", owned("example.com.Foo", ".."), (), ChainEnd.MISSING),
    Case("its owner is gone", BAR, ("bar",), ChainEnd.MISSING, (), (BAR,)),
    Case("in another namespace", BAR, ("bar",), ChainEnd.MISSING, (), (BAR, ELSEWHERE)),
    Case("in no namespace", CLUSTER, (), ChainEnd.CLUSTER, (), (CLUSTER,)),
    Case("a cycle", BACK, ("back", "loop"), ChainEnd.CYCLE),
    Case("several owners", TWO, ("two",), ChainEnd.SEVERAL),
    Case("the controller of several", ONE_OF_TWO, ("one-of-two", "foo")),
    Case(
        "too deep", DEEP[-1], tuple(f"deep-{n}" for n in range(11, 3, -1)), ChainEnd.TOO_DEEP
    ),
]  # fmt: skip


def server(*objects: Any) -> FakeApiServer:
    cluster = FakeApiServer()
    kinds = ("Foo", "foos"), ("Bar", "bars"), ("Cluster", "clusters")
    cluster.served = [("example.com", plural, kind) for kind, plural in kinds]
    for it in objects:
        cluster.lists.setdefault(f"{it['kind'].lower()}s", []).append(it)
    return cluster


def reader_of(cluster: FakeApiServer, clock: VirtualClock | None = None) -> OwnerReader:
    config = RestConfig("https://nowhere", StaticToken(""))
    return OwnerReader(
        Client(config, cluster, clock or VirtualClock(), NoRequestObserver()),
        lambda _namespace, _owner: None,
    )


async def chain_of(reader: OwnerReader, owner: Any) -> OwnerChain:
    return await reader.chain("default", [decode(OwnerReference, encode(reference(owner)))])


@pytest.mark.parametrize("case", CASES, ids=lambda it: it.words)
async def test_how_far_the_owners_are_read(case: Case) -> None:
    cluster = server(*case.objects)
    cluster.forbidden = {*case.forbidden}
    chain = await chain_of(reader_of(cluster), case.owner)

    assert tuple(it.reference.name for it in chain.owners) == case.expected
    assert chain.end is case.end


async def test_owners_are_remembered_for_a_while() -> None:
    """Of their labels only those that count; a changed one is seen after some seconds."""
    clock, cluster = VirtualClock(), server(DEPLOYMENT, REPLICA_SET)
    reader = reader_of(cluster, clock)
    chains = [await chain_of(reader, REPLICA_SET) for _ in range(3)]
    assert set(cluster.reads.values()) == {1}
    assert chains[-1].owners[-1].labels == {"kai.scheduler/queue": "a"}

    cluster.lists["deployments"] = [owned("apps.Deployment", "web", labels={"project": "b"})]
    await clock.advance(6)
    chain = await chain_of(reader, REPLICA_SET)
    assert chain.owners[-1].labels == {"project": "b"}


async def test_what_cannot_be_read_is_not_asked_for_again_at_once() -> None:
    """A forbidden kind once for all its objects, other objects one by one."""
    clock, cluster = VirtualClock(), server(FOO)
    cluster.forbidden = {"foos"}
    reader = reader_of(cluster, clock)
    for name in ("foo", "other", "third"):
        chain = await chain_of(reader, owned("example.com.Foo", name))
        assert chain.end is ChainEnd.FORBIDDEN
        assert (await chain_of(reader, owned("example.com.Bar", "gone"))).end is ChainEnd.MISSING
    asked = {path for path in cluster.reads if "/namespaces/" in path}
    assert len(asked) == 2
    assert set(cluster.reads.values()) == {1}

    cluster.forbidden = set()
    await clock.advance(61)
    assert (await chain_of(reader, FOO)).end is ChainEnd.TOP


async def test_the_queue_of_a_namespace() -> None:
    clock, cluster = (
        VirtualClock(),
        server(owned("Namespace", "default", labels={"kai.scheduler/queue": "n"})),
    )
    reader = reader_of(cluster, clock)
    assert [await reader.namespace_queue(it) for it in ("default", "default", "none")] == [
        "n",
        "n",
        "",
    ]
    cluster.forbidden = {"namespaces"}
    await clock.advance(6)
    assert await reader.namespace_queue("default") == ""
