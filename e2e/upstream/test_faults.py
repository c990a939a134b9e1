"""What can be done to the chain to see who can live with it."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU, GPU_MEMORY_LABEL, RACK_LABEL, NodeShape
from e2e.cluster.patience import until
from e2e.cluster.ports import BLOCK_SIZE
from e2e.cluster.resources import CONFIG_MAPS, LEASES, NODES, PODS, PVCS, TRAINJOBS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, condition, pod_annotations
from e2e.upstream.bind_pods import bind_pods_until


async def test_every_program_can_be_killed_and_started_again(damaged_cluster: Cluster) -> None:
    """A program that was killed comes back with the cluster's state and goes on working."""
    for process in damaged_cluster.processes:
        before = process.identity
        await process.kill()
        assert process.identity is None
        if process.name == "kwok":  # or its successor would wait until the leases ran out
            await _release_nodes(damaged_cluster)
        process.start()
        await damaged_cluster.ready(process.name)
        assert process.identity not in (None, before)

    async with damaged_cluster.timeline(TRAINJOBS, PODS, PVCS) as seen:
        patches = pod_annotations({"node": {RUN_SECONDS: "0"}})
        job = Submission("job", "torch-distributed", patches=patches)
        await damaged_cluster.api.create(job.trainjob())
        await bind_pods_until(damaged_cluster, seen, ["node-0"], _is_complete)


async def test_stop_asks_before_it_insists(damaged_cluster: Cluster) -> None:
    """A program that is stopped may end well; a frozen one is ended all the same."""
    kwok = damaged_cluster.process("kwok")
    kwok.pause()

    await kwok.stop(grace_s=0.5)

    assert kwok.exit_status == -signal.SIGKILL
    await _release_nodes(damaged_cluster)  # for the next one


async def test_a_frozen_api_server_answers_no_request(damaged_cluster: Cluster) -> None:
    """SIGSTOP keeps the connection open and silent; SIGCONT answers what was asked meanwhile."""
    apiserver = damaged_cluster.process("kube-apiserver")
    apiserver.pause()
    asked = asyncio.create_task(damaged_cluster.api.list(NODES))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asked), 0.5)

    apiserver.resume()

    nodes, _ = await asked
    assert len(nodes) == 4


async def test_the_proxy_delays_and_cuts(cluster: Cluster, namespace: str) -> None:
    """A request takes as long as it is told to, and a reset ends it on the way."""
    async with cluster.proxy() as proxy, cluster.connect(proxy.url) as through:
        await through.list(NODES)
        proxy.delay(0.5)
        asked = asyncio.create_task(through.list(NODES))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asked), 0.4)
        await asked
        await until(lambda: proxy.under_way == 0, "it is answered")

        proxy.delay(3600)
        made = asyncio.create_task(through.create(_config_map(namespace)))
        await until(lambda: proxy.under_way == 1, "the request is on its way")
        proxy.reset()
        with pytest.raises(aiohttp.ClientError):
            await made


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_the_proxy_refuses_the_given_requests(
    status: int, cluster: Cluster, namespace: str
) -> None:
    """A burst refuses so many requests of the chosen kind, as a busy API server would."""
    async with cluster.proxy() as proxy, cluster.connect(proxy.url) as through:
        proxy.burst(status, count=2, applies=lambda method, _path: method == "POST")
        for _ in range(2):
            with pytest.raises(ApiError, match=f"{status} .*refused by the fault proxy") as refused:
                await through.create(_config_map(namespace))
            assert refused.value.retry_after_s == 1
            await through.list(NODES)  # only what the burst applies to is refused

        await through.create(_config_map(namespace))
        assert proxy.refusals_left == 0
        assert proxy.answered == {status: 2, 200: 2, 201: 1}


async def test_the_proxy_acts_right_after_a_write(cluster: Cluster, namespace: str) -> None:
    """Refused requests and others do not count; the client may never hear of the last write."""
    async with cluster.proxy() as proxy, cluster.connect(proxy.url) as through:
        bodies: list[bytes] = []

        def applies(method: str, _path: str, body: bytes) -> bool:
            bodies.append(body)
            return method == "POST"

        proxy.burst(503, count=1)
        proxy.strike(1, applies, proxy.reset)
        with pytest.raises(ApiError):
            await through.create(_config_map(namespace))
        await through.list(NODES)
        assert (proxy.has_struck, bodies) == (False, [b""])
        with pytest.raises(aiohttp.ClientError):
            await through.create(_config_map(namespace))
        assert (proxy.has_struck, b"ConfigMap" in bodies[-1]) == (True, True)
        await cluster.until_found(CONFIG_MAPS, namespace, "one")


async def test_the_proxy_goes_away_and_comes_back(cluster: Cluster) -> None:
    """Shut, it is a server that is not there; opened again, it answers under the same address."""
    async with cluster.proxy() as proxy, cluster.connect(proxy.url) as through:
        await proxy.shut()
        with pytest.raises(aiohttp.ClientConnectorError):
            await through.list(NODES)

        await proxy.open()

        assert (await through.list(NODES))[0]


