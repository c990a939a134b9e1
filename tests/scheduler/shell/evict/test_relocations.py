"""Consolidation: the new place is reserved before the eviction, and is there on return."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import fragmented, relocated_trainjob
from tests.support.state.objects import gang_in, node, trainjob

_RESERVED = "trainer-kai.dev/reserved"


async def follow_suspension(harness: SchedulerHarness, name: str) -> None:
    """Suspend the JobSet of a TrainJob and delete its pods, as their controllers would."""
    _, jobset, _, *pods = trainjob(name, "")
    harness.api.put({**jobset, "spec": {"suspend": True}})
    for one in pods:
        harness.api.delete("Pod", one["metadata"]["name"])
    await harness.advance(0.2)


def remaining_pods(relocated: str) -> list[str]:
    return [f"t{'n' if relocated == 'tm' else 'm'}{i}" for i in range(2)]


def reservations(harness: SchedulerHarness, name: str) -> list[str]:
    """Return the reservations that were written on a PodGroup, one after the other."""
    bodies = [it.body for it in harness.api.writes if it.what == f"patch podgroups {name}"]
    annotations = [it["metadata"]["annotations"] for it in bodies]
    return [it[_RESERVED] or "" for it in annotations if _RESERVED in it]


async def test_a_moved_trainjob_finds_its_place_when_it_is_back(harness: SchedulerHarness) -> None:
    """Reservation, nomination, suspension; no other PodGroup gets the place meanwhile."""
    fragmented(harness)
    async with harness.leading():
        written, relocated = harness.api.written(), relocated_trainjob(harness)
        target, source = "n" if relocated == "tm" else "m", relocated[-1]
        assert written.index(f"patch podgroups pg-{relocated}") < written.index(
            f"patch trainjobs {relocated}"
        )
        assert written.index("patch pods/status c0") < written.index(f"patch trainjobs {relocated}")
        assert f'"nodes":{{"{target}":2}}' in reservations(harness, f"pg-{relocated}")[0]

        harness.api.put(*gang_in("borrower", "rival", 2))
        await follow_suspension(harness, relocated)
        assert harness.api.node_of_pods() == {
            "c0": source,
            **dict.fromkeys(remaining_pods(relocated), target),
        }

        job, jobset, _, *pods = trainjob(relocated, "")
        harness.api.put(job, jobset)
        await harness.advance(0.2)
        assert harness.api.node_of_pods() == {
            "c0": source,
            **dict.fromkeys(remaining_pods(relocated), target),
        }
        harness.api.put(*pods)
        await harness.advance(1)
        where = harness.api.node_of_pods()
        assert [where[f"{relocated}{i}"] for i in range(2)] == [target, target]
        assert "rival0" not in where
    assert reservations(harness, f"pg-{relocated}")[1:] == [""]


async def test_the_next_leader_knows_which_trainjob_is_going(harness: SchedulerHarness) -> None:
    """Its JobSet has not followed yet: its place is kept, and no other TrainJob is moved."""
    fragmented(harness)
    async with harness.leading():
        relocated = relocated_trainjob(harness)
    await harness.advance(100)
    other = harness.successor()
    async with other.leading():
        await other.advance(20)
        assert relocated_trainjob(harness) == relocated
        assert len(reservations(harness, f"pg-{relocated}")) == 1
        assert "c0" not in harness.api.node_of_pods()


async def test_a_trainjob_that_goes_slowly_is_going_all_the_same(harness: SchedulerHarness) -> None:
    """Its JobSet has followed, and for a minute no controller deletes its pods."""
    fragmented(harness)
    async with harness.leading():
        relocated = relocated_trainjob(harness)
        _, jobset, *_ = trainjob(relocated, "")
        harness.api.put({**jobset, "spec": {"suspend": True}})
        await harness.advance(100)
        assert relocated_trainjob(harness) == relocated
        assert len(reservations(harness, f"pg-{relocated}")) == 1


async def test_a_place_that_is_lost_meanwhile_becomes_another(harness: SchedulerHarness) -> None:
    """Its node takes no pods any more; another one does, and is reserved like the first."""
    fragmented(harness)
    async with harness.leading():
        relocated = relocated_trainjob(harness)
        await follow_suspension(harness, relocated)
        target = "n" if relocated == "tm" else "m"
        harness.api.put(node("spare", gpu=2), node(target, gpu=4, spec={"unschedulable": True}))
        await harness.advance(0.2)
        harness.api.put(*gang_in("borrower", "rival", 2))
        await harness.advance(0.2)
        assert "rival0" not in harness.api.node_of_pods()
    first, second = reservations(harness, f"pg-{relocated}")
    assert second == first.replace(f'"{target}":2', '"spare":2')


async def test_no_trainjob_moves_if_its_place_cannot_be_written(harness: SchedulerHarness) -> None:
    """It is tried again; no TrainJob was suspended before."""
    refusals = [422, 422]
    harness.api.refuse_with = lambda what: (
        refusals.pop() if what.startswith("patch podgroups pg-t") and refusals else None
    )
    fragmented(harness)
    async with harness.leading():
        await harness.advance(2.5)
        assert not refusals
        assert not [it for it in harness.api.written() if "trainjobs" in it]
        await harness.advance(4)
        report = harness.api.written()

    (written, *_) = [i for i, it in enumerate(report) if it.startswith("patch podgroups pg-t")]
    assert min(i for i, it in enumerate(report) if "trainjobs" in it) > written


async def test_no_trainjob_moves_without_consolidation(harness: SchedulerHarness) -> None:
    """Only if its queue offers consolidation."""
    fragmented(harness, {})
    async with harness.leading():
        await harness.advance(10)

    assert not [it for it in harness.api.written() if "trainjobs" in it]
