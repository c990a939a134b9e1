"""Which kinds there are: asked once, by any of their names, and again when one is missing."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.recording_transport import RecordingTransport, json_answer
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, Discovery, NoRequestObserver, RetryPolicy
from trainer_kai.kube.rest.response import ApiResponse, Forbidden, Garbled


def kind(plural: str, name: str, *short: str, scope: str = "Namespaced") -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": name},
        "scope": scope,
        "singularResource": name.lower(),
        "shortNames": list(short) or None,
        "verbs": ["get"],
    }


def group(name: str, **versions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a group; the version the API server prefers comes first."""
    listed_versions = [
        {"version": version, "resources": listed} for version, listed in versions.items()
    ]
    return {"metadata": {"name": name} if name else {}, "versions": listed_versions}


NODES: Final = {**kind("nodes", "Node", scope="Cluster"), "singularResource": ""}
CORE: Final = json_answer({"items": [group("", v1=[kind("pods", "Pod", "po"), NODES])]})
KAI: Final = group(
    "scheduling.run.ai",
    v2alpha2=[kind("podgroups", "PodGroup", "pg")],
    v1=[kind("podgroups", "PodGroup"), kind("olds", "Old")],
)
OTHER: Final = group(
    "scheduling.k8s.io", v1=[kind("podgroups", "PodGroup", "xpg"), kind("pods", "Pod")]
)
GROUPS: Final = json_answer({"items": [KAI, OTHER]})
NEXT: Final = group("scheduling.run.ai", v3=[kind("podgroups", "PodGroup"), kind("news", "New")])
MORE: Final = json_answer({"items": [NEXT]})


class DiscoveryHarness:
    def __init__(self, *answers: ApiResponse) -> None:
        self.clock = VirtualClock()
        self.transcript = RecordingTransport(*answers)
        rest_config = RestConfig("https://h", StaticToken(""))
        client = Client(
            rest_config,
            self.transcript,
            self.clock,
            NoRequestObserver(),
            retry_policy=RetryPolicy(total_s=0),
        )
        self.discovery = Discovery(client)

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.transcript.requests]


def resource(api_version: str, plural: str, kind: str) -> Resource[PartialObject]:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, kind, kind != "Node", PartialObject)


POD: Final = resource("v1", "pods", "Pod")
NODE: Final = resource("v1", "nodes", "Node")
OLD: Final = resource("scheduling.run.ai/v1", "olds", "Old")
THEIR_POD: Final = resource("scheduling.k8s.io/v1", "pods", "Pod")
GROUP: Final = resource("scheduling.run.ai/v2alpha2", "podgroups", "PodGroup")
THEIRS: Final = resource("scheduling.k8s.io/v1", "podgroups", "PodGroup")

NAMES: list[Case[str, Resource[PartialObject] | None]] = [
    Case("a plural, of the core group first", "pods", POD),
    Case("a singular names its kind", "pod", POD),
    Case("a kind names itself", "Pod", POD),
    Case("a short name", "po", POD),
    Case("capitals name the same kind", "PODS", POD),
    Case("a kind without namespaces is found", "nodes", NODE),
    Case("the group says which", "pods.scheduling.k8s.io", THEIR_POD),
    Case("the version the API server prefers", "podgroups", GROUP),
    Case("a short name with a group", "pg.scheduling.run.ai", GROUP),
    Case("the same kind of another group", "podgroup.scheduling.k8s.io", THEIRS),
    Case("one that only an old version has", "olds", OLD),
    Case("a short name of another version", "xpg.scheduling.run.ai", None),
    Case("half a group", "pods.scheduling", None),
    Case("an empty name finds nothing", "", None),
    Case("nothing of a group", ".scheduling.run.ai", None),
    Case("an unknown name finds nothing", "nobodies", None),
]


@pytest.mark.parametrize("case", NAMES, ids=ids)
async def test_what_people_mean(case: Case[str, Resource[PartialObject] | None]) -> None:
    """Any name of a kind, with its group or without."""
    assert await DiscoveryHarness(CORE, GROUPS).discovery.find(case.given) == case.want


async def test_it_is_asked_once() -> None:
    """All groups at once, as newer API servers answer."""
    run = DiscoveryHarness(CORE, GROUPS)
    for name in ("pods", "podgroups", "nodes"):
        assert await run.discovery.find(name)

    assert run.asked == ["/api", "/apis"]
    assert {request.accept for request in run.transcript.requests} == {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    }


async def test_a_missing_kind_is_asked_for_again() -> None:
    """Not more often than every few seconds; it may have come since."""
    run = DiscoveryHarness(CORE, GROUPS, CORE, MORE)
    assert await run.discovery.find("news") is None
    await run.clock.advance(5)
    assert await run.discovery.find("news") is None
    assert len(run.asked) == 2

    await run.clock.advance(0.001)
    found = await run.discovery.find("news")

    assert found == resource("scheduling.run.ai/v3", "news", "New")
    assert len(run.asked) == 4


async def test_whether_a_version_is_served() -> None:
    """Exactly that one: another version of the kind does not count, but may be joined by it."""
    run = DiscoveryHarness(CORE, GROUPS, CORE, MORE)
    new = resource("scheduling.run.ai/v3", "podgroups", "PodGroup")

    assert await run.discovery.serves(POD)
    assert await run.discovery.serves(GROUP)
    assert not await run.discovery.serves(new)
    await run.clock.advance(5.001)
    assert await run.discovery.serves(new)
    assert not await run.discovery.serves(GROUP)


async def test_a_failure_is_not_an_answer() -> None:
    """A kind is not reported as missing because the API server could not be asked."""
    run = DiscoveryHarness(CORE, ApiResponse(403, b""), CORE, GROUPS)
    with pytest.raises(Forbidden):
        await run.discovery.find("podgroups")

    assert await run.discovery.find("podgroups") == GROUP


async def test_a_failure_forgets_nothing() -> None:
    run = DiscoveryHarness(CORE, GROUPS, CORE, ApiResponse(403, b""))
    await run.discovery.find("pods")
    with pytest.raises(Forbidden):
        await run.discovery.refresh()

    assert await run.discovery.find("podgroups") == GROUP


async def test_an_answer_of_the_past() -> None:
    """An API server that cannot answer for all groups at once serves nothing we need."""
    old = json_answer({"kind": "APIGroupList", "groups": [{"name": "batch"}]})

    assert await DiscoveryHarness(old).discovery.find("jobs") is None


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"items":[{"metadata":{},"versions":7}]}'])
async def test_an_answer_that_cannot_be_read(answer: bytes) -> None:
    """It is an error of ours, not one of a library."""
    with pytest.raises(Garbled):
        await DiscoveryHarness(ApiResponse(200, answer)).discovery.find("pods")
