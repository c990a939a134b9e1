"""Reviews of queues over real TLS: live lookups, lookups that fail or are slow, and dry runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.support.fakes.recording_transport import ClientRun, json_answer
from tests.webhook.objects import UID, Obj, recorded, review
from tests.webhook.served_webhook import ServedWebhook, serving
from trainer_kai.api.decode import Page, decode, encode
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Condition, Key, Meta, OwnerReference
from trainer_kai.api.trainjob import TrainJobStatus
from trainer_kai.kube.rest.response import ErrorDetails, NotFound, Unavailable
from webhook.cache.admission_cache import SlimTrainJob
from webhook.reviews.answer_queue import QueueLookups, queue_lookups
from webhook.rules.queue_validate import SlimPodGroup, SlimPodGroupSpec

PATH = "/validate/queue"
QUEUE = {"group": "scheduling.run.ai", "version": "v2", "kind": "Queue"}
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
AWAY = Unavailable(ErrorDetails("GET", 0, "", "no connection"))


def queue(name: str, parent: str = "", **fields: Any) -> Obj:
    """Return a queue without limits; *fields* are of its metadata, or its status."""
    spec: Obj = {"resources": {"gpu": FREE, "cpu": FREE, "memory": FREE}}
    if parent:
        spec["parentQueue"] = parent
    status = fields.pop("status", {})
    return {"metadata": {"name": name, **fields}, "spec": spec, "status": status}


class FakeCluster:
    """Queues and PodGroups; their lists can fail, be slow, or break after the first page."""

    def __init__(self, *queues: Obj) -> None:
        self.queues = {it["metadata"]["name"]: decode(Queue, encode(it)) for it in queues}
        self.groups: list[SlimPodGroup] = []
        self.lists: list[str] = []
        self.queues_error: Exception | None = None
        self.groups_error: Exception | None = None
        self.takes_s = 0.0

    def use(self, queue_name: str, *owners: str) -> "FakeCluster":
        for name in owners:
            owner = OwnerReference(kind="JobSet", name=name)
            meta = Meta(namespace="vision", name=f"pg-{name}", owner_references=(owner,))
            self.groups.append(SlimPodGroup(metadata=meta, spec=SlimPodGroupSpec(queue_name)))
        return self

    @property
    def live(self) -> QueueLookups:
        return QueueLookups(self._queues, self._pages)

    async def _queues(self) -> Mapping[str, Queue]:
        self.lists.append("queues")
        if self.queues_error:
            raise self.queues_error
        return self.queues

    async def _pages(self) -> AsyncIterator[Page[SlimPodGroup]]:
        self.lists.append("podgroups")
        yield Page(items=tuple(self.groups))
        await asyncio.sleep(self.takes_s)
        if self.groups_error:
            raise self.groups_error
        yield Page()


async def ask(served: ServedWebhook, obj: Obj, operation: str, **fields: Any) -> tuple[int, str]:
    is_deletion = operation == "DELETE"
    new, old = (None, obj) if is_deletion else (obj, fields.pop("old", None))
    body = review(new, QUEUE, old, **{"operation": operation, "namespace": "", **fields})
    response = await served.review(PATH, body)
    assert "patch" not in response
    status = response.get("status", {})
    assert response["allowed"] == (not status)
    told = [status.get("message", ""), *response.get("warnings", ())]
    return status.get("code", 0), "\n".join(filter(None, told))


async def test_a_queue_in_use_is_not_deleted() -> None:
    """Nor is a queue above it; the annotation allows it, and nothing is read then."""
    cluster = FakeCluster(queue("top"), queue("team-a", "top")).use("team-a", "job")
    async with serving(queues=cluster.live) as served:
        code, message = await ask(served, queue("team-a", "top"), "DELETE")
        assert (code, "1 PodGroup names it (of vision/job)" in message) == (403, True)
        code, message = await ask(served, queue("top"), "DELETE", dryRun=True)
        assert (code, "(queues below it: team-a)" in message) == (403, True)
        assert served.count("admission_live_reads_total", outcome="found") == 4
        assert served.count("admission_reviews_total", kind="queue", outcome="denied") == 2

        cluster.lists.clear()
        allowed = {"trainer-kai.dev/allow-delete": "true"}
        assert await ask(served, queue("top", annotations=allowed), "DELETE") == (0, "")
        assert cluster.lists == []


async def test_an_unused_tree_is_deleted_in_any_order() -> None:
    """The parent first, with a warning; the children first, without one."""
    cluster = FakeCluster(queue("top"), queue("team-a", "top"), queue("used")).use("used", "job")
    async with serving(queues=cluster.live) as served:
        code, message = await ask(served, queue("top"), "DELETE")
        assert (code, "the queues below top take no pods" in message) == (0, True)
        assert await ask(served, queue("team-a", "top"), "DELETE") == (0, "")
        del cluster.queues["team-a"]
        assert await ask(served, queue("top"), "DELETE") == (0, "")


async def test_a_trainjob_that_has_finished_does_not_use_its_queue() -> None:
    """Its PodGroups stay until it is deleted."""
    cluster = FakeCluster(queue("team-a")).use("team-a", "done")
    finished = TrainJobStatus(conditions=(Condition(type="Complete", status="True"),))
    job = SlimTrainJob(metadata=Meta(name="done", namespace="vision", uid=UID), status=finished)
    async with serving(queues=cluster.live) as served:
        assert (await ask(served, queue("team-a"), "DELETE"))[0] == 403
        served.cache.put_trainjob(job)
        assert await ask(served, queue("team-a"), "DELETE") == (0, "")


async def test_namespaces_and_the_default_are_named() -> None:
    """What names a queue that is deleted waits."""
    cluster = FakeCluster(queue("default-queue"))
    async with serving(queues=cluster.live) as served:
        labels = {"kai.scheduler/queue": "default-queue"}
        served.cache.put_namespace(Meta(name="vision", labels=labels))
        code, message = await ask(served, queue("default-queue"), "DELETE")
        assert code == 0
        assert "(vision)" in message
        assert "default-queue is the default queue" in message


@pytest.mark.parametrize("error", [AWAY, None], ids=["fails", "is slow"])
async def test_what_is_not_found_out_in_time_is_said(error: Exception | None) -> None:
    """The queue is deleted, unless a user was found before."""
    cluster = FakeCluster(queue("team-a"), queue("team-b")).use("team-b", "job")
    cluster.groups_error, cluster.takes_s = error, 0.0 if error else 5.0
    async with serving(queues=cluster.live) as served:
        code, message = await ask(served, queue("team-a"), "DELETE")
        assert (code, "is deleted without a complete check" in message) == (0, True)
        code, message = await ask(served, queue("team-b"), "DELETE")
        assert (code, "at least 1 PodGroup names it" in message) == (403, True)
        assert served.count("admission_live_reads_total", outcome="failed") == 2


async def test_without_the_kind_podgroup_nothing_uses_a_queue() -> None:
    """The CRD may not be installed."""
    cluster = FakeCluster(queue("team-a"))
    cluster.groups_error = NotFound(ErrorDetails("GET", 404, "NotFound", "not found"))
    async with serving(queues=cluster.live) as served:
        assert await ask(served, queue("team-a"), "DELETE") == (0, "")


async def test_queues_are_taken_from_the_cache_if_they_cannot_be_listed() -> None:
    """A cycle is then a warning."""
    cluster = FakeCluster()
    cluster.queues_error = AWAY
    async with serving(queues=cluster.live) as served:
        cached = served.cache.cluster
        cached.put_queue(decode(Queue, encode(queue("team-a", "top"))))
        cached.mark_listed("queues")
        written = queue("top", "team-a")
        code, message = await ask(served, written, "UPDATE", old=queue("top"))
        assert (code, "would be below itself" in message) == (0, True)
        code, message = await ask(served, queue("top"), "DELETE")
        assert (code, "the queues below top take no pods" in message) == (0, True)


async def test_a_cycle_is_denied() -> None:
    """Nothing in it would ever start."""
    cluster = FakeCluster(queue("top"), queue("team-a", "top"))
    async with serving(queues=cluster.live) as served:
        code, message = await ask(served, queue("top", "team-a"), "UPDATE", old=queue("top"))
        assert (code, "would be below itself" in message) == (422, True)
        assert cluster.lists == ["queues"]


async def test_recorded_reviews_are_answered() -> None:
    """As the API server sends them: a creation, a change with four faults, a deletion."""
    cluster = FakeCluster(queue("default-parent-queue"))
    async with serving(queues=cluster.live) as served:
        created = await served.review(PATH, recorded("queue-create"))
        changed = await served.review(PATH, recorded("queue-update"))
        assert "warnings" not in created
        assert [it.partition(":")[0] for it in changed["warnings"]] == [
            "spec.resources.gpu.overQuotaWeight",
            "spec.resources.gpu.quota",
            "spec.resources.cpu.limit",
        ]
        assert await served.review(PATH, recorded("queue-delete")) == {
            "uid": json.loads(recorded("queue-delete"))["request"]["uid"],
            "allowed": True,
        }


async def test_the_lookups_list_queues_and_pages_of_podgroups() -> None:
    """Of a PodGroup only its metadata and its queue."""
    group = {"metadata": {"namespace": "vision", "name": "pg"}, "spec": {"queue": "team-a"}}
    run = ClientRun(
        json_answer({"items": [queue("team-a")]}),
        json_answer({"items": [group], "metadata": {"continue": "more"}}),
        json_answer({"items": []}),
    )
    live = queue_lookups(run.client)

    assert set(await live.queues()) == {"team-a"}
    found = [it async for page in live.podgroup_pages() for it in page.items]
    assert [(it.workload, it.spec.queue) for it in found] == [(Key("vision", "pg"), "team-a")]
    groups = "GET /apis/scheduling.run.ai/v2alpha2/podgroups?limit=200"
    assert run.request_lines == [
        "GET /apis/scheduling.run.ai/v2/queues?limit=500",
        groups,
        f"{groups}&continue=more",
    ]
