"""Random PodGroups with their pods, flat or as trees."""

import json
from typing import Any, TypeAlias

from tests.reference.random_clusters.pods import Sampler, pod, pod_template

Obj: TypeAlias = dict[str, Any]

_STATES = (
    ("waiting",),
    ("waiting", "waiting", "waiting", "there"),
    ("waiting", "there", "there", "there"),
    ("waiting", "there", "going", "succeeded", "failed", "gated"),
)
_LETTERS = "abcdefgh"


def podgroup_with_pods(lot: Sampler, name: str, queues: list[str]) -> list[Obj]:
    """Return a PodGroup and its pods."""
    random = lot.random
    spec: Obj = {"queue": random.choice(queues), **lot.priority_class()}
    if lot.happens(0.15):
        spec["preemptibility"] = random.choice(("preemptible", "non-preemptible"))
    namespace = random.choice("ab")
    meta: Obj = {
        "name": name,
        "namespace": namespace,
        "uid": lot.uid(),
        "creationTimestamp": lot.timestamp(),
    }
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": spec,
    }
    counts = _subgroup_tree(lot, spec) if lot.happens(0.4) else _flat(lot, spec)
    if "subGroups" in spec and lot.happens(0.25):
        _anticipate(lot, group, counts)
    return [group, *_pods(lot, group, counts)]


def _flat(lot: Sampler, spec: Obj) -> dict[str, int]:
    """Write a minimum; return how many pods there are."""
    count = lot.random.choice((0, 1, 1, 2, 2, 3, 4, 5))
    if not lot.happens(0.15):
        spec["minMember"] = max(0, count - lot.random.choice((-1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 9)))
    return {"": count}


def _subgroup_tree(lot: Sampler, spec: Obj) -> dict[str, int]:
    """Write sub-groups; return how many pods each PodSet has."""
    random = lot.random
    names = random.sample(_LETTERS, len(_LETTERS))
    subgroups: list[Obj] = []
    counts: dict[str, int] = {}
    tops = random.randint(1, 3)
    for _ in range(tops):
        if lot.happens(0.4):
            _inner(lot, subgroups, counts, names)
        else:
            _podset(lot, subgroups, counts, names.pop())
    random.shuffle(subgroups)
    spec["subGroups"] = subgroups
    if lot.happens(0.35):
        spec["minSubGroup"] = random.randint(0, tops)
    elif lot.happens(0.2):
        spec["minMember"] = 1
    return counts


def _inner(lot: Sampler, subgroups: list[Obj], counts: dict[str, int], names: list[str]) -> None:
    name = names.pop()
    below = lot.random.randint(1, min(2, len(names)))
    subgroup: Obj = {"name": name}
    if lot.happens(0.4):
        subgroup["minSubGroup"] = lot.random.randint(0, below)
    subgroups.append(subgroup)
    for _ in range(below):
        _podset(lot, subgroups, counts, names.pop())
        subgroups[-1]["parent"] = name


def _podset(lot: Sampler, subgroups: list[Obj], counts: dict[str, int], name: str) -> None:
    counts[name] = lot.random.choice((0, 1, 1, 2, 2, 3))
    least = max(0, counts[name] - lot.random.choice((0, 0, 0, 1, 2)))
    subgroups.append({"name": name, "minMember": least})


def _anticipate(lot: Sampler, group: Obj, counts: dict[str, int]) -> None:
    """Add PodSets with expected pods; some of these may exist."""
    random, prefix = lot.random, f"{_letter(lot)}-replica-"
    replicas, count = random.randint(1, 2), random.randint(1, 3)
    later: Obj = {"subGroupPrefix": prefix, "replicas": replicas, "count": count}
    made = pod_template(lot, "later")
    like, [container] = made["spec"], made["spec"]["containers"]
    later["requests"] = container["resources"]["requests"]
    later["labels"] = made["labels"]
    for name in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        if name in like:
            later[name] = like[name]
    later["hostPorts"] = [
        {"port": port.pop("hostPort"), **{k: v for k, v in port.items() if k != "containerPort"}}
        for port in container.get("ports", ())
    ]
    for i in range(replicas):
        least = max(0, count - random.choice((0, 0, 0, 1)))
        group["spec"]["subGroups"].append({"name": f"{prefix}{i}", "minMember": least})
        counts[f"{prefix}{i}"] = random.choice((0, 0, 0, 1))
    text = json.dumps({"later": [later]})
    group["metadata"]["annotations"] = {"trainer-kai.dev/anticipated": text}


def _letter(lot: Sampler) -> str:
    """Return a name that may sort before or behind the others."""
    return lot.random.choice("akz")


def _pods(lot: Sampler, group: Obj, counts: dict[str, int]) -> list[Obj]:
    random, meta = lot.random, group["metadata"]
    common = pod_template(lot, meta["name"]) if lot.happens(0.5) else None
    states, restarted = random.choice(_STATES), lot.happens(0.05)
    if lot.crowded:
        states = ("there",) if lot.is_next_running else ("waiting",)
    unknown = "subGroups" in group["spec"] and lot.happens(0.03)
    found: list[Obj] = []
    for podset, count in counts.items():
        like = common or pod_template(lot, meta["name"])
        for _ in range(count):
            one = pod(
                lot, f"{meta['name']}-{len(found)}", meta["namespace"], like, random.choice(states)
            )
            one["metadata"]["annotations"] = {"pod-group-name": meta["name"]}
            labels = one["metadata"]["labels"]
            if podset:
                labels["kai.scheduler/subgroup-name"] = "unknown" if unknown else podset
            _distinguish(lot, labels, restarted=restarted)
            found.append(one)
    if restarted and lot.happens(0.9):
        _set_owner(lot, group, found)
    return found


def _set_owner(lot: Sampler, group: Obj, pods: list[Obj]) -> None:
    """Let a group belong to a JobSet, and its pods, mostly, to a Job of that."""
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "owner"}
    group["metadata"]["ownerReferences"] = [{**jobset, "uid": group["metadata"]["uid"] + "-owner"}]
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner-job", "controller": True}
    for one in pods:
        if not lot.happens(0.05):
            one["metadata"]["ownerReferences"] = [{**job, "uid": "job"}]


def _distinguish(lot: Sampler, labels: dict[str, str], *, restarted: bool) -> None:
    """Write what sets a pod apart from its siblings."""
    random = lot.random
    if lot.happens(0.1):
        labels["kai.scheduler/task-priority"] = random.choice(("1", "2", "10", "high"))
    if lot.happens(0.04):
        labels["training.kubeflow.org/job-role"] = random.choice(("master", "launcher", "worker"))
    if lot.happens(0.03):
        labels["ray.io/node-type"] = random.choice(("head", "worker"))
    if restarted:
        labels["jobset.sigs.k8s.io/restart-attempt"] = random.choice(("0", "1", "1"))
