"""A user deletes thousands of pods at once: the event loop is never blocked for long."""

import json
from collections.abc import Callable
from typing import Final

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.objects import TENANT, cluster, pod, pod_group
from tests.support.instruction_count import instruction_growth
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import NODES, PODGROUPS, PODS

_PODS: Final = 200
_NODES: Final = 20


def _running(keys: list[Key]) -> ClusterCache:
    """Return a cluster on which these pods of one PodGroup run."""
    live = ClusterCache(lambda: StateOptions(now=0))
    live.start_leading()
    for report in cluster(nodes=_NODES):
        if report["kind"] == "Node":
            node = decode(NODES.struct, json.dumps(report).encode())
            live.update(NODES, Key("", node.metadata.name), node)
    group = decode(PODGROUPS.struct, json.dumps(pod_group(TENANT, "g", len(keys))).encode())
    live.update_group(Key(TENANT, "g"), group)
    for number, key in enumerate(keys):
        report = pod(TENANT, key.name, 0, "g", node=f"n{number % _NODES}")
        live.update_pod(key, decode(PODS.struct, json.dumps(report).encode()))
    live.snapshot()
    return live


def test_the_places_of_all_lost_pods_are_kept_at_once() -> None:
    """To look at all pods of a PodGroup for each of 2,000 that it loses took 4.5 s."""
    places: list[dict[str, int]] = []

    def work(number: int) -> Callable[[], None]:
        keys = [Key(TENANT, f"p{n}") for n in range(number)]
        live = _running(keys)

        def lose_all() -> None:
            for key in keys:
                live.update_pod(key, None)
            (kept,) = live.lost_pods.annotations_to_write()
            live.snapshot()
            places.append(json.loads(kept.reserve_annotation or "")["default"]["nodes"])

        return lose_all

    assert instruction_growth(work, _PODS) < 2.5
    assert places == [
        {f"n{number}": times * _PODS // _NODES for number in range(_NODES)} for times in (1, 2)
    ]
