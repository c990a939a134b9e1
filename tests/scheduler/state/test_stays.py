"""From whom nobody may take anything, and why (rule 36); and when it saved its work (33a)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.model import Kind, Unit
from scheduler.state.live import Live
from scheduler.state.news import ANY, NOTHING
from scheduler.state.terms import Terms
from tests.support.case import Case, ids
from tests.support.clusters import (
    JOBSET,
    NOW,
    decoded,
    encoded,
    group,
    jobset_pod,
    made,
    node,
    queue,
    unit_of,
)
from trainer_kai.api.meta import Key

Fields = dict[str, Any]

_RECORD = "trainer-kai.dev/evicted-by"
_KUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "lent"}}
_BY_KUEUE = "Kueue suspends and resumes it"
_OURS = {"managedBy": "trainer.kubeflow.org/trainjob-controller"}


def trainjob(meta: Any = None, **spec: Any) -> dict[str, Any]:
    """Return the TrainJob of the JobSet "j"."""
    return made("TrainJob", "j", {"uid": "t", **(meta or {})}, spec=spec)


def jobset(kind: str = "TrainJob") -> dict[str, Any]:
    """Return a JobSet that somebody owns."""
    api = "trainer.kubeflow.org/v1alpha1"
    owner = {"apiVersion": api, "kind": kind, "name": "j", "uid": "t", "controller": True}
    return made("JobSet", "j", {"uid": "u", "ownerReferences": [owner]}, spec={})


def recorded(told: Fields | str | None) -> Fields:
    """Return the group, that says of an eviction what is given."""
    text = told if isinstance(told, str) else json.dumps(told)
    notes = {} if told is None else {_RECORD: text}
    meta = {"ownerReferences": [JOBSET], "annotations": notes}
    return group("g", meta=meta, subGroups=[{"name": "n-replica-0", "minMember": 1}])


def running(*others: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a unit of the JobSet that runs, and others."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    yield from (node("a"), group("g", meta={"ownerReferences": [JOBSET]}, subGroups=subs))
    yield from (jobset_pod("p", "g", node="a"), *others)


# who owns the JobSet, its TrainJob -> why it stays
STAYS: list[Case[tuple[str, dict[str, Any] | None], str]] = [
    Case("an ordinary one goes", ("TrainJob", trainjob()), ""),
    Case("Trainer's own name goes", ("TrainJob", trainjob(**_OURS)), ""),
    Case("Kueue's", ("TrainJob", trainjob(_KUEUE)), _BY_KUEUE),
    Case("another controller's", ("TrainJob", trainjob({**_KUEUE}, managedBy="x/y")), ""),
    Case("another uid", ("TrainJob", trainjob({**_KUEUE, "uid": "s"})), ""),
    Case("no TrainJob is known", ("TrainJob", None), ""),
    Case("another kind owns it", ("Other", trainjob(_KUEUE)), ""),
]


@pytest.mark.parametrize("case", STAYS, ids=ids)
def test_what_a_trainjob_says(case: Case[tuple[str, dict[str, Any] | None], str]) -> None:
    """It is found by way of its JobSet."""
    kind, job = case.given
    found = encoded(*running(jobset(kind), *([job] if job else [])), kueue=True)

    assert unit_of(found, "g").stays == case.want


def test_where_kueue_does_not_run_its_label_says_nothing() -> None:
    """Its user may write it."""
    found = encoded(*running(jobset(), trainjob(_KUEUE)))

    assert unit_of(found, "g").stays == ""


def test_of_others_it_is_nobodys_business() -> None:
    """A group that belongs to no JobSet is not of the TrainJob that is called like it."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    found = encoded(
        node("a"),
        group("g", subGroups=subs),
        jobset_pod("p", "g", node="a"),
        jobset(),
        trainjob(_KUEUE),
        kueue=True,
    )

    assert unit_of(found, "g").stays == ""


def test_what_succeeded_keeps_nothing() -> None:
    """A unit of which pods succeeded and others run is partly done, and can be evicted."""
    for count in (0, 1):
        done = [jobset_pod(f"d{it}", "g", node="a", phase="Succeeded") for it in range(count)]
        unit = unit_of(encoded(*running(jobset(), trainjob(), *done)), "g")
        assert (unit.stays, unit.is_partly_done) == ("", bool(count))


