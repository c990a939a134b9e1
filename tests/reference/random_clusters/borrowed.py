"""Random clusters in which queues run over quota what another queue may reclaim."""

from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.objects import make_object

Obj: TypeAlias = dict[str, Any]

_AT: Final = ("00:00:00", "00:30:00", "00:30:00", "00:50:00", "00:59:00", "01:00:00")
_ANNOTATIONS: Final = (
    "trainer-kai.dev/reclaim-goal",
    ("quota-only", "quota-only", "fair-share", "both"),
)


def borrowed_cluster(random: Random, owned: float = 0.3) -> list[Obj]:
    """Return two nodes full of PodGroups of a few queues, and a few PodGroups that claim something.

    A part of the PodGroups is *owned* by TrainJobs.
    """
    objects = [make_object("Namespace", "a", "01:00:00")]
    nodes = [f"node-{i}" for i in range(2)]
    for name in nodes:
        node = make_object("Node", name, "00:00:00")
        node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        node["status"] = {"allocatable": {"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"}}
        objects.append(node)
    podsets, queues = _queues(random)
    objects += queues
    free = dict.fromkeys(nodes, 4)
    for i in range(random.randint(3, 6)):
        size = random.choice((1, 1, 2, 2, 3, 4))
        if max(free.values()) < size:
            continue
        queue = random.choice((podsets[0], *podsets))
        objects += _podgroup(random, f"runs-{i}", queue, (size, owned), free)
    for i in range(random.randint(1, 2)):
        size = random.choice((1, 2, 3, 4))
        objects += _podgroup(random, f"waits-{i}", podsets[-1], (size, owned), {})
    random.shuffle(objects)
    return objects


def _queues(random: Random) -> tuple[list[str], list[Obj]]:
    """Return the names of those that take PodGroups, and all: some below one above them."""
    podsets = ["red", "green", "blue"][: random.randint(2, 3)]
    above = random.choice(("", "top", "top", "top"))
    found = []
    for name in [*podsets, *([above] if above else [])]:
        quota = random.choice((0, 0, 1, 2, 4, 8)) if name != above else random.choice((0, 4, 8))
        queue = make_object("Queue", name, random.choice(_AT))
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        weight = random.choice((0, 1, 1, 2))
        gpu = {"quota": quota, "limit": -1, "overQuotaWeight": weight}
        queue["spec"] = {"resources": {"cpu": free, "memory": free, "gpu": gpu}}
        if name != above and random.random() < 0.9:
            queue["spec"]["parentQueue"] = above
        if name == above and random.random() < 0.7:
            note, values = _ANNOTATIONS
            queue["metadata"]["annotations"] = {note: random.choice(values)}
        found.append(queue)
    return podsets, found


def _podgroup(
    random: Random, name: str, queue: str, about: tuple[int, float], free: dict[str, int]
) -> list[Obj]:
    """Return a group of pods with a GPU each, there or waiting; some are of a TrainJob."""
    pods = []
    size, owned = about
    group = make_object("PodGroup", name, random.choice(_AT))
    least = random.choice((size, size, size, 1))
    group["spec"] = {"queue": queue, "minMember": least if free else size}
    notes = group["metadata"]["annotations"] = {}
    if random.random() < 0.9:
        notes["kai.scheduler/last-start-timestamp"] = f"2026-01-01T{random.choice(_AT)}Z"
    others = _owners(random, group) if random.random() < owned else []
    for i in range(size):
        pod = make_object("Pod", f"{name}-{i}", group["metadata"]["creationTimestamp"][11:19])
        pod["metadata"]["annotations"] = {"pod-group-name": name}
        requests = {"cpu": "1", "nvidia.com/gpu": "1"}
        pod["spec"] = {
            "schedulerName": "kai-scheduler",
            "containers": [{"resources": {"requests": requests}}],
        }
        pod["status"] = {"phase": "Pending"}
        room = [node for node in free if free[node]]
        if room:
            node = random.choice(room)
            free[node] -= 1
            pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
        if others:
            job = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{name}-job", "uid": name}
            pod["metadata"]["ownerReferences"] = [{**job, "controller": True}]
            pod["metadata"]["labels"] = {"jobset.sigs.k8s.io/restart-attempt": "0"}
        pods.append(pod)
    return [group, *others, *pods]


def _owners(random: Random, group: Obj) -> list[Obj]:
    """Return the JobSet and the TrainJob of a group; some have saved their work."""
    name = group["metadata"]["name"]
    jobset, job = (
        make_object("JobSet", name, "00:00:00"),
        make_object("TrainJob", name, "00:00:00"),
    )
    for below, above in ((group, jobset), (jobset, job)):
        owner = {"apiVersion": above["apiVersion"], "kind": above["kind"], "name": name}
        uid = above["metadata"]["uid"]
        below["metadata"]["ownerReferences"] = [{**owner, "uid": uid, "controller": True}]
    jobset["spec"], job["spec"] = {"replicatedJobs": []}, {"runtimeRef": {"name": "x"}}
    if random.random() < 0.7:
        saved = random.choice((f"2026-01-01T{random.choice(_AT)}Z", "yesterday"))
        job["metadata"]["annotations"] = {"trainer-kai.dev/last-checkpoint": saved}
    return [jobset, job]
