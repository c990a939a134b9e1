"""Random clusters of nodes with GPUs that are shared, or offered as MIG profiles."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from tests.reference.random_clusters.objects import make_object

Obj: TypeAlias = dict[str, Any]

_CLASSES: Final = {"low": 30, "high": 70, "build": 100}
_FRACTIONS: Final = ("0.1", "0.2", "0.25", "0.3", "0.5", "0.7", "0.9", "0.125", "0.3333", ".5", "1")
_EVEN: Final = ("0.125", "0.25", "0.5")  # which divide each other
_MEMORY: Final = ("5000", "10000", "10001", "20000", "33000", "60000")
_MODELS: Final = ("40000", "40960", "81559", str(81559 * 2**20))
_PROFILES: Final = (
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/mig-2g.10gb",
    "nvidia.com/mig-1g.5gb.me",
)
_MALFORMED: Final = (
    {"gpu-fraction": "0"},
    {"gpu-fraction": "1.5"},
    {"gpu-fraction": "NaN"},
    {"gpu-memory": "3Gi"},
    {"gpu-memory": "0"},
    {"gpu-fraction-num-devices": "2"},
    {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
    {"gpu-fraction": "0.5", "gpu-memory": "5000"},
)
_GONE_SINCE: Final = ("00:59:50", "00:59:50", "00:57:59")  # terminating, or stuck
_NOW: Final = "01:00:00"
_RESERVATION: Final = "kai-resource-reservation"


class _Shape(NamedTuple):
    """What pods of a PodGroup request."""

    requests: dict[str, str]
    annotations: dict[str, str]

    @property
    def devices(self) -> int:
        return int(self.annotations.get("gpu-fraction-num-devices", "1"))

    @property
    def is_shared(self) -> bool:
        return bool({"gpu-fraction", "gpu-memory"} & {*self.annotations})

    def part(self, memory: int) -> int:
        """Return at least as many thousandths of a GPU as it is."""
        if "gpu-fraction" in self.annotations:
            return int(1000 * float(self.annotations["gpu-fraction"]) + 0.999)
        return -(-100 * int(self.annotations["gpu-memory"]) // memory) * 10 if memory else 1001


@dataclass
class _Room:
    """What is free on a node: whole GPUs, MIG profiles, and shared GPUs by their ids."""

    memory: int  # MiB of a GPU, or 0
    is_mig: bool
    whole: int
    profiles: dict[str, int]
    shared: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def take(self, random: Random, name: str, shape: _Shape, *, is_new: bool) -> list[str] | None:
        """Take resources for a pod; return the ids of its GPUs, or None if too little is free."""
        if shape.is_shared:
            part = shape.part(self.memory)
            found = self._take_shares(random, name, shape.devices, part, is_new=is_new)
            for gpu in found or () if is_new else ():
                del self.shared[gpu]  # no label names them
            return found
        for resource, text in shape.requests.items():
            if resource.startswith("nvidia.com/mig-"):
                if self.profiles.get(resource, 0) < int(text):
                    return None
                self.profiles[resource] -= int(text)
            elif resource == "nvidia.com/gpu":
                if self.whole < int(text):
                    return None
                self.whole -= int(text)
        return []

    def _take_shares(
        self, random: Random, name: str, devices: int, part: int, *, is_new: bool
    ) -> list[str] | None:
        able = [gpu for gpu, free in self.shared.items() if free >= part and not is_new]
        lacks = max(0, devices - len(able))
        if self.is_mig or part > 1000 or lacks > self.whole:
            return None
        if self.whole >= devices and random.random() < 0.2:
            able, lacks = [], devices
        self.whole -= lacks
        for _ in range(lacks):
            self.made += 1
            able.append(f"{random.choice('kxz')}{self.made}-{name}")
            self.shared[able[-1]] = 1000
        chosen = able[-devices:]
        for gpu in chosen:
            self.shared[gpu] -= part
        return chosen


class _Sampler:
    """Luck, what is free on each node, and of which shapes pods are."""

    def __init__(self, random: Random, *, is_even: bool) -> None:
        self.random = random
        self.is_even = is_even
        self.fractions = random.sample(_EVEN if is_even else _FRACTIONS, random.choice((1, 2, 3)))
        self.memory = random.sample(_MEMORY, 2)
        self.has_mig = not is_even and random.random() < 0.3
        self.has_labels = random.random() < 0.8  # else some pods have no ids
        self.few_pods = False
        self.has_limits = random.random() < 0.3
        self.rooms: dict[str, _Room] = {}

    def happens(self, chance: float) -> bool:
        """Say yes with a chance."""
        return self.random.random() < chance

    def shape(self) -> _Shape:
        """Return what the pods of a PodGroup request."""
        random, requests = self.random, {"cpu": self.random.choice(("1", "1", "2"))}
        if self.has_mig and self.happens(0.4):
            return _Shape({**requests, random.choice(_PROFILES): random.choice("112")}, {})
        if self.happens(0.25):
            count = "1" if self.is_even else random.choice("0112")
            return _Shape({**requests, "nvidia.com/gpu": count}, {})
        if not self.is_even and self.happens(0.08):
            return _Shape(requests, {})
        if not self.is_even and self.happens(0.3):
            annotations = {"gpu-memory": random.choice(self.memory)}
        else:
            annotations = {"gpu-fraction": random.choice(self.fractions)}
        if self.happens(0.05 if self.is_even else 0.2):
            annotations["gpu-fraction-num-devices"] = random.choice("1223")
        return _Shape(requests, annotations)


def shared_gpu_cluster(
    random: Random, *, few_pods: bool = False, is_even: bool = False
) -> list[Obj]:
    """Return nodes, queues, PodGroups of which pods share GPUs, and others that wait.

    Some nodes may take *few pods*; then less may be free where more pods are evicted, for a GPU
    that becomes shared takes two. In an *even* one shares divide each other, and nothing stands in
    the way of relocation.
    """
    lot = _Sampler(random, is_even=is_even)
    lot.few_pods = few_pods
    objects = [make_object("Namespace", "a", _NOW)]
    objects += [
        {**make_object("PriorityClass", name, "00:00:00"), "value": value}
        for name, value in _CLASSES.items()
    ]
    if lot.happens(0.25) and not is_even:
        shard = make_object("SchedulingShard", "default", "00:00:00")
        shard["spec"] = {"placementStrategy": {"gpu": "spread", "cpu": random.choice(_STRATEGIES)}}
        objects.append(shard)
    objects += [_node(lot, f"node-{i}") for i in range(random.choice((1, 2, 2, 3, 4)))]
    names, queues = _queues(lot)
    objects += queues
    for i in range(random.choice((0, 2, 3, 4, 5, 6, 7))):
        objects += _podgroup(lot, f"runs-{i}", random.choice(names), waits=False)
    for i in range(random.choice((1, 2, 2, 3, 4))):
        objects += _podgroup(lot, f"waits-{i}", random.choice(names), waits=True)
    if not is_even:
        objects += _odd_pods(lot, names)
        objects += [] if lot.happens(0.8) else _reservation_pods(lot, objects)
    random.shuffle(objects)
    return objects


_STRATEGIES: Final = ("binpack", "spread")


def _node(lot: _Sampler, name: str) -> Obj:
    random = lot.random
    node = make_object("Node", name, "00:00:00")
    labels = node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    gpus = random.choice((1, 1, 2, 2, 3, 4))
    pods = random.choice(("4", "5")) if lot.few_pods and lot.happens(0.3) else "110"
    cpu = "64" if lot.is_even else random.choice(("64", "64", "64", "6"))
    whole = {"cpu": cpu, "memory": "64G", "pods": pods}
    memory = "" if lot.happens(0.3) else random.choice(_MODELS)
    if memory:
        labels["nvidia.com/gpu.memory"] = memory
    profiles: dict[str, int] = {}
    if lot.has_mig and lot.happens(0.6):
        profiles = {random.choice(_PROFILES): random.choice((1, 2, 4)) for _ in range(2)}
        if lot.happens(0.5):
            labels["nvidia.com/mig.strategy"] = random.choice(("single", "mixed"))
    is_mig = bool(profiles)
    if lot.has_mig and lot.happens(0.3):
        text = random.choice(("true", "1", "T", "false", "0", "F", "yes"))
        labels["node-role.kubernetes.io/mig-enabled"] = text
        is_mig = {"t": True, "1": True, "f": False, "0": False}.get(text[0].lower(), is_mig)
    if lot.happens(0.95):
        whole["nvidia.com/gpu"] = str(gpus)
    else:
        gpus = 0
    node["status"] = {"allocatable": {**whole, **{k: str(v) for k, v in profiles.items()}}}
    node["spec"] = {"unschedulable": True} if lot.happens(0.04) and not lot.is_even else {}
    number = int(memory or 0)
    number = (number // 2**20 if number >= 2**20 else number) // 100 * 100
    lot.rooms[name] = _Room(number, is_mig, gpus, dict(profiles))
    return node


def _queues(lot: _Sampler) -> tuple[list[str], list[Obj]]:
    """Return the names of queues that take PodGroups, and of all: some have a parent."""
    random = lot.random
    names = ["red", "green", "blue"][: random.choice((1, 2, 2, 3))]
    above = random.choice(("", "", "top"))
    found = []
    for name in [*names, *([above] if above else [])]:
        queue = make_object("Queue", name, random.choice(("00:00:00", "00:10:00")))
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        gpu = {
            "quota": random.choice((-1, 0, 0, 0.5, 1, 1, 2, 4)),
            "limit": random.choice((-1, 0.25, 0.5, 1, 1.3, 2)) if lot.has_limits else -1,
            "overQuotaWeight": random.choice((0, 1, 1, 2)),
        }
        queue["spec"] = {"resources": {"cpu": free, "memory": free, "gpu": gpu}}
        if above and name != above and lot.happens(0.8):
            queue["spec"]["parentQueue"] = above
        found.append(queue)
    return names, found


def _podgroup(lot: _Sampler, name: str, queue: str, *, waits: bool) -> list[Obj]:
    """Return a PodGroup of equal pods, on nodes with enough free or waiting."""
    random = lot.random
    count = random.choice((1, 1, 1, 2, 2, 3))
    group = make_object("PodGroup", name, random.choice(("00:00:00", "00:10:00", "00:20:00")))
    group["spec"] = {"queue": queue, "minMember": random.choice((count, count, 1))}
    if lot.happens(0.3):
        group["spec"]["priorityClassName"] = random.choice(list(_CLASSES))
    if lot.happens(0.1):
        group["spec"]["preemptibility"] = "non-preemptible"
    shape = lot.shape()
    ends = not lot.is_even and lot.happens(0.25)
    pods: list[Obj] = []
    for i in range(count):
        if not lot.is_even and lot.happens(0.15):
            shape = lot.shape()
        pod = _pod(f"{name}-{i}", shape, {"pod-group-name": name})
        if not waits or (i == 0 and lot.happens(0.1)):
            _put_on_node(lot, pod, shape)
            if "nodeName" not in pod["spec"]:
                continue
            if ends and lot.happens(0.7):
                _terminate(random, pod)
        elif not (lot.is_even or lot.has_mig) and lot.happens(0.1):
            pod["status"]["nominatedNodeName"] = random.choice(list(lot.rooms))
        pods.append(pod)
    if waits and not lot.is_even and lot.happens(0.2):
        _expect(lot, group, pods)
    return [group, *pods] if pods else []


def _expect(lot: _Sampler, group: Obj, pods: list[Obj]) -> None:
    """Let a PodGroup expect more pods."""
    shape = lot.shape()
    later = {"subGroupPrefix": "b-", "replicas": 1, "count": lot.random.choice((1, 2))}
    text = json.dumps(
        {"later": [{**later, "requests": shape.requests, "sharing": shape.annotations}]}
    )
    group["metadata"]["annotations"] = {"trainer-kai.dev/anticipated": text}
    least = group["spec"].pop("minMember")
    group["spec"]["subGroups"] = [
        {"name": "a", "minMember": least},
        {"name": "b-0", "minMember": later["count"]},
    ]
    for pod in pods:
        pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "a"


def _pod(name: str, shape: _Shape, annotations: dict[str, str]) -> Obj:
    pod = make_object("Pod", name, "00:40:00")
    pod["metadata"]["labels"] = {}
    pod["metadata"]["annotations"] = {**annotations, **shape.annotations}
    container = {"name": "main", "image": "x", "resources": {"requests": shape.requests}}
    pod["spec"] = {"schedulerName": "kai-scheduler", "containers": [container]}
    pod["status"] = {"phase": "Pending"}
    return pod


def _put_on_node(lot: _Sampler, pod: Obj, shape: _Shape) -> None:
    """Let a pod run where enough is free for it, if it is anywhere."""
    has_label = lot.has_labels or lot.happens(0.5)
    for node in lot.random.sample(list(lot.rooms), len(lot.rooms)):
        gpus = lot.rooms[node].take(lot.random, node, shape, is_new=not has_label)
        if gpus is None:
            continue
        pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
        if not has_label:
            return
        prefix = "runai-gpu-group"
        names = {prefix if shape.devices == 1 else f"{prefix}/{gpu}": gpu for gpu in gpus}
        pod["metadata"]["labels"].update(names)
        return


def _terminate(random: Random, pod: Obj) -> None:
    pod["metadata"]["deletionTimestamp"] = f"2026-01-01T{random.choice(_GONE_SINCE)}Z"
    pod["metadata"]["deletionGracePeriodSeconds"] = 0


def _odd_pods(lot: _Sampler, queues: list[str]) -> list[Obj]:
    """Return pods without a PodGroup: what cannot be meant, and MIG profiles by annotation."""
    found = []
    if lot.happens(0.1):
        shape = _Shape({"cpu": "1"}, lot.random.choice(_MALFORMED))
        found.append(_pod("malformed", shape, {}))
    if lot.has_mig and lot.happens(0.4):
        profile = lot.random.choice(_PROFILES)
        one = _pod("annotated", _Shape({"cpu": "1"}, {}), {profile: "1"})
        for node, room in lot.rooms.items():
            if room.profiles.get(profile) and lot.happens(0.8):
                one["spec"]["nodeName"], one["status"] = node, {"phase": "Running"}
                break
        found.append(one)
    for one in found:
        one["metadata"]["labels"] = {"kai.scheduler/queue": lot.random.choice(queues)}
    return found


def _reservation_pods(lot: _Sampler, objects: list[Obj]) -> list[Obj]:
    """Return the pods that hold the GPUs of which labels name the ids."""
    found = {}
    for one in objects:
        for name, value in one["metadata"].get("labels", {}).items():
            if name.startswith("runai-gpu-group") and lot.happens(0.8):
                pod = _pod(f"reserves-{value}", _Shape({"nvidia.com/gpu": "1"}, {}), {})
                pod["metadata"]["namespace"] = _RESERVATION
                pod["metadata"]["labels"] = {"app": _RESERVATION, "runai-gpu-group": value}
                pod["spec"]["schedulerName"] = "default-scheduler"
                pod["spec"]["serviceAccountName"] = _RESERVATION
                pod["spec"]["nodeName"] = one["spec"]["nodeName"]
                pod["status"] = {"phase": "Running"}
                found[value] = pod
    return [*found.values()]
