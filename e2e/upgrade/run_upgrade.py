"""An upgrade to this version, and its checks on the TrainJobs that exist."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import READY_SECONDS
from e2e.cluster.resources import Obj
from e2e.cluster.timeline import State, Timeline
from e2e.doctor.installation import DoctorInstallation
from e2e.fixtures.install import PODGROUPS, QUEUES, install
from e2e.fixtures.podgroups import pods_in
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    complete,
    end_stage_now,
    failures,
    has_no_annotation,
    is_suspended,
    let_finish,
    on_nodes,
    pods_created,
    resumptions,
    submit,
    suspensions,
)
from e2e.upgrade.before_upgrade import QUEUES_GPUS, TRAINJOB_NAMESPACE, reserved_nodes

_ACCESS: Final = "trainer-kai.dev/access"
_EVICTED_BY: Final = "trainer-kai.dev/evicted-by"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_SUBGROUP: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_CHECKED: Final = {"TRAINER_KAI_DEBUG_CHECK_S": "0.5"}  # a false memory ends the scheduler
_PODS: Final = {"plain": 2, "staged": 2, "lent": 2, "waits": 1, "claim": 2, "fresh": 1}


async def upgrade(cluster: Cluster, folder: Path, old: AsyncExitStack) -> None:
    """Apply the manifests over the older ones, end the *old* processes, and run all TrainJobs."""
    before, _ = await cluster.api.list(PODGROUPS, TRAINJOB_NAMESPACE)
    access = await _access(cluster)
    async with cluster.timeline(*WATCHED, namespace=TRAINJOB_NAMESPACE) as seen:
        await install(cluster, port=webhook_port(cluster))
        await old.aclose()
        async with (
            running(cluster, WEBHOOK, folder) as webhook,
            running(cluster, PODGROUPER, folder) as podgrouper,
            running(cluster, SCHEDULER, folder, _CHECKED) as scheduler,
        ):
            await _run_to_the_end(cluster, seen, reserved_nodes(before))
            doctor_installation = DoctorInstallation(cluster, webhook, podgrouper, scheduler)
            wrong = await doctor_installation.findings()
            assert {
                it: annotations for it, annotations in wrong.items() if annotations[0] == "fault"
            } == {}
            await _check_podgroups(cluster, before)
            assert await _access(cluster) == access, "an upgrade closes no queue"
        _check_history(seen)


async def _run_to_the_end(cluster: Cluster, seen: Timeline, kept: list[str]) -> None:
    """Let what runs end, one by one, and see who comes next."""
    await seen.until(on_nodes("claim", 2), "the room that was given back is taken", 60)
    await seen.until(
        lambda state: not is_suspended("lent")(state), "the one that gave it is resumed"
    )
    await seen.until(has_no_annotation("lent", _EVICTED_BY), "nothing of its eviction stays")
    assert on_nodes("plain", 2)(seen.state)
    await let_finish(cluster, seen, "plain", 2)
    await seen.until(on_nodes("waits", 1), "what waited before the upgrade runs", 60)
    await end_stage_now(cluster, _pods_of(seen.state, "staged"), READY_SECONDS)
    await seen.until(on_nodes("staged", 2), "the later stage runs", 60)
    (launcher,) = (it for it in _pods_of(seen.state, "staged") if _is_launcher(it))
    assert [launcher["spec"]["nodeName"]] == kept
    await let_finish(cluster, seen, "staged", 2)
    await submit(cluster, TRAINJOB_NAMESPACE, Job("fresh", "owner", 1, "1s"))
    await seen.until(complete("fresh"), "a new one has run", 60)
    await let_finish(cluster, seen, "claim", 2)
    await let_finish(cluster, seen, "lent", 2)
    await let_finish(cluster, seen, "waits", 1)


def _check_history(seen: Timeline) -> None:
    """Nothing was suspended, started a second time or made anew but what had made room."""
    history = seen.history()
    times = {name: suspensions(history, name) for name in _PODS}
    assert times == {**dict.fromkeys(_PODS, 0), "lent": 1}, "that one was suspended before"
    assert resumptions(history, "lent") == 1
    assert {name: pods_created(history, name) for name in _PODS} == _PODS
    assert {name: failures(seen.state, name) for name in _PODS} == dict.fromkeys(_PODS, (0, 0))


def _pods_of(state: State, name: str) -> list[Obj]:
    return [it for it in pods_in(state) if it["metadata"]["labels"].get(_JOBSET) == name]


def _is_launcher(pod: Obj) -> bool:
    return bool(pod["metadata"]["labels"][_SUBGROUP] == "launcher")


async def _check_podgroups(cluster: Cluster, before: list[Obj]) -> None:
    """No PodGroup was made anew."""
    after, _ = await cluster.api.list(PODGROUPS, TRAINJOB_NAMESPACE)
    assert _uids(before) - _uids(after) == set()


async def _access(cluster: Cluster) -> dict[str, str | None]:
    queues, _ = await cluster.api.list(QUEUES)
    access = {
        it["metadata"]["name"]: it["metadata"].get("annotations", {}).get(_ACCESS) for it in queues
    }
    return {name: access[name] for name in QUEUES_GPUS}


def _uids(objects: list[Obj]) -> set[str]:
    return {it["metadata"]["uid"] for it in objects}
