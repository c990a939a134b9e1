"""Whether a TrainJob that we suspended is resumed, by what can be seen of its user's wish."""

import asyncio
import json
from typing import Any

import pytest

from scheduler.shell.suspend import Suspender
from scheduler.state.live import Live
from scheduler.state.stays import refusal
from scheduler.state.terms import Terms
from tests.support.apiserver import Run, told
from tests.support.case import Case, ids
from trainer_kai.api.decode import decode
from trainer_kai.api.decode import encode as to_bytes
from trainer_kai.api.meta import Key
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.kube.events import EventApi, EventSettings, Recorder
from trainer_kai.log import logger
from trainer_kai.metrics import Metrics

_KEY = Key("ns", "job")
_RECORD = "trainer-kai.dev/evicted-by"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ASKS = json.dumps({"spec": {"suspend": True}})


def owner(manager: str) -> dict[str, Any]:
    """Return how the API server says who owns the suspension."""
    return {"manager": manager, "fieldsV1": {"f:spec": {"f:suspend": {}}}}


def trainjob(*, suspend: bool, record: str, others: list[str], applied: str) -> dict[str, Any]:
    """Return a TrainJob that carries our record."""
    annotations = {_RECORD: record, **({_APPLIED: applied} if applied else {})}
    managed = [owner(it) for it in ["trainer-kai-eviction", *others]]
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "annotations": annotations}
    return {
        "metadata": {**metadata, "managedFields": managed},
        "spec": {"runtimeRef": {"name": "r"}, "suspend": suspend},
    }


def job(
    *, suspend: bool = True, others: tuple[str, ...] = (), applied: str = "", before: bool = False
) -> dict[str, Any]:
    """Say of one what matters."""
    record = json.dumps({"applied": before})
    return trainjob(suspend=suspend, record=record, others=[*others], applied=applied)


CASES: list[Case[dict[str, Any], dict[str, Any]]] = [
    Case("nobody else wants it suspended", job(), {}),
    Case("somebody owns the suspension too: it stays without us", job(others=("kubectl",)), {}),
    Case("its user wants it to run", job(suspend=False, others=("kubectl",)), {}),
    Case("the manifest asks for it since", job(applied=_ASKS), {"suspend": True}),
    Case("the manifest asked for it before, and it ran", job(applied=_ASKS, before=True), {}),
    Case("what was applied cannot be read", job(applied="{"), {}),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_what_is_applied_at_the_end(case: Case[dict[str, Any], dict[str, Any]]) -> None:
    """Under our own manager: what is not in it is given up."""
    run = Run(told(case.given))
    log, metrics = logger("test"), Metrics()
    live = Live(lambda: Terms(now=0))
    found = decode(TrainJob, to_bytes(case.given))
    live.put(live.cluster.trainjobs, _KEY, found)
    recorder = Recorder(EventApi(run.client), EventSettings("t", "t"), run.clock, log)
    suspender = Suspender(run.client, live, recorder, lambda _: None, metrics, log)
    task = asyncio.create_task(suspender.run())
    await run.clock.advance(1)
    task.cancel()

    applied = [json.loads(it.body or b"{}") for it in run.transport.asked if it.method == "PATCH"]
    assert [it.get("spec", {}) for it in applied] == [case.want]
    assert applied[0]["metadata"]["uid"] == "u"


def test_who_is_nobodys_victim() -> None:
    """Others suspend and resume these."""
    kueue = job()
    kueue["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    managed = job()
    managed["spec"]["managedBy"] = "else.example/controller"
    for given, words in ((kueue, "Kueue"), (managed, "else.example/controller"), (job(), None)):
        said = refusal(decode(TrainJob, to_bytes(given)))
        assert (said is None) if words is None else words in (said or "")
