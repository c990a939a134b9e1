"""Many Jobs that cannot create their pods cost the scheduler no more than their pods."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.objects import TENANT, Obj, pod, pod_group
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, JOB_NAME, SUBGROUP
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import EVENTS, JOBSETS, PODGROUPS, PODS
from trainer_kai.service.garbage_collection import without_collection

_JOBS: Final = 500
_PODS: Final = 6  # of each Job that were made, of a hundred
_NOW: Final = 1_767_600_000
_MAX_S: Final = 0.1  # so long the event loop may be held


def _read(resource: Resource[Any], report: Obj) -> Any:
    return decode(resource.struct, json.dumps(report).encode())


def _jobset() -> Obj:
    """Return a JobSet of 500 Jobs."""
    template = {"metadata": {"labels": {GANG: "Main"}}}
    job = {"parallelism": 100, "completions": 100, "template": template}
    jobs = [{"name": "n", "replicas": _JOBS, "template": {"spec": job}}]
    meta = {"namespace": TENANT, "name": "j", "uid": "u"}
    return {"metadata": meta, "spec": {"replicatedJobs": jobs}}


def _pods() -> Iterator[Obj]:
    for number in range(_JOBS * _PODS):
        made = pod(TENANT, f"p{number}", 0, "pg-j-u")
        job = number // _PODS
        made["metadata"]["labels"].update({SUBGROUP: f"n-replica-{job}", JOB_NAME: f"j-n-{job}"})
        yield made


def _failed_create_event(job: int) -> Obj:
    """Return what the controller of Jobs says of one that cannot make its next pod."""
    at = datetime.fromtimestamp(_NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"namespace": TENANT, "name": f"e{job}"},
        "involvedObject": {"kind": "Job", "namespace": TENANT, "name": f"j-n-{job}"},
        "reason": "FailedCreate",
        "message": 'pods "j" is forbidden: exceeded quota: pods',
        "lastTimestamp": at,
    }


def test_pods_are_looked_at_once() -> None:
    """To look at all pods of the PodGroup for each of 500 Jobs took 2 s, before every plan."""
    live = ClusterCache(lambda: StateOptions(now=_NOW))
    jobset = _read(JOBSETS, _jobset())
    live.update(JOBSETS, jobset.metadata.key, jobset)
    group = pod_group(TENANT, "pg-j-u")
    subgroups = [{"name": f"n-replica-{number}", "minMember": 100} for number in range(_JOBS)]
    group["spec"] = {"queue": TENANT, "subGroups": subgroups}
    live.update_group(Key(TENANT, "pg-j-u"), _read(PODGROUPS, group))
    for report in _pods():
        one = _read(PODS, report)
        live.update_pod(one.metadata.key, one)
    for number in range(_JOBS):
        live.creation_failures.update(
            Key(TENANT, f"e{number}"), _read(EVENTS, _failed_create_event(number))
        )

    with without_collection():  # the garbage of other tests is not its cost
        began = time.process_time()
        live.creation_failures.refresh(_NOW)
        took_s = time.process_time() - began

    assert took_s < _MAX_S
    (lack,) = live.creation_failures.by_podgroup.values()
    assert (lack.existing, lack.required) == (_JOBS * _PODS, _JOBS * 100)
