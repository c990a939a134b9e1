"""Reviews of Jobs and JobSets that users create: closed queues, and queues that hold nothing."""

from typing import Any

import pytest

from tests.webhook.jobs import CRON_JOB, JOB
from tests.webhook.jobs import job as batch_job
from tests.webhook.objects import JOBSET, QUEUE, Obj, job, jobset, review
from tests.webhook.trainjob_reviews import reviewing_webhook

PATHS = {"Job": "/mutate/job", "JobSet": "/mutate/jobset"}
USER = {"username": "ann", "groups": ["system:authenticated"]}


def made(kind: str, queue: str) -> Obj:
    labels = {QUEUE: queue}
    if kind == "Job":
        return batch_job(labels=labels)
    return jobset(job("node", "kai-scheduler"), ownerReferences=[], labels=labels)


async def asked(served: Any, kind: str, obj: Obj) -> Obj:
    body = review(obj, JOB if kind == "Job" else JOBSET, userInfo=USER)
    response: Obj = await served.review(PATHS[kind], body)
    return response


@pytest.mark.parametrize("kind", PATHS)
async def test_access_to_a_closed_queue_is_checked(kind: str) -> None:
    """Of the user that names it, and of the namespace; as for a TrainJob."""
    async with reviewing_webhook() as (served, lookups):
        refused = await asked(served, kind, made(kind, "b"))
        assert refused["status"]["code"] == 403
        assert "user 'ann' may not use queue 'b'" in refused["status"]["message"]
        assert [it.user for it in lookups.access_requests] == ["ann", ""]
        assert (await asked(served, kind, made(kind, "a")))["allowed"]


async def test_of_a_run_only_the_namespace_is_checked() -> None:
    """It is the CronJob controller that creates it."""
    async with reviewing_webhook() as (served, lookups):
        run = batch_job(labels={QUEUE: "b"}, ownerReferences=[CRON_JOB])
        assert (await asked(served, "Job", run))["allowed"]
        assert [it.user for it in lookups.access_requests] == [""]
        served.cache.queues.put("c", "", "closed")
        run = batch_job(labels={QUEUE: "c"}, ownerReferences=[CRON_JOB])
        assert (await asked(served, "Job", run))["status"]["code"] == 403


async def test_a_jobset_is_warned_about_a_queue_that_holds_nothing() -> None:
    """Jobs are warned by their validation."""
    async with reviewing_webhook() as (served, _):
        served.cache.queues.put("open", "", "open")
        served.cache.queues.mark_listed()
        answer = await asked(served, "JobSet", made("JobSet", "opem"))
        assert answer["allowed"]
        [warning] = answer["warnings"]
        assert warning.startswith(f"metadata.labels[{QUEUE}]: queue 'opem' does not exist")
