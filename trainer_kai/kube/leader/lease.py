"""The Lease as a value, the term of a leader, and the fence in front of the writes of a leader.

Values and sums only; `trainer_kai.kube.leader.elector` elects and holds the contract.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from trainer_kai.errors import ConfigError, FieldError, TrainerKaiError
from trainer_kai.kube.rest.errors import ApiError, Unavailable

__all__ = [
    "Fence",
    "InFlightWrite",
    "LeaderTerm",
    "LeaseLost",
    "LeaseRecord",
    "LeaseTiming",
    "micro_time",
]


class LeaseLost(TrainerKaiError):
    """A write was stopped: this process may not lead any more."""


class LeaseRecord(NamedTuple):
    """The spec of a Lease that we read and write, and the version it was read at."""

    holder: str  # "" for none
    duration_s: int
    acquired: str  # RFC 3339, as its holder wrote it: to show, never to reckon with
    renewed: str  # likewise; "" when it was never held
    transitions: int
    version: str = ""


@dataclass(frozen=True)
class LeaseTiming:
    """How long everything takes; the usual times are those of `LeaderSettings`."""

    lease_s: int
    """A Lease that did not change for so long may be taken; whole seconds, as the API has it."""
    renew_deadline_s: float
    """A leader that could not renew for so long stops leading."""
    retry_s: float
    """How often a leader renews and a follower looks."""
    write_s: float
    """How long a write of the leader may be under way: its time-out must not be longer."""

    def __post_init__(self) -> None:
        faults = [
            FieldError(name, "must be more than 0")
            for name in ("lease_s", "renew_deadline_s", "retry_s", "write_s")
            if getattr(self, name) <= 0
        ]
        if self.lease_s <= self.renew_deadline_s + self.write_s:
            message = (
                "must be more than renew_deadline_s and write_s together: a write sent at the "
            )
            faults.append(FieldError("lease_s", message + "deadline must be over before it ends"))
        if self.renew_deadline_s <= 1.2 * self.retry_s:
            message = "must be more than 1.2 times retry_s: one failed renewal is no reason to stop"
            faults.append(FieldError("renew_deadline_s", message))
        if faults:
            raise ConfigError(faults)

    @property
    def request_s(self) -> float:
        """Return how long to wait for one answer: half the deadline, so that two tries fit in."""
        return self.renew_deadline_s / 2


class LeaderTerm:
    """One stretch of leading: until when it may be acted upon, on our own clock.

    A term that began with a Lease of unknown past is settled only by a renewal sent at
    *settles_after_s* or later; before that nothing may be written.
    """

    def __init__(
        self, record: LeaseRecord, until_s: float, settles_after_s: float | None = None
    ) -> None:
        self.record: LeaseRecord | None = record  # as it was last seen to be ours; None: missing
        self.until_s = until_s
        self.settles_after_s = settles_after_s  # None: nothing to wait for, or not any more
        self.writes_stopped = False  # no more writes, though the Lease is still ours
        self.ended = False

    @property
    def is_settled(self) -> bool:
        """Say whether no other process can be leading."""
        return self.settles_after_s is None

    def remaining_s(self, now_s: float) -> float:
        """Return how much of the term is left if it is never renewed."""
        return 0.0 if self.ended else self.until_s - now_s

    def allows_write(self, now_s: float) -> bool:
        """Say whether a write may be sent at this moment."""
        return self.is_settled and not self.writes_stopped and self.remaining_s(now_s) > 0

    def extend(self, record: LeaseRecord, sent_s: float, lasts_s: float, now_s: float) -> None:
        """Go on for longer, unless the answer came when the term had already run out."""
        self.record = record
        if now_s >= self.until_s:
            self.ended = True
        self.until_s = sent_s + lasts_s
        if self.settles_after_s is not None and sent_s >= self.settles_after_s:
            self.settles_after_s = None

    def restart_settling(self, settles_after_s: float) -> None:
        """Begin to settle anew: what we held without a break may have had one."""
        if self.settles_after_s is not None:
            self.settles_after_s = settles_after_s

    def end(self) -> None:
        """End it for good, whatever is answered later."""
        self.ended = True


@dataclass(eq=False)
class InFlightWrite:
    """One write on its way."""

    ends_s: float
    may_still_apply: bool = False  # it may be carried out yet, though no task waits for it


class Fence:
    """What is asked right before each write of a leader is sent, with no `await` in between.

    Work writes with `client.with_fence(fence)`. To ask before the client is called is not enough:
    it sends again for half a minute, and the fence may have fallen by then.
    """

    def __init__(self, term: LeaderTerm, write_s: float, now_s: Callable[[], float]) -> None:
        self._term = term
        self.write_s = write_s
        self._now_s = now_s
        self._abandoned_until_s = -math.inf  # as `writes_end_s`, of writes that lost their task
        self._in_flight: set[InFlightWrite] = set()

    @property
    def writes_end_s(self) -> float:
        """Return from when on no write without an answer can be under way."""
        return max([self._abandoned_until_s, *(it.ends_s for it in self._in_flight)])

    @property
    def is_open(self) -> bool:
        """Say whether a write would be let through; this is only for display."""
        return self._term.allows_write(self._now_s())

    @contextmanager
    def write(self) -> Iterator[InFlightWrite]:
        """Let one sending through and see whether it was answered; else raise `LeaseLost`.

        This is for `FencedTransport`: what is sent in here is sent once, and is over in `write_s`.
        """
        write = InFlightWrite(self._now_s() + self.write_s)
        if not self.is_open:
            message = "the lease ran out: another leader may be at work"
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
    """Write a time as the API's MicroTime, and never the same as *other_than*.

    A write that changes nothing leaves the version as it is, and followers would not see the
    renewal.
    """
    text = _micro(now)
    return text if text != other_than else _micro(now + timedelta(microseconds=1))


def _micro(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
