"""The work queue, its state and its backoff."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.work_queue_harness import Outcome, QueueHarness, Work
from trainer_kai.errors import InvariantError
from trainer_kai.kube.rest.response import (
    Conflict,
    ErrorDetails,
    Forbidden,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from trainer_kai.kube.workqueue import Backoff, Requeue, WorkQueueState

# chance from 0 to 1, floors asked for one after the other -> waits, beginning with 1 s, at most 5 s
CASES = [
    Case("doubles up to the cap", (1.0, [None] * 5), [1.0, 2.0, 4.0, 5.0, 5.0]),
    Case("chance takes away half at most", (0.0, [None] * 4), [0.5, 1.0, 2.0, 2.5]),
    Case("a floor below the wait changes nothing", (0.0, [None, 0.5]), [0.5, 1.0]),
    Case("a floor outranks the cap", (0.0, [9.0, 9.0]), [9.0, 9.0]),
    Case("the same floor is not one instant", (0.5, [9.0]), [9.5]),
    Case("a floor of nothing is no floor", (1.0, [0.0, 0.0]), [1.0, 2.0]),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_waits(case: Case[tuple[float, list[float | None]], list[float]]) -> None:
    """Each wait is a part of a step that doubles, and never less than was asked for."""
    share, floors = case.given
    backoff = Backoff(1.0, 5.0, lambda: share)

    assert [backoff.next_s(floor) for floor in floors] == case.want


def test_success_begins_again() -> None:
    """After a reset the first step comes again, and the tries are counted anew."""
    backoff = Backoff(1.0, 60.0, lambda: 1.0)
    first = [backoff.next_s(), backoff.next_s()], backoff.tries

    backoff.reset()

    assert first == ([1.0, 2.0], 2)
    assert (backoff.tries, backoff.next_s()) == (0, 1.0)


@given(st.integers(), st.lists(st.none() | st.floats(0, 100), max_size=2000))
def test_any_chance_stays_within_bounds(seed: int, floors: list[float | None]) -> None:
    """Whatever happens, a wait is at least half of the first step and as long as asked for."""
    backoff = Backoff(0.1, 30.0, random.Random(seed).random)

    for floor in floors:
        wait_s = backoff.next_s(floor)

        assert 0.05 <= wait_s <= max(30.0, (floor or 0.0) + 0.1)
        assert wait_s >= (floor or 0.0)


KEYS = st.sampled_from("abcde")
SECONDS = st.integers(0, 20)


def entries_remembered(state: WorkQueueState[str]) -> int:
    return len(state._ready) + len(state._processing) + len(state._dirty) + len(state._heap)


class WorkQueueStateMachine(RuleBasedStateMachine):
    """Adds, delays, calls and retries in any order, beside a record of the calls that must come."""

    def __init__(self) -> None:
        super().__init__()
        self.state: WorkQueueState[str] = WorkQueueState()
        self.now_s = 0.0
        self.running: list[str] = []
        self.must_run: set[str] = set()  # added since their last call began
        self.delayed: dict[str, float] = {}  # asked for from outside -> when
        self.retries: dict[str, float] = {}

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.state.add(key, self.now_s)
        self.must_run.add(key)

    @rule(key=KEYS, seconds=SECONDS)
    def add_later(self, key: str, seconds: int) -> None:
        self.state.add_at(key, self.now_s + seconds)
        due_s = self.now_s + seconds
        self.delayed[key] = min(self.delayed.get(key, due_s), due_s)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: int) -> None:
        """Let time pass; what is due meanwhile is owed."""
        self.now_s += seconds
        self.state.promote_due(self.now_s)
        for waiting in (self.delayed, self.retries):
            for key in [key for key, due_s in waiting.items() if due_s <= self.now_s]:
                del waiting[key]
                self.must_run.add(key)

    @precondition(lambda self: self.state.depth > 0)
    @rule()
    def take(self) -> None:
        """Begin a call: no other worker has that key, and it was asked for."""
        ready = self.state.get(self.now_s)
        assert ready.key not in self.running
        assert ready.key in self.must_run
        assert ready.waited_s >= 0
        self.must_run.remove(ready.key)
        self.retries.pop(ready.key, None)
        self.running.append(ready.key)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 10), retry=st.none() | SECONDS)
    def finish(self, which: int, retry: int | None) -> None:
        """End a call that asks to be repeated or not."""
        key = self.running.pop(which % len(self.running))
        self.state.done(key, self.now_s)
        if retry is not None:
            self.state.retry(key, self.now_s + retry)
            self.retries[key] = self.now_s + retry

    @invariant()
    def nothing_is_lost_and_nothing_is_twice(self) -> None:
        """Every key that must be called is ready or runs, and each is ready once."""
        assert len(self.state._processing) == len(self.running)
        assert self.state.depth == len(self.must_run - set(self.running))

    @invariant()
    def what_is_for_later_is_known(self) -> None:
        """Compare the next moment with the first one that was asked for."""
        due_times = [*self.delayed.values(), *self.retries.values()]
        assert self.state.next_due_s == min(due_times, default=None)

    def teardown(self) -> None:
        """Work off all that is left: every key gets its call, and nothing is remembered."""
        while self.running:
            self.finish(0, None)
        self.pass_time(1000)
        while self.state.depth:
            self.take()
            self.finish(0, None)
        assert self.must_run == set()
        self.pass_time(1000)
        assert (entries_remembered(self.state), self.state.next_due_s) == (0, None)


def test_no_call_is_lost_and_none_is_double() -> None:
    """Random adds, delays, calls and retries; the record holds at every step."""
    bounds = settings(max_examples=examples(50), stateful_step_count=40)
    run_state_machine_as_test(WorkQueueStateMachine, settings=bounds)


def test_first_come_first_served() -> None:
    """A key that is added again keeps its place, one that runs again goes to the end."""
    state: WorkQueueState[str] = WorkQueueState()
    for key in ("a", "b", "a", "c"):
        state.add(key, 0)
    first = state.get(1).key
    state.add("a", 1)
    state.add("d", 1)
    state.done("a", 2)

    rest = [state.get(3).key for _ in range(state.depth)]

    assert (first, rest) == ("a", ["b", "c", "d", "a"])


def test_the_wait_is_measured_from_when_it_was_ready() -> None:
    """Adding again while waiting does not make the wait look shorter, a delay not longer."""
    state: WorkQueueState[str] = WorkQueueState()
    state.add("a", 1)
    state.add("a", 4)
    state.add_at("b", 6)
    state.promote_due(6)

    assert [state.get(7), state.get(8)] == [("a", 6), ("b", 2)]


def test_a_million_delays_of_one_key_are_one() -> None:
    """Memory follows the number of keys, not of calls."""
    state: WorkQueueState[str] = WorkQueueState()

    for n in range(10_000):
        state.add_at("a", 20_000 - n)
        state.add_at("b", 20_000 + n)

    assert entries_remembered(state) < 100
    assert state.next_due_s == 10_001


def details(status: int, retry_after_s: float | None = None) -> ErrorDetails:
    return ErrorDetails("PATCH /x", status, "", "no", retry_after_s)


Harnesses = Callable[..., QueueHarness]


@pytest.fixture
async def harnesses() -> AsyncIterator[Harnesses]:
    """Return what makes queues that close with the test: they wait on a clock that it moves."""
    made: list[QueueHarness] = []

    def make(work: Work, workers: int = 2, grace_s: float = 5) -> QueueHarness:
        made.append(QueueHarness(work, workers, grace_s))
        return made[-1]

    yield make
    for harness in made:
        await harness.stop()


def scripted(*outcomes: Outcome) -> Work:
    left = list(outcomes)

    async def work(_: str) -> Outcome:
        return left.pop(0) if left else None

    return work


LATER, STALE = Throttled(details(429, 20)), Conflict(details(409))

# outcomes of the calls for one key -> the moments of the calls; steps 1, 2, 4, 8, 8 s
OUTCOMES: list[Case[list[Outcome], list[float]]] = [
    Case("content is over", [None], [0]),
    Case("again after a time", [Requeue.after(30)], [0, 30]),
    Case(
        "a failure is tried later and later",
        [Unavailable(details(503)) for _ in range(5)],
        [0, 1, 3, 7, 15, 23],
    ),
    Case("a conflict is tried soon", [STALE], [0, 1]),
    Case("soon as well", [Requeue.SOON, Requeue.SOON], [0, 1, 3]),
    Case("what waiting does not help is tried as well", [Forbidden(details(403))], [0, 1]),
    Case("as late as the API server asks", [LATER], [0, 21]),
    Case("as late as the latest of several", [ExceptionGroup("", [LATER, STALE])], [0, 21]),
    Case(
        "success forgets the failures",
        [NotFound(details(404)), Conflict(details(409)), Requeue.after(2), Requeue.SOON],
        [0, 1, 3, 5, 6],
    ),
]


@pytest.mark.parametrize("case", OUTCOMES, ids=ids)
async def test_when_a_key_is_worked_on_again(
    harnesses: Harnesses, case: Case[list[Outcome], list[float]]
) -> None:
    """The outcome of a call says when the next one comes; in the end nothing is remembered."""
    harness = harnesses(scripted(*case.given))
    harness.queue.add("a")

    await harness.clock.advance(1000)

    assert [at for at, _ in harness.calls] == case.want
    assert (harness.queue._state.depth, harness.queue._backoffs) == (0, {})


async def test_an_add_overtakes_the_back_off(harnesses: Harnesses) -> None:
    """What changed may work now; the retry that was planned is then needless."""
    harness = harnesses(scripted(*[Unavailable(details(503))] * 3))
    harness.queue.add("a")
    await harness.clock.advance(4)  # tried at 0, 1, 3; next at 7
    harness.queue.add("a")

    await harness.clock.advance(100)

    assert [at for at, _ in harness.calls] == [0, 1, 3, 4]


async def test_a_delay_asked_for_by_others_is_kept(harnesses: Harnesses) -> None:
    """A call in between does not make up for it: only the caller knows what is due then."""
    harness = harnesses(scripted())
    harness.queue.add_after("a", 10)
    harness.queue.add_after("a", 50)  # the earlier one counts
    harness.queue.add_after("b", 5)  # due before what is waited for
    await harness.clock.advance(1)
    harness.queue.add("a")

    await harness.clock.advance(100)

    assert harness.calls == [(1, "a"), (5, "b"), (10, "a")]


async def test_a_key_added_while_worked_on_is_worked_on_once_more(harnesses: Harnesses) -> None:
    """Never beside itself, and not as often as it was added."""
    gate = asyncio.Semaphore(0)

    async def work(_: str) -> None:
        await gate.acquire()

    harness = harnesses(work)
    harness.queue.add("a")
    await harness.clock.advance(1)
    for _ in range(3):
        harness.queue.add("a")
    await harness.clock.advance(1)
    beside = len(harness.calls)
    for _ in range(5):
        gate.release()
    await harness.clock.advance(1)

    assert (beside, len(harness.calls)) == (1, 2)


async def test_so_many_workers_so_many_keys_at_once(harnesses: Harnesses) -> None:
    """The others wait, first come first served."""
    clock_s: list[float] = []

    async def work(_: str) -> None:
        await harness.clock.sleep(10)
        clock_s.append(harness.clock.monotonic_s())

    harness = harnesses(work, workers=3)
    for key in "abcdefg":
        harness.queue.add(key)
    await harness.clock.advance(5)
    depth = harness.queue._state.depth
    await harness.clock.advance(100)

    assert [(at, key) for at, key in harness.calls if at == 0] == [(0, "a"), (0, "b"), (0, "c")]
    assert harness.calls[3:] == [(10, "d"), (10, "e"), (10, "f"), (20, "g")]
    assert depth == 4
    assert harness.metrics.waits_s == [0, 0, 0, 10, 10, 10, 20]
    assert harness.metrics.works_s == [10] * 7
    assert (harness.metrics.depths[0], max(harness.metrics.depths), harness.metrics.depths[-1]) == (
        1,
        7,
        0,
    )


@pytest.mark.parametrize(
    "error",
    [
        *(InvariantError("odd"), Unauthorized(details(401)), ValueError("ours")),
        ExceptionGroup("", [Unauthorized(details(401)), Throttled(details(429))]),
        ExceptionGroup("", [Throttled(details(429)), ValueError("ours")]),
    ],
)
async def test_our_own_mistakes_and_bad_credentials_end_it(
    harnesses: Harnesses, error: Exception
) -> None:
    """The error comes out of the service, after the calls that are on."""
    finished: list[str] = []

    async def work(key: str) -> None:
        if key == "bad":
            raise error
        await harness.clock.sleep(2)
        finished.append(key)

    harness = harnesses(work)
    for key in ("good", "bad"):
        harness.queue.add(key)
    await harness.clock.advance(100)

    with pytest.raises(type(error)) as raised:
        await harness.running
    assert (raised.value, finished) == (error, ["good"])


async def test_a_stop_waits_for_calls_that_are_on_and_begins_none(harnesses: Harnesses) -> None:
    """Quick ones finish, slow ones are cancelled at the end of the grace."""
    ends: list[str] = []

    async def work(key: str) -> None:
        try:
            await harness.clock.sleep({"quick": 3, "slow": 300}.get(key, 0))
        except asyncio.CancelledError:
            ends.append(f"{key} was cancelled at {harness.clock.monotonic_s():g}")
            raise
        ends.append(f"{key} at {harness.clock.monotonic_s():g}")

    harness = harnesses(work, grace_s=5)
    for key in ("quick", "slow", "late"):
        harness.queue.add(key)
    await harness.clock.advance(1)
    harness.running.cancel()
    await harness.clock.advance(4.5)
    still_on = harness.running.done()
    await harness.clock.advance(10)

    assert ends == ["quick at 3", "slow was cancelled at 6"]
    assert (still_on, harness.running.cancelled()) == (False, True)
    assert [call.kwargs["event"] for call in harness.log.calls] == [
        "calls cancelled after the grace period"
    ]


async def test_a_mistake_while_stopping_comes_out(harnesses: Harnesses) -> None:
    """Of several the first is raised and the others are logged: none is lost."""
    errors = [ValueError("a"), ValueError("b")]

    async def work(key: str) -> None:
        await harness.clock.sleep(2)
        raise errors[int(key)]

    harness = harnesses(work)
    for key in ("0", "1"):
        harness.queue.add(key)
    await harness.clock.advance(1)
    harness.running.cancel()
    await harness.clock.advance(10)

    assert harness.running.exception() is errors[0]
    assert [call.kwargs["exc_info"] for call in harness.log.calls] == errors[1:]


async def test_a_queue_that_was_stopped_does_not_begin_again(harnesses: Harnesses) -> None:
    """It would take keys and never work on them: a leader of a later term makes another one."""

    async def work(_key: str) -> None:
        return

    harness = harnesses(work)
    await harness.clock.advance(0)
    await harness.stop()

    with pytest.raises(InvariantError, match="create one per term"):
        await harness.queue.run()


async def test_a_second_cancellation_ends_the_grace(harnesses: Harnesses) -> None:
    harness: QueueHarness = harnesses(lambda _: harness.clock.sleep(300))
    harness.queue.add("a")
    await harness.clock.advance(1)
    harness.running.cancel()
    await harness.clock.advance(1)
    harness.running.cancel()
    await harness.clock.advance(0)

    assert harness.running.cancelled()
    assert harness.clock.monotonic_s() == 2


async def test_an_outage_is_said_when_it_lasts(harnesses: Harnesses) -> None:
    """The first tries are for debugging, later ones for people; so is what does not pass."""
    harness = harnesses(scripted(*[Unavailable(details(503))] * 3, None, Forbidden(details(403))))
    harness.queue.add("a")
    await harness.clock.advance(100)
    harness.queue.add("a")
    await harness.clock.advance(100)

    levels = [call.method_name for call in harness.log.calls]
    assert levels == ["debug", "debug", "warning", "warning"]
    assert harness.log.calls[2].kwargs == {
        "event": "reconcile failed",
        "queue": "jobsets",
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
    """A reconciler that takes its time, and a record of which keys were worked on at once."""

    def __init__(self, works: list[tuple[int, str]]) -> None:
        self.begun: dict[str, float] = {}  # the last call of each key
        self.most: Counter[str] = Counter()  # at once
        self._on: Counter[str] = Counter()
        self._left = list(works)

    async def work(self, harness: QueueHarness, key: str) -> Outcome:
        self.begun[key] = harness.clock.monotonic_s()
        self._on[key] += 1
        self.most[key] = max(self.most[key], self._on[key])
        self.most["all"] = max(self.most["all"], self._on.total())
        seconds, outcome = self._left.pop() if self._left else (0, "fine")
        await harness.clock.sleep(seconds)
        self._on[key] -= 1
        after: dict[str, Outcome] = {"again": Requeue.after(3), "soon": Requeue.SOON}
        return Unavailable(details(503)) if outcome == "fail" else after.get(outcome)


@given(st.lists(STEPS, max_size=40), st.lists(WORKS, max_size=60), st.integers(1, 4))
@settings(max_examples=examples(40))
async def test_no_key_beside_itself_and_no_add_lost(
    steps: list[tuple[str, str | int]], works: list[tuple[int, str]], workers: int
) -> None:
    """Whatever happens when: every key is worked on after its last add."""
    worker = Worker(works)
    harness = QueueHarness(lambda key: worker.work(harness, key), workers)
    asked: dict[str, float] = {}
    delayed: dict[str, float] = {}
    try:
        for step, what in steps:
            now_s = harness.clock.monotonic_s()
            if step == "pass":
                await harness.clock.advance(float(what))
            elif step == "add":
                asked[str(what)] = now_s
                harness.queue.add(str(what))
            else:
                if delayed.get(str(what), now_s) <= now_s:  # else the earlier moment counts
                    delayed[str(what)] = now_s + 7
                harness.queue.add_after(str(what), 7)
        await harness.clock.advance(10_000)
    finally:
        await harness.stop()

    for promises in (asked, delayed):
        assert {key for key, at in promises.items() if worker.begun.get(key, -1) < at} == set()
    assert max((worker.most[key] for key in "abcd"), default=0) <= 1
    assert worker.most["all"] <= workers
    assert (harness.queue._state.depth, harness.queue._backoffs) == (0, {})


async def test_calls_that_wait_for_nothing_let_others_run(harnesses: Harnesses) -> None:
    """However many there are, the event loop is not held up by them."""
    order: list[str] = []

    async def work(_: str) -> Outcome:
        order.append("call")
        return None

    async def other() -> None:
        while order.count("call") < 50:
            order.append("other")
            await asyncio.sleep(0)

    harness = harnesses(work, workers=1)
    for number in range(50):
        harness.queue.add(f"{number}")
    await asyncio.wait_for(other(), 60)

    assert "call call call" not in " ".join(order)
