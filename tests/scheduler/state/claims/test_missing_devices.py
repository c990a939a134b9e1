"""Why nodes lack the devices of a claim, in words."""

from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.state.claim_plans import BASE, SLICES, Planned, new_gang, planned, running
from tests.support.state.devices import (
    DRIVER,
    claiming_pod,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import Fields

_TAINT: Final = {"key": "broken", "effect": "NoSchedule"}
_GPU: Final = "1 device of class gpu.nvidia.com"
_REQUEST: Final = f"request gpu of claim gpus for {_GPU}"
_NONE: Final = (
    "A pod requests ResourceClaim gpus, and none of the 2 nodes fits it: 2 nodes have too few "
    f"devices for the ResourceClaims of the pod, even when all are free ({_REQUEST}: "
)
_FULL: Final = (
    "1 of 2 pods fits; the next pod requests ResourceClaim gpus, and none of the 2 nodes then has "
    f"{_GPU} free: "
)
LACKS: list[Case[list[Fields], str]] = [
    Case("no slices", new_gang(1), f"{_NONE}no devices there)"),
    Case(
        "a selector that fails",
        [
            *SLICES,
            *new_gang(
                1, request(selectors=[{"cel": {"expression": "device.attributes['x'].y == 1"}}])
            ),
        ],
        f"{_NONE}of 4 devices there, 4 are not selected; a "
        'selector failed on some devices, which do not match then: Key not found in map : "y")',
    ),
    Case(
        "a selector without a truth",
        [
            *SLICES,
            *new_gang(
                1,
                request(selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].type"}}]),
            ),
        ],
        f"{_NONE}of 4 devices there, 4 are not selected; a "
        "selector failed on some devices, which do not match then: gpu)",
    ),
    Case(
        "an incomplete pool",
        [resource_slice("a", pool={"resourceSliceCount": 2}), *new_gang(1)],
        f"{_NONE}no devices there; 2 devices of the cluster are left out: their pool lacks slices "
        "of its newest generation, or names a device twice)",
    ),
    Case(
        "devices of which several claims may have parts",
        [resource_slice("a", [gpu("x", allowMultipleAllocations=True)]), *new_gang(1)],
        f"{_NONE}no devices there; 1 device of the cluster is left out: several claims may have "
        "parts of them (allowMultipleAllocations))",
    ),
    Case(
        "devices of the nodes of a selector",
        [
            resource_slice("a", 1, nodeName="", nodeSelector={"nodeSelectorTerms": []}),
            *new_gang(1),
        ],
        f"{_NONE}no devices there; 1 device of the cluster is left out: they are on no node of "
        "their own, but can be reached from several)",
    ),
    Case(
        "devices that each name their nodes",
        [
            resource_slice(
                "a",
                [gpu("x", nodeSelector={"nodeSelectorTerms": []})],
                nodeName="",
                perDeviceNodeSelection=True,
            ),
            *new_gang(1),
        ],
        f"{_NONE}no devices there; 1 device of the cluster is left out: they are on no node of "
        "their own, but can be reached from several)",
    ),
    Case(
        "counters that the pool does not have",
        [
            resource_slice(
                "a",
                [
                    gpu(
                        "x",
                        consumesCounters=[{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
                    )
                ],
            ),
            *new_gang(1),
        ],
        f"{_NONE}no devices there; 1 device of the cluster is left out: they use counters that "
        "their pool does not have)",
    ),
    Case(
        "a pool that names a device twice",
        [resource_slice("a", [gpu("x"), gpu("x")]), *new_gang(1)],
        f"{_NONE}no devices there; 2 devices of the cluster are left out: their pool lacks slices "
        "of its newest generation, or names a device twice)",
    ),
    Case(
        "binding conditions",
        [
            resource_slice("a", [gpu("x", bindingConditions=["ready"])]),
            resource_slice("b", [gpu("y", taints=[_TAINT])]),
            *new_gang(1),
        ],
        f"{_NONE}of 1 device there, 1 is tainted; 1 device of the cluster is left out: they have "
        "binding conditions)",
    ),
    Case(
        "devices that all nodes reach",
        [
            resource_slice("a", 1, nodeName="", allNodes=True),
            resource_slice("b", [gpu("y", taints=[_TAINT])]),
            *new_gang(1),
        ],
        f"{_NONE}of 1 device there, 1 is tainted; 1 device of the cluster is left out: they are on "
        "no node of their own, but can be reached from several)",
    ),
    Case(
        "a gang of one pod too many",
        [
            resource_slice("a", 1),
            resource_slice("b", 1),
            *running("o", "a", "gpu-0"),
            *new_gang(2),
        ],
        f"{_FULL}2 nodes have too little free ({_REQUEST}: of 2 devices there, 2 are taken)",
    ),
]


@pytest.mark.parametrize("case", LACKS, ids=ids)
def test_which_devices_are_missing(case: Case[list[Fields], str]) -> None:
    found = planned(*BASE, *case.given)
    assert isinstance(found, str)
    assert found.startswith(case.want)


def test_a_pod_does_not_wait_for_the_claim_of_an_equal_pod() -> None:
    """Neither is in a PodGroup, so that each waits for its own."""
    pods = [claiming_pod("p0"), claiming_pod("p1", has_claim=False)]
    found = planned(*BASE, *SLICES, *pods, resource_claim("p0-gpu", of="p0"))
    assert found == Planned({"p0": "a gpu=gpu-0"})
