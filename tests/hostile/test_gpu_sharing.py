"""A pod holds a GPU that pods share only where the scheduler of such pods has reserved it."""

import json

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, VICTIMS, Obj, cluster, node, pod, pod_group
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import NODES, PODS


def _sharing(name: str, node: str) -> Obj:
    """Return a small pod that runs and says that it shares eight GPUs with others."""
    found = pod(TENANT, name, 0, node=node, annotations={"gpu-fraction": "0.01"})
    found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    found["spec"]["schedulerName"] = "default-scheduler"
    found["metadata"]["labels"].update({f"runai-gpu-group/{n}": str(n) for n in range(8)})
    return found


def test_a_label_takes_no_gpu(simulate: SimulateFixture) -> None:
    """With 1m CPU and labels of its own a tenant had all GPUs of a node, charged to no queue."""
    gangs = [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]
    found = simulate([*cluster(), *gangs, _sharing("t0", "n0"), _sharing("t1", "n1")])
    assert len(found.binds) == 16


def test_a_pod_keeps_its_gpus_whatever_is_annotated() -> None:
    """Else its node looks idle, and a kubelet refuses the pods of others that are sent there."""
    live = ClusterCache(lambda: StateOptions(now=0))
    live.update(NODES, Key("", "n"), decode(NODES.struct, json.dumps(node("n")).encode()))
    runs = pod(TENANT, "t", 8, node="n", annotations={"gpu-fraction": "0.01"})
    found = decode(PODS.struct, json.dumps(runs).encode())
    live.update_pod(found.metadata.key, found)
    snapshot = live.snapshot().snapshot
    assert snapshot.nodes.idle[0, snapshot.resources.gpus[0]] == 0
