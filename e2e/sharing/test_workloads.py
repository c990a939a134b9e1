"""TrainJobs, Deployments and pods that share GPUs with one another."""

import json
from collections import Counter
from typing import Final

from e2e.cluster.gpu_devices import AGENT, SILENT, is_reservation
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.resources import CLUSTER_RUNTIMES, CONFIG_MAPS, JOBS, NODES, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import DEPLOYMENTS, PODGROUPS
from e2e.fixtures.podgroups import QUEUE, finishing_pods, pods_in
from e2e.fixtures.queues import deployment
from e2e.fixtures.trainjobs import (
    events_of,
    failures,
    make_queue,
    on_nodes,
    suspensions,
    was_suspended,
)
from e2e.sharing.room import (
    GpuRoom,
    device_of,
    is_bound,
    is_running,
    reservations,
    share_pod,
    whole_pod,
)
from e2e.sharing.sharing_check import DEVICES, FRACTION, MEMORY, NUMBER, groups_of

_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_RUNTIME: Final = "torch-distributed"
_JOB: Final = "halves"
_PROFILE: Final = "nvidia.com/mig-1g.5gb"


async def test_a_trainjob_shares_a_gpu_with_a_model_server(room: GpuRoom) -> None:
    """Of another namespace and queue; reclaim evicts it as one, and frees its other GPUs."""
    await room.add_nodes(1, 3)
    await make_queue(room.cluster, "servers", 1, room.namespace)
    await make_queue(room.cluster, "owners", 2, room.namespace)
    await make_queue(room.cluster, "borrowers", 0, room.other_namespace)
    path = DEPLOYMENTS.path(room.namespace)
    await room.api.request("POST", path, _server(room.namespace))
    await room.until(lambda state: len(room.running(state)) == 1, "the server runs")
    (first,) = reservations(room.seen.state)

    await room.api.create(await _trainjob(room, room.other_namespace, 4, "borrowers"))
    await room.until(on_nodes(_JOB, 4), "the TrainJob runs")
    users = Counter(group for it in _members(room.seen.state) for group in groups_of(it))
    assert sorted(users.values()) == [1, 1, 2]
    assert users[first["metadata"]["labels"]["runai-gpu-group"]] == 1

    await room.create(whole_pod(room.namespace, "owner", "2", queue="owners"))
    await room.until(was_suspended(room.seen, _JOB), "the TrainJob is suspended")
    await room.run("owner")
    await room.seen.settle()
    assert not any(map(is_bound, _members(room.seen.state)))
    assert [device_of(it) for it in reservations(room.seen.state)] == [device_of(first)]


def _server(namespace: str) -> Obj:
    annotations = {FRACTION: "0.5"}
    return deployment("server", namespace, 0, labels={QUEUE: "servers"}, annotations=annotations)


async def _trainjob(room: GpuRoom, namespace: str, pods: int, queue: str) -> Obj:
    """Return a TrainJob of which each pod has half of a GPU."""
    runtime = await room.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    labels, patches = {QUEUE: queue}, finishing_pods(runtime, "600s")
    given = Submission(_JOB, _RUNTIME, namespace, pods, None, patches, labels=labels)
    job = given.trainjob()
    job["metadata"]["annotations"] = {FRACTION: "0.5"}
    return job


def _members(state: State) -> list[Obj]:
    return [it for it in pods_in(state) if _JOBSET in it["metadata"].get("labels", {})]


async def test_a_trainjob_loses_its_gpu(room: GpuRoom) -> None:
    """Another pod got it: the TrainJob is suspended, not its pods deleted, and runs again later."""
    await room.add_nodes(1, 1)
    await room.api.create(await _trainjob(room, room.namespace, 2, "default-queue"))
    await room.until(on_nodes(_JOB, 2), "the TrainJob runs")

    await room.lose_reservation("gpu-0", "other")
    await room.until(was_suspended(room.seen, _JOB), "the TrainJob is suspended")
    await room.until(lambda state: not any(map(is_bound, _members(state))), "its pods are gone")
    await room.delete("other")
    await room.until(on_nodes(_JOB, 2), "it runs again")
    jobs, _ = await room.api.list(JOBS, room.namespace)
    assert [it["status"].get("failed", 0) for it in jobs] == [0]


