"""What plans write into claims is what the API server takes, whichever pod is bound first."""

from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.state.claim_plans import BASE, SLICES, Planned, new_gang, planned
from tests.support.state.devices import (
    DRIVER,
    claiming_pod,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import group

_QUEUED: Final = {"labels": {"kai.scheduler/queue": "q"}}


def test_pods_that_share_a_claim_name_the_same_requests() -> None:
    """Whichever of them is bound first writes the allocation."""
    gang = [group("g", minMember=2), *(claiming_pod(f"g{n}", "g", claim="s") for n in range(2))]
    claim = resource_claim("s", request("x"), request("y"), meta=_QUEUED)
    found = planned(*BASE, *SLICES, *gang, claim)
    assert found == Planned({"g0": "a x=gpu-0 y=gpu-1", "g1": "a x=gpu-0 y=gpu-1"})
    any_of = request(
        firstAvailable=[
            {"name": "three", "deviceClassName": DRIVER, "count": 3},
            {"name": "one", "deviceClassName": DRIVER, "count": 1},
        ]
    )
    found = planned(*BASE, *SLICES, *gang, resource_claim("s", any_of, meta=_QUEUED))
    assert found == Planned({"g0": "a gpu/one=gpu-0", "g1": "a gpu/one=gpu-0"})


ALL_OF_A_NODE: list[Case[int, Planned]] = [
    Case("as many as a claim may have", 32, Planned({"g0": "a"})),
    Case("more", 33, Planned()),
]


@pytest.mark.parametrize("case", ALL_OF_A_NODE, ids=ids)
def test_a_claim_gets_no_more_devices_than_the_api_server_takes(case: Case[int, Planned]) -> None:
    gang = new_gang(1, request(allocationMode="All"))
    found = planned(*BASE, resource_slice("a", case.given), *gang)
    assert isinstance(found, str) == (not case.want.binds)
    if isinstance(found, Planned):
        assert found.binds["g0"].count("gpu=") == case.given
    else:
        assert "a claim gets at most 32 devices, so request a number of them" in found
