"""The Lease as a value, the term of a leader, and the fence in front of its writes.

Pure: `trainer_kai.kube.leader.elector` does the election and has the contract.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from trainer_kai.errors import ConfigError, FieldError, TrainerKaiError
from trainer_kai.kube.rest.errors import ApiError, Unavailable


class LeaseLost(TrainerKaiError):
    """A write was stopped, because this process may not lead any more."""


class LeaseRecord(NamedTuple):
    """The spec of a Lease that we read and write, and its version."""

    holder: str  # "" for none
    duration_s: int
    acquired: str  # RFC 3339, by the clock of the holder: only for display
    renewed: str  # likewise; "" if it was never held
    transitions: int
    version: str = ""


@dataclass(frozen=True)
class LeaseTiming:
    """The durations of leader election; the defaults are in `LeaderSettings`."""

    lease_s: int
    """A Lease without changes for this long may be acquired; whole seconds, as in the API."""
    renew_deadline_s: float
    """A leader that could not renew for this long stops leading."""
    retry_s: float
    """The interval of renewals of a leader and of reads of a follower."""
    write_s: float
    """The time limit for a write of the leader."""

    def __post_init__(self) -> None:
        faults = [
            FieldError(name, "must be more than 0")
            for name in ("lease_s", "renew_deadline_s", "retry_s", "write_s")
            if getattr(self, name) <= 0
        ]
        if self.lease_s <= self.renew_deadline_s + self.write_s:
            message = (
                "must be more than renew_deadline_s plus write_s: a write that is sent at the "
            )
            faults.append(
                FieldError("lease_s", message + "deadline must finish before the Lease expires")
            )
        if self.renew_deadline_s <= 1.2 * self.retry_s:
            message = "must be more than 1.2 times retry_s: one failed renewal is no reason to stop"
            faults.append(FieldError("renew_deadline_s", message))
        if faults:
            raise ConfigError(faults)

    @property
    def request_s(self) -> float:
        """Return the time limit for one response: half the deadline, so that two attempts fit."""
        return self.renew_deadline_s / 2


class LeaderTerm:
    """One period of leading, with its end on our own clock.

    A term that began with a Lease of unknown history is settled only by a renewal sent at
    *settles_after_s* or later; before that nothing may be written.
    """

    def __init__(
        self, record: LeaseRecord, until_s: float, settles_after_s: float | None = None
    ) -> None:
        self.record: LeaseRecord | None = record  # as it was last known to be ours; None: missing
        self.until_s = until_s
        self.settles_after_s = settles_after_s  # None: nothing to wait for, or not any more
        self.writes_stopped = False  # no more writes, though the Lease is still ours
        self.ended = False

    @property
    def is_settled(self) -> bool:
        """Say whether no other process can be leading."""
        return self.settles_after_s is None

    def remaining_s(self, now_s: float) -> float:
        """Return the rest of the term if it is not renewed."""
        return 0.0 if self.ended else self.until_s - now_s

    def allows_write(self, now_s: float) -> bool:
        """Say whether a write may be sent at this moment."""
        return self.is_settled and not self.writes_stopped and self.remaining_s(now_s) > 0

    def extend(self, record: LeaseRecord, sent_s: float, lasts_s: float, now_s: float) -> None:
        """Extend the term, unless the response came after its end."""
        self.record = record
        if now_s >= self.until_s:
            self.ended = True
        self.until_s = sent_s + lasts_s
        if self.settles_after_s is not None and sent_s >= self.settles_after_s:
            self.settles_after_s = None

    def restart_settling(self, settles_after_s: float) -> None:
        """Begin to settle again, because the term may have been interrupted."""
        if self.settles_after_s is not None:
            self.settles_after_s = settles_after_s

    def end(self) -> None:
        """End the term for good, whatever response still arrives."""
        self.ended = True


@dataclass(eq=False)
class InFlightWrite:
    """A write in progress."""

    ends_s: float
    may_still_apply: bool = False  # it may still be executed, though no task waits for it


class Fence:
    """The check before each write of a leader is sent, without an `await` in between.

    Work writes with `client.with_fence(fence)`. A check before the client is called is not enough:
    the client retries for half a minute, and the fence may have fallen by then.
    """

    def __init__(self, term: LeaderTerm, write_s: float, now_s: Callable[[], float]) -> None:
        self._term = term
        self.write_s = write_s
        self._now_s = now_s
        self._abandoned_until_s = -math.inf  # like `writes_end_s`, for writes that lost their task
        self._in_flight: set[InFlightWrite] = set()

    @property
    def writes_end_s(self) -> float:
        """Return the time from which on no unanswered write can be in progress."""
        return max([self._abandoned_until_s, *(it.ends_s for it in self._in_flight)])

    @property
    def is_open(self) -> bool:
        """Say whether a write would pass; only for display."""
        return self._term.allows_write(self._now_s())

    @contextmanager
    def write(self) -> Iterator[InFlightWrite]:
        """Let one request pass, and record whether it was answered; else raise `LeaseLost`.

        For `FencedTransport`: the request inside is sent once, and ends within `write_s`.
        """
        write = InFlightWrite(self._now_s() + self.write_s)
        if not self.is_open:
            message = "the Lease expired: another leader may be active"
            raise LeaseLost(message)
        self._in_flight.add(write)
        try:
            yield write
        except BaseException as error:
            write.may_still_apply = not isinstance(error, ApiError) or (
                isinstance(error, Unavailable) and error.was_sent
            )
            raise
        finally:
            self._in_flight.remove(write)
            if write.may_still_apply:
                self._abandoned_until_s = max(self._abandoned_until_s, write.ends_s)


def micro_time(now: datetime, other_than: str = "") -> str:
    """Return a time as the API's MicroTime that differs from *other_than*.

    A write without a change keeps the version, and followers would not notice the renewal.
    """
    text = _micro(now)
    return text if text != other_than else _micro(now + timedelta(microseconds=1))


def _micro(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
