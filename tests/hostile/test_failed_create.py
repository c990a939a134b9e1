"""Many Jobs that cannot create their pods cost the scheduler no more than their pods."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.objects import TENANT, Obj, pod, pod_group
from tests.support.instruction_count import instruction_growth
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, JOB_NAME, SUBGROUP
from trainer_kai.api.resources import EVENTS, JOBSETS, PODGROUPS, PODS, Resource

_JOBS: Final = 100
_PODS: Final = 6  # of each Job that were made, of a hundred
_NOW: Final = 1_767_600_000


def _read(resource: Resource[Any], report: Obj) -> Any:
    return decode(resource.struct, json.dumps(report).encode())


def _jobset(count: int) -> Obj:
    """Return a JobSet of so many Jobs."""
    template = {"metadata": {"labels": {GANG: "Main"}}}
    job = {"parallelism": 100, "completions": 100, "template": template}
    jobs = [{"name": "n", "replicas": count, "template": {"spec": job}}]
    meta = {"namespace": TENANT, "name": "j", "uid": "u"}
    return {"metadata": meta, "spec": {"replicatedJobs": jobs}}


def _pods(jobs: int) -> Iterator[Obj]:
    for number in range(jobs * _PODS):
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


def _live(jobs: int) -> ClusterCache:
    """Return a cluster with a JobSet of which each Job lacks pods."""
    live = ClusterCache(lambda: StateOptions(now=_NOW))
    jobset = _read(JOBSETS, _jobset(jobs))
    live.update(JOBSETS, jobset.metadata.key, jobset)
    group = pod_group(TENANT, "pg-j-u")
    subgroups = [{"name": f"n-replica-{number}", "minMember": 100} for number in range(jobs)]
    group["spec"] = {"queue": TENANT, "subGroups": subgroups}
    live.update_group(Key(TENANT, "pg-j-u"), _read(PODGROUPS, group))
    for report in _pods(jobs):
        one = _read(PODS, report)
        live.update_pod(one.metadata.key, one)
    for number in range(jobs):
        live.creation_failures.update(
            Key(TENANT, f"e{number}"), _read(EVENTS, _failed_create_event(number))
        )
    return live


def test_pods_are_looked_at_once() -> None:
    """To look at all pods of the PodGroup for each of 500 Jobs took 2 s, before every plan."""
    lacks: list[tuple[int, int]] = []

    def work(jobs: int) -> Callable[[], None]:
        live = _live(jobs)

        def refresh() -> None:
            live.creation_failures.refresh(_NOW)
            (lack,) = live.creation_failures.by_podgroup.values()
            lacks.append((lack.existing, lack.required))

        return refresh

    assert instruction_growth(work, _JOBS) < 2.5
    assert lacks == [(n * _JOBS * _PODS, n * _JOBS * 100) for n in (1, 2)]
