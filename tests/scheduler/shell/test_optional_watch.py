"""Kinds that a cluster may not serve: nothing waits for them; once served, they are followed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from scheduler.shell.main import OptionalWatch
from tests.support.clock import VirtualClock
from trainer_kai.api.resources import RESOURCE_CLAIMS, Resource
from trainer_kai.kube.rest.response import ErrorDetails, Unavailable


class _Discovery:
    """Answers in turn; an answer of None is none."""

    def __init__(self, *answers: bool | None) -> None:
        self.answers = [*answers]

    async def serves(self, _resource: Resource[Any]) -> bool:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise Unavailable(ErrorDetails("GET", 0, "", "no answer"), was_sent=True)
        return answer


class _Watch:
    def not_synced_reason(self) -> str:
        return "not listed yet"


async def _run(*answers: bool | None) -> tuple[list[str], list[str]]:
    """Return what happens within two minutes, and what the process says of it at the end."""
    happened: list[str] = []
    clock = VirtualClock()

    async def follow() -> None:
        happened.append(f"followed after {clock.monotonic_s() - began_s:g} s")

    def start_follow() -> Coroutine[Any, Any, None]:
        return follow()

    watch = OptionalWatch(_Watch(), start_follow, _Discovery(*answers), RESOURCE_CLAIMS)  # type: ignore[arg-type]
    began_s = clock.monotonic_s()
    task = asyncio.create_task(watch.run(clock, lambda: happened.append("synced")))
    await clock.advance(121)
    task.cancel()
    return [*dict.fromkeys(happened)], [watch.not_synced_reason()]


async def test_a_kind_that_is_served() -> None:
    assert await _run(True) == (["followed after 0 s"], ["not listed yet"])


async def test_a_kind_that_is_not_served() -> None:
    assert await _run(False) == (["synced"], [""])


async def test_a_kind_that_is_served_later() -> None:
    assert await _run(False, True) == (["synced", "followed after 60 s"], ["not listed yet"])


async def test_as_long_as_that_is_not_known_nothing_begins() -> None:
    assert await _run(None) == ([], ["not listed yet"])
    assert await _run(None, None, False) == (["synced"], [""])
