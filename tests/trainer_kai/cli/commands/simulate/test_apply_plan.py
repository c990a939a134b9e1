"""Between two plans all decisions are applied, and nothing else happens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core.model.resources import held_shares
from scheduler.core.model.result import Plan, PodGroupAllocation, PodPlacement
from scheduler.core.model.snapshot import SharedDevices
from scheduler.state.inputs import Cluster, epoch_s
from scheduler.state.podgroups.attributes import scheduled_at
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, share_signature
from tests.support.workloads.simulate_objects import group, pod
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX, LAST_START, SELECTED_NODE
from trainer_kai.cli.commands.simulate.apply_plan import (
    Binding,
    apply_plan,
    finish_transitions,
    label_running_pods,
    pods_on_shared_gpus,
    shared_gpu_ids,
)
from trainer_kai.cli.input.cluster import read_cluster
from trainer_kai.cli.input.documents import Document

NOW = "2026-01-05T09:00:00Z"
P = Key("default", "p")


def cluster(*objects: dict[str, Any]) -> Cluster:
    return read_cluster(Document("a.yaml", it) for it in objects).cluster


def state(it: Cluster, key: Key = P) -> tuple[str, str, bool, str]:
    """Return phase, node, whether it is terminating, and the nominated node."""
    found = it.pods[key]
    going = bool(found.metadata.deletion_timestamp)
    return found.status.phase, found.spec.node_name, going, found.status.nominated_node_name


def nominated(name: str, node: str) -> dict[str, Any]:
    """Return a pod that waits for room on a node."""
    it = pod(name)
    it["status"]["nominatedNodeName"] = node
    return it


def test_a_bound_pod_runs_on_its_node_with_its_devices() -> None:
    """It waits for nothing any more."""
    it = cluster(nominated("p", "other"))

    apply_plan(it, [Binding(P, "n", ("d",))], [], {}, {}, NOW)

    assert state(it) == ("Running", "n", False, "")
    assert it.pods[P].metadata.labels[GPU_GROUP] == "d"


def test_since_when_a_bound_pod_runs_is_written_on_it() -> None:
    """A pod without a PodGroup has no other record; its earlier condition is replaced."""
    it = pod("p")
    refused = {"type": "PodScheduled", "status": "False", "message": "no room"}
    it["status"]["conditions"] = [{"type": "Initialized", "status": "True"}, refused]
    here = cluster(it)

    apply_plan(here, [Binding(P, "n")], [], {}, {}, NOW)

    conditions = here.pods[P].status.conditions
    assert [(one.type, one.status) for one in conditions] == [
        ("Initialized", "True"),
        ("PodScheduled", "True"),
    ]
    assert scheduled_at(here.pods[P]) == epoch_s(NOW)
    assert all(one.message == "" for one in conditions)


def test_an_evicted_pod_is_going_until_time_passes() -> None:
    """It still has its node."""
    it = cluster(pod("p", on="n"))

    apply_plan(it, [], [P], {}, {}, NOW)

    assert state(it) == ("Running", "n", True, "")


def test_a_nominated_pod_is_promised_its_node() -> None:
    """What it waits for is written on it."""
    it = cluster(nominated("p", "old"))

    apply_plan(it, [], [], {P: "n"}, {}, NOW)

    assert state(it) == ("Pending", "", False, "n")


def test_groups_are_written_on() -> None:
    """What they hold, or that they hold nothing any more."""
    it = cluster(group("g"))
    podgroup = Key("default", "g")

    apply_plan(it, [], [], {}, {podgroup: {LAST_START: NOW, "a": "b"}, P: {"a": "b"}}, NOW)
    apply_plan(it, [], [], {}, {podgroup: {"a": ""}}, NOW)

    assert it.pod_groups[podgroup].metadata.annotations == {LAST_START: NOW}


def test_claims_follow_their_pods() -> None:
    """One that waits for its first pod is tied to its node; one with a volume stays where it is."""
    claims = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"volumeName": volume},
        }
        for name, volume in (("new", ""), ("old", "v"), ("p-own", ""))
    ]
    it = pod("p")
    it["spec"]["volumes"] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "new"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "old"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "none"}},
        {"name": "own", "ephemeral": {}},
    ]
    there = cluster(it, *claims)

    apply_plan(there, [Binding(P, "n")], [], {}, {}, NOW)

    found = {key.name: it.metadata.annotations for key, it in there.claims.items()}
    assert found == {"new": {SELECTED_NODE: "n"}, "old": {}, "p-own": {SELECTED_NODE: "n"}}


GOING: dict[str, Any] = {"deletionTimestamp": NOW}
WAITING = ("Pending", "", False, "")
AFTER = [
    Case("it runs", pod("p", on="n"), ("Running", "n", False, "")),
    Case("it was bound", pod("p", on="n", phase="Pending"), ("Running", "n", False, "")),
    Case("it waits", pod("p"), WAITING),
    Case("it was going", pod("p", on="n", **GOING), WAITING),
    Case("it was going nowhere", pod("p", **GOING), WAITING),
    Case("it is over", pod("p", on="n", phase="Succeeded"), ("Succeeded", "n", False, "")),
    Case(
        "it is over and going",
        pod("p", on="n", phase="Failed", **GOING),
        ("Failed", "n", True, ""),
    ),
    Case("a nomination is dropped", nominated("p", "n"), WAITING),
]


@pytest.mark.parametrize("case", AFTER, ids=ids)
def test_time_passes(case: Case[dict[str, Any], tuple[str, str, bool, str]]) -> None:
    """A terminating pod has ended, and is recreated with the same name and uid."""
    it = cluster(case.given)

    finish_transitions(it, [], {}, recreates=True, finishes=True)

    assert state(it) == case.want
    assert it.pods[P].metadata.uid == "default.p"


def test_who_was_going_may_stay() -> None:
    """It keeps its node, and goes on going."""
    it = cluster(pod("p", on="n", **GOING))

    finish_transitions(it, [], {}, recreates=True, finishes=False)

    assert state(it) == ("Running", "n", True, "")


@pytest.mark.parametrize("finishes", [True, False])
def test_an_evicted_pod_comes_back_or_is_gone(finishes: bool) -> None:
    """Whatever becomes of those that were going before; it has given its devices back."""
    it = cluster(pod("p", on="n", labels={GPU_GROUP: "d"}), pod("q", on="n"))
    apply_plan(it, [], [P], {}, {}, NOW)
    evicted_cluster = cluster(pod("p", on="n"))

    finish_transitions(it, [P], {}, recreates=True, finishes=finishes)
    finish_transitions(evicted_cluster, [P], {}, recreates=False, finishes=finishes)

    assert state(it) == WAITING
    assert GPU_GROUP not in it.pods[P].metadata.labels
    assert state(it, Key("default", "q"))[0] == "Running"
    assert not evicted_cluster.pods


def test_a_nomination_may_be_kept() -> None:
    """It is that of the last plan; earlier nominations are withdrawn."""
    it = cluster(nominated("p", "old"), nominated("q", "old"))

    finish_transitions(it, [], {P: "n"}, recreates=True, finishes=True)

    assert state(it) == ("Pending", "", False, "n")
    assert state(it, Key("default", "q")) == WAITING


Slots = Mapping[str, tuple[int, ...]]


def sharing(name: str, on: str = "", *named: str) -> dict[str, Any]:
    """Return a pod that requests half of a GPU, or has it on GPUs with these ids."""
    it = pod(name, gpus=0, on=on, labels={f"{GPU_GROUP_PREFIX}{one}": one for one in named})
    it["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    return it


def gpu_ids(
    here: Cluster, devices: Sequence[str], running: Slots, bound: Slots, nominated: Slots
) -> dict[str, tuple[str, ...]]:
    """Return the ids of the shared GPUs of node-0 by pod, for the slots of the pods."""
    names = [*running, *bound, *nominated]
    build = Builder(nodes=[SnapshotNode()])
    build.running_podgroup([0] * len(running), share_signature(0.5))
    build.uniform_podgroup(len(bound) + len(nominated), share_signature(0.5))
    numbers = np.zeros(len(devices), dtype=np.int64)
    table = SharedDevices(
        tuple(devices),
        np.zeros(len(devices), dtype=np.int32),
        numbers,
        numbers,
        {names.index(name): slots for name, slots in running.items()},
    )
    snapshot = replace(build.snapshot(), devices=table)
    binds, nominations = (
        tuple(
            PodPlacement(names.index(name), 0, held_shares(slots)) for name, slots in them.items()
        )
        for them in (bound, nominated)
    )
    allocation = PodGroupAllocation(1, binds, nominations)
    plan = Plan((allocation,), (), np.zeros((1, 3), dtype=np.int64))
    keys = tuple(Key("default", name) for name in names)
    encoded = EncodedSnapshot(snapshot, keys, (Key("default", "a"), Key("default", "b")), ())
    found = shared_gpu_ids(here, encoded, plan, pods_on_shared_gpus(encoded))
    label_running_pods(here, found)
    return {key.name: gpu_groups for key, gpu_groups in found.items()}


def test_pods_share_a_gpu_by_its_id() -> None:
    """A GPU keeps the id in the labels of its pods; a new one has the same for all its pods."""
    here = cluster(
        sharing("run", "node-0", "x"), *(sharing(name) for name in ("a", "b", "c", "none"))
    )

    found = gpu_ids(here, ["x"], {"run": (0,)}, {"a": (0, 1), "b": (1,), "none": ()}, {"c": (2, 1)})

    new, other = found["a"][1], found["c"][0]
    assert found == {"run": ("x",), "a": ("x", new), "b": (new,), "c": (other, new)}
    assert len({"x", new, other}) == 3


def test_ids_depend_on_the_first_pod() -> None:
    """Not on what else there is: the same input has the same ids."""
    here = cluster(sharing("a"), sharing("b"), sharing("run", "node-0", "x"))

    alone = gpu_ids(here, [], {}, {"a": (0, 1)}, {})
    later = gpu_ids(here, ["x"], {"run": (0,)}, {"a": (1, 2)}, {})
    other = gpu_ids(here, [], {}, {"b": (0, 1)}, {})

    assert alone["a"] == later["a"]
    assert not {*alone["a"]} & {*other["b"]}


def test_running_pods_without_ids_get_them() -> None:
    """Else the next plan would not know which pods share a GPU; ids that count stay as they are.

    Ids that do not count are removed.
    """
    here = cluster(
        sharing("a", "node-0"),
        sharing("b", "node-0"),
        sharing("c", "node-0", "x"),
        sharing("d", "elsewhere", "unknown-0"),
        sharing("e", "node-0", "x", "y"),
        sharing("new"),
    )

    found = gpu_ids(
        here,
        ["unknown-0", "x"],
        {"b": (0,), "a": (0,), "c": (1,), "e": (1,)},
        {"new": (0,)},
        {},
    )

    labels = {key.name: {*it.metadata.labels.values()} for key, it in here.pods.items()}
    assert found["new"] == found["a"] == found["b"] != ("unknown-0",)
    assert labels == {
        "a": {*found["a"]},
        "b": {*found["a"]},
        "c": {"x"},
        "d": {"unknown-0"},
        "e": {"x"},
        "new": set(),
    }
