"""From KAI to trainer-kai and back, with gangs that run, wait and are over their quota.

runs     runs in queue team-a, within its quota
over     runs in queue team-a, over its quota
pending  waits in queue team-b: KAI has grouped its pods, and bound none

Beside them two pods share a GPU.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import until
from e2e.cluster.resources import (
    CRDS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    PODS,
    RUNTIMES,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
)
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace
from e2e.fixtures.gpu_agents import running_gpu_agents
from e2e.fixtures.install import (
    MANIFESTS,
    PODGROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    apply_all,
    build,
    run_kubectl,
)
from e2e.fixtures.podgroups import PODGROUP, QUEUE, groups_in, pods_in
from e2e.fixtures.processes import (
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from e2e.fixtures.runtimes import make_runtime
from e2e.fixtures.trainjobs import (
    WATCHED,
    is_gone,
    is_suspended,
    on_nodes,
    pods_created,
    suspensions,
)
from e2e.install.kai_shares import KaiShares
from e2e.install.kai_standin import KAI_CLASSES, KaiStandIn, kai_queue
from e2e.scheduling.test_why import sentences_of
from tests.support.repository import ROOT

_NAMESPACE: Final = "vision"
_CHECKED: Final = {"TRAINER_KAI_DEBUG_CHECK_S": "0.5"}  # a false memory ends the scheduler
_ADMITTED: Final = "trainer-kai.dev/admitted"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"


async def test_gangs_move_from_kai_to_trainer_kai_and_back(tmp_path: Path) -> None:
    """No pod is restarted by either move."""
    async with (
        running_cluster(Options(name="test-handover")) as cluster,
        running_gpu_agents(cluster, tmp_path),
    ):
        kai, shares = await _furnish(cluster), KaiShares(cluster)
        await shares.bind(kai)
        async with cluster.timeline(*WATCHED, PODGROUPS, namespace=_NAMESPACE) as seen:
            await _run_under_kai(cluster, kai, seen)
            await _check_preview_of_kai(cluster)
            async with (
                _ours(cluster, tmp_path),
                running(cluster, SCHEDULER, tmp_path, _CHECKED) as scheduler,
            ):
                await _take_over(kai, seen, scheduler)
                await shares.check_under_ours()
                await _check_quota(cluster, seen)
                assert _restarts(seen) == {"runs": 0, "over": 0, "pending": 0}
                await _reclaim(cluster, seen)
                await _admit_again(cluster, seen, "over")
            before = {*_uids(pods_in(seen.state))}
            await _give_back(cluster, kai, seen)
            await seen.settle()
            assert before == {*_uids(pods_in(seen.state))}
        assert suspensions(seen.history(), "runs") == 0
        assert pods_created(seen.history(), "runs") == 2


async def _furnish(cluster: Cluster) -> KaiStandIn:
    await cluster.add_nodes(3, NodeShape(gpus=8))
    kai = KaiStandIn(cluster)
    await kai.install()
    await make_namespace(cluster, _NAMESPACE)
    for system in ("kueue", "volcano"):
        await _check_preview(cluster, system)
    await kai.create_queues(kai_queue("team-a", 8, 16), kai_queue("team-b", 16))
    annotations = {RUN_SECONDS: "600s"}
    schedulers = {"node": "kai-scheduler"}
    await make_runtime(cluster, _NAMESPACE, schedulers=schedulers, pod_annotations=annotations)
    return kai


async def _submit(cluster: Cluster, name: str, queue: str, nodes: int, gpus: int) -> None:
    labels = {QUEUE: queue}
    kind = RUNTIMES.kind
    job = Submission(name, "own", _NAMESPACE, nodes, gpus, None, kind, labels).trainjob()
    await cluster.api.create(job)


async def _run_under_kai(cluster: Cluster, kai: KaiStandIn, seen: Timeline) -> None:
    for name, queue, node in (
        ("runs", "team-a", "node-0"),
        ("over", "team-a", "node-1"),
        ("pending", "team-b", ""),
    ):
        await asyncio.sleep(1)  # times have whole seconds, and the newest one is reclaimed first
        await _submit(cluster, name, queue, 2, 4)
        await kai.group(seen, name, queue, 2)
        if node:
            await kai.bind(seen, name, node)
            await seen.until(on_nodes(name, 2), f"KAI has bound {name}")


async def _check_preview(cluster: Cluster, system: str) -> None:
    """Apply the objects that a move from another system makes, as a dry run."""
    example = ROOT / f"tests/fixtures/migrate/{system}.yaml"
    arguments = ("migrate", system, "-f", str(example), "-o", "yaml")
    migrated = await sentences_of(*arguments, kubeconfig=cluster.kubeconfig)
    assert migrated.code == 0, migrated.err
    target = ("--kubeconfig", str(cluster.kubeconfig), "--dry-run=server", "--server-side")
    applied = await run_kubectl("apply", *target, "-f", "-", given=migrated.out)
    assert (applied.status, applied.err) == (0, "")


async def _check_preview_of_kai(cluster: Cluster) -> None:
    """Read the live cluster: which PodGroups stay, and which TrainJobs need a new JobSet."""
    arguments = ("migrate", "kai", "--dry-run", "-o", "json")
    found = json.loads((await sentences_of(*arguments, kubeconfig=cluster.kubeconfig)).out)
    stay = {it["source"]["name"].partition("-")[0] for it in found["becomes"]}
    jobs = [it["object"]["name"] for it in found["changeByHand"] if it["field"] == "spec.suspend"]
    assert stay == {"default", "team", "pg"}
    assert jobs == ["over", "pending", "runs"]


@asynccontextmanager
async def _ours(cluster: Cluster, folder: Path) -> AsyncIterator[None]:
    """Install everything beside KAI's objects, which stay KAI's, and run webhook and podgrouper."""
    built = await build(MANIFESTS / "overlays" / "local")
    objects = [it for it in built if not _is_of_kai(it)]
    await apply_all(cluster, objects, webhook_port(cluster))
    async with running(cluster, WEBHOOK, folder), running(cluster, PODGROUPER, folder):
        yield
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await cluster.api.delete(kind, None, "kai-trainer")


def _is_of_kai(obj: Obj) -> bool:
    is_class = obj["kind"] == PRIORITY_CLASSES.kind and obj["metadata"]["name"] in KAI_CLASSES
    return is_class or obj["kind"] in {CRDS.kind, QUEUES.kind}


async def _take_over(kai: KaiStandIn, seen: Timeline, scheduler: ProductProcess) -> None:
    """Ours waits until KAI's scheduler is scaled down, and then places the gang that waits."""
    await until(
        lambda: any("duplicate scheduler found" in it for it in scheduler.lines()),
        "our scheduler finds KAI's",
    )
    await asyncio.sleep(2)
    assert on_nodes("pending", 0)(seen.state)
    await kai.scale(0)
    await seen.until(on_nodes("pending", 2), "the gang that KAI had grouped runs")
    assert [it["metadata"]["managedFields"][0]["manager"] for it in groups_in(seen.state)] == [
        "podgrouper"
    ] * 3


