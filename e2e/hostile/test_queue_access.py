"""Closed queues of two teams, and a tenant who tries each way that the role `edit` has into one."""

import asyncio
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.api import ApiError
from e2e.cluster.patience import patience
from e2e.cluster.resources import JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS, QUEUES
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.runtimes import make_runtime
from e2e.fixtures.trainjobs import bare_pod
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant
from e2e.scheduling.test_queue_access import until_refused

_RED: Final = VICTIMS[0]
_RUNTIME: Final = "torch-distributed"
_COMMAND: Final = f"trainer-kai queue allow {_RED} -n {TENANT}"
_ROLES: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}/roles"
_SOON_S: Final = 30.0
_ALONE: Final = 8


@pytest_asyncio.fixture(loop_scope="session")
async def closed_queues(hostile_tenant: HostileTenant) -> HostileTenant:
    """Return the chain once the webhook knows that the victims' queues are closed."""
    await _until_refused(hostile_tenant)
    return hostile_tenant


async def test_no_way_leads_a_tenant_into_a_closed_queue(closed_queues: HostileTenant) -> None:
    """Each is refused, or waits with the command that would grant it; the owners have theirs."""
    own = Submission("own", "own", TENANT, 1, 1, kind="TrainingRuntime")
    await make_runtime(closed_queues.installation.cluster, TENANT, labels={QUEUE: _RED})
    with pytest.raises(ApiError, match=f"(?s)403.*spec.runtimeRef: .*{_COMMAND}"):
        await closed_queues.api.create(own.trainjob())
    with pytest.raises(ApiError, match="403 Forbidden: roles"):
        await closed_queues.api.request("POST", _ROLES, _role())
    await _relabel_jobset(closed_queues)
    for number in range(_ALONE):
        await closed_queues.api.create(bare_pod(TENANT, f"alone-{number}", _RED, 1))
    await closed_queues.timeline.until(
        _has_condition, "the condition of the tenant's PodGroup says why it waits"
    )
    await until_refused(closed_queues.installation, _ALONE + 1)

    await closed_queues.claim_quota(*VICTIMS)
    await closed_queues.check_unharmed(*VICTIMS)
    assert not [it for it in _of_tenant(closed_queues.timeline.state) if it["spec"].get("nodeName")]


async def _relabel_jobset(tenant: HostileTenant) -> None:
    """Let a TrainJob that names no queue have a JobSet that does, by the tenant's own hand."""
    job = Submission("relabelled", _RUNTIME, TENANT, 1, 1).trainjob()
    job["spec"]["suspend"] = True
    await tenant.api.create(job)
    await tenant.timeline.until(_has_jobset, "there is a suspended JobSet")
    fields = {"metadata": {"labels": {QUEUE: _RED}}}
    await tenant.api.merge(JOBSETS, TENANT, "relabelled", fields)
    await tenant.api.merge(TRAINJOBS, TENANT, "relabelled", {"spec": {"suspend": False}})


def _has_jobset(state: State) -> bool:
    return any(key.resource == JOBSETS and key.namespace == TENANT for key in state)


def _role() -> Obj:
    rule = {"apiGroups": [QUEUES.group], "resources": [QUEUES.plural], "verbs": ["use"]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"namespace": TENANT, "name": "use"},
        "rules": [rule],
    }


def _of_tenant(state: State) -> list[Obj]:
    return [it for key, it in state.items() if key.resource == PODS and key.namespace == TENANT]


def _has_condition(state: State) -> bool:
    """Say whether the condition of the relabelled JobSet's PodGroup has the command."""
    groups = [
        it for key, it in state.items() if key.resource == PODGROUPS and key.namespace == TENANT
    ]
    conditions_of = [it.get("status", {}).get("schedulingConditions") or [{}] for it in groups]
    return [_COMMAND in conditions[-1].get("message", "") for conditions in conditions_of] == [True]


async def _until_refused(tenant: HostileTenant) -> None:
    """Wait until the webhook knows that the queue is closed: a label is refused then."""
    labelled = Submission("labelled", _RUNTIME, TENANT, 1, 1, labels={QUEUE: _RED}).trainjob()
    path, dry, output = TRAINJOBS.path(TENANT), {"dryRun": "All"}, ""
    async with patience(_SOON_S):
        while not output:
            try:
                await tenant.api.request("POST", path, labelled, query=dry)
            except ApiError as error:
                output = str(error)
            else:
                await asyncio.sleep(0.1)
    account = f"system:serviceaccount:{TENANT}:{TENANT}"
    assert f"metadata.labels[{QUEUE}]: user '{account}' and namespace" in output
    assert _COMMAND in output
    assert "--user" not in output  # the grant of the namespace holds for its ServiceAccounts
