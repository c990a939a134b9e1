"""The server, asked over real TLS: whatever is sent, an answer comes, and it is never a 500."""

import asyncio
import base64
import io
import json
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.recording_transport import RecordingTransport, json_answer
from tests.support.machine_speed import slowdown_now
from tests.webhook.objects import JOBSET, POD, QUEUE, jobset, pod, recorded, review
from tests.webhook.served_webhook import KEY, ServedWebhook, client_tls, serving, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.response import ErrorDetails, Unavailable
from webhook.cache.admission_cache import TrainJobSummary, summarize_trainjob
from webhook.reviews.answer_trainjob import trainjob_reader
from webhook.server import MAX_BODY_BYTES

JOBSETS = "/mutate/jobset"
PODS = "/mutate/pod"
LIMIT = f"a review has at most {MAX_BODY_BYTES} bytes"


def operations(response: dict[str, Any]) -> list[dict[str, Any]]:
    patch: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    return patch


def queue_of(response: dict[str, Any]) -> str:
    added = {it["path"]: it["value"] for it in operations(response)}
    queue: str = added["/metadata/labels"][QUEUE]
    return queue


def updated() -> bytes:
    obj = jobset(annotations={"trainer-kai.dev/admitted": "v1"}, suspend=True)
    return review(obj, JOBSET, obj)


async def away(_: Key) -> TrainJobSummary | None:
    raise Unavailable(ErrorDetails("GET /job", 0, "", "no connection"))


async def test_a_pod_is_answered() -> None:
    """The uid comes back, the patch applies."""
    async with serving() as served:
        response = await served.review(PODS, review(pod(), POD))

        assert response["uid"] == "uid-of-the-review"
        assert response["allowed"]
        assert [it["path"] for it in operations(response)] == [
            "/metadata/annotations",
            "/metadata/labels/kai.scheduler~1subgroup-name",
        ]
        assert served.count("admission_reviews_total", kind="pod", outcome="patched") == 1
        assert served.count("admission_review_seconds_count", kind="pod") == 1
        assert not served.reads


async def test_a_cached_trainjob_is_not_read() -> None:
    """At creation, when it is the owner by its uid."""
    async with serving() as served:
        served.cache.put_trainjob(trainjob(queue="t"))

        assert queue_of(await served.review(JOBSETS, review(jobset(), JOBSET))) == "t"
        assert not served.reads


READS = [
    Case("one that is not cached", (None, trainjob(queue="live")), "live"),
    Case("one that is cached by another uid", (trainjob("x"), trainjob(queue="live")), "live"),
    Case("one that is gone", (None, None), "default-queue"),
    Case("one that came after it", (None, trainjob("x", queue="later")), "default-queue"),
]


@pytest.mark.parametrize("case", READS, ids=ids)
async def test_a_trainjob_is_read_when_the_cache_may_be_behind(case: Case[Any, str]) -> None:
    """Once, and what is read counts only if it is the owner."""
    cached, live = case.given

    async def read(_: Key) -> TrainJobSummary | None:
        return summarize_trainjob(live) if live else None

    async with serving(read) as served:
        if cached:
            served.cache.put_trainjob(cached)

        assert queue_of(await served.review(JOBSETS, review(jobset(), JOBSET))) == case.want
        assert list(served.reads) == [KEY]


async def test_an_update_while_suspended_reads_always() -> None:
    """The label may have changed a moment ago."""

    async def read(_: Key) -> TrainJobSummary | None:
        return summarize_trainjob(trainjob(queue="new"))

    async with serving(read) as served:
        served.cache.put_trainjob(trainjob(queue="old"))

        assert queue_of(await served.review(JOBSETS, updated())) == "new"
        assert served.count("admission_live_reads_total", outcome="found") == 1


async def test_what_is_not_ours_reads_nothing() -> None:
    async with serving(away) as served:
        body = review(jobset(ownerReferences=[]), JOBSET)

        assert await served.review(JOBSETS, body) == {"uid": "uid-of-the-review", "allowed": True}
        assert not served.reads


