"""The witness: what it records, what it waits for, and when it says that it saw too little."""

import asyncio
from typing import NamedTuple

import pytest

from e2e.cluster.resources import CONFIG_MAPS, PODS, Obj, Resource
from e2e.cluster.timeline import Gap, Key, Moment, State, Timeline, replay
from tests.support.case import Case, ids
from tests.support.fakes.scripted_api import CLOSED, ScriptedApi, WatchLine, event


class GivenWatch(NamedTuple):
    """What a server lists, and what comes on its watch afterwards."""

    listed: list[Obj]
    lines: list[WatchLine]


def flag(version: int, value: str = "up") -> Obj:
    """Return the one ConfigMap of these tests."""
    metadata = {"namespace": "ns", "name": "flag", "resourceVersion": str(version)}
    return {"metadata": metadata, "data": {"value": value}}


def pod(version: int) -> Obj:
    """Return the one pod of these tests."""
    return {"metadata": {"namespace": "ns", "name": "pod", "resourceVersion": str(version)}}


def moment(kind: str, obj: Obj, resource: Resource = CONFIG_MAPS) -> Moment:
    """Return a moment; the later its version, the later it reached us."""
    metadata = obj["metadata"]
    version = int(metadata["resourceVersion"])
    key = Key(resource, metadata["namespace"], metadata["name"])
    return Moment(version / 10, version, kind, key, obj)


FLAG = Key(CONFIG_MAPS, "ns", "flag")
EXPIRED = b'{"type": "ERROR", "object": {"message": "too old resource version"}}'
SENSELESS = "configmaps ns/flag makes no sense here"
BACK = "configmaps ns/flag went back to version"

GAPS = [
    Case(
        "a change of what nobody saw",
        GivenWatch([], [event("MODIFIED", flag(2))]),
        f"MODIFIED of {SENSELESS}",
    ),
    Case(
        "an end of what nobody saw",
        GivenWatch([], [event("DELETED", flag(2))]),
        f"DELETED of {SENSELESS}",
    ),
    Case(
        "a beginning of what is there",
        GivenWatch([flag(2)], [event("ADDED", flag(3))]),
        f"ADDED of {SENSELESS}",
    ),
    Case(
        "a version that goes back",
        GivenWatch([flag(5)], [event("MODIFIED", flag(4))]),
        f"{BACK} 4",
    ),
    Case(
        "a version that stands still",
        GivenWatch([flag(5)], [event("MODIFIED", flag(5))]),
        f"{BACK} 5",
    ),
    Case(
        "an error on the watch",
        GivenWatch([], [EXPIRED]),
        "configmaps: the watch failed: too old resource version",
    ),
    Case(
        "the end of the watch",
        GivenWatch([], [CLOSED]),
        "configmaps: the API server closed the watch",
    ),
    Case(
        "a broken connection",
        GivenWatch([], [ConnectionResetError("cut")]),
        "configmaps: the watch broke: ConnectionResetError('cut')",
    ),
    Case(
        "a torn line", GivenWatch([], [b'{"type": "ADD']), "configmaps: the watch broke: JSONDecode"
    ),
    Case(
        "of several gaps the first is told",
        GivenWatch([], [event("MODIFIED", flag(2)), CLOSED]),
        f"MODIFIED of {SENSELESS}",
    ),
]


@pytest.mark.parametrize("case", GAPS, ids=ids)
async def test_a_gap_fails_whoever_waits(case: Case[GivenWatch, str]) -> None:
    """A record that cannot be whole ends the waiting at once and says what was wrong."""
    api = ScriptedApi(*case.given.listed)
    api.send(*case.given.lines)

    with pytest.raises(Gap) as caught:
        async with timeline(api) as seen:
            await seen.until(lambda _: False, "nothing", timeout_s=2)

    assert case.want in str(caught.value)


async def test_a_gap_nobody_waited_for_fails_the_end() -> None:
    """Leaving checks the whole record, so a test cannot pass on half of one."""
    api = ScriptedApi()
    api.send(CLOSED)

    with pytest.raises(Gap, match="closed the watch"):
        async with timeline(api):
            pass


async def test_the_error_of_a_test_is_not_covered_by_a_gap() -> None:
    """Who leaves by an error hears of that error and not of what it brought about."""
    api = ScriptedApi()
    api.send(CLOSED)

    with pytest.raises(ZeroDivisionError):
        async with timeline(api):
            raise ZeroDivisionError


class WatchEnding(NamedTuple):
    """What is listed at first, what comes on the watch, and the version of the store at the end."""

    first: list[Obj]
    lines: list[bytes]
    version: int


LATE = [
    Case("a new object", WatchEnding([], [event("ADDED", flag(3))], 3), ["ADDED"]),
    Case(
        "a change",
        WatchEnding([flag(2)], [event("MODIFIED", flag(3))], 3),
        ["LISTED", "MODIFIED"],
    ),
    Case(
        "a deletion",
        WatchEnding([flag(2)], [event("DELETED", flag(4))], 4),
        ["LISTED", "DELETED"],
    ),
    Case(
        "what came and went, of which a list knows nothing",
        WatchEnding([], [event("ADDED", flag(3)), event("DELETED", flag(4))], 4),
        ["ADDED", "DELETED"],
    ),
]