async def _check_quota(cluster: Cluster, seen: Timeline) -> None:
    """Submit a TrainJob over the limit: it waits, since pods from before are charged."""
    await _submit(cluster, "late", "team-a", 1, 4)
    await seen.until(_waits_with("late", "uses 16 GPU; the PodGroup requests 4"), "it waits")
    rows: dict[str, list[str]] = {}

    async def are_counted() -> bool:
        listed = (await sentences_of("queue", "list", kubeconfig=cluster.kubeconfig)).out
        rows.update({line.split()[0]: line.split()[1:4] for line in listed.splitlines() if line})
        return (rows["team-a"][2], rows["team-b"][2]) == ("16", "8")

    await until(are_counted, "the queues show what they use")
    assert rows["team-a"] == ["8", "16", "16"]  # quota, limit, used
    assert rows["team-b"] == ["16", "-", "8"]


def _waits_with(job: str, words: str) -> Any:
    def is_so(state: State) -> bool:
        groups = [it for it in groups_in(state) if it["metadata"]["name"].startswith(f"pg-{job}-")]
        return any(words in json.dumps(it.get("status", {})) for it in groups)

    return is_so


async def _reclaim(cluster: Cluster, seen: Timeline) -> None:
    """Reclaim a gang from before: it is evicted as a whole, and the older one stays."""
    await _submit(cluster, "claim", "team-b", 1, 8)
    await seen.until(on_nodes("claim", 1), "the quota of team-b is reclaimed", 60)
    await seen.settle()
    assert suspensions(seen.history(), "over") == 1
    assert on_nodes("runs", 2)(seen.state)
    assert on_nodes("pending", 2)(seen.state)


async def _admit_again(cluster: Cluster, seen: Timeline, name: str) -> None:
    """Have the JobSet created again: the pods are a gang of ours, in the queue of the TrainJob."""
    api = cluster.api
    await api.merge(TRAINJOBS, _NAMESPACE, name, {"spec": {"suspend": True}})
    await seen.until(is_suspended(name), f"{name} is suspended")
    await seen.until(is_gone(name), f"the pods of {name} are deleted")
    await api.delete(JOBSETS, _NAMESPACE, name)
    await seen.until(_is_admitted(name), "Trainer creates the JobSet again, and it is admitted")
    await api.merge(TRAINJOBS, _NAMESPACE, name, {"spec": {"suspend": False}})
    await seen.until(lambda state: len(_grouped(state, name)) == 2, "its pods are one gang")
    names = {it["metadata"]["annotations"][PODGROUP] for it in _grouped(seen.state, name)}
    groups = [it for it in groups_in(seen.state) if it["metadata"]["name"] in names]
    assert [it["spec"]["queue"] for it in groups] == ["team-a"]


def _is_admitted(name: str) -> Any:
    return lambda state: any(
        key.resource == JOBSETS
        and key.name == name
        and it["metadata"].get("annotations", {}).get(_ADMITTED) == "v1"
        for key, it in state.items()
    )


def _grouped(state: State, name: str) -> list[Obj]:
    pods = [it for it in pods_in(state) if it["metadata"]["labels"].get(_JOBSET) == name]
    return [it for it in pods if PODGROUP in it["metadata"].get("annotations", {})]


async def _give_back(cluster: Cluster, kai: KaiStandIn, seen: Timeline) -> None:
    """KAI reads our PodGroups, and places the gang that waits when there is room."""
    await kai.scale(1)
    for group in groups_in(seen.state):
        assert kai.faults_of(group, pods_in(seen.state)) == []
    pods, _ = await cluster.api.list(PODS, _NAMESPACE, labelSelector=f"{_JOBSET}=over")
    assert len(pods) == 2
    await kai.bind(seen, "over", "node-1")
    await seen.until(on_nodes("over", 2), "KAI has bound the gang that waited under ours")


def _restarts(seen: Timeline) -> dict[str, int]:
    history = seen.history()
    return {name: pods_created(history, name) - 2 for name in ("runs", "over", "pending")}


def _uids(objects: Iterable[Obj]) -> set[str]:
    return {it["metadata"]["uid"] for it in objects}
