"""The work queue, its reconciler played by the test and its time virtual."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.case import Case, ids
from tests.support.desk import Desk, Outcome, Work
from tests.support.size import examples
from trainer_kai.errors import InvariantError
from trainer_kai.kube.errors import (
    Conflict,
    Forbidden,
    NotFound,
    Refusal,
    Throttled,
    Unauthorized,
    Unavailable,
)
from trainer_kai.kube.queue import Requeue


def refusal(status: int, retry_after_s: float | None = None) -> Refusal:
    """Write what the API server answered."""
    return Refusal("PATCH /x", status, "", "no", retry_after_s)


Desks = Callable[..., Desk]


@pytest.fixture
async def desks() -> AsyncIterator[Desks]:
    """Return what makes desks that close with the test: they wait on a clock that it moves."""
    made: list[Desk] = []

    def make(work: Work, workers: int = 2, grace_s: float = 5) -> Desk:
        made.append(Desk(work, workers, grace_s))
        return made[-1]

    yield make
    for desk in made:
        await desk.stop()


def scripted(*outcomes: Outcome) -> Work:
    """Return a reconciler with these outcomes, content afterwards."""
    left = list(outcomes)

    async def work(_: str) -> Outcome:
        return left.pop(0) if left else None

    return work


LATER, STALE = Throttled(refusal(429, 20)), Conflict(refusal(409))

# outcomes of the calls for one key -> the moments of the calls; steps 1, 2, 4, 8, 8 s
OUTCOMES: list[Case[list[Outcome], list[float]]] = [
    Case("content is over", [None], [0]),
    Case("again after a time", [Requeue.after(30)], [0, 30]),
    Case(
        "a failure is tried later and later",
        [Unavailable(refusal(503)) for _ in range(5)],
        [0, 1, 3, 7, 15, 23],
    ),
    Case("a conflict is tried soon", [STALE], [0, 1]),
    Case("soon as well", [Requeue.SOON, Requeue.SOON], [0, 1, 3]),
    Case("what waiting does not help is tried as well", [Forbidden(refusal(403))], [0, 1]),
    Case("as late as the API server asks", [LATER], [0, 21]),
    Case("as late as the latest of several", [ExceptionGroup("", [LATER, STALE])], [0, 21]),
    Case(
        "success forgets the failures",
        [NotFound(refusal(404)), Conflict(refusal(409)), Requeue.after(2), Requeue.SOON],
        [0, 1, 3, 5, 6],
    ),
]


@pytest.mark.parametrize("case", OUTCOMES, ids=ids)
async def test_when_a_key_is_worked_on_again(
    desks: Desks, case: Case[list[Outcome], list[float]]
) -> None:
    """The outcome of a call says when the next one comes; in the end nothing is remembered."""
    desk = desks(scripted(*case.given))
    desk.queue.add("a")

    await desk.clock.advance(1000)

    assert [at for at, _ in desk.calls] == case.want
    assert (desk.queue._turns.depth, desk.queue._backoffs) == (0, {})


async def test_an_add_overtakes_the_back_off(desks: Desks) -> None:
    """What changed may work now; the retry that was planned is then needless."""
    desk = desks(scripted(*[Unavailable(refusal(503))] * 3))
    desk.queue.add("a")
    await desk.clock.advance(4)  # tried at 0, 1, 3; next at 7
    desk.queue.add("a")

    await desk.clock.advance(100)

    assert [at for at, _ in desk.calls] == [0, 1, 3, 4]


async def test_a_delay_asked_for_by_others_is_kept(desks: Desks) -> None:
    """A call in between does not make up for it: only the caller knows what is due then."""
    desk = desks(scripted())
    desk.queue.add_after("a", 10)
    desk.queue.add_after("a", 50)  # the earlier one counts
    desk.queue.add_after("b", 5)  # due before what is waited for
    await desk.clock.advance(1)
    desk.queue.add("a")

    await desk.clock.advance(100)

    assert desk.calls == [(1, "a"), (5, "b"), (10, "a")]


async def test_a_key_added_while_worked_on_is_worked_on_once_more(desks: Desks) -> None:
    """Never beside itself, and not as often as it was added."""
    gate = asyncio.Semaphore(0)

    async def work(_: str) -> None:
        await gate.acquire()

    desk = desks(work)
    desk.queue.add("a")
    await desk.clock.advance(1)
    for _ in range(3):
        desk.queue.add("a")
    await desk.clock.advance(1)
    beside = len(desk.calls)
    for _ in range(5):
        gate.release()
    await desk.clock.advance(1)

    assert (beside, len(desk.calls)) == (1, 2)


async def test_so_many_workers_so_many_keys_at_once(desks: Desks) -> None:
    """The others wait, first come first served."""
    clock_s: list[float] = []

    async def work(_: str) -> None:
        await desk.clock.sleep(10)
        clock_s.append(desk.clock.monotonic_s())

    desk = desks(work, workers=3)
    for key in "abcdefg":
        desk.queue.add(key)
    await desk.clock.advance(5)
    depth = desk.queue._turns.depth
    await desk.clock.advance(100)

    assert [(at, key) for at, key in desk.calls if at == 0] == [(0, "a"), (0, "b"), (0, "c")]
    assert desk.calls[3:] == [(10, "d"), (10, "e"), (10, "f"), (20, "g")]
    assert depth == 4
    assert desk.seen.waits_s == [0, 0, 0, 10, 10, 10, 20]
    assert desk.seen.works_s == [10] * 7
    assert (desk.seen.depths[0], max(desk.seen.depths), desk.seen.depths[-1]) == (1, 7, 0)


@pytest.mark.parametrize(
    "error",
    [
        *(InvariantError("odd"), Unauthorized(refusal(401)), ValueError("ours")),
        ExceptionGroup("", [Unauthorized(refusal(401)), Throttled(refusal(429))]),
        ExceptionGroup("", [Throttled(refusal(429)), ValueError("ours")]),
    ],
)
async def test_our_own_mistakes_and_bad_credentials_end_it(desks: Desks, error: Exception) -> None:
    """The error comes out of the service, after the calls that are on."""
    finished: list[str] = []

    async def work(key: str) -> None:
        if key == "bad":
            raise error
        await desk.clock.sleep(2)
        finished.append(key)

    desk = desks(work)
    for key in ("good", "bad"):
        desk.queue.add(key)
    await desk.clock.advance(100)

    with pytest.raises(type(error)) as raised:
        await desk.running
    assert (raised.value, finished) == (error, ["good"])


async def test_a_stop_waits_for_calls_that_are_on_and_begins_none(desks: Desks) -> None:
    """Quick ones finish, slow ones are cancelled at the end of the grace."""
    ends: list[str] = []

    async def work(key: str) -> None:
        try:
            await desk.clock.sleep({"quick": 3, "slow": 300}.get(key, 0))
        except asyncio.CancelledError:
            ends.append(f"{key} was cancelled at {desk.clock.monotonic_s():g}")
            raise
        ends.append(f"{key} at {desk.clock.monotonic_s():g}")

    desk = desks(work, grace_s=5)
    for key in ("quick", "slow", "late"):
        desk.queue.add(key)
    await desk.clock.advance(1)
    desk.running.cancel()
    await desk.clock.advance(4.5)
    still_on = desk.running.done()
    await desk.clock.advance(10)

    assert ends == ["quick at 3", "slow was cancelled at 6"]
    assert (still_on, desk.running.cancelled()) == (False, True)
    assert [call.kwargs["event"] for call in desk.said.calls] == [
        "calls cancelled at the end of the grace"
    ]


async def test_a_mistake_while_stopping_comes_out(desks: Desks) -> None:
    """Of several the first is raised and the others are logged: none is lost."""
    errors = [ValueError("a"), ValueError("b")]

    async def work(key: str) -> None:
        await desk.clock.sleep(2)
        raise errors[int(key)]

    desk = desks(work)
    for key in ("0", "1"):
        desk.queue.add(key)
    await desk.clock.advance(1)
    desk.running.cancel()
    await desk.clock.advance(10)

    assert desk.running.exception() is errors[0]
    assert [call.kwargs["exc_info"] for call in desk.said.calls] == errors[1:]


async def test_a_queue_that_was_stopped_does_not_begin_again(desks: Desks) -> None:
    """It would take keys and never work on them: whoever leads again makes another one."""

    async def work(_key: str) -> None:
        return

    desk = desks(work)
    await desk.clock.advance(0)
    await desk.stop()

    with pytest.raises(InvariantError, match="make one for each term"):
        await desk.queue.run()


async def test_a_second_cancellation_ends_the_grace(desks: Desks) -> None:
    """Whoever insists does not wait."""
    desk: Desk = desks(lambda _: desk.clock.sleep(300))
    desk.queue.add("a")
    await desk.clock.advance(1)
    desk.running.cancel()
    await desk.clock.advance(1)
    desk.running.cancel()
    await desk.clock.advance(0)

    assert desk.running.cancelled()
    assert desk.clock.monotonic_s() == 2


async def test_an_outage_is_said_when_it_lasts(desks: Desks) -> None:
    """The first tries are for debugging, later ones for people; so is what does not pass."""
    desk = desks(scripted(*[Unavailable(refusal(503))] * 3, None, Forbidden(refusal(403))))
    desk.queue.add("a")
    await desk.clock.advance(100)
    desk.queue.add("a")
    await desk.clock.advance(100)

    levels = [call.method_name for call in desk.said.calls]
    assert levels == ["debug", "debug", "warning", "warning"]
    assert desk.said.calls[2].kwargs == {
        "event": "reconcile failed",
        "queue": "desk",
        "key": "a",
        "error": "PATCH /x: 503: no",
        "tries": 3,
        "retry_in_s": 4.0,
    }


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abcd")),
    st.tuples(st.just("later"), st.sampled_from("abcd")),
    st.tuples(st.just("pass"), st.integers(1, 9)),
)
WORKS = st.tuples(st.integers(0, 5), st.sampled_from(["fine", "again", "soon", "fail"]))


class Worker:
    """A reconciler that takes its time, and a record of who was worked on beside whom."""

    def __init__(self, works: list[tuple[int, str]]) -> None:
        self.begun: dict[str, float] = {}  # the last call of each key
        self.most: Counter[str] = Counter()  # at once
        self._on: Counter[str] = Counter()
        self._left = list(works)

    async def work(self, desk: Desk, key: str) -> Outcome:
        """Do what comes next, or nothing."""
        self.begun[key] = desk.clock.monotonic_s()
        self._on[key] += 1
        self.most[key] = max(self.most[key], self._on[key])
        self.most["all"] = max(self.most["all"], self._on.total())
        seconds, outcome = self._left.pop() if self._left else (0, "fine")
        await desk.clock.sleep(seconds)
        self._on[key] -= 1
        after: dict[str, Outcome] = {"again": Requeue.after(3), "soon": Requeue.SOON}
        return Unavailable(refusal(503)) if outcome == "fail" else after.get(outcome)


@given(st.lists(STEPS, max_size=40), st.lists(WORKS, max_size=60), st.integers(1, 4))
@settings(max_examples=examples(40))
async def test_no_key_beside_itself_and_no_add_lost(
    steps: list[tuple[str, str | int]], works: list[tuple[int, str]], workers: int
) -> None:
    """Whatever happens when: every key is worked on after its last add."""
    worker = Worker(works)
    desk = Desk(lambda key: worker.work(desk, key), workers)
    asked: dict[str, float] = {}
    delayed: dict[str, float] = {}
    try:
        for step, what in steps:
            now_s = desk.clock.monotonic_s()
            if step == "pass":
                await desk.clock.advance(float(what))
            elif step == "add":
                asked[str(what)] = now_s
                desk.queue.add(str(what))
            else:
                if delayed.get(str(what), now_s) <= now_s:  # else the earlier moment counts
                    delayed[str(what)] = now_s + 7
                desk.queue.add_after(str(what), 7)
        await desk.clock.advance(10_000)
    finally:
        await desk.stop()

    for promises in (asked, delayed):
        assert {key for key, at in promises.items() if worker.begun.get(key, -1) < at} == set()
    assert max((worker.most[key] for key in "abcd"), default=0) <= 1
    assert worker.most["all"] <= workers
    assert (desk.queue._turns.depth, desk.queue._backoffs) == (0, {})


async def test_calls_that_wait_for_nothing_let_others_run(desks: Desks) -> None:
    """However many there are, the event loop is not held up by them."""
    order: list[str] = []

    async def work(_: str) -> Outcome:
        order.append("call")
        return None

    async def other() -> None:
        while order.count("call") < 50:
            order.append("other")
            await asyncio.sleep(0)

    desk = desks(work, workers=1)
    for number in range(50):
        desk.queue.add(f"{number}")
    await asyncio.wait_for(other(), 5)

    assert "call call call" not in " ".join(order)
