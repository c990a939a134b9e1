"""Reviews of TrainJobs over real TLS: who may use a queue, and what becomes of doubt."""

import asyncio
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.apiserver import Run, told
from tests.support.case import Case, ids
from tests.webhook.judging import PATH, Elsewheres, Said, ask, judging
from tests.webhook.objects import BUNDLED, QUEUE, Obj
from tests.webhook.serving import serving
from tests.webhook.trainjobs import (
    OWN,
    TORCH,
    body,
    patch,
    runtime,
    slim,
    submitted,
)
from trainer_kai.settings import Permission
from webhook.judge import Strictness, elsewhere
from webhook.permission import Answers, UserInfo, Wish

LABEL = "metadata.labels[kai.scheduler/queue]"
FORBIDDEN = (
    "'ann' may not use the queue 'b' in the namespace 'team': name another one, or have a role "
    "with the verb 'use' on queues.scheduling.run.ai 'b' bound there"
)
UNASKED = (
    f"{LABEL}: it cannot be asked whether 'ann' may use 'b': POST /reviews: no answer: nobody there"
)


MODES: list[Case[tuple[Permission, str], Said]] = [
    Case("enforced, his", ("enforce", "a"), Said(0, "", [])),
    Case("enforced, not his", ("enforce", "b"), Said(403, f"{LABEL}: {FORBIDDEN}", [])),
    Case("told, his", ("warn", "a"), Said(0, "", [])),
    Case("told, not his", ("warn", "b"), Said(0, "", [f"{LABEL}: {FORBIDDEN}"])),
    Case("off", ("off", "b"), Said(0, "", [])),
]


@pytest.mark.parametrize("case", MODES, ids=ids)
async def test_who_may_use_a_queue(case: Case[tuple[Permission, str], Said]) -> None:
    """It depends on the person, and a switch says what comes of it."""
    permission, queue = case.given
    async with judging(permission) as (asked, there):
        assert await ask(asked, submitted({QUEUE: queue})) == case.want
        extra = (("from", ("office",)),)
        wish = Wish("ann", "", ("people",), extra, "team", queue)
        assert there.wishes == ([] if permission == "off" else [wish])


async def test_a_refusal_is_told_with_its_reason() -> None:
    """The API server passes it on to kubectl; and it is counted."""
    async with judging() as (asked, _):
        response = await asked.review(PATH, body(submitted({QUEUE: "b"})))

        assert response["status"]["reason"] == "Forbidden"
        assert asked.count("admission_permissions_total", outcome="refused") == 1
        assert asked.count("admission_reviews_total", kind="trainjob", outcome="denied") == 1


DOUBT: list[Case[tuple[Permission, str], Said]] = [
    Case(
        "enforced",
        ("enforce", "away"),
        Said(
            503,
            f"{UNASKED}; try again",
            [],
        ),
    ),
    Case(
        "told",
        ("warn", "away"),
        Said(
            0,
            "",
            [UNASKED],
        ),
    ),
    Case(
        "enforced, and slow",
        ("enforce", "slow"),
        Said(
            503,
            f"{LABEL}: it cannot be asked whether 'ann' may use 'b': no answer within 0.9 s; try "
            "again",
            [],
        ),
    ),
    Case("off", ("off", "away"), Said(0, "", [])),
]


@pytest.mark.parametrize("case", DOUBT, ids=ids)
async def test_when_it_cannot_be_asked(case: Case[tuple[Permission, str], Said]) -> None:
    """Only where queues are enforced a TrainJob is kept back, never for longer than that."""
    permission, trouble = case.given
    there = Elsewheres()
    there.is_away, there.takes_s = trouble == "away", 5.0 if trouble == "slow" else 0.0
    async with judging(permission, there) as (asked, _):
        began_s = time.monotonic()
        assert await ask(asked, submitted({QUEUE: "b"})) == case.want
        assert time.monotonic() - began_s < 2


async def test_nobody_waits_for_who_waits() -> None:
    """An API server that is slow for one TrainJob holds no other up."""
    there = Elsewheres()
    there.takes_s = 5.0
    async with judging("enforce", there) as (asked, _):
        slow = asyncio.create_task(ask(asked, submitted({QUEUE: "b"})))
        await asyncio.sleep(0.05)
        began_s = time.monotonic()
        assert (await ask(asked, submitted())).code == 0
        assert time.monotonic() - began_s < 0.4
        assert not slow.done()
        assert (await slow).code == 503


