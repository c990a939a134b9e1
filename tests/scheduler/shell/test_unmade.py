"""What groups are told whose pods are refused."""

from tests.scheduler.shell.conftest import House
from tests.support.clusters import node
from tests.support.fakecluster import Fields
from tests.support.refusals import GROUP, QUOTA, WHY, grouped, jobset, member, refusal
from trainer_kai.api.meta import Key


def conditions(house: House) -> list[Fields]:
    """Return what the group is told."""
    status = house.api.get("PodGroup", GROUP).get("status", {})
    found: list[Fields] = status.get("schedulingConditions", [])
    return found


def hear(house: House, second: int, why: str = QUOTA) -> None:
    """Have the Job refused."""
    event = refusal(second, why=why)
    house.cycle.wake(house.live.refusals.tell(event.metadata.key, event))


async def test_who_has_no_pods_is_told_why(house: House) -> None:
    """No plan speaks of it, for it asks for nothing; once the pods are there nothing is said."""
    house.api.put(node("a"), jobset(), grouped())
    async with house.leading():
        await house.passes(5)
        assert conditions(house) == []
        hear(house, 1)
        await house.passes(5)
        (said,) = conditions(house)
        assert said["message"] == f"pods are missing: 0 of 3 exist. {WHY}"
        assert said["reasons"][-1] == {"reason": "PodsMissing", "message": said["message"]}
        house.api.put(*(member(i, 9) for i in range(3)))
        await house.passes(3)

        assert conditions(house) == []
        assert len(house.api.where()) == 3


async def test_who_lacks_some_is_told_why(house: House) -> None:
    """Behind how many there are; and what is over is not told of another shortage."""
    house.api.put(node("a"), jobset(), grouped(), member(0, 1))
    async with house.leading():
        hear(house, 1)
        await house.passes(5)
        (said,) = conditions(house)
        assert said["message"] == (
            f"pods are missing: 1 of 3 exist in n-replica-0. It waits until the others exist. {WHY}"
        )
        house.api.put(member(1, 9))
        await house.passes(10)
        (said,) = conditions(house)

        assert said["message"].startswith("pods are missing: 2 of 3")
        assert QUOTA not in said["message"]


async def test_another_reason_is_told_and_none_without_an_event(house: House) -> None:
    """Level by level: the last word counts, and goes with its event."""
    house.api.put(node("a"), jobset(), grouped())
    async with house.leading():
        hear(house, 1)
        await house.passes(5)
        hear(house, 2, "violates PodSecurity")
        await house.passes(10)
        assert conditions(house)[0]["message"].endswith("cannot make them: violates PodSecurity")
        house.cycle.wake(house.live.refusals.tell(Key("ns", "e"), None))
        await house.passes(5)

        assert conditions(house) == []
