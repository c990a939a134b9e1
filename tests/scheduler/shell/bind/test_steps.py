"""What is written for a pod before it is bound, and undone if it is not bound."""

from collections.abc import Callable, Mapping

import structlog

from scheduler.shell.bind.steps import BindStep, PodBind, StepFailed
from scheduler.state.commands import PodGroupCommands
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, node, pod
from trainer_kai.api.meta import Key
from trainer_kai.kube.rest.response import ApiError, Conflict, ErrorDetails, Forbidden

_DETAILS = ErrorDetails("PATCH /things/p", 409, "Conflict", "the thing of p is held")


class FakeStep(BindStep):
    """Notes what is asked of it; a test makes it fail."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls
        self.fails: dict[str, ApiError] = {}  # by "reserve", "prepare" or "undo"
        self.done: set[str] = set()  # pods

    async def reserve(self, commands: PodGroupCommands) -> Mapping[Key, ApiError]:
        self.calls.append(f"reserve {self.name}")
        error = self.fails.get("reserve")
        return {it.pod: error for it in commands.binds[:1]} if error else {}

    def is_done(self, bind: PodBind) -> bool:
        return bind.pod.name in self.done

    async def prepare(self, bind: PodBind) -> None:
        self._do("prepare", bind)

    async def undo(self, bind: PodBind) -> None:
        self._do("undo", bind)

    def _do(self, what: str, bind: PodBind) -> None:
        self.calls.append(f"{what} {self.name} {bind.pod.name} on {bind.node}")
        if what in self.fails:
            raise self.fails[what]


def with_steps(harness: SchedulerHarness, names: str = "ab") -> tuple[list[FakeStep], list[str]]:
    """Add a step for each letter; return them, and the list of their calls and of binds."""
    calls: list[str] = []
    steps = [FakeStep(name, calls) for name in names]
    harness.more_steps = steps
    harness.lead_again()
    refuse_binds(harness, calls, lambda: None)
    return steps, calls


def refuse_binds(
    harness: SchedulerHarness, calls: list[str], status: Callable[[], int | None]
) -> None:
    def refuse(what: str) -> int | None:
        if not what.startswith("bind"):
            return None
        calls.append(what)
        return status()

    harness.api.refuse_with = refuse


async def test_steps_come_one_after_the_other_before_the_bind(harness: SchedulerHarness) -> None:
    """All reserve what they need before the first of them prepares the pod."""
    _, calls = with_steps(harness)
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(1)

        assert calls == [
            "reserve a",
            "reserve b",
            "prepare a p on n",
            "prepare b p on n",
            "bind p to n",
        ]


async def test_a_step_with_nothing_to_do_is_skipped(harness: SchedulerHarness) -> None:
    """What it did not prepare is not undone either."""
    (step, _), calls = with_steps(harness)
    step.done.add("p")
    refuse_binds(harness, calls, lambda: 409)
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(0.5)

        assert calls[:5] == [
            "reserve a",
            "reserve b",
            "prepare b p on n",
            "bind p to n",
            "undo b p on n",
        ]


async def test_a_refused_bind_is_undone_in_reverse(harness: SchedulerHarness) -> None:
    """The pod is planned and prepared again."""
    _, calls = with_steps(harness)
    refused = [403]
    refuse_binds(harness, calls, lambda: refused.pop() if refused else None)
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(10)

        assert calls[4:7] == ["bind p to n", "undo b p on n", "undo a p on n"]
        assert calls[-3:] == ["prepare a p on n", "prepare b p on n", "bind p to n"]
        assert harness.api.node_of_pods() == {"p": "n"}


async def test_a_step_that_fails_undoes_those_before_it(harness: SchedulerHarness) -> None:
    """It leaves nothing itself, those after it are not begun, and an Event has its words."""
    (_, _, step, _), calls = with_steps(harness, "abcd")
    step.fails["prepare"] = StepFailed(_DETAILS, "ThingHeld")
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(0.5)
        assert calls[4:9] == [
            "prepare a p on n",
            "prepare b p on n",
            "prepare c p on n",
            "undo b p on n",
            "undo a p on n",
        ]
        assert not any(it.startswith("bind") for it in calls)
        assert {*harness.events()} == {("Pod p", "ThingHeld")}
        event = next(it for it in harness.api.events if it["reason"] == "ThingHeld")
        assert (event["message"], event["type"]) == ("the thing of p is held", "Warning")
        step.fails.clear()
        await harness.advance(10)

        assert harness.api.node_of_pods() == {"p": "n"}


async def test_another_failure_of_a_step_has_no_event(harness: SchedulerHarness) -> None:
    """The log says that the pod is not bound."""
    (step,), _ = with_steps(harness, "a")
    step.fails["prepare"] = Forbidden(_DETAILS)
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(1)

        assert harness.events() == []
        assert harness.api.node_of_pods() == {}


async def test_a_bind_without_an_answer_is_not_undone(harness: SchedulerHarness) -> None:
    """The pod may be bound, and need what was prepared."""
    _, calls = with_steps(harness)
    refuse_binds(harness, calls, lambda: 503)
    harness.api.put(node("n"), pod("p"))
    async with harness.leading():
        await harness.advance(10)

        assert calls.count("bind p to n") > 1
        assert not any(it.startswith("undo") for it in calls)


async def test_an_undo_that_fails_keeps_no_other_from_being_undone(
    harness: SchedulerHarness,
) -> None:
    """It is logged, and the pod is planned again."""
    (_, step), calls = with_steps(harness)
    step.fails["undo"] = Forbidden(_DETAILS)
    refused = [409]
    refuse_binds(harness, calls, lambda: refused.pop() if refused else None)
    harness.api.put(node("n"), pod("p"))
    with structlog.testing.capture_logs() as logs:
        harness.lead_again()
        async with harness.leading():
            await harness.advance(10)

            assert calls[5:7] == ["undo b p on n", "undo a p on n"]
            assert harness.api.node_of_pods() == {"p": "n"}
    (line,) = (it for it in logs if it["event"] == "bind step not undone")
    assert (line["step"], line["pod"], line["log_level"]) == ("b", "ns/p", "warning")


async def test_pods_that_are_bound_together_reserve_together(harness: SchedulerHarness) -> None:
    """One of two gets nothing: no pod of the PodGroup is bound, and all are planned again."""
    (step, _), calls = with_steps(harness)
    step.fails["reserve"] = StepFailed(_DETAILS, "ThingHeld")
    harness.api.put(node("n", gpu=2), group("g", minMember=2), pod("p", "g"), pod("r", "g"))
    async with harness.leading():
        await harness.advance(0.5)
        assert {*calls} == {"reserve a"}
        assert {*harness.events()} == {("Pod p", "ThingHeld")}
        assert harness.api.node_of_pods() == {}
        step.fails["reserve"] = Conflict(_DETAILS)
        await harness.advance(20)
        assert {*calls} == {"reserve a"}
        step.fails.clear()
        await harness.advance(20)

        assert harness.api.node_of_pods() == {"p": "n", "r": "n"}
        assert calls.count("prepare a p on n") == 1
