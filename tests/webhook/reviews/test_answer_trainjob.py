"""Reviews of TrainJobs over real TLS: access to queues, and lookups that fail."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from tests.support.fakes.recording_transport import ClientRun, json_answer
from tests.webhook.objects import QUEUE, Obj
from tests.webhook.served_webhook import serving
from tests.webhook.trainjob_reviews import PATH, FakeLookups, ReviewResult, ask, reviewing_webhook
from tests.webhook.trainjobs import (
    CLUSTER_RUNTIME,
    NAMESPACE_RUNTIME,
    ONE_JOB,
    body,
    patch,
    runtime,
    submitted,
    watched_runtime,
)
from trainer_kai.api.meta import Key
from webhook.reviews import answer_trainjob
from webhook.reviews.answer_trainjob import live_lookups
from webhook.rules.access_requests import AccessCache, QueueAccessRequest, UserInfo

LABEL = "metadata.labels[kai.scheduler/queue]"
CLOSED = (
    "may not use queue 'b': the queue is closed (annotation trainer-kai.dev/access of queue "
    "b). Name another queue, or ask an administrator to run: trainer-kai queue allow b -n team"
)
FORBIDDEN = f"user 'ann' {CLOSED} --user ann"
UNASKED = (
    f"{LABEL}: access of user 'ann' to queue 'b' cannot be checked: POST /reviews: no response: "
    "no connection. Try again"
)
EXTRA = (("from", ("office",)),)
FREE = ReviewResult(0, "", [])


def of_ann(queue: str, namespace: str = "team") -> QueueAccessRequest:
    return QueueAccessRequest("ann", "", ("people",), EXTRA, namespace, queue)


def of_all(queue: str, namespace: str = "team") -> QueueAccessRequest:
    return QueueAccessRequest(
        "", "", (f"system:serviceaccounts:{namespace}",), (), namespace, queue
    )


BOTH = f"user 'ann' and namespace 'team' {CLOSED} --user ann"
# queues that ann may use, that the namespace may use -> the answer about queue b
USER_INFO: list[Case[tuple[str, str], ReviewResult]] = [
    Case("it is allowed if both may", ("b", "b"), FREE),
    Case("the user may not", ("a", "b"), ReviewResult(403, f"{LABEL}: {FORBIDDEN}", [])),
    Case(
        "the namespace may not",
        ("b", "a"),
        ReviewResult(403, f"{LABEL}: namespace 'team' {CLOSED}", []),
    ),
    Case("it is refused if neither may", ("a", "a"), ReviewResult(403, f"{LABEL}: {BOTH}", [])),
]


@pytest.mark.parametrize("case", USER_INFO, ids=ids)
async def test_a_closed_queue_is_used_with_a_grant(
    case: Case[tuple[str, str], ReviewResult],
) -> None:
    """The refusal names user and namespace, and the command that grants what is missing."""
    lookups = FakeLookups()
    lookups.allowed, lookups.granted = map(set, case.given)
    async with reviewing_webhook(lookups) as (served, _):
        assert await ask(served, submitted({QUEUE: "b"})) == case.want
        assert lookups.access_requests == [of_ann("b"), of_all("b")]


# annotation of both queues, access without one -> whether it is denied
OPEN: list[Case[tuple[str | None, Any], bool]] = [
    Case("the default open opens both queues", (None, "open"), False),
    Case("an annotation opens a queue", ("open", "open"), False),
    Case("annotated open, others are closed", ("open", "closed"), False),
    Case("not annotated, and closed", (None, "closed"), True),
    Case("annotated with something else", ("opne", "open"), True),
]


@pytest.mark.parametrize("case", OPEN, ids=ids)
async def test_of_an_open_queue_nothing_is_asked(
    case: Case[tuple[str | None, Any], bool],
) -> None:
    """And nothing is told, even while the API server is away."""
    access, unannotated = case.given
    lookups = FakeLookups()
    lookups.is_away = not case.want
    async with reviewing_webhook(lookups, access, unannotated=unannotated) as (served, _):
        result = await ask(served, submitted({QUEUE: "b"}))

        assert (result.code == 403) is case.want
        assert bool(lookups.access_requests) is case.want
        assert (
            result == FREE
            or "or ask an administrator to run: trainer-kai queue allow b" in result.message
        )


async def test_a_queue_that_others_name_is_asked_of_the_namespace() -> None:
    """Its pods would wait for ever; the user that submits it did not choose it."""
    async with reviewing_webhook() as (served, lookups):
        served.cache.queues.put("default-queue", "", "closed")
        result = await ask(served, submitted())

        assert (result.code, lookups.access_requests) == (403, [of_all("default-queue")])
        assert result.message.startswith(f"{LABEL}: namespace 'team' may not use")


async def test_a_queue_below_a_closed_one_is_closed() -> None:
    """Unless it says that it is open; the refusal names the queue that says it."""
    async with reviewing_webhook(access=None) as (served, lookups):
        served.cache.queues.put("top", "", "closed")
        served.cache.queues.put("b", "top")
        result = await ask(served, submitted({QUEUE: "b"}))
        assert result.code == 403
        assert "trainer-kai.dev/access of queue top" in result.message
        served.cache.queues.put("b", "top", "open")
        assert await ask(served, submitted({QUEUE: "b"})) == FREE
        assert len(lookups.access_requests) == 2


async def test_a_denial_gives_its_reason() -> None:
    """The API server passes it on to kubectl; and it is counted."""
    async with reviewing_webhook() as (served, _):
        response = await served.review(PATH, body(submitted({QUEUE: "b"})))

        assert response["status"]["reason"] == "Forbidden"
        assert served.count("admission_permissions_total", outcome="refused") == 1
        assert served.count("admission_permissions_total", outcome="allowed") == 1
        assert served.count("admission_reviews_total", kind="trainjob", outcome="denied") == 1


SLOW = f"{LABEL}: access of user 'ann' to queue 'b' cannot be checked: no answer within 0.9 s"
DOUBT: list[Case[tuple[str | None, str], ReviewResult]] = [
    Case("a closed queue is not guessed", ("closed", "away"), ReviewResult(503, UNASKED, [])),
    Case("closed, and slow", ("closed", "slow"), ReviewResult(503, f"{SLOW}. Try again", [])),
    Case("a queue without annotation stays free", (None, "away"), FREE),
]


@pytest.mark.parametrize("case", DOUBT, ids=ids)
async def test_when_it_cannot_be_asked(case: Case[tuple[str | None, str], ReviewResult]) -> None:
    """Only of a closed queue a TrainJob is kept back, never for longer than that."""
    access, problem = case.given
    lookups = FakeLookups()
    lookups.is_away, lookups.takes_s = problem == "away", 5.0 if problem == "slow" else 0.0
    async with reviewing_webhook(lookups, access) as (served, _):
        assert await ask(served, submitted({QUEUE: "b"})) == case.want


async def test_a_slow_review_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is slow for one TrainJob holds no other up."""
    monkeypatch.setattr(answer_trainjob, "LOOKUP_TIMEOUT_S", 600.0)
    lookups = FakeLookups()
    lookups.takes_s = 600.0
    async with reviewing_webhook(lookups) as (served, _):
        slow = asyncio.create_task(ask(served, submitted({QUEUE: "b"})))
        while not lookups.access_requests:
            await asyncio.sleep(0.001)
        assert (await ask(served, submitted())).code == 0
        assert not slow.done()
        slow.cancel()
        await asyncio.wait([slow])


