"""H1: a tenant without a quota borrows all GPUs, and wishes to keep them."""

from collections.abc import Callable
from typing import Final

from e2e.cluster.api import Api
from e2e.cluster.resources import JOBS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.fixtures.trainjobs import (
    Job,
    complete,
    end_stage_now,
    failures,
    has_failed,
    is_suspended,
    kubelets_paused,
    let_finish,
    on_nodes,
    submit,
)
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant
from trainer_kai.api.names import EVICTED_BY

_PDBS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_LIMIT: Final = 256 * 1024  # characters that the annotations of an object may have in all
_GPUS: Final = 16


async def test_padded_annotations(hostile_tenant: HostileTenant) -> None:
    """No annotation fits on the TrainJob any more: it is suspended without one, and resumed."""
    await _borrow(hostile_tenant, "padded")
    await _pad(hostile_tenant.api, "padded")

    await _check_reclaimed(hostile_tenant, "padded")

    hostile_tenant.timeline.never(_is_copied("padded"), "the record was copied")
    await _goes_on(hostile_tenant, "padded")


async def test_a_rank_that_is_done(hostile_tenant: HostileTenant) -> None:
    """Its pod succeeded: all ranks run again together, though the scheduler is killed meanwhile."""
    cluster, scheduler = hostile_tenant.installation.cluster, hostile_tenant.installation.scheduler
    await _borrow(hostile_tenant, "ended")
    first = _pods(hostile_tenant.timeline.state, "ended")[0]
    await end_stage_now(cluster, [first])
    await hostile_tenant.timeline.until(_succeeded("ended", 1), "one rank is done")
    jobs = _jobs(hostile_tenant.timeline.state, "ended")
    with kubelets_paused(cluster):
        await submit(cluster, "red", Job("red-job", "red", _GPUS // 2))
        await hostile_tenant.timeline.until(is_suspended("ended"), "it makes room")
        await scheduler.kill()
    await scheduler.start()

    await _check_reclaimed(hostile_tenant, "ended", "blue")

    await _goes_on(hostile_tenant, "ended")
    assert not jobs & _jobs(hostile_tenant.timeline.state, "ended")
    assert failures(hostile_tenant.timeline.state, "ended") == (0, 0)


async def test_an_own_disruption_budget(hostile_tenant: HostileTenant) -> None:
    """A PodDisruptionBudget that lets no pod go holds back nothing that is borrowed."""
    budget = {
        "apiVersion": _PDBS.api_version,
        "kind": _PDBS.kind,
        "metadata": {"namespace": TENANT, "name": "stay"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {_JOBSET: "kept"}}},
    }
    await hostile_tenant.api.request("POST", _PDBS.path(TENANT), budget)
    try:
        await _borrow(hostile_tenant, "kept")
        await _check_reclaimed(hostile_tenant, "kept")
        await _goes_on(hostile_tenant, "kept")
    finally:
        await hostile_tenant.api.delete(_PDBS, TENANT, "stay")


async def _borrow(tenant: HostileTenant, name: str) -> None:
    await submit(tenant.installation.cluster, TENANT, Job(name, TENANT, _GPUS))
    await tenant.timeline.until(on_nodes(name, _GPUS), "the tenant borrows all GPUs", 60)


async def _pad(tenant: Api, name: str) -> None:
    """Fill the annotations of a TrainJob."""
    found = await tenant.get(TRAINJOBS, TENANT, name)
    notes = found["metadata"].get("annotations", {})
    length = _LIMIT - sum(len(it) + len(text) for it, text in notes.items()) - len("padding")
    fields = {"metadata": {"annotations": {"padding": "x" * length}}}
    await tenant.merge(TRAINJOBS, TENANT, name, fields)


async def _check_reclaimed(tenant: HostileTenant, name: str, *claims: str) -> None:
    """See both teams get their quota, and the TrainJob wait for its place, and not suspended."""
    await tenant.claim_quota(*(claims or VICTIMS))
    await tenant.timeline.until(lambda state: not is_suspended(name)(state), "it is resumed", 60)
    await tenant.check_unharmed(*VICTIMS)
    assert not has_failed(name)(tenant.timeline.state)


async def _goes_on(tenant: HostileTenant, name: str) -> None:
    """See it run whole again when the teams are done, and complete."""
    cluster = tenant.installation.cluster
    for victim in VICTIMS:
        await let_finish(cluster, tenant.timeline, f"{victim}-job", _GPUS // 2)
    await let_finish(cluster, tenant.timeline, name, _GPUS)
    assert complete(name)(tenant.timeline.state)


def _is_copied(name: str) -> Callable[[State], bool]:
    return lambda state: any(
        EVICTED_BY in it["metadata"].get("annotations", {})
        for key, it in state.items()
        if key.resource == TRAINJOBS and key.name == name
    )


def _succeeded(name: str, count: int) -> Callable[[State], bool]:
    return lambda state: (
        sum(it["status"].get("phase") == "Succeeded" for it in _pods(state, name)) == count
    )


def _pods(state: State, name: str) -> list[Obj]:
    return [it for key, it in state.items() if key.resource == PODS and _is_of(it, name)]


def _jobs(state: State, name: str) -> set[str]:
    """Return the uids of a TrainJob's Jobs."""
    jobs = (it for key, it in state.items() if key.resource == JOBS and _is_of(it, name))
    return {it["metadata"]["uid"] for it in jobs}


def _is_of(obj: Obj, name: str) -> bool:
    return bool(obj["metadata"].get("labels", {}).get(_JOBSET) == name)
