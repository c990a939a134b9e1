"""M4: a scheduler that is started anew evicts no more than one that goes on."""

from typing import Final

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, node, pod, queue_with_quota
from trainer_kai.api.names import EVICTED_GPUS

_EACH: Final = 40  # GPUs of one gang
_MANY: Final = 8
_RATE: Final = 64  # GPUs a minute


def borrow_all(scheduler: SchedulerHarness) -> None:
    """Let a queue borrow all nodes, and their owner ask for all of them back, gang by gang."""
    asks = {"nvidia.com/gpu": str(_EACH)}
    scheduler.api.put(queue_with_quota("lender", _EACH * _MANY), queue_with_quota("borrower", 0))
    for i in range(_MANY):
        scheduler.api.put(node(f"n{i}", gpu=_EACH))
        scheduler.api.put(
            group(f"b{i}", queue="borrower"), pod(f"b{i}", f"b{i}", node=f"n{i}", asks=asks)
        )
        scheduler.api.put(group(f"l{i}", queue="lender"), pod(f"l{i}", f"l{i}", asks=asks))


def evicted(scheduler: SchedulerHarness) -> int:
    """Return how many GPUs were taken."""
    return _EACH * sum(it.startswith("delete pods b") for it in scheduler.api.written())


async def take_all_back(lasting_s: int) -> list[int]:
    """Return how many GPUs were taken by the end of each minute, by leaders that last so long."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler)
    found = []
    for _ in range(180 // lasting_s):
        async with scheduler.leading():
            for turn in range(lasting_s // 6):
                await scheduler.advance(6 if turn else 5.9)  # 0.1 s passes as it begins to lead
                found.append(evicted(scheduler))
        scheduler = scheduler.successor()
    return found[9::10]


async def test_a_new_leader_goes_on_with_what_was_evicted() -> None:
    """Of one that is killed every six seconds the victims lose no more: 64 GPUs a minute."""
    alone, killed = await take_all_back(180), await take_all_back(6)
    assert killed == alone


async def test_what_was_taken_stands_on_the_pod_group() -> None:
    """It says how many GPUs went."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler)
    async with scheduler.leading():
        await scheduler.advance(1)
    gone = [f"b{i}" for i in range(_MANY) if not scheduler.api.has("Pod", f"b{i}")]
    noted = [scheduler.api.get("PodGroup", it)["metadata"]["annotations"] for it in gone]
    assert [it[EVICTED_GPUS] for it in noted] == ["40"] * len(gone)
    assert gone
