"""Reviews of TrainJobs that name several queues, or one that is not cached yet."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import BUNDLED, QUEUE, Obj
from tests.webhook.served_webhook import serving
from tests.webhook.trainjob_reviews import FakeLookups, ask, reviewing_webhook
from tests.webhook.trainjobs import (
    NAMESPACE_RUNTIME,
    ONE_JOB,
    patch,
    pod_patch,
    runtime,
    submitted,
    watched_runtime,
)
from webhook.reviews.answer_trainjob import AdmissionPolicy


def _beside(queue: str, **spec: Any) -> Obj:
    """Return a TrainJob of the queue a, and of another for some of its pods."""
    return submitted({QUEUE: "a"}, runtimePatches=[patch(pod_patch(labels={QUEUE: queue}))], **spec)


async def test_all_queues_are_asked_about() -> None:
    """Pods that name another one could get into it by themselves."""
    async with reviewing_webhook() as (served, lookups):
        assert (await ask(served, _beside("b"))).code == 403
        assert [it.queue for it in lookups.access_requests] == ["a", "a", "b", "b"]

        served.cache.queues.put("c", "", "closed")
        lookups.runtimes[NAMESPACE_RUNTIME] = runtime(
            {"name": "node", **pod_patch(labels={QUEUE: "c"})}
        )
        result = await ask(served, submitted({QUEUE: "a"}, own=True))
        assert (result.code, result.message[:17]) == (403, "spec.runtimeRef: ")


async def test_many_queues_have_no_more_time_than_one() -> None:
    """A TrainJob with very many holds up no other, and is not answered late itself."""
    lookups = FakeLookups()
    lookups.takes_s = 0.05
    jobs = [pod_patch(f"p{i}", labels={QUEUE: f"q{i}"}) for i in range(60)]
    lookups.allowed = lookups.granted = {f"q{i}" for i in range(60)}
    async with reviewing_webhook(lookups, unannotated="closed") as (served, _):
        lookups.runtimes[NAMESPACE_RUNTIME] = runtime(*jobs)
        result = await ask(served, submitted(own=True))

        assert result.code == 503
        assert "no answer within 0.9 s" in result.message


# whether the API server answers, and which queue -> the code
QUEUES_MADE = [
    Case("made just before", (False, "new"), 0),
    Case("not made", (False, "other"), 422),
    Case("none that can be", (False, "a,b"), 422),
    Case("no connection", (True, "new"), 422),
]


@pytest.mark.parametrize("case", QUEUES_MADE, ids=ids)
async def test_a_queue_that_is_not_cached(case: Case[tuple[bool, str], int]) -> None:
    """It is looked up before a TrainJob is denied for it."""
    lookups = FakeLookups()
    lookups.is_away, queue = case.given
    admission_policy = AdmissionPolicy(BUNDLED, denies_unknown_queues=True)
    async with serving(live=lookups.live, admission_policy=admission_policy) as served:
        served.cache.queues.mark_listed()
        served.cache.runtimes.put(watched_runtime(ONE_JOB))
        result = await ask(served, submitted({QUEUE: queue}))

        assert (result.code, result.warnings) == (case.want, [])