@pytest.mark.parametrize("case", ["nothing runs", "no JobSet"])
def test_what_is_not_partly_done(case: str) -> None:
    """What is over has nothing to lose; pods without a JobSet do nothing again."""
    is_over = case == "nothing runs"
    owned = {"ownerReferences": [JOBSET]} if is_over else {}
    subs = [{"name": "n-replica-0", "minMember": 1}]
    some = [jobset_pod("p", "g", node="" if is_over else "a")]
    some.append(jobset_pod("d", "g", node="a", phase="Succeeded"))
    found = encoded(node("a"), group("g", meta=owned, subGroups=subs), jobset(), *some)

    assert not unit_of(found, "g").is_partly_done


# the annotation -> when work was saved, in seconds after 08:00
SAVED: list[Case[str, int]] = [
    Case("in UTC", "2026-01-05T08:00:07Z", 7),
    Case("elsewhere", "2026-01-05T09:00:07+01:00", 7),
    Case("parts of seconds are cut", "2026-01-05T08:00:07.9Z", 7),
    Case("it is still to come", "2999-01-05T08:00:00Z", 30704918400),
    Case("before all time", "1960-01-01T00:00:00Z", -1767600000),
    Case("no time", "yesterday", -1767600000),
    Case("nothing", "", -1767600000),
]


@pytest.mark.parametrize("case", SAVED, ids=ids)
def test_when_work_was_saved(case: Case[str, int]) -> None:
    """A TrainJob says it; what cannot be meant is as if it were not there."""
    notes = {"annotations": {"trainer-kai.dev/last-checkpoint": case.given}}
    found = encoded(*running(jobset(), trainjob(notes)))

    assert unit_of(found, "g").saved == 1767600000 + case.want


def test_work_is_saved_again() -> None:
    """Nobody plans anew for it, and the next plan knows it."""
    house = House()
    house.tell(trainjob())
    assert house.unit.saved == 0
    notes = {"annotations": {"trainer-kai.dev/last-checkpoint": "2026-01-05T08:00:07Z"}}
    assert house.tell(trainjob(notes)) == NOTHING
    assert house.unit.saved == 1767600007


class House:
    """What a scheduler knows that is told one thing after the other."""

    def __init__(self) -> None:
        self.live = Live(lambda: Terms(now=NOW, default_queue="q", kueue=True))
        for fields in running(jobset(), queue()):
            self.tell(fields)

    def tell(self, fields: dict[str, Any], *, is_gone: bool = False) -> Any:
        """Tell it of an object; return whom that helps."""
        shelf, key, one = decoded(fields)
        if shelf in ("pods", "pod_groups"):
            return (self.live.pod if shelf == "pods" else self.live.group)(key, one)
        name = key if isinstance(key, Key) else Key("", key)
        return self.live.put(getattr(self.live.cluster, shelf), name, None if is_gone else one)

    @property
    def is_going(self) -> bool:
        """Say whether the pod counts as leaving, so that it is charged to no queue."""
        found = self.live.snapshot()
        self.live.check()
        releasing = bool(found.snapshot.nodes.releasing[0, Kind.GPU])
        assert releasing == (not found.snapshot.queues.allocated[0, Kind.GPU])
        return releasing

    @property
    def unit(self) -> Unit:
        """Return the unit."""
        found = self.live.snapshot()
        self.live.check()
        return unit_of(found, "g")

    @property
    def stays(self) -> str:
        """Return why the unit stays."""
        return self.unit.stays


def test_who_claims_hears_of_a_change() -> None:
    """And of nothing else that a TrainJob says, such as how far it is."""
    house = House()
    assert (house.tell(trainjob()), house.stays) == (NOTHING, "")
    assert (house.tell(trainjob(_KUEUE)), house.stays) == (ANY, _BY_KUEUE)
    further = {**trainjob(_KUEUE), "status": {"conditions": [{"type": "Complete"}]}}
    assert (house.tell(further), house.stays) == (NOTHING, _BY_KUEUE)
    assert (house.tell(trainjob(_KUEUE), is_gone=True), house.stays) == (ANY, "")


