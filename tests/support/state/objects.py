"""Kubernetes objects for the tests of the state: a test states only what it is about."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from scheduler.core.messages.rejection_messages import prefilter_message
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, SchedulingSignature, podsets_of
from scheduler.core.model.resources import NONE
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import Resource

if TYPE_CHECKING:
    from scheduler.core.model.rejections import PreFilterFailure

Fields = dict[str, Any]

NOW: Final = 1_767_600_000  # 2026-01-05T08:00:00Z
JOBSET: Final = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "j",
    "uid": "u",
}
_JOB: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "j-n-0", "uid": "v"}
_RESOURCE_BY_KIND: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource for resource in Cluster().by_resource()
}


def make_object(kind: str, name: str, meta: Fields | None = None, **more: Any) -> Fields:
    """Return an object; all that have one are in the namespace "ns"."""
    metadata = {"name": name, "namespace": "ns", **(meta or {})}
    return {"kind": kind, "metadata": metadata, **more}


def node(name: str, *, labels: Fields | None = None, spec: Any = None, **has: Any) -> Fields:
    """Return a node with room for everything; `gpu` and `has` say otherwise."""
    gpus = {"nvidia.com/gpu": str(has.pop("gpu", 8))}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", **gpus, **has.pop("has", {})}
    meta = {"labels": labels or {}, **has.pop("meta", {})}
    status = {"allocatable": amounts, "conditions": has.pop("conditions", [])}
    return make_object("Node", name, meta, spec=spec or {}, status=status)


def pod(name: str, group: str = "", subgroup: str = "", *, node: str = "", **more: Any) -> Fields:
    """Return a pod of ours that asks for one GPU; it waits, or runs on its node."""
    annotations = {**({"pod-group-name": group} if group else {}), **more.pop("annotations", {})}
    labels = {
        **({"kai.scheduler/subgroup-name": subgroup} if subgroup else {}),
        **more.pop("labels", {}),
    }
    meta = {"uid": name, "annotations": annotations, "labels": labels, **more.pop("meta", {})}
    phase = more.pop("phase", "Running" if node else "Pending")
    status = {"phase": phase, **more.pop("status", {})}
    container = {"resources": {"requests": more.pop("asks", {"nvidia.com/gpu": "1"})}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], "nodeName": node, **more}
    return make_object("Pod", name, meta, spec=spec, status=status)


def jobset_pod(name: str, group: str, job: str = "n", **more: Any) -> Fields:
    """Return a pod of the first Job of a replicatedJob of the JobSet "j"."""
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": str(more.pop("attempt", 0)),
        "jobset.sigs.k8s.io/job-restart-attempt": str(more.pop("job_attempt", 0)),
    }
    meta = {"ownerReferences": [{**_JOB, "controller": True}], **more.pop("meta", {})}
    return pod(name, group, f"{job}-replica-0", labels=labels, meta=meta, **more)


def group(name: str, *, meta: Fields | None = None, **spec: Any) -> Fields:
    """Return a group in the queue "q"."""
    return make_object("PodGroup", name, {"uid": name, **(meta or {})}, spec={"queue": "q", **spec})


def gang(name: str, count: int) -> list[Fields]:
    """Return a PodGroup that needs all its pods, and these: one GPU each."""
    pods = [pod(f"{name}{i}", name) for i in range(count)]
    return [group(name, minMember=count), *pods]


def queue(name: str = "q", *, meta: Fields | None = None, **spec: Any) -> Fields:
    """Return a queue without bounds."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "memory": free, "gpu": free}
    return make_object(
        "Queue", name, {"uid": name, **(meta or {})}, spec={"resources": resources, **spec}
    )


def cluster_cache(*objects: Fields) -> Cluster:
    """Read objects."""
    found = Cluster()
    for fields in objects:
        resource, key, obj = decode_object(fields)
        found.by_resource()[resource][key if resource.namespaced else key.name] = obj
    return found


def decode_object(fields: Fields) -> tuple[Resource[Any], Key, Any]:
    """Return the kind of an object, its key, and the object."""
    resource = _RESOURCE_BY_KIND[fields["kind"]]
    obj: Any = decode(resource.struct, json.dumps(fields).encode())
    return resource, obj.metadata.key if resource.namespaced else Key("", obj.metadata.name), obj


def encode_objects(*objects: Fields, **terms: Any) -> EncodedSnapshot:
    """Encode objects, and the queue "q" beside them."""
    known = {(fields["kind"], fields["metadata"]["name"]) for fields in objects}
    others = [] if ("Queue", "q") in known else [queue()]
    return encode(
        cluster_cache(*others, *objects), StateOptions(now=NOW, default_queue="q", **terms)
    )


