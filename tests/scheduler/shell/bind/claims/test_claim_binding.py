"""Claims are allocated before their pods are bound, and nothing is left of a bind that fails."""

from typing import Final

import pytest

from tests.scheduler.shell.bind.claims.conftest import ClaimHarness
from tests.support.fakes.fake_cluster import RefusedRequest
from tests.support.state.devices import (
    allocation,
    claim_template,
    claiming_gang,
    claiming_pod,
    device_class,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import Fields, group, node
from trainer_kai.kube.rest.response import ErrorDetails, Unavailable

_BASE: Final = [
    device_class(config=[{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}}}]),
    claim_template(),
    node("a", gpu=0),
    node("b", gpu=0),
    resource_slice("a"),
    resource_slice("b"),
]
_GANG: Final = [group("g", minMember=3), *claiming_gang("g", 3)]
_ALL: Final = {
    "g0-gpu": "a/gpu-0 @g0",
    "g1-gpu": "a/gpu-1 @g1",
    "g2-gpu": "b/gpu-0 @g2",
}
_NONE: Final = {"g0-gpu": "", "g1-gpu": "", "g2-gpu": ""}


async def test_a_gang_gets_its_devices(harness: ClaimHarness) -> None:
    harness.api.put(*_BASE, *_GANG)
    async with harness.leading():
        await harness.advance(1)
        assert harness.allocated() == _ALL
        assert harness.api.node_of_pods() == {"g0": "a", "g1": "a", "g2": "b"}
        of_g0 = [it for it in harness.api.written() if it.endswith(("g0", "g0-gpu", "g0 to a"))]
        assert of_g0 == [
            "patch resourceclaims g0-gpu",
            "patch resourceclaims/status g0-gpu",
            "bind g0 to a",
        ]


async def test_an_allocation_is_written_as_kube_scheduler_does(harness: ClaimHarness) -> None:
    tolerations = [{"key": "k", "operator": "Exists"}]
    own = claim_template("own", request(tolerations=tolerations))
    claims = claiming_gang("g", 1, "own", request(tolerations=tolerations))
    harness.api.put(*_BASE, own, group("g", minMember=1), *claims)
    async with harness.leading():
        await harness.advance(1)
        claim = harness.api.get("ResourceClaim", "g0-gpu")
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert claim["status"] == {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "gpu",
                            "driver": "gpu.nvidia.com",
                            "pool": "a",
                            "device": "gpu-0",
                            "tolerations": tolerations,
                        }
                    ],
                    "config": [
                        {
                            "source": "FromClass",
                            "requests": ["gpu"],
                            "opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}},
                        }
                    ],
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["a"]}
                            ]
                        }
                    ]
                },
            },
            "reservedFor": [{"resource": "pods", "name": "g0", "uid": "g0"}],
        }


async def test_pods_share_a_claim(harness: ClaimHarness) -> None:
    claim = resource_claim("s", meta={"labels": {"kai.scheduler/queue": "q"}})
    pods = [claiming_pod(f"g{n}", "g", claim="s") for n in range(3)]
    harness.api.put(*_BASE, group("g", minMember=3), *pods, claim)
    async with harness.leading():
        await harness.advance(1)
        assert set(harness.allocated()["s"].split()) == {"a/gpu-0", "@g0", "@g1", "@g2"}
        assert {*harness.api.node_of_pods().values()} == {"a"}


async def test_a_claim_is_waited_for(harness: ClaimHarness) -> None:
    harness.api.put(*_BASE, group("g", minMember=1), claiming_pod("g0", "g", has_claim=False))
    async with harness.leading():
        await harness.advance(2)
        assert harness.api.node_of_pods() == {}
        harness.api.put(resource_claim("g0-gpu", of="g0"))
        harness.api.put(claiming_pod("g0", "g"))
        await harness.advance(2)
        assert harness.api.node_of_pods() == {"g0": "a"}


def _refuse(harness: ClaimHarness, start: str, code: RefusedRequest, most: int) -> list[str]:
    """Let the API server refuse the first requests of a kind; return the refused requests."""
    refused: list[str] = []

    def refuse(what: str) -> RefusedRequest | None:
        if what.startswith(start) and len(refused) < most:
            refused.append(what)
            return code
        return None

    harness.api.refuse_with = refuse
    return refused


async def test_a_refused_bind_gives_the_devices_back(harness: ClaimHarness) -> None:
    """The first bind of a pod is refused once: its claim is free, and is allocated again."""
    refused = _refuse(harness, "bind g1", 409, 1)
    harness.api.put(*_BASE, *_GANG)
    async with harness.leading():
        await harness.advance(5)
        assert harness.allocated() == _ALL
        assert refused
        # Allocated, given back, and allocated again.
        assert harness.api.written().count("patch resourceclaims/status g1-gpu") == 3


async def test_a_claim_that_takes_no_finalizer(harness: ClaimHarness) -> None:
    """The API server takes it for a change of the parameters of a driver: it is allocated so."""
    refused = _refuse(harness, "patch resourceclaims g", 422, 1_000)
    harness.api.put(*_BASE, *_GANG)
    async with harness.leading():
        await harness.advance(5)
        assert harness.allocated() == _ALL
        assert refused


