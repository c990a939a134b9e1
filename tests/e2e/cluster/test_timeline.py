"""The witness: what it records, what it waits for, and when it says that it saw too little."""

import asyncio
from typing import TypeAlias

import pytest

from e2e.cluster.resources import CONFIG_MAPS, PODS, Obj, Resource
from e2e.cluster.timeline import Gap, Key, Moment, State, Timeline, replay
from tests.support.case import Case, ids
from tests.support.fakes.scripted_api import CLOSED, ScriptedApi, WatchLine, event


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
ADDED, CHANGED = event("ADDED", flag(3)), event("MODIFIED", flag(3))
GONE = event("DELETED", flag(4))

# what a server lists, and what comes on its watch afterwards
Watched: TypeAlias = tuple[list[Obj], list[WatchLine]]
GAPS: list[Case[Watched, str]] = [
    Case("a change of an object never seen", ([], [CHANGED]), f"MODIFIED of {SENSELESS}"),
    Case("an end of an object never seen", ([], [GONE]), f"DELETED of {SENSELESS}"),
    Case("a beginning of what is there", ([flag(2)], [ADDED]), f"ADDED of {SENSELESS}"),
    Case("a version that goes back", ([flag(5)], [CHANGED]), f"{BACK} 3"),
    Case("a version that stands still", ([flag(3)], [CHANGED]), f"{BACK} 3"),
    Case("an error on the watch", ([], [EXPIRED]), "configmaps: the watch failed: too old resou"),
    Case("the end of the watch", ([], [CLOSED]), "configmaps: the API server closed the watch"),
    Case("a broken connection", ([], [OSError("cut")]), "configmaps: the watch broke: OSError('cu"),
    Case("a torn line", ([], [b'{"type": "ADD']), "configmaps: the watch broke: JSONDecode"),
    Case(
        "of several gaps the message names the first",
        ([], [CHANGED, CLOSED]),
        f"MODIFIED of {SENSELESS}",
    ),
]


@pytest.mark.parametrize("case", GAPS, ids=ids)
async def test_a_gap_fails_a_wait_and_a_question(case: Case[Watched, str]) -> None:
    """Waiting ends at once and says what was wrong; what was not seen may have been."""
    listed, lines = case.given
    api = ScriptedApi(*listed)
    api.send(*lines)

    with pytest.raises(Gap) as caught:
        async with timeline(api) as seen:
            await seen.until(lambda _: False, "nothing", timeout_s=2)

    assert case.want in str(caught.value)
    with pytest.raises(Gap):
        seen.never(lambda _: False, "anything")


async def test_a_gap_fails_the_end_unless_an_error_does() -> None:
    """No test passes on half a record; the error of a test is not covered by a gap."""
    api = ScriptedApi()
    api.send(CLOSED, CLOSED)

    with pytest.raises(Gap, match="closed the watch"):
        async with timeline(api):
            pass
    with pytest.raises(ZeroDivisionError):
        async with timeline(api):
            raise ZeroDivisionError


# what is listed at first, and what comes on the watch -> what is recorded
LATE: list[Case[tuple[list[Obj], list[bytes]], list[str]]] = [
    Case("a new object", ([], [ADDED]), ["ADDED"]),
    Case("a change", ([flag(2)], [CHANGED]), ["LISTED", "MODIFIED"]),
    Case("a deletion", ([flag(2)], [GONE]), ["LISTED", "DELETED"]),
    Case("what a list knows nothing of any more", ([], [ADDED, GONE]), ["ADDED", "DELETED"]),
]


@pytest.mark.parametrize("case", LATE, ids=ids)
async def test_settle_waits_for_a_late_event(
    case: Case[tuple[list[Obj], list[bytes]], list[str]],
) -> None:
    """What the API did up to the end must be in the record before it counts as whole."""
    first, lines = case.given
    api = ScriptedApi(*first)

    async with timeline(api) as seen:
        api.relisted, api.version = lines, 4
        settling = asyncio.create_task(seen.settle())
        for _ in range(10):  # every task that can go on does so
            await asyncio.sleep(0)
        assert not settling.done()
        api.send(*lines)
        await asyncio.wait_for(settling, timeout=60)

        assert [moment.type for moment in seen.moments] == case.want


async def test_settle_waits_for_nothing_that_came_after_it_began() -> None:
    """Whoever goes on writing must not keep a test from ending."""
    api = ScriptedApi()

    async with timeline(api) as seen:
        api.relisted, api.version = [event("ADDED", flag(5))], 4
        await asyncio.wait_for(seen.settle(), timeout=60)


async def test_an_end_that_cannot_be_checked_is_a_gap() -> None:
    """When the server holds the last events no more, the record may not be whole."""
    api = ScriptedApi()

    with pytest.raises(Gap, match=r"configmaps: the end cannot be checked: .*too old"):
        async with timeline(api):
            api.relisted, api.version = [EXPIRED], 9


def test_never_names_the_moment() -> None:
    """What lasted from one write to the next is found, and named with the write that began it."""
    down = moment("MODIFIED", flag(3, "down"))
    seen = recorded(moment("ADDED", flag(2)), down, moment("MODIFIED", flag(4)))

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


BEFORE = moment("LISTED", flag(2))
# moments -> the moments replayed, each with what the flag says right after it
REPLAYS = [
    Case(
        "what was there before is one state, also at writes that are older in the store",
        [moment("ADDED", pod(1), PODS), moment("LISTED", pod(2), PODS), BEFORE],
        [("LISTED", "up"), ("ADDED", "up")],
    ),
    Case(
        "a change shows at once",
        [BEFORE, moment("MODIFIED", flag(3, "down"))],
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