@pytest.mark.parametrize("case", LATE, ids=ids)
async def test_settle_waits_for_a_late_event(case: Case[WatchEnding, list[str]]) -> None:
    """What the API did up to the end must be in the record before it counts as whole."""
    api = ScriptedApi(*case.given.first)

    async with timeline(api) as seen:
        api.relisted, api.version = case.given.lines, case.given.version
        settling = asyncio.create_task(seen.settle())
        await pass_the_turn()
        assert not settling.done()
        api.send(*case.given.lines)
        await asyncio.wait_for(settling, timeout=60)

        assert [moment.type for moment in seen.moments] == case.want


async def test_settle_waits_for_nothing_that_came_after_it_began() -> None:
    """Whoever goes on writing must not keep a test from ending."""
    api = ScriptedApi()

    async with timeline(api) as seen:
        api.relisted, api.version = [event("ADDED", flag(5))], 4
        await asyncio.wait_for(seen.settle(), timeout=60)


async def test_an_end_that_cannot_be_checked_is_a_gap() -> None:
    """When the server holds the last events no more, nobody knows whether the record is whole."""
    api = ScriptedApi()

    with pytest.raises(Gap, match=r"configmaps: the end cannot be checked: .*too old"):
        async with timeline(api):
            api.relisted, api.version = [EXPIRED], 9


async def test_never_trusts_no_record_with_a_gap() -> None:
    """What was not seen cannot be said never to have been."""
    api = ScriptedApi()
    api.send(CLOSED)
    with pytest.raises(Gap):
        async with timeline(api) as seen:
            await seen.until(lambda _: False, "the gap", timeout_s=2)

    with pytest.raises(Gap):
        seen.never(lambda _: False, "anything")


def test_never_names_the_moment() -> None:
    """What lasted from one write to the next is found, and named with the write that began it."""
    seen = recorded(
        moment("ADDED", flag(2)),
        moment("MODIFIED", flag(3, "down")),
        moment("MODIFIED", flag(4)),
    )

    with pytest.raises(AssertionError) as caught:
        seen.never(lambda state: value_in(state) == "down", "the flag was down")
    seen.never(lambda state: value_in(state) == "sideways", "the flag was sideways")

    assert str(caught.value) == (
        "the flag was down: so it was at 0.300 s, after MODIFIED configmaps ns/flag"
    )


def test_history_is_the_order_of_the_store() -> None:
    """Watches of two kinds overtake one another; their versions put the moments in order."""
    seen = recorded(
        moment("ADDED", flag(2)), moment("MODIFIED", flag(4)), moment("ADDED", pod(3), PODS)
    )

    assert [at.version for at in seen.history()] == [2, 3, 4]


# moments -> the moments replayed, each with what the flag says right after it
REPLAYS = [
    Case("before the first write there is nothing where nothing was listed", [], []),
    Case(
        "what was there before is one state, however many objects it is",
        [moment("LISTED", flag(1)), moment("LISTED", pod(2), PODS)],
        [("LISTED", "up")],
    ),
    Case(
        "what was there before is known at the first write, though that is older in the store",
        [moment("ADDED", pod(1), PODS), moment("LISTED", flag(2))],
        [("LISTED", "up"), ("ADDED", "up")],
    ),
    Case(
        "a change shows at once",
        [moment("LISTED", flag(1)), moment("MODIFIED", flag(2, "down"))],
        [("LISTED", "up"), ("MODIFIED", "down")],
    ),
    Case(
        "what is deleted is gone, and may come back",
        [moment("ADDED", flag(1)), moment("DELETED", flag(2)), moment("ADDED", flag(3))],
        [("ADDED", "up"), ("DELETED", None), ("ADDED", "up")],
    ),
]


@pytest.mark.parametrize("case", REPLAYS, ids=ids)
def test_replay(case: Case[list[Moment], list[tuple[str, str | None]]]) -> None:
    """What was there is shown first, then every write with the state right after it."""
    assert [(at.type, value_in(state)) for at, state in replay(case.given)] == case.want


def timeline(api: ScriptedApi) -> Timeline:
    """Return a timeline of the ConfigMaps of one namespace."""
    return Timeline(api.as_api(), [CONFIG_MAPS], namespace="ns")


def recorded(*moments: Moment) -> Timeline:
    """Return a timeline that has seen some moments and is over."""
    seen = timeline(ScriptedApi())
    seen.moments += moments
    return seen


def value_in(state: State) -> str | None:
    """Return what the flag says, or None when there is none."""
    value: str | None = state[FLAG]["data"]["value"] if FLAG in state else None
    return value


async def pass_the_turn() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)
