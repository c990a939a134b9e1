"""Pods on nodes: a tenant names the node, or relabels what it borrowed to keep it."""

from typing import Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.resources import PODS, Obj
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from e2e.fixtures.trainjobs import bare_pod, has_node
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant
from tests.support.case import Case

_GPUS: Final = 8
_STAYS: Final = "while the pod is on node"
_MIG: Final = "nvidia.com/mig-1g.5gb.me"
_NO_MIG: Final = "nvidia.com/mig-2g.10gb"  # on the pods from the beginning, with 0 of them

# what a tenant writes on a pod that runs -> how the refusal begins
CHANGES: Final[list[Case[Obj, str]]] = [
    Case("queue", {"labels": {QUEUE: "red"}}, f'labels[{QUEUE}]: must stay "{TENANT}" {_STAYS}'),
    Case(
        "preemptibility",
        {"labels": {"kai.scheduler/preemptibility": "non-preemptible"}},
        f"labels[kai.scheduler/preemptibility]: must stay absent {_STAYS}",
    ),
    Case(
        "priority",
        {"labels": {"priorityClassName": "build"}},
        f"labels[priorityClassName]: must stay absent {_STAYS}",
    ),
    Case(
        "PodGroup",
        {"annotations": {PODGROUP: "none"}},
        f"annotations[{PODGROUP}]: must stay absent {_STAYS}",
    ),
    Case(
        "MIG profiles",
        {"annotations": {_MIG: "1"}},
        f"annotations[{_MIG}]: must stay absent {_STAYS}",
    ),
    Case(
        "other MIG profiles",
        {"annotations": {_NO_MIG: "1"}},
        f'annotations[{_NO_MIG}]: must stay "0" {_STAYS}',
    ),
    Case(
        "no MIG profiles",
        {"annotations": {_NO_MIG: None}},
        f'annotations[{_NO_MIG}]: must stay "0" {_STAYS}',
    ),
]


@pytest.mark.parametrize("group", ["", "some"], ids=["alone", "in a PodGroup"])
async def test_no_pod_of_ours_names_its_node(group: str, hostile_tenant: HostileTenant) -> None:
    """It would pass the limits of all queues: refused, and the teams have their quota."""
    pod = bare_pod(TENANT, "placed", "red", _GPUS)
    pod["spec"]["nodeName"] = "node-0"
    if group:
        pod["spec"].pop("schedulerName")
        pod["metadata"]["annotations"] = {PODGROUP: group}

    with pytest.raises(ApiError, match=r"Leave spec\.nodeName out") as refused:
        await hostile_tenant.api.request("POST", PODS.path(TENANT), pod)

    named = f"annotations[{PODGROUP}]" if group else 'spec.schedulerName is "kai-scheduler"'
    assert refused.value.status == 422
    assert named in str(refused.value)
    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)


async def test_a_pod_that_runs_stays_as_easy_to_evict(hostile_tenant: HostileTenant) -> None:
    """Every change is refused with what is right, others pass, and the teams get their quota."""
    for number in range(2):
        pod = bare_pod(TENANT, f"lent-{number}", TENANT, _GPUS)
        pod["metadata"]["annotations"] = {_NO_MIG: "0"}
        await hostile_tenant.api.request("POST", PODS.path(TENANT), pod)
        await hostile_tenant.timeline.until(has_node(f"lent-{number}"), "the tenant borrows a node")

    refusals = {case.name: await _refusal(hostile_tenant, case.given) for case in CHANGES}

    assert await _refusal(hostile_tenant, {"labels": {"team": "green"}}) == ""
    for case in CHANGES:
        assert case.want in refusals[case.name]
        assert refusals[case.name].count("must stay") == 1
        assert "Delete the pod and create it again" in refusals[case.name]
    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)


async def _refusal(tenant: HostileTenant, metadata: Obj) -> str:
    try:
        for number in range(2):
            await tenant.api.merge(PODS, TENANT, f"lent-{number}", {"metadata": metadata})
    except ApiError as error:
        if error.status != 422:
            raise
        return str(error)
    return ""