def podgroup_of(found: EncodedSnapshot, name: str) -> PodGroupInfo:
    """Return a PodGroup by its name."""
    return found.snapshot.podgroups[found.podgroup_keys.index(Key("ns", name))]


def podset_of(found: EncodedSnapshot, name: str, podset: str = "default") -> PodSet:
    """Return a PodSet of a PodGroup."""
    return next(one for one in podsets_of(podgroup_of(found, name).tree) if one.name == podset)


def prefilter_failure_of(found: EncodedSnapshot, name: str) -> tuple[str, str] | None:
    """Return the reason and the message of the PreFilterFailure of a PodGroup."""
    prefilter_failure: PreFilterFailure | None = podgroup_of(found, name).prefilter_failure
    return (
        (prefilter_failure.reason, prefilter_message(prefilter_failure))
        if prefilter_failure
        else None
    )


def grouped_pods(found: EncodedSnapshot) -> set[str]:
    """Return the names of the pods that are in a PodGroup."""
    rows = zip(found.pod_keys, found.snapshot.pods.podgroup.tolist(), strict=True)
    return {key.name for key, podgroup in rows if podgroup != NONE}


def signature_of(found: EncodedSnapshot, name: str) -> SchedulingSignature:
    """Return the signature of a pod."""
    row = found.pod_keys.index(Key("ns", name))
    return found.snapshot.signatures[int(found.snapshot.pods.signature[row])]


_UNBOUND: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def queue_with_quota(name: str, gpus: int) -> Fields:
    """Return a queue with a quota of so many GPUs."""
    gpu = {"quota": gpus, "limit": -1, "overQuotaWeight": 1}
    return queue(name, resources={"cpu": _UNBOUND, "memory": _UNBOUND, "gpu": gpu})


def gang_in(queue_name: str, name: str, count: int, *, at: str = "") -> list[Fields]:
    """Return a PodGroup of pods with one GPU each, on a node or waiting."""
    pods = [pod(f"{name}{i}", name, node=at) for i in range(count)]
    return [group(name, minMember=count, queue=queue_name), *pods]


def trainjob(name: str, at: str) -> list[Fields]:
    """Return a TrainJob that runs two pods on a node, and what Trainer and we made of it."""
    jobs = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": name}
    sets = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name}
    own = {"uid": name, "ownerReferences": [{**jobs, "uid": name, "controller": True}]}
    job = {"kind": "Job", "apiVersion": "batch/v1", "name": f"{name}-n-0", "uid": f"{name}-n-0"}
    owners = {"uid": f"pg-{name}", "ownerReferences": [{**sets, "uid": name, "controller": True}]}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "n", "jobset.sigs.k8s.io/job-index": "0"}
    members = {"ownerReferences": [{**job, "controller": True}]}
    return [
        make_object("TrainJob", name, {"uid": name}, spec={"runtimeRef": {"name": "r"}}),
        make_object("JobSet", name, own, spec={}),
        group(f"pg-{name}", minMember=2, queue="borrower", meta=owners),
        *(pod(f"{name}{i}", f"pg-{name}", node=at, labels=labels, meta=members) for i in range(2)),
    ]


def workload(kind: str, name: str, at: str, **spec: Any) -> list[Fields]:
    """Return a Job, or a JobSet without an owner, that runs two pods on a node, and what is ours.

    The PodGroup of a Job has no sub-groups; *spec* is of the workload.
    """
    api_version = {"Job": "batch/v1", "JobSet": JOBSET["apiVersion"]}[kind]
    itself = {"apiVersion": api_version, "kind": kind, "name": name, "uid": name}
    job = itself if kind == "Job" else {**_JOB, "name": f"{name}-n-0", "uid": f"{name}-n-0"}
    of_jobset = {"jobset.sigs.k8s.io/replicatedjob-name": "n", "jobset.sigs.k8s.io/job-index": "0"}
    own = {"batch.kubernetes.io/job-name": job["name"]}
    labels = own if kind == "Job" else {**own, **of_jobset}
    meta = {"ownerReferences": [{**job, "controller": True}]}
    return [
        make_object(kind, name, {"uid": name}, spec=spec),
        group(
            f"pg-{name}",
            minMember=2,
            queue="borrower",
            meta={"uid": f"pg-{name}", "ownerReferences": [itself]},
        ),
        *(pod(f"{name}{i}", f"pg-{name}", node=at, labels=labels, meta=meta) for i in range(2)),
    ]