def test_only_what_trainer_stops_is_suspended() -> None:
    """Pods of a JobSet that was made by hand for another controller's TrainJob are deleted."""
    house, group = House(), Key("ns", "g")
    house.tell(trainjob(managedBy="x/y"))
    assert house.live.leaving.owner_of(group) is None
    house.tell(trainjob())
    assert house.live.leaving.owner_of(group) == (Key("ns", "j"), "t")
    house.tell(trainjob({"uid": "other"}))
    assert house.live.leaving.owner_of(group) is None


def test_what_cannot_be_suspended_stays() -> None:
    """As long as that is so; of another one of its name nothing is known."""
    house, job = House(), Key("ns", "j")
    house.tell(trainjob())
    assert (house.live.refuse(job, "its runtime is gone"), house.stays) == (
        ANY,
        "its runtime is gone",
    )
    assert house.live.refuse(job, "its runtime is gone") == NOTHING
    assert (house.live.refuse(job, None), house.stays) == (ANY, "")
    house.live.refuse(job, "its runtime is gone")
    house.tell(trainjob({"uid": "other"}))
    assert house.stays == ""
    house.live.refuse(job, "its runtime is gone")
    house.tell(trainjob({"uid": "other"}), is_gone=True)
    assert house.live.cluster.refused == {}


_TRUE: Fields = {"trainJob": "t", "podGroup": "g"}
# what the group says, whether its TrainJob is suspended -> whether its pod counts as going
RECORDS: list[Case[tuple[Fields | None, bool], bool]] = [
    Case("it is suspended by us", (_TRUE, True), True),
    Case("it is about to be", (_TRUE, False), False),
    Case("its user suspends it", (None, True), False),
    Case("another TrainJob of its name was", ({**_TRUE, "trainJob": "s"}, True), False),
    Case("another PodGroup of this name said so", ({**_TRUE, "podGroup": "f"}, True), False),
    Case("it was made so, and knew no uid", ({"trainJob": "", "podGroup": ""}, True), False),
    Case("what an older version wrote on TrainJobs", ({"by": "trainer-kai-eviction"}, True), False),
]


@pytest.mark.parametrize("order", ["group first", "TrainJob first"])
@pytest.mark.parametrize("case", RECORDS, ids=ids)
def test_who_is_suspended_by_us(case: Case[tuple[Fields | None, bool], bool], order: str) -> None:
    """Its PodGroup says so, by the uids of both; whatever the TrainJob says of itself."""
    house, heard = House(), list[Key]()
    house.live.lead()
    house.live.on_record = heard.append
    told, suspend = case.given
    house.tell(trainjob())
    both = [
        recorded(told),
        trainjob({"annotations": {_RECORD: json.dumps(_TRUE)}}, suspend=suspend),
    ]
    for fields in both if order == "group first" else reversed(both):
        house.tell(fields)

    assert house.is_going == case.want
    assert (Key("ns", "j") in heard) == (told is not None or suspend)
    house.tell(recorded(None))
    house.tell(trainjob())
    assert not house.is_going


def test_what_cannot_be_read_is_no_record() -> None:
    """Whatever stands there."""
    house = House()
    house.live.lead()
    house.tell(trainjob(suspend=True))
    for text in ("", "{", "[]", "1", '"t"', '{"trainJob": 1}', "[" * 5000):
        house.tell(recorded(text))
        assert not house.is_going


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_record_counts_before_it_is_seen(*, is_seen: bool) -> None:
    """It was written before the suspension, of which the watch may be quicker; but not for ever."""
    house = House()
    house.live.lead()
    house.tell(trainjob())
    house.live.record(decoded(recorded(None))[2], json.dumps(_TRUE), until_s=15)
    house.tell(trainjob(suspend=True))
    going = [house.is_going]
    if is_seen:
        house.tell(recorded(_TRUE))
        going.append(house.is_going)
    assert house.live.expire(15) == ([] if is_seen else [Key("ns", "g")])
    house.tell(recorded(None))

    assert (*going, house.is_going) == (True,) * len(going) + (False,)


def test_the_next_leader_sees_it_off() -> None:
    """It was suspended before, and its pods are still there."""
    house = House()
    house.tell(recorded(_TRUE))
    house.tell(trainjob(suspend=True))
    assert not house.is_going
    house.live.lead()
    assert house.is_going
