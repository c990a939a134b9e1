"""The timeline records every moment, and fails where it missed one."""

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CONFIG_MAPS, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Gap, State


async def test_a_state_that_lasted_a_moment_is_seen(cluster: Cluster, namespace: str) -> None:
    """What was true only between two writes is found, and named with its moment."""
    async with cluster.timeline(CONFIG_MAPS, namespace=namespace) as seen:
        await cluster.api.create(_config_map(namespace, "flag", value="up"))
        await cluster.api.merge(CONFIG_MAPS, namespace, "flag", {"data": {"value": "down"}})
        await cluster.api.delete(CONFIG_MAPS, namespace, "flag")

    with pytest.raises(AssertionError, match=r"the flag was down: so it was at .* MODIFIED"):
        seen.never(lambda state: _value(state, namespace) == "down", "the flag was down")


async def test_nothing_written_before_the_end_is_missing(cluster: Cluster, namespace: str) -> None:
    """Leaving waits for the last events, so a burst right before it is in the record."""
    async with cluster.timeline(CONFIG_MAPS, namespace=namespace) as seen:
        names = [f"map-{i}" for i in range(200)]
        await cluster.api.create_all(_config_map(namespace, name) for name in names)

    added = {moment.key.name for moment in seen.moments if moment.type == "ADDED"}
    assert added - {"kube-root-ca.crt"} == set(names)


async def test_an_api_server_that_goes_away_fails_the_record(damaged_cluster: Cluster) -> None:
    """A watch that ends is a gap: the test that relied on it must fail, not go on blind."""
    apiserver = damaged_cluster.process("kube-apiserver")

    async def watch_through_a_restart() -> None:
        async with damaged_cluster.timeline(PODS):
            await apiserver.kill()
            apiserver.start()
            await damaged_cluster.ready("kube-apiserver")

    with pytest.raises(Gap, match="pods: "):
        await watch_through_a_restart()


async def test_an_expired_watch_fails_the_record(cluster: Cluster, namespace: str) -> None:
    """A watch from a version the server holds no more is refused with 410: nothing is relisted."""
    timeline = cluster.timeline(TRAINJOBS, namespace=namespace)

    async def watch_from_the_beginning() -> None:
        async with timeline:
            timeline.watch_from(TRAINJOBS, "1")
            await timeline.until(lambda _: False, "never", timeout_s=10)

    with pytest.raises(Gap, match="too old resource version"):
        await watch_from_the_beginning()


def _config_map(namespace: str, name: str, **data: str) -> Obj:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _value(state: State, namespace: str) -> str | None:
    for key, obj in state.items():
        if (key.namespace, key.name) == (namespace, "flag"):
            return str(obj.get("data", {}).get("value"))
    return None