async def test_a_creation_waits_for_an_api_server_that_is_away() -> None:
    """Trainer tries again; the JobSet is not made without its queue."""
    async with serving(away) as served:
        response = await served.review(JOBSETS, review(jobset(), JOBSET))

        assert not response["allowed"]
        assert response["status"]["code"] == 503
        assert "team/job cannot be read: GET /job: no response" in response["status"]["message"]
        assert served.count("admission_live_reads_total", outcome="failed") == 1


async def test_an_update_does_not_wait() -> None:
    """What exists stays as it is, with a warning."""
    async with serving(away) as served:
        response = await served.review(JOBSETS, updated())

        assert response["allowed"]
        assert "patch" not in response
        assert response["warnings"][0].startswith(
            "the queue of the JobSet is not changed: TrainJob team/job"
        )


REFUSED: list[Case[tuple[str, str, bytes], tuple[int, str]]] = [
    Case(
        "an unknown path",
        ("POST", "/mutate", b"{}"),
        (
            404,
            "unknown path: reviews are answered at /mutate/pod, /validate/trainjob, /mutate/jobset",
        ),
    ),
    Case("a GET is refused", ("GET", PODS, b""), (405, "a review must be sent with POST")),
    Case(
        "a body that is no JSON is refused",
        ("POST", PODS, b"hello"),
        (400, "not an AdmissionReview: is not valid JSON"),
    ),
    Case(
        "an empty body is refused",
        ("POST", JOBSETS, b""),
        (400, "not an AdmissionReview: is not valid JSON"),
    ),
    Case(
        "a body that is no review is refused",
        ("POST", JOBSETS, b"{}"),
        (400, "apiVersion and kind are '' ''"),
    ),
    Case(
        "a body above the limit is refused",
        ("POST", PODS, b" " * (MAX_BODY_BYTES + 1)),
        (413, LIMIT),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
async def test_what_is_no_review(case: Case[tuple[str, str, bytes], tuple[int, str]]) -> None:
    """HTTP says it, with what would be right; and the next review is answered."""
    method, path, body = case.given
    async with serving() as served:
        async with served.session.request(
            method, served.url + path, data=io.BytesIO(body)
        ) as response:
            status, text = response.status, await response.text()

        assert (status, text[: len(case.want[1])]) == case.want
        assert (await served.review(PODS, review(pod(), POD)))["allowed"]


async def test_a_body_in_pieces_has_the_same_limit() -> None:
    """Its length is not known beforehand."""

    async def pieces() -> Any:
        for _ in range(MAX_BODY_BYTES // (1 << 20) + 1):
            yield b" " * (1 << 20)

    async with serving() as served:
        assert await served.post(PODS, pieces()) == (413, LIMIT)


async def test_a_long_review_is_read() -> None:
    """Longer than what aiohttp takes by itself."""
    body = review(pod(annotations={"x": "y" * (3 << 20)}), POD)

    async with serving() as served:
        assert (await served.review(PODS, body))["allowed"]


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """A client that sends half of one gets a status."""
    head = b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    async with serving(read_s=1.0) as served:
        reply = await asyncio.wait_for(_talk(served, head), 60)

    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b"the request body did not arrive within 1 s" in reply


@pytest.mark.parametrize(
    "text", [b"\x00\x01\x02\r\n\r\n", b"POST\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 20_000]
)
async def test_what_is_no_http_gets_an_error(text: bytes) -> None:
    """By a status, and the connection ends."""
    async with serving() as served:
        reply = await asyncio.wait_for(_talk(served, text), 60)

    assert reply.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))


async def _talk(served: ServedWebhook, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", served.server.port, ssl=client_tls(), server_hostname="127.0.0.1"
    )
    writer.write(text)
    reply = await reader.read()
    writer.close()
    return reply


async def test_a_mistake_of_ours_stops_only_what_is_being_made() -> None:
    """It is logged with its traceback; there is no 500."""

    async def broken(_: Key) -> TrainJobSummary | None:
        raise ZeroDivisionError

    async with serving(broken) as served:
        with capture_logs() as logs:
            created = await served.review(JOBSETS, review(jobset(), JOBSET))
            existing = await served.review(JOBSETS, updated())

        assert (created["allowed"], created["status"]["code"]) == (False, 503)
        assert "this JobSet was not changed. " in created["status"]["message"]
        assert existing["allowed"]
        assert "patch" not in existing
        assert served.count("admission_reviews_total", kind="jobset", outcome="failed") == 2
    assert [(it["event"], type(it["exc_info"])) for it in logs] == [
        ("review failed", ZeroDivisionError)
    ] * 2


async def test_a_dry_run_is_answered_alike() -> None:
    """But only what is done is told."""
    async with serving() as served:
        with capture_logs() as logs:
            answers = [
                await served.review(JOBSETS, review(jobset(), JOBSET, dryRun=dry))
                for dry in (True, False)
            ]

    assert answers[0] == answers[1]
    assert [(it["event"], it["name"]) for it in logs] == [("workload patched", "team/job")]


async def test_the_body_of_a_real_review() -> None:
    """Byte for byte as the API server sent it."""
    body = recorded("jobset-create")
    async with serving() as served:
        response = await served.review(JOBSETS, body)

    assert response["uid"] == json.loads(body)["request"]["uid"]
    assert len(operations(response)) == 6


async def _ask_forever(served: ServedWebhook) -> None:
    while True:
        await served.post(PODS, review(pod(), POD))
        await asyncio.sleep(0.05)


async def test_every_review_is_answered_when_it_stops() -> None:
    """Open and new clients are answered for a while, then they find another replica."""
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Key) -> TrainJobSummary | None:
        waits.set()
        await goes_on.wait()
        return None

    async with serving(slow, drain_s=min(4.0, 0.5 * max(1.0, slowdown_now()))) as served:
        under_way = asyncio.create_task(served.review(JOBSETS, review(jobset(), JOBSET)))
        await waits.wait()
        stopping = asyncio.create_task(served.server.__aexit__())
        while not served.is_stopping:
            await asyncio.sleep(0)
        async with served.session.post(served.url + PODS, data=review(pod(), POD)) as response:
            meanwhile, header = await response.json(), response.headers.get("Connection")
        with pytest.raises(aiohttp.ClientError):  # the drain is over, and it listens no more
            await asyncio.wait_for(_ask_forever(served), 60)
        goes_on.set()
        last = await under_way
        await stopping

    assert meanwhile["response"]["allowed"]
    assert header == "close"
    assert last["allowed"]


async def test_a_port_that_is_taken_is_a_setting_that_cannot_work() -> None:
    """It ends the process with exit code 2."""
    async with serving() as served:
        with pytest.raises(ConfigError, match=r"server: cannot listen on 127.0.0.1, port"):
            async with serving(port=served.server.port):
                pass
    with pytest.raises(ConfigError, match=r"server.port: port 0 needs server.address"):
        async with serving(address=""):
            pass


async def test_without_tls_there_is_no_answer() -> None:
    """What is reviewed may be secret."""
    async with serving() as served, aiohttp.ClientSession() as plain:
        with pytest.raises(aiohttp.ClientError):
            await plain.get(f"http://127.0.0.1:{served.server.port}/")


async def test_a_live_read_is_bounded() -> None:
    """The API server gives us five seconds, and has to hear before."""
    clock = VirtualClock()
    found = {"metadata": {"name": "job", "namespace": "team", "uid": "u"}}
    reply = RecordingTransport(
        json_answer(found),
        json_answer({"kind": "Status"}, 404),
        json_answer({"kind": "Status"}, 503),
    )
    read = trainjob_reader(
        Client(RestConfig("https://nowhere", StaticToken("")), reply, clock, NoRequestObserver()),
        asyncio.Semaphore(1),
    )

    assert await read(KEY) == TrainJobSummary("u", {}, {}, Key("", ""))
    assert await read(KEY) is None
    waiting = asyncio.ensure_future(read(KEY))
    await clock.advance(2)
    with pytest.raises(Unavailable):
        waiting.result()
    assert set(reply.timeouts_s) == {1.5}
    assert str(reply.requests[0]) == (
        "GET /apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/job"
    )