async def test_another_scheduler_was_faster(harness: ClaimHarness) -> None:
    """It has allocated the claim while we planned: the pod follows it to its node."""
    taken: list[str] = []

    def take(what: str) -> RefusedRequest | None:
        if what == "get resourceclaims g0-gpu" and not taken:
            taken.append(what)
            it = resource_claim("g0-gpu", of="g0", status=allocation("b", "gpu-1"))
            harness.api.put(it)
        return None

    harness.api.refuse_with = take
    harness.api.put(*_BASE, group("g", minMember=1), *claiming_gang("g", 1))
    async with harness.leading():
        await harness.advance(5)
        assert harness.allocated() == {"g0-gpu": "b/gpu-1 @g0"}
        assert harness.api.node_of_pods() == {"g0": "b"}
        assert ("Pod g0", "ResourceClaimRefused") in harness.events()


async def test_a_device_that_went_to_another_claim(harness: ClaimHarness) -> None:
    """Another scheduler gives it away while we plan: the pod gets the other device."""
    stolen = resource_claim("foreign", status=allocation("a", "gpu-0", users=["x"]))
    given: list[Fields] = []

    def plan_meanwhile() -> None:
        if not given:
            given.append(stolen)
            harness.api.put(stolen)

    harness.while_planning = plan_meanwhile
    harness.is_controller_silent = True
    harness.api.put(*_BASE, group("g", minMember=1), *claiming_gang("g", 1))
    async with harness.leading():
        await harness.advance(5)
        assert harness.allocated() == {"foreign": "a/gpu-0 @x", "g0-gpu": "a/gpu-1 @g0"}


class _Dead(Unavailable):
    def __init__(self) -> None:
        super().__init__(ErrorDetails("POST", 0, "", "the process is gone"), was_sent=True)


@pytest.mark.parametrize("lived", range(1, 12))
async def test_a_process_that_dies_after_any_write(harness: ClaimHarness, lived: int) -> None:
    """Its successor finishes or frees what it left: no device is lost, and none given twice."""
    written = 0

    def die(what: str) -> RefusedRequest | None:
        nonlocal written
        is_write = what.startswith(("patch resourceclaims", "bind"))
        written += is_write
        return _Dead() if is_write and written > lived else None

    harness.api.refuse_with = die
    harness.api.put(*_BASE, *_GANG)
    async with harness.leading():
        await harness.advance(0.5)
    harness.api.refuse_with = lambda _: None
    successor = harness.successor()
    async with successor.leading():
        await successor.advance(30)
        assert {*harness.api.node_of_pods()} == {"g0", "g1", "g2"}
        devices = [it.split()[0] for it in successor.allocated().values()]
        assert len({*devices}) == 3


async def test_what_is_left_of_a_pod_without_a_node_is_freed(harness: ClaimHarness) -> None:
    """Its queue is closed meanwhile, so that it waits: others get the device."""
    left = resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-0", users=["g0"]))
    gated = claiming_pod("g0", "g", schedulingGates=[{"name": "x"}])
    harness.api.put(*_BASE, group("g", minMember=1), gated, left)
    async with harness.leading():
        await harness.advance(12)
        assert harness.allocated() == {"g0-gpu": ""}


async def test_victims_free_their_devices(harness: ClaimHarness) -> None:
    """The pod that takes them waits until Kubernetes has freed the claim."""
    harness.is_controller_silent = True
    started = {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-05T07:00:00Z"}}
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 90}
    harness.api.put(
        device_class(),
        claim_template(),
        node("a", gpu=0),
        resource_slice("a", 1),
        high,
        group("o", minMember=1, meta=started),
        claiming_pod("o0", "o", node="a"),
        resource_claim("o0-gpu", of="o0", status=allocation("a", "gpu-0", users=["o0"])),
    )
    async with harness.leading():
        await harness.advance(1)
        harness.api.put(group("g", minMember=1, priorityClassName="high"), *claiming_gang("g", 1))
        await harness.advance(3)
        assert harness.api.node_of_pods() == {}
        assert "delete pods o0" in harness.api.written()
        harness.is_controller_silent = False
        await harness.advance(3)
        assert harness.allocated() == {"g0-gpu": "a/gpu-0 @g0"}
        assert harness.api.node_of_pods() == {"g0": "a"}


async def test_the_slice_is_gone(harness: ClaimHarness) -> None:
    """A pod keeps its node; a new one gets other devices, and none that nobody lists."""
    harness.api.put(*_BASE, group("g", minMember=1), *claiming_gang("g", 1))
    async with harness.leading():
        await harness.advance(1)
        harness.api.delete("ResourceSlice", "a-slice")
        harness.api.put(group("h", minMember=1), *claiming_gang("h", 1))
        await harness.advance(2)
        assert harness.allocated() == {"g0-gpu": "a/gpu-0 @g0", "h0-gpu": "b/gpu-0 @h0"}


async def test_selectors_that_take_several_plans() -> None:
    """Nothing else happens meanwhile; the namespace has a budget of such plans."""
    harness = ClaimHarness(selector_steps=1)
    expression = "device.attributes['gpu.nvidia.com'].uuid != 'x'"
    selected = request(selectors=[{"cel": {"expression": expression}}])
    pods = claiming_gang("g", 2, "own", selected)
    slices = [resource_slice(it, [gpu(f"{it}-{n}") for n in range(8)]) for it in ("a", "b")]
    harness.api.put(*_BASE, *slices, claim_template("own", selected))
    harness.api.put(group("g", minMember=2), *pods)
    async with harness.leading():
        assert harness.plans == 1 + 8
        await harness.advance(3)
        assert 9 + 5 < harness.plans <= 9 + 11
        assert harness.api.node_of_pods() == {}
        await harness.advance(10)
        assert harness.api.node_of_pods() == {"g0": "a", "g1": "a"}
        planned = harness.plans
        await harness.advance(3)
        assert harness.plans <= planned + 1
