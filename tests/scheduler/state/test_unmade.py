"""Whose pods are refused, and when that is forgotten."""

from typing import Any

from scheduler.state.live import Live
from scheduler.state.news import ANY, NOTHING
from scheduler.state.terms import Terms
from scheduler.state.unmade import MOST
from tests.support.clusters import NOW, decoded
from tests.support.refusals import GROUP, WHY, grouped, jobset, member, refusal
from trainer_kai.api.event import Event
from trainer_kai.api.meta import Key


class House:
    """What a scheduler knows that is told one thing after the other."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.now = NOW
        self.live = Live(lambda: Terms(now=self.now, default_queue="q"))
        for fields in objects:
            self.tell(fields)

    def tell(self, fields: dict[str, Any]) -> None:
        """Tell it of an object."""
        shelf, key, one = decoded(fields)
        if shelf in ("pods", "pod_groups"):
            (self.live.pod if shelf == "pods" else self.live.group)(key, one)
        else:
            self.live.put(getattr(self.live.cluster, shelf), key, one)

    def hear(self, event: Event) -> Any:
        """Tell it of an event; return whom that concerns."""
        return self.live.refusals.tell(event.metadata.key, event)

    @property
    def lacks(self) -> dict[str, tuple[str, int, int]]:
        """Return which groups lack pods, why, how many there are and how many it needs."""
        self.live.snapshot()
        return {key.name: (*it,) for key, it in self.live.refusals.lacks.items()}


def test_a_group_is_told_what_its_job_says() -> None:
    """Whoever plans hears of it when it is new; the same word again is none."""
    house = House(jobset(), grouped())

    assert (house.hear(refusal(1)), house.lacks) == (ANY, {GROUP: (WHY, 0, 3)})
    assert house.hear(refusal(2)) == NOTHING
    assert house.hear(refusal(3, why="no")) == ANY
    assert house.hear(refusal(2)) == NOTHING  # it is older than what is known
    assert house.lacks[GROUP][0].endswith("no")


def test_it_is_over_when_the_pods_come() -> None:
    """And when one of them is gone later, that has another reason."""
    house = House(jobset(), grouped(), member(0, 1))
    house.hear(refusal(1))
    assert house.lacks == {GROUP: (WHY, 1, 3)}
    house.tell(member(1, 1))
    house.tell(member(2, 1))
    assert (house.lacks, len(house.live.refusals)) == ({}, 0)
    house.live.pod(Key("ns", "p2"), None)

    assert house.lacks == {}


def test_a_suspension_ends_it() -> None:
    """What was refused before says nothing of the time after it is resumed."""
    house = House(jobset(), grouped())
    house.hear(refusal(1))
    house.tell(jobset(suspend=True))
    assert house.lacks == {}
    house.tell(jobset())

    assert house.lacks == {}


def test_what_is_not_said_again_is_forgotten() -> None:
    """As is what is said of nobody, and what is gone."""
    house = House(jobset(), grouped())
    house.hear(refusal(1))
    house.hear(refusal(1, "other-n-0", name="f"))
    assert (house.lacks, len(house.live.refusals)) == ({GROUP: (WHY, 0, 3)}, 2)
    house.now += 602
    assert (house.lacks, len(house.live.refusals)) == ({}, 0)

    house = House(jobset(), grouped())
    house.hear(refusal(1))
    assert house.live.refusals.tell(Key("ns", "other"), None) == NOTHING
    assert house.live.refusals.tell(Key("ns", "e"), None) == ANY
    assert house.lacks == {}


def test_a_jobset_may_be_known_later_than_its_events() -> None:
    """Each kind is followed by itself."""
    house = House()
    house.hear(refusal(1))
    assert house.lacks == {}
    house.tell(jobset())
    assert house.lacks == {}
    house.tell(grouped())

    assert house.lacks == {GROUP: (WHY, 0, 3)}


def test_others_may_say_as_much_as_they_like() -> None:
    """No more is kept than there is room for, and ours are not forgotten for it."""
    house = House(jobset(), grouped())
    for i in range(2 * MOST):
        house.hear(refusal(2, f"cron-{i}", name=f"c{i}"))
    house.hear(refusal(1))
    house.hear(refusal(3, "cron-x"))

    assert len(house.live.refusals) == MOST
    assert house.lacks == {GROUP: (WHY, 0, 3)}
