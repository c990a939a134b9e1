"""Gangs ask an autoscaler for nodes: as many as they need, as far as they may, and once."""

import asyncio
from typing import Any, Final

from e2e.autoscaling.conftest import POD_TEMPLATES, PROVISIONING_REQUESTS
from e2e.autoscaling.simulated import autoscaling, is_unschedulable
from e2e.cluster.nodes import RACK_LABEL, NodeShape
from e2e.cluster.resources import NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline, replay
from e2e.fixtures.install import PODGROUPS, QUEUES, TOPOLOGIES
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import groups_in, pods_in
from e2e.fixtures.queues import grant_queue_use, queue
from e2e.fixtures.trainjobs import Job, bare_pod, failures, is_gone, on_nodes, submit
from e2e.scheduling.test_why import sentences_of

_WATCHED: Final = (TRAINJOBS, PODGROUPS, PODS, NODES)
_KEEPS: Final = "karpenter.sh/do-not-disrupt"
_CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
_STARTING: Final = "example.org/starting"


def messages(state: State) -> list[str]:
    """Return what PodGroups that wait say."""
    found = [it.get("status", {}).get("schedulingConditions") or [] for it in groups_in(state)]
    return [str(some[-1]["message"]) for some in found if some]


def says(text: str) -> Any:
    return lambda state: any(text in it for it in messages(state))


def marked(state: State) -> list[Obj]:
    return [it for it in pods_in(state) if is_unschedulable(it)]


def keepers(state: State) -> set[str]:
    """Return the nodes that pods keep."""
    keeping = [it for it in pods_in(state) if it["metadata"]["annotations"].get(_KEEPS)]
    return {it["spec"]["nodeName"] for it in keeping}


def nodes_added(state: State) -> int:
    return sum(key.resource == NODES and key.name.startswith("added") for key in state)


def is_never_half_bound(seen: Timeline, name: str, pods: int) -> bool:
    """Say whether no pod of a gang was bound while there were fewer than all nodes."""
    for _, state in replay(seen.history()):
        ready = nodes_added(state)
        bound = [it for it in pods_in(state) if it["spec"].get("nodeName") and _is_of(it, name)]
        if bound and ready < pods:
            return False
    return True


def _is_of(pod: Obj, name: str) -> bool:
    return bool(pod["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name") == name)


async def make_queue(
    installation: Installation, name: str, namespace: str, limit: int, **annotations: str
) -> None:
    """Make a queue that may use so many GPUs."""
    made = queue(name, limit, limit)
    made["metadata"]["annotations"] |= annotations
    await installation.cluster.api.request("POST", QUEUES.path(), made)
    await grant_queue_use(installation.cluster, name, namespace)


async def test_a_gang_gets_its_nodes_starts_whole_and_gives_them_back(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """Four nodes are bought, and none twice; its pods keep them, and they go when it has gone.

    A node that is drained is kept no longer.
    """
    cluster = autoscaled.cluster
    async with (
        cluster.timeline(*_WATCHED) as seen,
        autoscaling(cluster, idle_s=5) as autoscaler,
    ):
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 4, gpus=8))
        await seen.until(says("It waits for nodes: asked for 4 \u00d7 8 GPU"), "it asks", 60)
        await seen.until(on_nodes("gang", 4), "it runs", 60)
        annotations = [it["metadata"]["annotations"] for it in pods_in(seen.state)]
        assert [it[_KEEPS] for it in annotations] == ["true"] * 4
        await autoscaler.until_scanned(6)
        assert (len(autoscaler.added), autoscaler.removed) == (4, [])
        await cluster.api.merge(NODES, None, "added-0", {"spec": {"unschedulable": True}})
        await seen.until(
            lambda state: keepers(state) == {"added-1", "added-2", "added-3"},
            "the pod on the cordoned node keeps its node no longer",
            60,
        )
        await cluster.api.delete(TRAINJOBS, autoscaled_namespace, "gang")
        await seen.until(is_gone("gang"), "its pods are gone", 60)
        await seen.until(lambda state: not nodes_added(state), "the nodes are gone", 60)
        assert len(autoscaler.added) == 4
    assert is_never_half_bound(seen, "gang", 4)