async def test_it_is_asked_once_for_many() -> None:
    """Who submits two hundred at once is asked about once; another person is another question."""
    there = Elsewheres()
    there.takes_s = 0.05
    async with judging("enforce", there) as (asked, _):
        said = await asyncio.gather(*(ask(asked, submitted({QUEUE: "a"})) for _ in range(50)))
        assert {it.code for it in said} == {0}
        assert len(there.wishes) == 1

        await ask(asked, submitted({QUEUE: "a"}), who={"username": "eve"})
        await ask(asked, submitted({QUEUE: "a"}), namespace="other")
        assert [(it.user, it.namespace) for it in there.wishes[1:]] == [
            ("eve", "team"),
            ("ann", "other"),
        ]


async def test_a_failure_is_not_remembered() -> None:
    """The next one asks again."""
    there = Elsewheres()
    there.is_away = True
    async with judging("enforce", there) as (asked, _):
        assert (await ask(asked, submitted({QUEUE: "a"}))).code == 503
        there.is_away = False
        assert (await ask(asked, submitted({QUEUE: "a"}))).code == 0


ASLEEP, RUNS = submitted({QUEUE: "b"}, suspend=True), submitted({QUEUE: "b"})
UPDATES = [
    Case("suspended", (ASLEEP, RUNS), 0),
    Case("resumed", (RUNS, ASLEEP), 0),
    Case("annotated", (submitted({QUEUE: "b"}, annotations={"a": "b"}), RUNS), 0),
    Case(
        "patched by a controller",
        (submitted({QUEUE: "b"}, runtimePatches=[patch(annotations={"a": "b"})]), ASLEEP),
        0,
    ),
    Case("moved", (ASLEEP, submitted({QUEUE: "a"}, suspend=True)), 403),
]


@pytest.mark.parametrize("case", UPDATES, ids=ids)
async def test_nobody_answers_for_the_choice_of_another(case: Case[tuple[Obj, Obj], int]) -> None:
    """Only who changes the queue is asked about, and only about the new one."""
    obj, old = case.given
    async with judging() as (asked, there):
        who = {"username": "system:serviceaccount:kueue-system:kueue"}
        assert (await ask(asked, obj, old, who)).code == case.want
        assert len(there.wishes) == (1 if case.want else 0)


async def test_a_runtime_of_ones_own_names_a_queue() -> None:
    """It is read as it is now: the cache may be a moment behind whoever changed it."""
    there = Elsewheres()
    there.runtimes[OWN] = runtime(labels={QUEUE: "b"})
    async with judging("enforce", there) as (asked, _):
        asked.cache.put_runtime(slim({"metadata": {"labels": {QUEUE: "a"}}}, key=OWN))
        said = await ask(asked, submitted(own=True))

        assert said == Said(403, f"spec.runtimeRef: {FORBIDDEN}", [])
        assert there.reads == [OWN]
        assert asked.count("admission_live_reads_total", outcome="found") == 1


async def test_what_the_cache_knows_is_not_read() -> None:
    """A runtime of the cluster, or any where what the TrainJob says of queues stays the same."""
    async with judging() as (asked, there):
        asked.cache.put_runtime(slim({}, key=OWN))
        await ask(asked, submitted())
        await ask(
            asked,
            submitted({QUEUE: "a"}, own=True, suspend=True),
            submitted({QUEUE: "a"}, own=True),
        )

        assert there.reads == []


UNREADABLE = (
    "spec.runtimeRef: it cannot be read which queue it names: GET team/own: 404 NotFound: not found"
)
UNREAD: list[Case[tuple[Permission, Obj], Said]] = [
    Case("enforced", ("enforce", submitted(own=True)), Said(503, f"{UNREADABLE}; try again", [])),
    Case("told", ("warn", submitted(own=True)), Said(0, "", [UNREADABLE])),
    Case("off", ("off", submitted(own=True)), Said(0, "", [])),
    Case(
        "with a label",
        ("enforce", submitted({QUEUE: "a"}, own=True)),
        Said(503, f"{UNREADABLE}; try again", []),
    ),
]


@pytest.mark.parametrize("case", UNREAD, ids=ids)
async def test_a_runtime_that_cannot_be_read_lets_no_queue_pass(
    case: Case[tuple[Permission, Obj], Said],
) -> None:
    """It might name one that is not his."""
    permission, obj = case.given
    async with judging(permission) as (asked, _):
        assert await ask(asked, obj) == case.want


