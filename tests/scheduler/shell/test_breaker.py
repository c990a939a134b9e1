"""How much may be taken within a minute."""

from scheduler.shell.breaker import Breaker
from tests.support.clock import VirtualClock

_GPU = 1000


async def test_a_minute_has_so_many() -> None:
    """It begins with the first that is taken; what was taken beyond counts in the next one."""
    clock = VirtualClock()
    breaker = Breaker(clock)
    await clock.advance(100)
    seen = [breaker.left(8 * _GPU)]
    breaker.take(60 * _GPU)
    seen.append(breaker.left(8 * _GPU))
    breaker.take(40 * _GPU)
    seen.append(breaker.left(8 * _GPU))
    await clock.advance(59)
    seen.append(breaker.left(8 * _GPU))
    await clock.advance(1)
    seen.append(breaker.left(8 * _GPU))
    await clock.advance(600)
    seen.append(breaker.left(8 * _GPU))

    assert [it // _GPU for it in seen] == [64, 4, -36, -36, 28, 64]


def test_of_a_large_cluster_a_tenth() -> None:
    """Of one that has more than 640 GPUs."""
    breaker = Breaker(VirtualClock())

    assert [breaker.left(it * _GPU) // _GPU for it in (0, 640, 650, 4000)] == [64, 64, 65, 400]