async def test_it_is_asked_once_for_many() -> None:
    """A user with two hundred at once is checked once; another user again."""
    lookups = FakeLookups()
    lookups.takes_s = 0.05
    async with reviewing_webhook(lookups) as (served, _):
        result = await asyncio.gather(*(ask(served, submitted({QUEUE: "a"})) for _ in range(50)))
        assert {it.code for it in result} == {0}
        assert lookups.access_requests == [of_ann("a"), of_all("a")]

        await ask(served, submitted({QUEUE: "a"}), user_info={"username": "eve"})
        await ask(served, submitted({QUEUE: "a"}), namespace="other")
        assert [(it.user, it.namespace) for it in lookups.access_requests[2:]] == [
            ("eve", "team"),
            ("ann", "other"),
            ("", "other"),
        ]


async def test_a_failure_is_not_remembered() -> None:
    """The next one asks again."""
    lookups = FakeLookups()
    lookups.is_away = True
    async with reviewing_webhook(lookups) as (served, _):
        assert (await ask(served, submitted({QUEUE: "a"}))).code == 503
        lookups.is_away = False
        assert (await ask(served, submitted({QUEUE: "a"}))).code == 0


ASLEEP, RUNS = submitted({QUEUE: "b"}, suspend=True), submitted({QUEUE: "b"})
UPDATES = [
    Case("a suspension asks nothing", (ASLEEP, RUNS), 0),
    Case("a resumption asks nothing", (RUNS, ASLEEP), 0),
    Case(
        "another annotation asks nothing",
        (submitted({QUEUE: "b"}, annotations={"a": "b"}), RUNS),
        0,
    ),
    Case(
        "patched by a controller",
        (submitted({QUEUE: "b"}, runtimePatches=[patch(annotations={"a": "b"})]), ASLEEP),
        0,
    ),
    Case(
        "a move to another queue asks again", (ASLEEP, submitted({QUEUE: "a"}, suspend=True)), 403
    ),
]


