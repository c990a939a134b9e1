"""Whose turn it is, as a machine that chance plays with, and the order in a few plain cases."""

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
from trainer_kai.kube.turns import Turns

KEYS = st.sampled_from("abcde")
SECONDS = st.integers(0, 20)


def remembered(turns: Turns[str]) -> int:
    """Return how many entries are remembered in all, those out of date included."""
    return len(turns._ready) + len(turns._running) + len(turns._again) + len(turns._heap)


class TurnsMachine(RuleBasedStateMachine):
    """Adds, delays, turns and retries in any order, beside a record of what is owed."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: Turns[str] = Turns()
        self.now_s = 0.0
        self.running: list[str] = []
        self.owed: set[str] = set()  # added since their last turn began
        self.promised: dict[str, float] = {}  # asked for from outside -> when
        self.retries: dict[str, float] = {}

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        """Something happened to an object."""
        self.turns.add(key, self.now_s)
        self.owed.add(key)

    @rule(key=KEYS, seconds=SECONDS)
    def add_later(self, key: str, seconds: int) -> None:
        """Somebody wants a turn in some time."""
        self.turns.add_at(key, self.now_s + seconds)
        due_s = self.now_s + seconds
        self.promised[key] = min(self.promised.get(key, due_s), due_s)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: int) -> None:
        """Let time pass; what is due meanwhile is owed."""
        self.now_s += seconds
        self.turns.wake(self.now_s)
        for waiting in (self.promised, self.retries):
            for key in [key for key, due_s in waiting.items() if due_s <= self.now_s]:
                del waiting[key]
                self.owed.add(key)

    @precondition(lambda self: self.turns.depth > 0)
    @rule()
    def take(self) -> None:
        """Begin a turn: nobody else has that key, and somebody asked for it."""
        turn = self.turns.take(self.now_s)
        assert turn.key not in self.running
        assert turn.key in self.owed
        assert turn.waited_s >= 0
        self.owed.remove(turn.key)
        self.retries.pop(turn.key, None)
        self.running.append(turn.key)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 10), retry=st.none() | SECONDS)
    def finish(self, which: int, retry: int | None) -> None:
        """End a turn that asks to be repeated or not."""
        key = self.running.pop(which % len(self.running))
        self.turns.done(key, self.now_s)
        if retry is not None:
            self.turns.retry(key, self.now_s + retry)
            self.retries[key] = self.now_s + retry

    @invariant()
    def nothing_is_lost_and_nothing_is_twice(self) -> None:
        """Every key that is owed a turn is ready or runs, and each is ready once."""
        assert len(self.turns._running) == len(self.running)
        assert self.turns.depth == len(self.owed - set(self.running))

    @invariant()
    def what_is_for_later_is_known(self) -> None:
        """Compare the next moment with the first one that was asked for."""
        dues = [*self.promised.values(), *self.retries.values()]
        assert self.turns.next_due_s == min(dues, default=None)

    def teardown(self) -> None:
        """Work off all that is left: every key gets its turn, and nothing is remembered."""
        while self.running:
            self.finish(0, None)
        self.pass_time(1000)
        while self.turns.depth:
            self.take()
            self.finish(0, None)
        assert self.owed == set()
        self.pass_time(1000)
        assert (remembered(self.turns), self.turns.next_due_s) == (0, None)


def test_no_turn_is_lost_and_none_is_double() -> None:
    """Chance plays with adds, delays, turns and retries; the record holds at every step."""
    bounds = settings(max_examples=examples(50), stateful_step_count=40)
    run_state_machine_as_test(TurnsMachine, settings=bounds)


def test_first_come_first_served() -> None:
    """A key that is added again keeps its place, one that runs again goes to the end."""
    turns: Turns[str] = Turns()
    for key in ("a", "b", "a", "c"):
        turns.add(key, 0)
    first = turns.take(1).key
    turns.add("a", 1)
    turns.add("d", 1)
    turns.done("a", 2)

    rest = [turns.take(3).key for _ in range(turns.depth)]

    assert (first, rest) == ("a", ["b", "c", "d", "a"])


def test_the_wait_is_measured_from_when_it_was_ready() -> None:
    """Adding again while waiting does not make the wait look shorter, a delay not longer."""
    turns: Turns[str] = Turns()
    turns.add("a", 1)
    turns.add("a", 4)
    turns.add_at("b", 6)
    turns.wake(6)

    assert [turns.take(7), turns.take(8)] == [("a", 6), ("b", 2)]


def test_a_million_delays_of_one_key_are_one() -> None:
    """Memory follows the number of keys, not of calls."""
    turns: Turns[str] = Turns()

    for n in range(10_000):
        turns.add_at("a", 20_000 - n)
        turns.add_at("b", 20_000 + n)

    assert remembered(turns) < 100
    assert turns.next_due_s == 10_001