async def test_a_node_gives_reservation_pods_no_gpu(room: GpuRoom) -> None:
    """The TrainJob starts whole on the other node, and is never suspended."""
    await room.add_nodes(2, 1)
    await room.api.merge(NODES, None, "gpu-0", {"metadata": {"annotations": {AGENT: SILENT}}})
    await room.api.create(await _trainjob(room, room.namespace, 2, "default-queue"))
    await room.until(on_nodes(_JOB, 2), "the TrainJob runs")

    history = room.seen.history()
    tried = [it.obj for it in history if it.obj and is_reservation(it.obj)]
    assert list(dict.fromkeys(it["spec"]["nodeName"] for it in tried)) == ["gpu-0", "gpu-1"]
    assert {it["spec"]["nodeName"] for it in _members(room.seen.state)} == {"gpu-1"}
    (group,), _ = await room.api.list(PODGROUPS, room.namespace)
    (avoided,) = json.loads(
        group["metadata"]["annotations"]["trainer-kai.dev/avoided-nodes"]
    ).items()
    assert avoided[0] == "gpu-0"
    assert "has no GPU of node gpu-0 after" in avoided[1]["reason"]
    assert (failures(room.seen.state, _JOB), suspensions(history, _JOB)) == ((0, 0), 0)
    told = await events_of(room.cluster, room.namespace, _JOB)
    assert told["NodeAvoided"].startswith("Node gpu-0 is of no use: the reservation pod ")


async def test_shares_by_memory(room: GpuRoom) -> None:
    """Four times 3072 MiB fit into 12,300 MiB; a fifth waits, and its message says what is free."""
    await room.add_nodes(1, 1, gpu_memory_mib=12_300)
    memory = {MEMORY: "3072"}
    names = [f"quarter-{number}" for number in range(4)]
    for name in names:
        await room.share(name, "", annotations=memory)
    await room.run(*names)
    await room.share("fifth", "", annotations=memory)
    await room.until(lambda state: "GPU" in room.why_unscheduled("fifth", state), "it says why")
    await room.delete(names[0])
    await room.run("fifth")

    assert len(reservations(room.seen.state)) == 1
    maps = [it for key, it in room.seen.state.items() if key.resource == CONFIG_MAPS]
    assert {it["data"]["GPU_PORTION"] for it in maps if "GPU_PORTION" in it["data"]} == {"0.25"}


async def test_mig_profiles_beside_shares(room: GpuRoom) -> None:
    """Profiles go to the MIG node alone, as many as it has, and shares to the other node."""
    mixed = {"nvidia.com/mig.strategy": "mixed"}
    await room.add_nodes(1, 0, "mig", labels=mixed, extra_resources={_PROFILE: "2"})
    await room.add_nodes(1, 1)
    pods = [whole_pod(room.namespace, f"slice-{number}") for number in range(3)]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {_PROFILE: "1"}}
    await room.create(*pods[:2])
    await room.run("slice-0", "slice-1")
    await room.share("half")
    await room.run("half")
    await room.create(pods[2])
    await room.until(lambda state: _PROFILE in room.why_unscheduled("slice-2", state), "it says so")
    await room.delete("slice-0")
    await room.run("slice-2")

    nodes = {it["metadata"]["name"]: it["spec"]["nodeName"] for it in pods_in(room.seen.state)}
    assert (nodes["slice-1"], nodes["slice-2"], nodes["half"]) == ("mig-0", "mig-0", "gpu-0")


async def test_halves_of_two_gpus(room: GpuRoom) -> None:
    """A label for each GPU; another namespace shares them; when a pod is finished they are free."""
    await room.add_nodes(1, 2)
    two, other = {NUMBER: "2"}, room.other_namespace
    await room.share("pair", annotations=two)
    await room.run("pair")
    pair = room.pod("pair")["metadata"]
    assert {*pair["annotations"][DEVICES].split(",")} == {"GPU-gpu-0-0", "GPU-gpu-0-1"}
    await make_queue(room.cluster, "others", 1, other)
    await room.create(share_pod(other, "guest", queue="others"))
    both = groups_of(room.pod("pair"))
    await room.until(lambda state: _group_of(state, other) in both, "it shares one of the two")

    await room.share("last", annotations={**two, RUN_SECONDS: "0"})
    await room.delete("pair")
    await room.until(lambda state: _phase(room, state, "last") == "Succeeded", "last is over")
    await room.api.kill_pods(other)
    await room.until(lambda state: not reservations(state), "both GPUs are released")
    assert room.is_there("last", room.seen.state)


def _group_of(state: State, namespace: str) -> str:
    """Return the group of the one pod of a namespace when it runs."""
    pods = [it for it in pods_in(state) if it["metadata"]["namespace"] == namespace]
    return groups_of(pods[0])[0] if pods and is_running(pods[0]) else ""


def _phase(room: GpuRoom, state: State, name: str) -> str:
    phase: str = state[room.key(name)]["status"]["phase"] if room.is_there(name, state) else ""
    return phase