@pytest.mark.parametrize("case", UPDATES, ids=ids)
async def test_a_user_does_not_answer_for_the_choice_of_another(
    case: Case[tuple[Obj, Obj], int],
) -> None:
    """Only the user that changes the queue is checked, and only for the new one."""
    obj, old = case.given
    async with reviewing_webhook() as (served, lookups):
        user_info = {"username": "system:serviceaccount:kueue-system:kueue"}
        assert (await ask(served, obj, old, user_info)).code == case.want
        assert len(lookups.access_requests) == (2 if case.want else 0)


async def test_a_runtime_of_ones_own_names_a_queue() -> None:
    """It is read as it is now: the cache may be a moment behind the user's change."""
    lookups = FakeLookups()
    lookups.runtimes[NAMESPACE_RUNTIME] = runtime(labels={QUEUE: "b"})
    async with reviewing_webhook(lookups) as (served, _):
        served.cache.runtimes.put(
            watched_runtime(
                {"metadata": {"labels": {QUEUE: "a"}}, **ONE_JOB}, key=NAMESPACE_RUNTIME
            )
        )
        result = await ask(served, submitted(own=True))

        assert result == ReviewResult(403, f"spec.runtimeRef: {FORBIDDEN}", [])
        assert lookups.reads == [NAMESPACE_RUNTIME]
        assert served.count("admission_live_reads_total", outcome="found") == 1


async def test_what_the_cache_knows_is_not_read() -> None:
    """A runtime of the cluster, or any where what the TrainJob says of queues stays the same."""
    async with reviewing_webhook() as (served, lookups):
        served.cache.runtimes.put(watched_runtime(ONE_JOB, key=NAMESPACE_RUNTIME))
        await ask(served, submitted())
        await ask(
            served,
            submitted({QUEUE: "a"}, own=True, suspend=True),
            submitted({QUEUE: "a"}, own=True),
        )

        assert lookups.reads == []


UNREADABLE = (
    "spec.runtimeRef: the queue of the runtime is unknown: GET team/own: 404 NotFound: not "
    "found. Try again"
)
UNREAD: list[Case[tuple[str | None, Any, Obj], ReviewResult]] = [
    Case("there are closed queues", ("closed", "open", {}), ReviewResult(503, UNREADABLE, [])),
    Case("all are closed", (None, "closed", {}), ReviewResult(503, UNREADABLE, [])),
    Case("there are none", (None, "open", {}), FREE),
    Case("all are open", ("open", "open", {}), FREE),
    Case("with a label", ("closed", "open", {QUEUE: "a"}), ReviewResult(503, UNREADABLE, [])),
]


@pytest.mark.parametrize("case", UNREAD, ids=ids)
async def test_a_runtime_that_cannot_be_read_lets_no_queue_pass(
    case: Case[tuple[str | None, Any, Obj], ReviewResult],
) -> None:
    """It might name one that is closed to its author."""
    access, unannotated, labels = case.given
    async with reviewing_webhook(access=access, unannotated=unannotated) as (served, _):
        assert await ask(served, submitted(labels, own=True)) == case.want


async def test_a_runtime_missing_from_the_cache_is_read() -> None:
    """Whichever the switch: it may ask for two schedulers."""
    lookups = FakeLookups()
    lookups.runtimes[CLUSTER_RUNTIME] = runtime(policy={"volcano": {}})
    async with serving(live=lookups.live) as served:
        result = await ask(served, submitted({QUEUE: "a"}))

        assert (result.code, lookups.reads) == (422, [CLUSTER_RUNTIME])
        assert result.message.startswith("spec.runtimeRef: two schedulers are requested")


@pytest.mark.parametrize("user_info", [None, 5, {"groups": "people"}], ids=str)
async def test_user_info_is_required(user_info: Any) -> None:
    async with reviewing_webhook() as (served, lookups):
        result = await ask(served, submitted({QUEUE: "a"}), user_info=user_info)

        assert result.code == 503
        assert result.message.startswith("request.userInfo: ")
        assert lookups.access_requests == []