async def test_the_proxy_hides_no_outage(damaged_cluster: Cluster) -> None:
    """With the API server gone its clients see a broken connection, not an answer."""
    async with damaged_cluster.proxy() as proxy, damaged_cluster.connect(proxy.url) as through:
        await damaged_cluster.process("kube-apiserver").kill()

        with pytest.raises(aiohttp.ClientError):
            await through.list(NODES)


async def test_proxies_give_their_ports_back(cluster: Cluster) -> None:
    """A long run may open as many proxies as it likes, one after the other."""
    for _ in range(BLOCK_SIZE + 1):
        async with cluster.proxy():
            pass


async def test_a_watch_goes_through_the_proxy_and_is_cut(cluster: Cluster, namespace: str) -> None:
    """A stream passes piece by piece, and a reset ends it in the middle."""
    async with cluster.proxy() as proxy, cluster.connect(proxy.url) as through:
        query = {"watch": "true"}
        async with through.stream(CONFIG_MAPS.path(namespace), query) as lines:
            await cluster.api.create(_config_map(namespace))
            async for line in lines:
                if b'"ADDED"' in line and b'"one"' in line:
                    break
            proxy.reset()
            with pytest.raises(aiohttp.ClientError):
                async for _ in lines:
                    pass


async def test_the_audit_log_counts_writes_by_user(cluster: Cluster, namespace: str) -> None:
    """Accepted writes are counted per user and resource; reads and dry runs are not."""
    mark = await cluster.audit.mark()
    await cluster.api.create(_config_map(namespace))
    await cluster.api.create(_config_map(namespace, "tried"), dryRun="All")
    with pytest.raises(ApiError, match="409 AlreadyExists"):
        await cluster.api.create(_config_map(namespace))
    await cluster.api.list(CONFIG_MAPS, namespace)

    writes = [w for w in await cluster.audit.writes(mark) if w.namespace == namespace]
    counted = await cluster.audit.count(mark)

    assert [(w.user, w.verb, w.resource, w.status) for w in writes if w.user == "admin"] == [
        ("admin", "create", "configmaps", 201),
        ("admin", "create", "configmaps", 409),
    ]
    assert counted["admin", "configmaps"] == 1


async def test_a_service_account_is_who_it_is(cluster: Cluster, namespace: str) -> None:
    """A token from the TokenRequest API logs in as the account, with its rights and no others."""
    config = await cluster.service_account_kubeconfig(namespace, "default")

    user = await _kubectl(
        cluster, config, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"
    )
    refusal = await _kubectl(cluster, config, "get", "pods", "-n", namespace)

    assert user == f"system:serviceaccount:{namespace}:default"
    assert f'pods is forbidden: User "{user}" cannot list resource "pods"' in refusal


async def test_kubectl_goes_through_the_proxy(cluster: Cluster) -> None:
    """Real programs can be sent through the proxy, as administrator or as an account."""
    async with cluster.proxy() as proxy:
        account = await cluster.service_account_kubeconfig("default", "default", proxy.url)
        refusal = await _kubectl(cluster, account, "get", "nodes")
        names = await _kubectl(
            cluster, cluster.proxied_kubeconfig(proxy), "get", "nodes", "-o", "name"
        )

    assert "node/node-0" in names.splitlines()
    assert 'User "system:serviceaccount:default:default" cannot list' in refusal
    assert (proxy.answered[200] > 0, proxy.answered[403] > 0) == (True, True)


async def test_nodes_are_as_they_were_ordered(cluster: Cluster) -> None:
    """Count, GPUs, memory label, racks and taints stand on the nodes the API holds."""
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    shape = NodeShape(gpus=4, gpu_memory_mib=81_559, taints=[taint])

    names = await cluster.add_nodes(4, shape, prefix="racked", racks=2)

    nodes = [await cluster.api.get(NODES, None, name) for name in names]
    labels = [node["metadata"]["labels"] for node in nodes]
    assert [label[RACK_LABEL] for label in labels] == ["rack-0", "rack-0", "rack-1", "rack-1"]
    assert {label[GPU_MEMORY_LABEL] for label in labels} == {"81559"}
    assert {node["status"]["allocatable"][GPU] for node in nodes} == {"4"}
    assert all(node["spec"]["taints"] == [taint] for node in nodes)
    for name in names:
        await cluster.api.delete(NODES, None, name)


async def _kubectl(cluster: Cluster, kubeconfig: Path, *arguments: str) -> str:
    kubectl = cluster.layout.programs["kubectl"]
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--kubeconfig={kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


def _is_complete(state: State) -> bool:
    return any(k.resource == TRAINJOBS and condition(o, "Complete") for k, o in state.items())


async def _release_nodes(cluster: Cluster) -> None:
    leases, _ = await cluster.api.list(LEASES, "kube-node-lease")
    for lease in leases:
        await cluster.api.delete(LEASES, "kube-node-lease", lease["metadata"]["name"])


def _config_map(namespace: str, name: str = "one") -> Obj:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
