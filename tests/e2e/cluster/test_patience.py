"""Waits end with what they wait for, and last longer where the machine is slower."""

import asyncio

import pytest

from e2e.cluster.patience import patience_s, slowdown, until


def test_the_end_of_a_wait_scales_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of a run go by the measurement of the first."""
    monkeypatch.setenv("E2E_SLOWDOWN", "1")
    usual_s = patience_s(2)
    monkeypatch.setenv("E2E_SLOWDOWN", "3")
    assert (slowdown(), patience_s(2)) == (3, 3 * usual_s)


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "awaited"])
async def test_a_wait_ends_as_soon_as_it_is_so(*, waits: bool) -> None:
    """It asks again until then."""
    answers = iter([False, False, True])

    async def later() -> bool:
        return next(answers)

    await until(later if waits else lambda: next(answers), "the third answer")
    assert next(answers, None) is None


async def test_a_wait_in_vain_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after how long; a time-out inside of it is not taken for its own."""
    monkeypatch.setenv("E2E_SLOWDOWN", "1")
    with pytest.raises(AssertionError, match=r"waited 0\.25 s in vain until all is well"):
        await until(lambda: False, "all is well", 0.1)

    async def times_out() -> bool:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
        return True

    with pytest.raises(TimeoutError):
        await until(times_out, "all is well")
