"""Another scheduler of our name."""

import asyncio
from typing import Any

from scheduler.shell.rival import Rival
from tests.support.apiserver import Run, Told, told
from trainer_kai.api.meta import Key
from trainer_kai.log import logger

_OWN = Key("us", "kai-scheduler")


def leases(*found: tuple[str, str, str]) -> Told:
    """Answer with Leases: namespace, holder, and when it was renewed."""
    return told({"metadata": {}, "items": [_lease(*one) for one in found]})


def _lease(namespace: str, holder: str, renewed: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"namespace": namespace, "name": "kai-scheduler"}, "spec": spec}


async def gone_after_s(run: Run) -> float:
    """Return how long it takes until nobody is there."""
    rival = Rival(run.client, "kai-scheduler", _OWN, logger("test"))
    began_s = run.clock.monotonic_s()
    await run.to_its_end(rival.until_gone())
    return run.clock.monotonic_s() - began_s


async def test_nobody_is_there() -> None:
    """We are asked for at once, by name; our own Lease is nobody else's."""
    run = Run(leases(("us", "me", "1"), ("kai", "", "1")))
    assert await gone_after_s(run) == 0
    assert run.transport.asked[0].query[0] == ("fieldSelector", "metadata.name=kai-scheduler")


async def test_one_that_died_is_waited_for_once() -> None:
    """Its Lease is there, and does not change any more."""
    assert 15 <= await gone_after_s(Run(leases(("kai", "it", "1")))) <= 21


async def test_one_that_lives_is_waited_for() -> None:
    """As long as it renews."""
    renewed = [leases(("kai", "it", str(i))) for i in range(20)]
    assert await gone_after_s(Run(*renewed, leases())) == 60


async def test_who_comes_later_is_noticed() -> None:
    """And is named to whoever asks why we do nothing."""
    run = Run(leases(), leases(), leases(("kai", "it", "1")))
    rival = Rival(run.client, "kai-scheduler", _OWN, logger("test"))
    task = asyncio.create_task(rival.until_there())
    await run.clock.advance(10)
    await task
    assert rival.told == "kai/kai-scheduler is held by it"


async def test_who_may_not_look_goes_on() -> None:
    """Without the right nothing is known, and that is said."""
    assert await gone_after_s(Run(told({"message": "no"}, 403))) == 0
