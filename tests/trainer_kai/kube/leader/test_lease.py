"""What is written in a Lease, how long it lasts, and the fence."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.support.case import Case, ids
from trainer_kai.errors import ConfigError
from trainer_kai.kube.leader.lease import (
    Fence,
    LeaderTerm,
    LeaseLost,
    LeaseRecord,
    LeaseTiming,
    micro_time,
)
from trainer_kai.kube.rest.response import Conflict, ErrorDetails, Unavailable

RECORD = LeaseRecord("a", 15, "then", "now", 1, "7")

# lease, deadline, retry, write -> the settings at fault
TIMINGS: list[Case[tuple[int, float, float, float], list[str]]] = [
    Case("the defaults are no fault", (15, 10, 2, 4), []),
    Case("short settings in proportion are no fault", (3, 2, 0.3, 0.8), []),
    Case("a write at the deadline must fit into the lease", (14, 10, 2, 4), ["lease_s"]),
    Case("one failed renewal is no reason", (15, 2.4, 2, 4), ["renew_deadline_s"]),
    Case("nothing lasts no time", (15, 10, 0, 0), ["retry_s", "write_s"]),
    Case(
        "every fault is reported",
        (0, 10, 9, 4),
        ["lease_s", "lease_s", "renew_deadline_s"],
    ),
]


@pytest.mark.parametrize("case", TIMINGS, ids=ids)
def test_timing(case: Case[tuple[int, float, float, float], list[str]]) -> None:
    """Times that cannot keep two leaders apart are refused."""
    faults: list[str] = []
    with suppress(ConfigError):
        try:
            LeaseTiming(*case.given)
        except ConfigError as error:
            faults = [fault.path for fault in error.faults]
            raise

    assert faults == case.want


MOMENT = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
TIMES: list[Case[tuple[datetime, str], str]] = [
    Case("microseconds, in UTC", (MOMENT, ""), "2026-03-01T12:00:00.000005Z"),
    Case(
        "another zone is written in UTC",
        (MOMENT.astimezone(timezone(timedelta(hours=2))), ""),
        "2026-03-01T12:00:00.000005Z",
    ),
    Case(
        "never the same twice",
        (MOMENT, "2026-03-01T12:00:00.000005Z"),
        "2026-03-01T12:00:00.000006Z",
    ),
    Case(
        "going back is a change as well",
        (MOMENT, "2026-03-01T13:00:00.000000Z"),
        "2026-03-01T12:00:00.000005Z",
    ),
]


@pytest.mark.parametrize("case", TIMES, ids=ids)
def test_micro_time(case: Case[tuple[datetime, str], str]) -> None:
    """As the API writes it, and always another one."""
    assert micro_time(*case.given) == case.want


# settles after, renewals of 10 s (sent, answered) -> allowed at 0, 5, 9.9, 10, 14.9, 25
TERMS: list[Case[tuple[float | None, list[tuple[float, float]]], list[int]]] = [
    Case("until its end and not at it", (None, []), [1, 1, 1, 0, 0, 0]),
    Case("counted from when it was sent", (None, [(5, 8)]), [1, 1, 1, 1, 1, 0]),
    Case("an answer at the end is too late", (None, [(5, 10)]), [1, 1, 1, 0, 0, 0]),
    Case("once too late, always too late", (None, [(5, 10), (12, 13)]), [1, 1, 1, 0, 0, 0]),
    Case("only a renewal settles it", (3, []), [0, 0, 0, 0, 0, 0]),
    Case("a renewal sent before that settles nothing", (3, [(2, 4)]), [0] * 6),
    Case("one sent since settles it", (3, [(2, 2.5), (3, 4)]), [0, 1, 1, 1, 0, 0]),
]


@pytest.mark.parametrize("case", TERMS, ids=ids)
def test_a_term(case: Case[tuple[float | None, list[tuple[float, float]]], list[int]]) -> None:
    """Nothing but renewals that were answered in time make it longer."""
    settles_after_s, renewals = case.given
    term = LeaderTerm(RECORD, 10, settles_after_s)
    allowed = []
    for now_s in (0, 5, 9.9, 10, 14.9, 25):
        while renewals and renewals[0][1] <= now_s:
            sent_s, answered_s = renewals[0]
            renewals = renewals[1:]
            term.extend(RECORD, sent_s, 10, answered_s)
        allowed.append(int(term.allows_write(now_s)))

    assert allowed == case.want


def test_doubt_makes_an_unsettled_term_wait_longer() -> None:
    """A settled one has nothing to wait for."""
    young, settled = LeaderTerm(RECORD, 10, 3), LeaderTerm(RECORD, 10)
    for term in (young, settled):
        term.restart_settling(6)
        term.extend(RECORD, 4, 10, 5)

    assert (young.is_settled, settled.is_settled) == (False, True)


def test_what_is_over_stays_over() -> None:
    """An answer that comes afterwards changes nothing."""
    term = LeaderTerm(RECORD, 10)
    term.end()
    term.extend(RECORD, 5, 10, 6)

    assert (term.allows_write(7), term.remaining_s(7)) == (False, 0)


def details(status: int) -> ErrorDetails:
    return ErrorDetails("PUT", status, "", "no")


# how a write ends that is let through at 3 s -> from when on nothing is under way, with write_s = 4
WRITES: list[Case[BaseException | None, float]] = [
    Case("an answered write is over at once", None, float("-inf")),
    Case("refused is answered", Conflict(details(409)), float("-inf")),
    Case(
        "a write that was never sent is over at once",
        Unavailable(details(0), was_sent=False),
        float("-inf"),
    ),
    Case("a write without response may last its time", Unavailable(details(0)), 7),
    Case("a cancelled write may last its time", asyncio.CancelledError(), 7),
]


@pytest.mark.parametrize("case", WRITES, ids=ids)
def test_writes_under_way(case: Case[BaseException | None, float]) -> None:
    """What was not answered may still be carried out, for as long as a write may take."""
    fence = Fence(LeaderTerm(RECORD, 10), 4, lambda: 3)
    with suppress(BaseException), fence.write():  # it is the fence that is looked at
        if case.given is not None:
            raise case.given

    assert fence.writes_end_s == case.want


def test_to_show_a_fence_is_no_write() -> None:
    """It is shut from the end of its term on."""
    now_s = 3.0
    fence = Fence(LeaderTerm(RECORD, 10), 4, lambda: now_s)
    shown = fence.is_open, fence.writes_end_s
    now_s = 10.0

    assert shown == (True, float("-inf"))
    assert (fence.is_open, fence.writes_end_s) == (False, float("-inf"))
    with pytest.raises(LeaseLost, match="the Lease expired"), fence.write():
        pytest.fail("a write was let through")
