"""Whether a TrainJob that we suspended is resumed, by what its user visibly intends."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.shell.cycle import Cycle
from scheduler.shell.evict.suspend_resume import Suspender
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups.attributes import suspend_refusal
from tests.support.case import Case, ids
from tests.support.fakes.recording_transport import ClientRun, json_answer
from trainer_kai.api.decode import decode
from trainer_kai.api.decode import encode as to_bytes
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBSETS, TRAINJOBS
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.kube.events import EventApi, EventRecorder, EventSettings
from trainer_kai.policy.workloads.jobset import trainjob_suspendable
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics

_KEY = Key("ns", "job")
_RECORD = "trainer-kai.dev/evicted-by"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SUSPENDED_MANIFEST = json.dumps({"spec": {"suspend": True}})
_MANAGER = "trainer-kai-eviction"


def managed_fields_entry(manager: str) -> dict[str, Any]:
    """Return the managed fields of the suspension, by manager."""
    return {"manager": manager, "fieldsV1": {"f:spec": {"f:suspend": {}}}}


def job(
    *managers: str,
    suspend: bool = True,
    applied: str = "",
    before: bool = False,
    copy: str | None = "",
) -> dict[str, Any]:
    """Return a TrainJob that was evicted, and the owners of its suspension; its copy is ours."""
    copy = json.dumps({"applied": before}) if copy == "" else copy
    annotations = {_RECORD: copy, _APPLIED: applied}
    metadata = {
        "name": "job",
        "namespace": "ns",
        "uid": "u",
        "annotations": {name: text for name, text in annotations.items() if text},
        "managedFields": [managed_fields_entry(it) for it in managers],
    }
    return {"metadata": metadata, "spec": {"runtimeRef": {"name": "r"}, "suspend": suspend}}


def cache_with(fields: dict[str, Any], *, recorded: bool) -> ClusterCache:
    """Return what a scheduler knows of a TrainJob, its JobSet and its PodGroup."""
    cache = ClusterCache(lambda: StateOptions(now=0))
    api = "trainer.kubeflow.org/v1alpha1"
    trainjob_reference = {
        "apiVersion": api,
        "kind": "TrainJob",
        "name": "job",
        "uid": "u",
        "controller": True,
    }
    jobset_reference = {"kind": "JobSet", "name": "job", "uid": "s"}
    record = json.dumps({"trainJob": "u", "podGroup": "g"})
    jobset = {"name": "job", "namespace": "ns", "uid": "s", "ownerReferences": [trainjob_reference]}
    annotations = {_RECORD: record} if recorded else {}
    group = {"name": "pg", "namespace": "ns", "uid": "g", "ownerReferences": [jobset_reference]} | {
        "annotations": annotations
    }
    cache.update(TRAINJOBS, _KEY, decode(TrainJob, to_bytes(fields)))
    spec = {"suspend": fields["spec"]["suspend"]}
    cache.update(JOBSETS, _KEY, decode(JobSet, to_bytes({"metadata": jobset, "spec": spec})))
    cache.update_group(Key("ns", "pg"), decode(PodGroup, to_bytes({"metadata": group})))
    return cache


async def patches_after_lead(fields: dict[str, Any], *, recorded: bool) -> list[Any]:
    """Return what a scheduler that begins to lead writes of it, in order."""
    run = ClientRun(json_answer(fields))
    log, metrics = logger("test"), Metrics()
    cache = cache_with(fields, recorded=recorded)
    recorder = EventRecorder(EventApi(run.client), EventSettings("t", "t"), run.clock, log)
    cycle = Cycle(cache, build_policies(PolicySelection()), run.clock, metrics, log)
    suspender = Suspender(run.client, cache, recorder, cycle, metrics, log)
    task = asyncio.create_task(suspender.run())
    await run.clock.advance(9.5)
    early = len(run.transport.requests)
    await run.clock.advance(5)
    task.cancel()
    assert fields["spec"]["suspend"] or not early  # it may be about to be suspended
    return _patches(run)


def _patches(run: ClientRun) -> list[Any]:
    patches = (it for it in run.transport.requests if it.method == "PATCH")
    return [json.loads(it.body or b"{}") for it in patches]


CASES: list[Case[dict[str, Any], dict[str, Any]]] = [
    Case("only we want it suspended", job(_MANAGER), {}),
    Case("its user owns the suspension too: it stays without us", job(_MANAGER, "kubectl"), {}),
    Case("its user wants it to run", job(_MANAGER, "kubectl", suspend=False), {}),
    Case(
        "the manifest asks for it since",
        job(_MANAGER, applied=_SUSPENDED_MANIFEST),
        {"suspend": True},
    ),
    Case(
        "the manifest asked for it before, and it ran",
        job(applied=_SUSPENDED_MANIFEST, before=True),
        {},
    ),
    Case("what was applied cannot be read", job(_MANAGER, applied="{"), {}),
    Case("the copy cannot be read", job(_MANAGER, copy="{"), {}),
    Case("what was applied is nested too deep", job(_MANAGER, applied="[" * 100_000), {}),
    Case(
        "the copy is nested too deep",
        job(_MANAGER, applied=_SUSPENDED_MANIFEST, copy="[" * 100_000),
        {"suspend": True},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_what_is_applied_at_the_end(case: Case[dict[str, Any], dict[str, Any]]) -> None:
    """Under our own manager: what is not in it is given up. Then the record goes."""
    applied, removed = await patches_after_lead(case.given, recorded=True)

    assert applied.get("spec", {}) == case.want
    assert applied["metadata"]["uid"] == "u"
    assert removed == {"metadata": {"uid": "g", "annotations": {_RECORD: None}}}


async def test_the_record_stays_until_the_jobset_is_resumed() -> None:
    """A JobSet that another controller manages may never be: that is posted, once."""
    fields = job(_MANAGER)
    run, posted = ClientRun(json_answer(fields)), list[str]()
    log, metrics = logger("test"), Metrics()
    cache = cache_with(fields, recorded=True)
    recorder = EventRecorder(EventApi(run.client), EventSettings("t", "t"), run.clock, log)
    recorder.post = lambda _regarding, reason, *_: posted.append(reason)  # type: ignore[method-assign]
    cycle = Cycle(cache, build_policies(PolicySelection()), run.clock, metrics, log)
    suspender = Suspender(run.client, cache, recorder, cycle, metrics, log)
    task = asyncio.create_task(suspender.run())
    removal = {"metadata": {"uid": "g", "annotations": {_RECORD: None}}}

    await run.clock.advance(1)
    cache.update(TRAINJOBS, _KEY, decode(TrainJob, to_bytes(job(suspend=False))))
    await run.clock.advance(28)
    assert posted == []
    await run.clock.advance(100)
    assert posted == ["NotResumed"]
    assert removal not in _patches(run)
    jobset = cache.cluster.workload_objects[JOBSETS][_KEY]
    cache.update(JOBSETS, _KEY, replace(jobset, spec=replace(jobset.spec, suspend=False)))
    await run.clock.advance(31)
    task.cancel()

    assert posted == ["NotResumed", "Resumed"]
    assert _patches(run)[-1] == removal


async def test_a_copy_that_was_removed_keeps_it_suspended() -> None:
    """It stays suspended, and only the record goes."""
    (removed,) = await patches_after_lead(job(_MANAGER, copy=None), recorded=True)

    assert removed == {"metadata": {"uid": "g", "annotations": {_RECORD: None}}}


# a TrainJob with a copy that no PodGroup knows of -> whether it is resumed
UNRECORDED: list[Case[dict[str, Any], bool]] = [
    Case("an older version has suspended it", job(_MANAGER), True),
    Case("its user has, and wrote the copy", job("kubectl"), False),
    Case("its user runs it, and wrote the copy", job(_MANAGER, suspend=False), False),
]


@pytest.mark.parametrize("case", UNRECORDED, ids=ids)
async def test_a_copy_alone_resumes_what_our_manager_suspended(
    case: Case[dict[str, Any], bool],
) -> None:
    """A user that suspends under our manager's name gets the TrainJob resumed, and nothing else."""
    applied = await patches_after_lead(case.given, recorded=False)

    assert [it.get("spec", {}) for it in applied] == ([{}] if case.want else [])


def test_kueue_keeps_its_own_where_it_runs() -> None:
    """Elsewhere the label says nothing: any user may write it."""
    kueues = job(_MANAGER)
    kueues["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    read = trainjob_suspendable(decode(TrainJob, to_bytes(kueues)))
    other = trainjob_suspendable(decode(TrainJob, to_bytes(job(_MANAGER))))

    assert suspend_refusal(read, kueue=True) == "Kueue suspends and resumes the TrainJob"
    assert suspend_refusal(read, kueue=False) is None
    assert suspend_refusal(other, kueue=True) is None
