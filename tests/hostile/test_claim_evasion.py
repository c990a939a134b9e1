"""A tenant cannot run on GPUs of claims and have its queue charged for fewer."""

from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.state.claim_plans import BASE, SLICES, STARTED, Planned, planned
from tests.support.state.devices import (
    DRIVER,
    allocation,
    claim_template,
    claiming_pod,
    device_class,
    request,
    resource_claim,
)
from tests.support.state.objects import Fields, encode_objects, group, make_object, queue
from trainer_kai.api.bounds import MOST_CLAIM_USERS

_AT: Final = "2026-01-05T08:00:00Z"
_QUEUED: Final = {"labels": {"kai.scheduler/queue": "q"}}
_HELD: Final = allocation("a", "gpu-0", "gpu-1", users=["g0"])
_TWO: Final = request(count=2)


def _own(*requests: Fields) -> list[Fields]:
    """Return a pod that runs with a claim as it was made of its template."""
    return [
        claim_template("own", *requests),
        group("g", minMember=1, meta=STARTED),
        claiming_pod("g0", "g", template="own", node="a"),
        resource_claim("g0-gpu", *requests, of="g0", status=_HELD),
    ]


_OWN: Final = [
    group("g", minMember=1, meta=STARTED),
    claiming_pod("g0", "g", node="a"),
    resource_claim("g0-gpu", _TWO, of="g0", status=_HELD),
]


def _named(**meta: str) -> list[Fields]:
    return [
        group("g", minMember=1, meta=STARTED),
        claiming_pod("g0", "g", claim="s", node="a"),
        resource_claim("s", _TWO, meta={**_QUEUED, **meta}, status=_HELD),
    ]


def _waiting(count: int) -> list[Fields]:
    return [claiming_pod(f"x{n}", "g", claim="s") for n in range(count)]


_NO_CLASS: Final = make_object(
    "ResourceClaimTemplate",
    "t",
    spec={
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}}
    },
)
_CPU_CLASS: Final = device_class("cpu", "device.driver == 'cpu'")
_ANY_OF: Final = request(
    firstAvailable=[
        {"name": "two", "deviceClassName": DRIVER, "count": 2},
        {"name": "none", "deviceClassName": "cpu"},
    ]
)
_EVERY: Final = request(allocationMode="All")
EVASIONS: list[Case[list[Fields], int]] = [
    Case("nothing", [*BASE, *_named()], 2000),
    Case(
        "a claim in use is deleted",
        [*BASE, *_named(deletionTimestamp=_AT)],
        2000,
    ),
    Case("the template is replaced by a smaller one", [*BASE, *_OWN], 2000),
    Case("the template is replaced by a wrong one", [*BASE, _NO_CLASS, *_OWN], 2000),
    Case("its DeviceClass is gone", [*BASE[1:], claim_template("t", _TWO), *_OWN], 2000),
    Case("an alternative without GPUs", [*BASE, _CPU_CLASS, *_own(_ANY_OF)], 2000),
    Case("all devices of a node", [*BASE, *_own(_EVERY)], 2000),
    Case("others wait for the claim", [*BASE, *_named(), *_waiting(15)], 2000),
    Case("too many wait for it", [*BASE, *_named(), *_waiting(MOST_CLAIM_USERS)], 2000),
]


@pytest.mark.parametrize("case", EVASIONS, ids=ids)
def test_a_pod_that_runs_is_charged_for_what_it_has(case: Case[list[Fields], int]) -> None:
    queues = encode_objects(*case.given, *SLICES).snapshot.queues
    assert int(queues.allocated[0, 2]) == case.want


def _limited(gpus: int) -> Fields:
    limit = {"quota": -1, "limit": gpus, "overQuotaWeight": 1}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return queue(resources={"cpu": free, "memory": free, "gpu": limit})


def test_a_pod_that_joins_others_in_their_claim_is_charged_nothing_more() -> None:
    found = planned(_limited(2), *BASE, *SLICES, *_named(), *_waiting(1))
    assert found == Planned({"x0": "a gpu=gpu-0 gpu=gpu-1"})


def test_a_pod_that_follows_one_that_terminates_is_charged() -> None:
    leaving = claiming_pod("g0", "g", claim="s", node="a", meta={"deletionTimestamp": _AT})
    free = [it for it in _named() if it["kind"] != "Pod"]
    found = planned(_limited(0), *BASE, *SLICES, *free, leaving, *_waiting(1))
    assert isinstance(found, str)
    assert "limit of 0 GPU" in found


def test_a_pod_whose_claim_was_made_from_another_template_is_told() -> None:
    found = planned(
        *BASE,
        *SLICES,
        group("g", minMember=1),
        claiming_pod("g0", "g"),
        resource_claim("g0-gpu", _TWO, of="g0"),
    )
    assert isinstance(found, str)
    assert "ResourceClaim g0-gpu requests other devices than ResourceClaimTemplate t" in found