async def test_ten_gangs_beyond_their_limit_buy_no_nodes(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """Two of ten may start: nodes are bought for these; then none, while the others wait."""
    cluster = autoscaled.cluster
    await make_queue(autoscaled, "bounded", autoscaled_namespace, 16)
    async with cluster.timeline(*_WATCHED) as seen, autoscaling(cluster) as autoscaler:
        for i in range(10):
            await submit(cluster, autoscaled_namespace, Job(f"gang-{i}", "bounded", 2, gpus=4))
        await seen.until(lambda state: len(_bound(state)) == 4, "two gangs run", 60)
        await seen.until(says("queue bounded is at its limit"), "the others say why", 60)
        await autoscaler.until_scanned(6)

        assert len(autoscaler.added) == 2
        assert marked(seen.state) == []
    most = max(len(marked(state)) for _, state in replay(seen.history()))
    assert most <= 4


def _bound(state: State) -> list[Obj]:
    return [it for it in pods_in(state) if it["spec"].get("nodeName")]


async def test_when_three_of_four_nodes_came_they_go_back(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """The marks are removed, the nodes go; later it asks again, gets four, and starts."""
    cluster = autoscaled.cluster
    async with (
        cluster.timeline(*_WATCHED) as seen,
        autoscaling(cluster, limit=3, idle_s=5) as autoscaler,
    ):
        # As long as a pod is marked an autoscaler keeps the nodes for it.
        autoscaler.idle_s = 1e9
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 4, gpus=8))
        await seen.until(lambda state: nodes_added(state) == 3, "three nodes came", 60)
        await seen.until(lambda state: len(marked(state)) == 4, "it asks for all", 60)
        await seen.until(lambda state: not marked(state), "it gives up", 90)
        await seen.until(says("Room for 3 of 4 pods came"), "it says so", 90)
        autoscaler.idle_s = 1
        await seen.until(lambda state: not nodes_added(state), "the nodes go back", 60)
        autoscaler.limit, autoscaler.idle_s = 4, 1e9
        await seen.until(on_nodes("gang", 4), "it runs", 120)

        assert len(autoscaler.added) == 7
        assert failures(seen.state, "gang") == (0, 0)


async def test_a_node_with_a_startup_taint_is_waited_for(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """It is named, nothing is bought a second time, and it is used when the taint goes."""
    cluster = autoscaled.cluster
    async with (
        cluster.timeline(*_WATCHED) as seen,
        autoscaling(cluster, startup_taint=_STARTING) as autoscaler,
    ):
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 2, gpus=8))
        text = f"2 nodes have joined and cannot be used yet (added-0: taint {_STARTING})"
        await seen.until(says(text), "the nodes are named", 60)
        await autoscaler.until_scanned(4)
        assert len(autoscaler.added) == 2
        for name in autoscaler.added:
            await cluster.api.merge(NODES, None, name, {"spec": {"taints": None}})
        await seen.until(on_nodes("gang", 2), "it runs", 60)
        assert len(autoscaler.added) == 2


async def test_a_rack_asks_for_no_node_and_says_why(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """By kube-scheduler's filters each pod fits somewhere, so an autoscaler would add nothing."""
    cluster, api = autoscaled.cluster, autoscaled.cluster.api
    levels = [{"nodeLabel": RACK_LABEL, "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": "racks"},
        "spec": {"levels": levels},
    }
    await api.request("POST", TOPOLOGIES.path(), topology)
    for rack in ("left", "right"):
        await cluster.add_nodes(1, NodeShape(labels={RACK_LABEL: rack}), prefix=rack)
    near = {"topology": "racks", "requiredTopologyLevel": "rack"}
    group = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"name": "near", "namespace": autoscaled_namespace},
        "spec": {"queue": "default-queue", "minMember": 2, "topologyConstraint": near},
    }
    async with cluster.timeline(*_WATCHED) as seen, autoscaling(cluster) as autoscaler:
        await api.request("POST", PODGROUPS.path(autoscaled_namespace), group)
        for name in ("near-0", "near-1"):
            pod = bare_pod(autoscaled_namespace, name, "default-queue", 8)
            pod["metadata"]["annotations"] = {"pod-group-name": "near"}
            await api.create(pod)
        await seen.until(
            says("No nodes are asked for: its pods have to be in one domain of level"), "why", 60
        )
        await autoscaler.until_scanned()
        assert (autoscaler.added, marked(seen.state)) == ([], [])
        why = await sentences_of(
            *("why", "pod/near-0", "-n", autoscaled_namespace), kubeconfig=cluster.kubeconfig
        )
        told = " ".join(why.out.split())  # its lines are wrapped
        assert "No nodes are asked for: its pods have to be in one domain of level" in told, told
    for name in ("left-0", "right-0"):
        await api.delete(NODES, None, name)
    for name in ("near-0", "near-1"):
        await api.delete(PODS, autoscaled_namespace, name)


