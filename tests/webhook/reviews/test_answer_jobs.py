"""Reviews of Jobs and JobSets that users create: closed queues, and queues that hold nothing."""

from typing import Any

import pytest

from tests.webhook.jobs import CRON_JOB, JOB
from tests.webhook.jobs import job as batch_job
from tests.webhook.objects import JOBSET, QUEUE, Obj, job, jobset, review
from tests.webhook.trainjob_reviews import reviewing_webhook
from trainer_kai.api.meta import Meta

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


@pytest.mark.parametrize("kind", PATHS)
async def test_a_queue_that_holds_nothing_is_a_warning(kind: str) -> None:
    """The object is admitted; the queue may be created later."""
    async with reviewing_webhook() as (served, _):
        served.cache.queues.put("open", "", "open")
        served.cache.queues.mark_listed()
        answer = await asked(served, kind, made(kind, "opem"))
        assert answer["allowed"]
        [warning] = answer["warnings"]
        assert warning.startswith(f"metadata.labels[{QUEUE}]: queue 'opem' does not exist")


async def test_a_new_job_is_validated_after_the_patch() -> None:
    """In the queue that admission gave it; an update is validated by a review of its own."""
    async with reviewing_webhook() as (served, _):
        labels = Meta(name="here", labels={QUEUE: "of-the-namespace"})
        served.cache.put_namespace(labels)
        served.cache.queues.put("open", "", "open")
        served.cache.queues.mark_listed()
        obj = batch_job(namespace="here", annotations={"gpu-fraction": "0.5"})
        body = review(obj, JOB, userInfo=USER, namespace="here")
        answer = await served.review(PATHS["Job"], body)
        queue, share = answer["warnings"]
        assert queue.startswith(
            f"metadata.labels[{QUEUE}]: queue 'of-the-namespace' does not exist"
        )
        assert share.startswith("metadata.annotations[gpu-fraction]: has no effect on the pods")

        marked = {"trainer-kai.dev/admitted": "v1", "gpu-fraction": "0.5"}
        now = batch_job(namespace="here", annotations=marked)
        before = batch_job(namespace="here", annotations={"trainer-kai.dev/admitted": "v1"})
        body = review(now, JOB, before, userInfo=USER, namespace="here")
        assert "warnings" not in await served.review(PATHS["Job"], body)
