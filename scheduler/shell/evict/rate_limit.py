"""Limits how many GPUs are evicted a minute: a mistake in a queue must not empty a cluster.

It is a token bucket that is refilled every minute. An eviction that starts while tokens are left
may take the bucket below zero, because a preemptor gets all its victims or none; the next one waits
for a minute in which tokens are left.

A process that begins to lead restores the evictions from before: each is recorded on its PodGroup,
and all of them go through the bucket once more. Pods without a PodGroup leave no record, and a
PodGroup that is deleted takes its record with it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from scheduler.state.inputs import epoch_s
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import EVICTED_GPUS, LAST_EVICTION
from trainer_kai.api.quantity import QuantityError, format_milli, milli
from trainer_kai.service.clock import Clock

_MIN_GPUS: Final = 64_000  # thousandths of a GPU
_CLUSTER_PART: Final = 10  # a tenth of all GPUs
_REFILL_S: Final = 60.0


class RecordedEviction(NamedTuple):
    """When GPUs were evicted, in seconds since 1970, and how many thousandths of one."""

    at_s: float
    gpus: int


class _Bucket(NamedTuple):
    """GPUs that were taken and are not refilled yet, and when their minute began."""

    gpus: int = 0
    since_s: float = 0.0

    def refilled(self, size: int, now_s: float) -> "_Bucket":
        minutes = max(0, int((now_s - self.since_s) // _REFILL_S))
        return _Bucket(max(0, self.gpus - minutes * size), self.since_s + minutes * _REFILL_S)

    def with_taken(self, gpus: int, now_s: float) -> "_Bucket":
        is_first = gpus > 0 and not self.gpus
        return _Bucket(max(0, self.gpus + gpus), now_s if is_first else self.since_s)


class EvictionRateLimiter:
    """Limits evictions to the bucket; all numbers are thousandths of GPUs."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._bucket = _Bucket()

    def restore(self, evictions: Iterable[RecordedEviction], gpus: int) -> None:
        """Restore evictions from before this process led, in a cluster of so many GPUs."""
        now_s = self._clock.now().timestamp()
        clock_offset_s = self._clock.monotonic_s() - now_s
        size, bucket = _bucket_size(gpus), _Bucket()
        for at_s, number in sorted(
            RecordedEviction(min(it.at_s, now_s), it.gpus) for it in evictions
        ):
            bucket = bucket.refilled(size, at_s + clock_offset_s).with_taken(
                number, at_s + clock_offset_s
            )
        ours = self._bucket.refilled(size, self._clock.monotonic_s())
        self._bucket = max(ours, bucket.refilled(size, self._clock.monotonic_s()))

    def available(self, gpus: int) -> int:
        size = _bucket_size(gpus)
        self._bucket = self._bucket.refilled(size, self._clock.monotonic_s())
        return size - self._bucket.gpus

    def record(self, gpus: int) -> None:
        """Take note that so many were evicted; below zero, that they were not after all."""
        self._bucket = self._bucket.with_taken(gpus, self._clock.monotonic_s())


def recorded_evictions(groups: Iterable[PodGroup]) -> Iterator[RecordedEviction]:
    for group in groups:
        eviction = _recorded_eviction(group.metadata)
        if eviction is not None:
            yield eviction


def evicted_gpus_annotation(meta: Meta, gpus: int, now_s: float) -> str:
    """Return the annotation of a PodGroup that loses GPUs, those of the last minute included."""
    last = _recorded_eviction(meta)
    more = last.gpus if last is not None and now_s - last.at_s < _REFILL_S else 0
    return format_milli(gpus + more)


def reduced_gpus_annotation(meta: Meta, gpus: int) -> str:
    """Return the annotation of a PodGroup that did not lose so many GPUs after all."""
    last = _recorded_eviction(meta)
    return format_milli(max(last.gpus - gpus, 0) if last is not None else 0)


def _recorded_eviction(meta: Meta) -> RecordedEviction | None:
    at_s = epoch_s(meta.annotations.get(LAST_EVICTION, ""))
    try:
        gpus = milli(meta.annotations.get(EVICTED_GPUS, "0"))
    except QuantityError:
        return None
    return RecordedEviction(at_s, gpus) if at_s and gpus > 0 else None


def _bucket_size(gpus: int) -> int:
    return max(_MIN_GPUS, gpus // _CLUSTER_PART)
