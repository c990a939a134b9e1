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


def _live(*pods: Obj) -> ClusterCache:
    """Return a cluster with one node of 8 GPUs and some pods."""
    live = ClusterCache(lambda: StateOptions(now=0, places_gpu_shares=True))
    live.update(NODES, Key("", "n"), decode(NODES.struct, json.dumps(node("n")).encode()))
    for fields in pods:
        found = decode(PODS.struct, json.dumps(fields).encode())
        live.update_pod(found.metadata.key, found)
    return live


def _share(name: str, at: str = "", gpu: str = "") -> Obj:
    found = pod(TENANT, name, 0, node=at, annotations={"gpu-fraction": "0.1"})
    found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    if gpu:
        found["metadata"]["labels"]["runai-gpu-group"] = gpu
    return found


def test_a_label_says_nothing_about_a_gpu_that_is_being_reserved() -> None:
    """Only the pod that is being bound is on it, not a pod with a guessed id."""
    live = _live(_share("mine"), _share("forged", "n", "x"), _share("waits", gpu="x"))
    live.assumed.bind(Key(TENANT, "mine"), "n", ("x",))
    devices = live.snapshot().snapshot.devices
    assert dict(zip(devices.ids, devices.used.tolist(), strict=True)) == {
        "unknown-0": 100,
        "x": 100,
    }
    assert devices.closed == {0}  # nothing is put beside a pod of which the GPU is not known


def test_many_labels_hold_no_gpu() -> None:
    """A pod with one share and a label for each GPU of its node keeps one of them, no more."""
    held = [_share(f"r-{name}", "n", name) for name in "abcdefgh"]
    for fields in held:
        fields["metadata"]["namespace"] = "kai-resource-reservation"
        fields["metadata"]["labels"]["app"] = "kai-resource-reservation"
        fields["spec"]["serviceAccountName"] = "kai-resource-reservation"
        fields["spec"]["schedulerName"] = "default-scheduler"
    greedy = _share("greedy", "n")
    greedy["metadata"]["labels"].update({f"runai-gpu-group/{it}": it for it in "abcdefgh"})

    live = _live(*held, greedy)

    assert [it for it in "abcdefgh" if live.gpu_groups.users("n", it)] == ["a"]
    nodes, gpu = live.snapshot().snapshot.nodes, live.snapshot().snapshot.resources.gpus[0]
    assert (nodes.idle[0, gpu], nodes.releasing[0, gpu]) == (0, 7000)


def test_a_pod_keeps_its_gpus_whatever_is_annotated() -> None:
    """Else its node looks idle, and a kubelet refuses the pods of others that are sent there."""
    live = ClusterCache(lambda: StateOptions(now=0))
    live.update(NODES, Key("", "n"), decode(NODES.struct, json.dumps(node("n")).encode()))
    runs = pod(TENANT, "t", 8, node="n", annotations={"gpu-fraction": "0.01"})
    found = decode(PODS.struct, json.dumps(runs).encode())
    live.update_pod(found.metadata.key, found)
    snapshot = live.snapshot().snapshot
    assert snapshot.nodes.idle[0, snapshot.resources.gpus[0]] == 0
