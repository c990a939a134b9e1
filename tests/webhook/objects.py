"""JobSets and pods as they arrive, and what becomes of them when the patch is applied."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import jsonpatch
import msgspec

from trainer_kai.api.meta import Key
from trainer_kai.api.names import FOLLOWS_TRAINJOB
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Malformed, read_review
from webhook.cache.admission_cache import TrainJobSummary
from webhook.rules.jobset_mutate import JobSetContext, mutate_jobset, read_jobset
from webhook.rules.pod_podgroup import mutate_pod

Obj: TypeAlias = dict[str, Any]

REVIEWS: Final = Path(__file__).parent / "reviews"
BUNDLED: Final = GroupingRules("bundled", "kai-scheduler", "default-queue")
EXTERNAL: Final = BUNDLED._replace(mode="external")
JOBSET: Final = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"}
POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
QUEUE: Final = "kai.scheduler/queue"
GANG: Final = "trainer-kai.dev/gang"
UID: Final = "uid-of-the-trainjob"
OWNER: Final = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "job",
    "uid": UID,
    "controller": True,
}


def recorded(name: str) -> bytes:
    return (REVIEWS / f"{name}.json").read_bytes()


def jobset_context(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **others: Any,
) -> JobSetContext:
    runtime = Key("", "torch-distributed")
    return JobSetContext(TrainJobSummary(UID, labels or {}, annotations or {}, runtime), **others)


CONTEXT: Final = jobset_context()


def job(name: str, scheduler: str | None = None, **parts: Any) -> Obj:
    """Return a replicatedJob; *parts* are labels and annotations of its pods, or its own."""
    metadata = {part: parts.pop(part) for part in ("labels", "annotations") if part in parts}
    of_job = parts.pop("of_job", {})
    spec: Obj = {"containers": [{"name": "node", "image": "none"}]}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    pod_template = {"metadata": metadata, "spec": spec}
    job_spec = {"parallelism": 2, "completions": 2, "template": pod_template}
    return {
        "name": name,
        "replicas": 1,
        "template": {"metadata": of_job, "spec": job_spec},
        **parts,
    }


def jobset(*jobs: Obj, **parts: Any) -> Obj:
    """Return a JobSet of a TrainJob; *parts* are of its metadata, or of its spec."""
    metadata: Obj = {"name": "job", "namespace": "team", "ownerReferences": [OWNER]}
    spec: Obj = {"replicatedJobs": list(jobs or [job("node")])}
    for part, value in parts.items():
        (spec if part in {"suspend", "managedBy", "startupPolicy"} else metadata)[part] = value
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": spec,
    }


def managed(obj: Obj) -> Obj:
    """Return an object with a field manager for all labels and annotations."""
    jobs = {
        f'k:{{"name":"{it["name"]}"}}': {
            "f:template": {"f:spec": {"f:template": {"f:metadata": _fields(template(it))}}}
        }
        for it in obj["spec"]["replicatedJobs"]
    }
    fields = {
        "f:metadata": _fields(obj["metadata"]),
        "f:spec": {"f:replicatedJobs": jobs, "f:suspend": {}},
    }
    entry = {"manager": "trainer", "operation": "Apply", "fieldsV1": fields}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [entry]}}


def with_managed_fields_of(obj: Obj, like: Obj) -> Obj:
    """Return an object with the managedFields of another one."""
    fields = like["metadata"]["managedFields"]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": fields}}


def _fields(metadata: Obj) -> Obj:
    return {
        f"f:{part}": {f"f:{name}": {} for name in metadata[part]}
        for part in ("labels", "annotations")
        if metadata.get(part)
    }


def template(replicated_job: Obj) -> Obj:
    metadata: Obj = replicated_job["template"]["spec"]["template"].get("metadata") or {}
    return metadata


def pod(**metadata: Any) -> Obj:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "job",
        "jobset.sigs.k8s.io/jobset-uid": "1-2-3",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "trainer-kai.dev/gang": "Main",
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    whole = {"generateName": "job-node-0-", "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**whole, **metadata}, "spec": {}}


def review(obj: Any, kind: Mapping[str, str], old: Any = None, **fields: Any) -> bytes:
    """Return the body of a review: of a creation, or of an update of *old*."""
    review_request: Obj = {
        "uid": "uid-of-the-review",
        "kind": kind,
        "namespace": "team",
        "operation": "CREATE" if old is None else "UPDATE",
        "object": obj,
        "oldObject": old,
        **fields,
    }
    whole = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": review_request,
    }
    return json.dumps(whole).encode()


def request(obj: Any, kind: Mapping[str, str], old: Any = None, **fields: Any) -> AdmissionRequest:
    review_request = read_review(review(obj, kind, old, **fields))
    assert not isinstance(review_request, Malformed), review_request
    return review_request


def reviewed_jobset(
    obj: Any,
    context: JobSetContext = CONTEXT,
    rules: GroupingRules = BUNDLED,
    old: Any = None,
    **fields: Any,
) -> AdmissionResponse:
    jobset_review = read_jobset(request(obj, JOBSET, old, **fields), rules)
    return (
        jobset_review
        if isinstance(jobset_review, AdmissionResponse)
        else mutate_jobset(jobset_review, context, rules)
    )


def applied(obj: Obj, answer: AdmissionResponse) -> Obj:
    """Return an object with the patch applied, as the API server does it."""
    operations = json.loads(msgspec.json.encode(answer.operations))
    patched: Obj = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(obj))
    return patched


def reviewed_pod(obj: Obj, rules: GroupingRules = BUNDLED) -> AdmissionResponse:
    return mutate_pod(request(obj, POD), rules.mode)


def told(answer: AdmissionResponse) -> str:
    """Return the denial and the warnings of an answer, one a line."""
    denial = [denied(answer.denial.message)] if answer.denial else []
    return "\n".join((*denial, *answer.warnings))


def denied(message: str) -> str:
    """Return what `told` returns for a denial."""
    return f"denied: {message}"


class WrittenFields(NamedTuple):
    """What of a JobSet is ours to write."""

    queue: str | None
    annotations: Mapping[str, str]
    jobs: Mapping[str, tuple[str | None, str | None, str | None]]  # scheduler, queue, gang


def written(obj: Obj) -> WrittenFields:
    """Read off a JobSet what is ours to write, and the labels beside the queue."""
    meta = obj["metadata"]
    return WrittenFields(
        (meta.get("labels") or {}).get(QUEUE),
        {k: v for k, v in (meta.get("annotations") or {}).items() if k != FOLLOWS_TRAINJOB},
        {
            it["name"]: (
                it["template"]["spec"]["template"]["spec"].get("schedulerName"),
                (template(it).get("labels") or {}).get(QUEUE),
                (template(it).get("labels") or {}).get(GANG),
            )
            for it in obj["spec"]["replicatedJobs"]
        },
    )