MISTAKE = (
    "trainer-kai had an internal error: this TrainJob was not validated. The log of the webhook "
    "shows the error"
)
UNDECIDED = ReviewResult(503, MISTAKE, [])
UNSEEN = ReviewResult(0, "", [MISTAKE])
MISTAKES: list[Case[tuple[str | None, Obj | None], ReviewResult]] = [
    Case("no closed queues", (None, None), UNSEEN),
    Case("a mistake decides nothing of closed queues", ("closed", None), UNDECIDED),
    Case("closed queues, and it is there", ("closed", submitted(suspend=True)), UNSEEN),
]


@pytest.mark.parametrize("case", MISTAKES, ids=ids)
async def test_a_mistake_of_ours(
    case: Case[tuple[str | None, Obj | None], ReviewResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets no TrainJob in unseen, and keeps back none that is there; the log has it whole."""
    access, old = case.given
    async with reviewing_webhook(access=access) as (served, _):
        monkeypatch.setattr(served.cache.runtimes, "summary", broken)
        with capture_logs() as logs:
            result = await ask(served, submitted({QUEUE: "a"}), old)

        assert result == case.want
        assert served.count("admission_reviews_total", kind="trainjob", outcome="failed") == 1
    assert [it["event"] for it in logs] == ["review failed"]


def broken(_: Key) -> None:
    raise ZeroDivisionError


async def test_a_dry_run_is_answered_alike() -> None:
    """Nothing of it is written anywhere."""
    async with reviewing_webhook() as (served, _):
        result = [await ask(served, submitted({QUEUE: "b"}), dryRun=dry) for dry in (True, False)]

    assert result[0] == result[1]


def test_a_yes_holds_for_a_minute_and_a_no_for_a_moment() -> None:
    """A user with a new grant need not wait for long."""
    answers, user_info = AccessCache(), UserInfo(username="ann")
    yes, no = (QueueAccessRequest.for_user(user_info, "team", queue) for queue in "ab")
    answers.put(yes, 100.0, is_allowed=True)
    answers.put(no, 100.0, is_allowed=False)

    held = [(answers.get(yes, at), answers.get(no, at)) for at in (104.9, 105.1, 159.9, 160.1)]

    assert held == [(True, False), (True, None), (True, None), (None, None)]


def test_there_is_room_for_so_many_answers() -> None:
    """The oldest goes; memory does not grow with the number of users."""
    answers, user_info = AccessCache(), UserInfo(username="ann")
    for number in range(5000):
        answers.put(
            QueueAccessRequest.for_user(user_info, "team", f"q{number}"), 0.0, is_allowed=True
        )

    assert len(answers) == 4096
    assert answers.get(QueueAccessRequest.for_user(user_info, "team", "q0"), 1.0) is None
    assert answers.get(QueueAccessRequest.for_user(user_info, "team", "q4999"), 1.0) is True


async def test_what_is_asked_of_the_api_server() -> None:
    """The verb, the queue, the namespace, and all that is known of the user; once, in time."""
    run = ClientRun(json_answer({"status": {"allowed": True}}))
    user_info = UserInfo(username="ann", uid="u", groups=("people",), extra={"from": ("office",)})

    assert await live_lookups(run.client, asyncio.Semaphore(1)).may_use_queue(
        QueueAccessRequest.for_user(user_info, "team", "a")
    )
    assert run.request_lines == ["POST /apis/authorization.k8s.io/v1/subjectaccessreviews"]
    assert run.transport.bodies[0]["spec"] == {
        "resourceAttributes": {
            "verb": "use",
            "group": "scheduling.run.ai",
            "resource": "queues",
            "name": "a",
            "namespace": "team",
        },
        "user": "ann",
        "groups": ["people"],
        "uid": "u",
        "extra": {"from": ["office"]},
    }
    assert run.transport.timeouts_s == [0.8]


async def test_which_runtime_is_read() -> None:
    """One of the namespace, or one of the cluster."""
    found = {"metadata": {}, "spec": {"podGroupPolicy": {"kaiScheduler": {"queue": "r"}}}}
    run = ClientRun(json_answer({"metadata": {}, "items": [found]}))
    read = live_lookups(run.client, asyncio.Semaphore(1)).runtime

    runtimes = [await read(key) for key in (NAMESPACE_RUNTIME, CLUSTER_RUNTIME)]

    assert [it.queue for it in runtimes if it] == ["r", "r"]
    prefix, suffix = "GET /apis/trainer.kubeflow.org/v1alpha1", "&limit=500"
    assert run.request_lines == [
        f"{prefix}/namespaces/team/trainingruntimes?fieldSelector=metadata.name%3Down{suffix}",
        f"{prefix}/clustertrainingruntimes?fieldSelector=metadata.name%3Dtorch{suffix}",
    ]
