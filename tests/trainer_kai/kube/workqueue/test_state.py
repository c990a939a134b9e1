"""Which key is next, in random histories of a state machine, and the order in a few plain cases."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.size import examples
from trainer_kai.kube.workqueue.state import WorkQueueState

KEYS = st.sampled_from("abcde")
SECONDS = st.integers(0, 20)


def entries_remembered(state: WorkQueueState[str]) -> int:
    """Return how many entries are remembered in all, those out of date included."""
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
        """Something happened to an object."""
        self.state.add(key, self.now_s)
        self.must_run.add(key)

    @rule(key=KEYS, seconds=SECONDS)
    def add_later(self, key: str, seconds: int) -> None:
        """Ask for a call in some time."""
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