async def test_a_provisioning_request_brings_all_nodes(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """One for the gang, nothing is marked beside it, its pods use it up, and it goes with them."""
    cluster, api, namespace = autoscaled.cluster, autoscaled.cluster.api, autoscaled_namespace
    annotation = {"trainer-kai.dev/provisioning-class": "atomic.example.org"}
    await make_queue(autoscaled, "atomic", namespace, 64, **annotation)
    watched = (*_WATCHED, PROVISIONING_REQUESTS, POD_TEMPLATES)
    async with cluster.timeline(*watched) as seen, autoscaling(cluster) as autoscaler:
        await submit(cluster, namespace, Job("gang", "atomic", 3, gpus=8))
        await seen.until(lambda _: bool(seen.objects(PROVISIONING_REQUESTS)), "a request", 60)
        (request,) = seen.objects(PROVISIONING_REQUESTS)
        (pod_set,) = request["spec"]["podSets"]
        assert (request["spec"]["provisioningClassName"], pod_set["count"]) == (
            "atomic.example.org",
            3,
        )
        await autoscaler.until_scanned()
        assert autoscaler.added == []
        name = request["metadata"]["name"]
        await _report(autoscaled, namespace, name, "Accepted")
        await seen.until(says("of class atomic.example.org asks for 3 \u00d7 8 GPU"), "says", 60)
        await cluster.add_nodes(3, prefix="provisioned")
        await _report(autoscaled, namespace, name, "Provisioned")
        await seen.until(on_nodes("gang", 3), "it runs", 60)
        used = {it["metadata"]["annotations"][_CONSUMES] for it in pods_in(seen.state)}
        assert used == {name}
        await api.delete(TRAINJOBS, namespace, "gang")
        await seen.until(
            lambda _: not (seen.objects(PROVISIONING_REQUESTS) or seen.objects(POD_TEMPLATES)),
            "the request is gone",
            60,
        )
        assert autoscaler.added == []
    seen.never(lambda state: bool(marked(state)), "a pod was marked beside the request")
    for i in range(3):
        await api.delete(NODES, None, f"provisioned-{i}")


async def _report(installation: Installation, namespace: str, name: str, condition: str) -> None:
    """Write what an autoscaler would."""
    status = {"conditions": [{"type": condition, "status": "True", "reason": condition}]}
    api, patch = installation.cluster.api, {"status": status}
    await api.merge(PROVISIONING_REQUESTS, namespace, name, patch, "status")


async def test_little_is_written_for_a_gang_that_waits(
    autoscaled: Installation, autoscaled_namespace: str
) -> None:
    """What is written for a gang of eight until it gives up: each pod and the record, once."""
    cluster = autoscaled.cluster
    async with cluster.timeline(*_WATCHED) as seen:
        mark = await cluster.audit.mark()
        await submit(cluster, autoscaled_namespace, Job("gang", "default-queue", 8, gpus=8))
        await seen.until(lambda state: len(marked(state)) == 8, "it asks", 60)
        await seen.until(lambda state: not marked(state), "it gives up", 90)
        await asyncio.sleep(1)
        writes = [
            it.resource
            for it in await cluster.audit.writes(mark)
            if it.user.endswith(":trainer-kai-scheduler") and it.namespace == autoscaled_namespace
        ]
    assert writes.count("pods/status") == 16
    assert writes.count("podgroups") == 2
    assert writes.count("podgroups/status") <= 6
