"""How many GPUs may be evicted a minute, and what a new leader restores."""

from datetime import UTC, datetime

import pytest

from scheduler.shell.evict.rate_limit import (
    EvictionRateLimiter,
    RecordedEviction,
    evicted_gpus_annotation,
    recorded_evictions,
)
from tests.support.clock import VirtualClock
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta

_GPU = 1000
_NOW = datetime(2026, 1, 1, tzinfo=UTC)  # by the clock of a process that begins
_NOW_S = _NOW.timestamp()
_DAY_S = 86_400


async def test_a_minute_has_so_many() -> None:
    """It begins with the first that is taken; what was taken beyond counts in the next one."""
    clock = VirtualClock()
    rate_limiter = EvictionRateLimiter(clock)
    await clock.advance(100)
    available = [rate_limiter.available(8 * _GPU)]
    rate_limiter.record(60 * _GPU)
    available.append(rate_limiter.available(8 * _GPU))
    rate_limiter.record(40 * _GPU)
    available.append(rate_limiter.available(8 * _GPU))
    await clock.advance(59)
    available.append(rate_limiter.available(8 * _GPU))
    await clock.advance(1)
    available.append(rate_limiter.available(8 * _GPU))
    await clock.advance(600)
    available.append(rate_limiter.available(8 * _GPU))

    assert [it // _GPU for it in available] == [64, 4, -36, -36, 28, 64]


def test_of_a_large_cluster_a_tenth() -> None:
    """Of one that has more than 640 GPUs."""
    rate_limiter = EvictionRateLimiter(VirtualClock())

    assert [rate_limiter.available(it * _GPU) // _GPU for it in (0, 640, 650, 4000)] == [
        64,
        64,
        65,
        400,
    ]


@pytest.mark.parametrize(
    ("evicted", "left"),
    [
        ([], 64),
        ([(10, 40)], 24),
        ([(10, 40), (5, 40)], -16),
        ([(90, 40), (80, 40)], 48),  # what was too much in a minute counts in the next one
        ([(60, 40)], 64),
        ([(50, 320)], -256),
        ([(250, 320)], 0),
        ([(_DAY_S, 10_000), (0, 1)], 63),
        ([(-_DAY_S, 40)], 24),  # a clock that is ahead: it was not later than now
    ],
)
async def test_what_was_evicted_before_counts(evicted: list[tuple[int, int]], left: int) -> None:
    """So many GPUs, so many seconds ago; it goes through the bucket in the order of time."""
    rate_limiter = EvictionRateLimiter(VirtualClock(_NOW))
    evictions = [RecordedEviction(_NOW_S - ago_s, gpus * _GPU) for ago_s, gpus in evicted]
    rate_limiter.restore(evictions, 320 * _GPU)
    assert rate_limiter.available(320 * _GPU) // _GPU == left


async def test_a_process_that_leads_again_forgets_nothing_of_its_own() -> None:
    """Nor does it count twice what it has done and what stands on a PodGroup."""
    rate_limiter = EvictionRateLimiter(VirtualClock(_NOW))
    rate_limiter.record(40 * _GPU)
    rate_limiter.restore([], 8 * _GPU)
    assert rate_limiter.available(8 * _GPU) == 24 * _GPU
    rate_limiter.restore([RecordedEviction(_NOW_S, 40 * _GPU)], 8 * _GPU)
    assert rate_limiter.available(8 * _GPU) == 24 * _GPU


def group(at: str, gpus: str) -> PodGroup:
    notes = {"kai.scheduler/last-eviction-timestamp": at, "trainer-kai.dev/evicted-gpus": gpus}
    return PodGroup(metadata=Meta(annotations={name: it for name, it in notes.items() if it}))


def test_what_stands_on_pod_groups() -> None:
    """Whatever is no time, no number or nothing is none; KAI writes the time alone."""
    at = "2026-01-01T00:00:00Z"
    groups = [group(at, "8"), group(at, "500m"), group(at, ""), group("", "8")]
    groups += [group("soon", "8"), group(at, "many"), group(at, "-8"), group(at, "0")]
    assert [*recorded_evictions(groups)] == [
        RecordedEviction(_NOW_S, 8000),
        RecordedEviction(_NOW_S, 500),
    ]


def test_what_a_pod_group_lost_within_a_minute_is_written_together() -> None:
    """Else the second eviction would hide the first."""
    meta = group("2026-01-01T00:00:00Z", "8").metadata
    written = [evicted_gpus_annotation(meta, 500, _NOW_S + later_s) for later_s in (0, 59, 60)]
    assert written == ["8500m", "8500m", "500m"]
