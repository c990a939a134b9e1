"""Pods with a termination grace period of 68 years."""

import asyncio
from collections.abc import Callable
from typing import Final

from e2e.cluster.resources import PODS, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import QUEUES
from e2e.fixtures.trainjobs import Job, bare_pod, has_node, kubelets_paused, on_nodes, submit
from e2e.hostile.conftest import MAX_GRACE_S, TENANT, HostileTenant

_LIMIT: Final = 4
_ENDLESS_S: Final = 2**31 - 1
_PLANS_S: Final = 3.0  # in which the scheduler plans several times


async def test_a_limit_counts_pods_that_do_not_end(hostile_tenant: HostileTenant) -> None:
    """A queue of four GPUs has no more of them, and after the site's time the pod has to end."""
    cluster, api = hostile_tenant.installation.cluster, hostile_tenant.api
    await _limit(hostile_tenant, _LIMIT)
    try:
        await api.request("POST", PODS.path(TENANT), _endless("first"))
        await hostile_tenant.timeline.until(has_node("first"), "the first pod runs")
        with kubelets_paused(cluster):
            await api.delete(PODS, TENANT, "first")
            await hostile_tenant.timeline.until(_is_terminating("first"), "the first pod is going")
            await api.request("POST", PODS.path(TENANT), _endless("second"))
            await submit(cluster, "red", Job("red-job", "red", 8))
            await hostile_tenant.timeline.until(_placed("red", 8), "red has its quota")
            await asyncio.sleep(_PLANS_S)
            await hostile_tenant.timeline.settle()
            assert not has_node("second")(hostile_tenant.timeline.state)
            await hostile_tenant.timeline.until(
                _has_grace_at_most("first", MAX_GRACE_S), "its grace is shortened"
            )
        await hostile_tenant.timeline.until(
            has_node("second"), "the second pod starts when the first is gone"
        )
        await hostile_tenant.timeline.until(on_nodes("red-job", 8), "red runs")
        await hostile_tenant.check_unharmed("red")
        hostile_tenant.timeline.never(lambda state: _gpus(state) > _LIMIT, "the limit was exceeded")
    finally:
        await _limit(hostile_tenant, -1)


async def _limit(tenant: HostileTenant, gpus: int) -> None:
    gpu = {"quota": 0, "limit": gpus, "overQuotaWeight": 1}
    await tenant.installation.cluster.api.merge(
        QUEUES, None, TENANT, {"spec": {"resources": {"gpu": gpu}}}
    )


def _endless(name: str) -> Obj:
    pod = bare_pod(TENANT, name, TENANT, _LIMIT)
    pod["spec"]["terminationGracePeriodSeconds"] = _ENDLESS_S
    return pod


def _is_terminating(name: str) -> Callable[[State], bool]:
    return lambda state: any(
        it["metadata"]["name"] == name and "deletionTimestamp" in it["metadata"]
        for it in _pods(state, TENANT)
    )


def _has_grace_at_most(name: str, seconds: int) -> Callable[[State], bool]:
    return lambda state: any(
        it["metadata"]["name"] == name
        and it["metadata"]["deletionGracePeriodSeconds"] <= seconds  # 1 if that is over
        for it in _pods(state, TENANT)
    )


def _placed(namespace: str, count: int) -> Callable[[State], bool]:
    return lambda state: sum("nodeName" in it["spec"] for it in _pods(state, namespace)) == count


def _gpus(state: State) -> int:
    return sum(_LIMIT for it in _pods(state, TENANT) if "nodeName" in it["spec"])


def _pods(state: State, namespace: str) -> list[Obj]:
    return [it for key, it in state.items() if key.resource == PODS and key.namespace == namespace]
