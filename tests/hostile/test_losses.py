"""A user deletes thousands of pods at once: the event loop is free for the others all the while."""

import json
import time
from typing import Final

from scheduler.state.live import Live
from scheduler.state.terms import Terms
from tests.hostile.teams import TENANT, cluster, pod, pod_group
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import NODES, PODGROUPS, PODS

_PODS: Final = 2_000
_MOST_S: Final = 0.5  # of CPU for all of them, with the snapshot


def test_the_places_of_all_lost_pods_are_kept_at_once() -> None:
    """To look at all pods of a PodGroup for each that it loses took 4.5 s."""
    live = Live(lambda: Terms(now=0))
    live.lead()
    for told in cluster(nodes=20):
        if told["kind"] == "Node":
            node = decode(NODES.struct, json.dumps(told).encode())
            live.put(live.cluster.nodes, Key("", node.metadata.name), node)
    group = decode(PODGROUPS.struct, json.dumps(pod_group(TENANT, "g", _PODS)).encode())
    live.group(Key(TENANT, "g"), group)
    keys = [Key(TENANT, f"p{number}") for number in range(_PODS)]
    for number, key in enumerate(keys):
        told = pod(TENANT, key.name, 0, "g", node=f"n{number % 20}")
        live.pod(key, decode(PODS.struct, json.dumps(told).encode()))
    live.snapshot()

    began = time.process_time()
    for key in keys:
        live.pod(key, None)
    (kept,) = live.kept_places()
    live.snapshot()

    assert time.process_time() - began < _MOST_S
    nodes = json.loads(kept.hold or "")["default"]["nodes"]
    assert nodes == {f"n{number}": _PODS // 20 for number in range(20)}