async def test_a_runtime_that_the_cache_lacks_is_read() -> None:
    """Whichever the switch: it may ask for two schedulers."""
    there = Elsewheres()
    there.runtimes[TORCH] = runtime(policy={"volcano": {}})
    async with serving(live=there.live) as asked:
        said = await ask(asked, submitted({QUEUE: "a"}))

        assert (said.code, there.reads) == (422, [TORCH])
        assert said.message.startswith("spec.runtimeRef: two schedulers are asked for")


@pytest.mark.parametrize("who", [None, 5, {"groups": "people"}], ids=str)
async def test_who_sends_it_must_be_said(who: Any) -> None:
    """The API server always does."""
    async with judging() as (asked, there):
        said = await ask(asked, submitted({QUEUE: "a"}), who=who)

        assert said.code == 503
        assert said.message.startswith("request.userInfo: ")
        assert there.wishes == []


MISTAKE = "its log says why"
UNDECIDED = Said(503, f"trainer-kai failed to decide about this TrainJob; {MISTAKE}", [])
UNSEEN = Said(0, "", [f"trainer-kai failed to look at this object; {MISTAKE}"])
MISTAKES: list[Case[tuple[Permission, Obj | None], Said]] = [
    Case("told", ("warn", None), UNSEEN),
    Case("enforced", ("enforce", None), UNDECIDED),
    Case("enforced, and it is there", ("enforce", submitted(suspend=True)), UNSEEN),
]


@pytest.mark.parametrize("case", MISTAKES, ids=ids)
async def test_a_mistake_of_ours(case: Case[tuple[Permission, Obj | None], Said]) -> None:
    """It lets nobody in unseen, and keeps back nobody who is there; the log has it whole."""

    async def broken(_: Wish) -> bool:
        raise ZeroDivisionError

    permission, old = case.given
    live = Elsewheres().live._replace(may_use=broken)
    async with serving(live=live, strictness=Strictness(BUNDLED, permission)) as asked:
        asked.cache.put_runtime(slim({}))
        with capture_logs() as logs:
            said = await ask(asked, submitted({QUEUE: "a"}), old)

        assert said == case.want
        assert asked.count("admission_reviews_total", kind="trainjob", outcome="failed") == 1
    assert [it["event"] for it in logs] == ["review failed"]


async def test_a_dry_run_is_answered_alike() -> None:
    """Nothing of it is written anywhere."""
    async with judging() as (asked, _):
        said = [await ask(asked, submitted({QUEUE: "b"}), dryRun=dry) for dry in (True, False)]

    assert said[0] == said[1]


def test_a_yes_holds_for_a_minute_and_a_no_for_a_moment() -> None:
    """Who has just been granted a queue need not wait for long."""
    answers, who = Answers(), UserInfo(username="ann")
    yes, no = (Wish.of(who, "team", queue) for queue in "ab")
    answers.keep(yes, 100.0, is_allowed=True)
    answers.keep(no, 100.0, is_allowed=False)

    held = [
        (answers.recall(yes, at), answers.recall(no, at)) for at in (104.9, 105.1, 159.9, 160.1)
    ]

    assert held == [(True, False), (True, None), (True, None), (None, None)]


def test_there_is_room_for_so_many_answers() -> None:
    """The oldest goes; memory does not grow with what people ask for."""
    answers, who = Answers(), UserInfo(username="ann")
    for number in range(5000):
        answers.keep(Wish.of(who, "team", f"q{number}"), 0.0, is_allowed=True)

    assert len(answers) == 4096
    assert answers.recall(Wish.of(who, "team", "q0"), 1.0) is None
    assert answers.recall(Wish.of(who, "team", "q4999"), 1.0) is True


async def test_what_is_asked_of_the_api_server() -> None:
    """The verb, the queue, the namespace, and all that it is known by who asks; once, in time."""
    run = Run(told({"status": {"allowed": True}}))
    who = UserInfo(username="ann", uid="u", groups=("people",), extra={"from": ("office",)})

    assert await elsewhere(run.client).may_use(Wish.of(who, "team", "a"))
    assert run.lines == ["POST /apis/authorization.k8s.io/v1/subjectaccessreviews"]
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
    run = Run(told({"metadata": {}, "items": [found]}))
    read = elsewhere(run.client).runtime

    runtimes = [await read(key) for key in (OWN, TORCH)]

    assert [it.queue for it in runtimes if it] == ["r", "r"]
    prefix, suffix = "GET /apis/trainer.kubeflow.org/v1alpha1", "&limit=500"
    assert run.lines == [
        f"{prefix}/namespaces/team/trainingruntimes?fieldSelector=metadata.name%3Down{suffix}",
        f"{prefix}/clustertrainingruntimes?fieldSelector=metadata.name%3Dtorch{suffix}",
    ]
