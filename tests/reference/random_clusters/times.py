"""Random times: preemption delays, start times, minimum runtimes, and PodGroups of Kueue."""

from random import Random
from typing import Any, Final, TypeAlias

Obj: TypeAlias = dict[str, Any]

# Around now, which is 01:00:00, less the minimum runtimes below.
_TIMES: Final = ("00:00:00", "00:00:01", "00:10:00", "00:50:00", "00:50:01", "00:59:59", "01:00:00")
_LENGTHS: Final = ("0s", "10m", "10m", "10m1s", "50m", "1h", "1h1s", "2h")


def set_times(random: Random, objects: list[Obj]) -> None:
    """Write times into the objects of a cluster."""
    for one in [*objects]:
        if one["kind"] == "Queue":
            for name in ("preemptMinRuntime", "reclaimMinRuntime"):
                if random.random() < 0.4:
                    one["spec"][name] = random.choice(_LENGTHS)
        elif one["kind"] == "PodGroup":
            _of_group(random, one)
            objects += _owners(random, one)
        elif one["kind"] == "Pod" and random.random() < 0.8:
            status = "True" if random.random() < 0.95 else "False"
            found = {"type": "PodScheduled", "status": status, "lastTransitionTime": _time(random)}
            one["status"]["conditions"] = [found]


def _of_group(random: Random, group: Obj) -> None:
    notes = group["metadata"].setdefault("annotations", {})
    if random.random() < 0.3:
        group["spec"]["preemptionDelay"] = random.choice(_LENGTHS)
        if random.random() < 0.4:
            notes["kai.scheduler/last-eviction-timestamp"] = _time(random)
    if random.random() < 0.3:
        notes["kai.scheduler/last-start-timestamp"] = _time(random)


def _owners(random: Random, group: Obj) -> list[Obj]:
    """Return the JobSet of a group, and its TrainJob, which another controller may manage."""
    meta = group["metadata"]
    for owner in meta.get("ownerReferences", ()):
        name = owner["name"] = f"{meta['name']}-owner"
        above = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": name}
        common = {"name": name, "namespace": meta["namespace"], "creationTimestamp": _time(random)}
        jobset = {
            "apiVersion": owner["apiVersion"],
            "kind": "JobSet",
            "metadata": {
                **common,
                "uid": owner["uid"],
                "ownerReferences": [{**above, "uid": "t", "controller": True}],
            },
            "spec": {"replicatedJobs": []},
        }
        labels = random.choice(({}, {"kueue.x-k8s.io/queue-name": "x"}))
        spec: Obj = {"runtimeRef": {"name": "x"}}
        spec |= random.choice(({}, {}, {"managedBy": "example.com/other"}))
        job = {**above, "metadata": {**common, "uid": "t", "labels": labels}, "spec": spec}
        return [jobset, job]
    return []


def _time(random: Random) -> str:
    return f"2026-01-01T{random.choice(_TIMES)}Z"
