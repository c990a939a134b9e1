"""Which PodGroups are not evictable, and why (rule 36); when they saved their work (33a)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import ResourceKind
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.cluster_events import ANY_EVENT, NO_EVENT
from scheduler.state.inputs import StateOptions
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    NOW,
    decode_object,
    encode_objects,
    group,
    jobset_pod,
    make_object,
    node,
    podgroup_of,
    queue,
)
from trainer_kai.api.meta import Key

Fields = dict[str, Any]

_RECORD = "trainer-kai.dev/evicted-by"
_KUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "lent"}}
_BY_KUEUE = "Kueue suspends and resumes it"
_OUR_RECORD = {"managedBy": "trainer.kubeflow.org/trainjob-controller"}


def trainjob(meta: Any = None, **spec: Any) -> dict[str, Any]:
    """Return the TrainJob of the JobSet "j"."""
    return make_object("TrainJob", "j", {"uid": "t", **(meta or {})}, spec=spec)


def jobset(kind: str = "TrainJob") -> dict[str, Any]:
    """Return a JobSet that somebody owns."""
    api = "trainer.kubeflow.org/v1alpha1"
    owner = {"apiVersion": api, "kind": kind, "name": "j", "uid": "t", "controller": True}
    return make_object("JobSet", "j", {"uid": "u", "ownerReferences": [owner]}, spec={})


def recorded(reported: Fields | str | None) -> Fields:
    """Return the group, that says of an eviction what is given."""
    text = reported if isinstance(reported, str) else json.dumps(reported)
    notes = {} if reported is None else {_RECORD: text}
    meta = {"ownerReferences": [JOBSET], "annotations": notes}
    return group("g", meta=meta, subGroups=[{"name": "n-replica-0", "minMember": 1}])


def running(*others: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a unit of the JobSet that runs, and others."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    yield from (node("a"), group("g", meta={"ownerReferences": [JOBSET]}, subGroups=subs))
    yield from (jobset_pod("p", "g", node="a"), *others)


# who owns the JobSet, its TrainJob -> why it stays
REASONS: list[Case[tuple[str, dict[str, Any] | None], str]] = [
    Case("an ordinary one goes", ("TrainJob", trainjob()), ""),
    Case("Trainer's own name goes", ("TrainJob", trainjob(**_OUR_RECORD)), ""),
    Case("Kueue's", ("TrainJob", trainjob(_KUEUE)), _BY_KUEUE),
    Case("another controller's", ("TrainJob", trainjob({**_KUEUE}, managedBy="x/y")), ""),
    Case("another uid", ("TrainJob", trainjob({**_KUEUE, "uid": "s"})), ""),
    Case("no TrainJob is known", ("TrainJob", None), ""),
    Case("another kind owns it", ("Other", trainjob(_KUEUE)), ""),
]


@pytest.mark.parametrize("case", REASONS, ids=ids)
def test_what_a_trainjob_says(case: Case[tuple[str, dict[str, Any] | None], str]) -> None:
    """It is found by way of its JobSet."""
    kind, job = case.given
    found = encode_objects(*running(jobset(kind), *([job] if job else [])), kueue=True)

    assert podgroup_of(found, "g").non_evictable_reason == case.want


def test_where_kueue_does_not_run_its_label_says_nothing() -> None:
    """Its user may write it."""
    found = encode_objects(*running(jobset(), trainjob(_KUEUE)))

    assert podgroup_of(found, "g").non_evictable_reason == ""


def test_for_other_jobsets_it_does_not_matter() -> None:
    """A group that belongs to no JobSet is not of the TrainJob that is called like it."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    found = encode_objects(
        node("a"),
        group("g", subGroups=subs),
        jobset_pod("p", "g", node="a"),
        jobset(),
        trainjob(_KUEUE),
        kueue=True,
    )

    assert podgroup_of(found, "g").non_evictable_reason == ""


def test_what_succeeded_keeps_nothing() -> None:
    """A unit of which pods succeeded and others run is partly done, and can be evicted."""
    for count in (0, 1):
        done = [jobset_pod(f"d{it}", "g", node="a", phase="Succeeded") for it in range(count)]
        podgroup = podgroup_of(encode_objects(*running(jobset(), trainjob(), *done)), "g")
        assert (podgroup.non_evictable_reason, podgroup.is_partly_succeeded) == ("", bool(count))


@pytest.mark.parametrize("case", ["nothing runs", "no JobSet"])
def test_what_is_not_partly_done(case: str) -> None:
    """What is over has nothing to lose; pods without a JobSet do nothing again."""
    is_over = case == "nothing runs"
    owned = {"ownerReferences": [JOBSET]} if is_over else {}
    subs = [{"name": "n-replica-0", "minMember": 1}]
    some = [jobset_pod("p", "g", node="" if is_over else "a")]
    some.append(jobset_pod("d", "g", node="a", phase="Succeeded"))
    found = encode_objects(node("a"), group("g", meta=owned, subGroups=subs), jobset(), *some)

    assert not podgroup_of(found, "g").is_partly_succeeded


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
    found = encode_objects(*running(jobset(), trainjob(notes)))

    assert podgroup_of(found, "g").checkpoint_at == 1767600000 + case.want


def test_work_is_saved_again() -> None:
    """Nobody plans anew for it, and the next plan knows it."""
    harness = EvictabilityHarness()
    harness.put(trainjob())
    assert harness.podgroup.checkpoint_at == 0
    notes = {"annotations": {"trainer-kai.dev/last-checkpoint": "2026-01-05T08:00:07Z"}}
    assert harness.put(trainjob(notes)) == NO_EVENT
    assert harness.podgroup.checkpoint_at == 1767600007


class EvictabilityHarness:
    """What a scheduler knows that is told one thing after the other."""

    def __init__(self) -> None:
        self.cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q", kueue=True))
        for fields in running(jobset(), queue()):
            self.put(fields)

    def put(self, fields: dict[str, Any], *, is_deleted: bool = False) -> Any:
        """Tell it of an object; return whom that helps."""
        store, key, one = decode_object(fields)
        if store in ("pods", "pod_groups"):
            return (self.cache.update_pod if store == "pods" else self.cache.update_group)(key, one)
        name = key if isinstance(key, Key) else Key("", key)
        return self.cache.update(
            getattr(self.cache.cluster, store), name, None if is_deleted else one
        )

    @property
    def is_terminating(self) -> bool:
        """Say whether the pod counts as leaving, so that it is charged to no queue."""
        found = self.cache.snapshot()
        self.cache.check()
        releasing = bool(found.snapshot.nodes.releasing[0, ResourceKind.GPU])
        assert releasing == (not found.snapshot.queues.allocated[0, ResourceKind.GPU])
        return releasing

    @property
    def podgroup(self) -> PodGroupInfo:
        """Return the unit."""
        found = self.cache.snapshot()
        self.cache.check()
        return podgroup_of(found, "g")

    @property
    def non_evictable_reason(self) -> str:
        """Return why the unit stays."""
        return self.podgroup.non_evictable_reason


def test_who_claims_hears_of_a_change() -> None:
    """And of nothing else that a TrainJob says, such as how far it is."""
    harness = EvictabilityHarness()
    assert (harness.put(trainjob()), harness.non_evictable_reason) == (NO_EVENT, "")
    assert (harness.put(trainjob(_KUEUE)), harness.non_evictable_reason) == (ANY_EVENT, _BY_KUEUE)
    further = {**trainjob(_KUEUE), "status": {"conditions": [{"type": "Complete"}]}}
    assert (harness.put(further), harness.non_evictable_reason) == (NO_EVENT, _BY_KUEUE)
    assert (harness.put(trainjob(_KUEUE), is_deleted=True), harness.non_evictable_reason) == (
        ANY_EVENT,
        "",
    )


def test_only_what_trainer_stops_is_suspended() -> None:
    """Pods of a JobSet that was made by hand for another controller's TrainJob are deleted."""
    harness, group = EvictabilityHarness(), Key("ns", "g")
    harness.put(trainjob(managedBy="x/y"))
    assert harness.cache.in_flight_evictions.owning_trainjob(group) is None
    harness.put(trainjob())
    assert harness.cache.in_flight_evictions.owning_trainjob(group) == (Key("ns", "j"), "t")
    harness.put(trainjob({"uid": "other"}))
    assert harness.cache.in_flight_evictions.owning_trainjob(group) is None


def test_what_cannot_be_suspended_is_not_evictable() -> None:
    """As long as that is so; of another one of its name nothing is known."""
    harness, job = EvictabilityHarness(), Key("ns", "j")
    harness.put(trainjob())
    assert (
        harness.cache.set_suspend_refusal(job, "its runtime is gone"),
        harness.non_evictable_reason,
    ) == (
        ANY_EVENT,
        "its runtime is gone",
    )
    assert harness.cache.set_suspend_refusal(job, "its runtime is gone") == NO_EVENT
    assert (harness.cache.set_suspend_refusal(job, None), harness.non_evictable_reason) == (
        ANY_EVENT,
        "",
    )
    harness.cache.set_suspend_refusal(job, "its runtime is gone")
    harness.put(trainjob({"uid": "other"}))
    assert harness.non_evictable_reason == ""
    harness.cache.set_suspend_refusal(job, "its runtime is gone")
    harness.put(trainjob({"uid": "other"}), is_deleted=True)
    assert harness.cache.cluster.suspend_refusals == {}


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
    harness, considered = EvictabilityHarness(), list[Key]()
    harness.cache.start_leading()
    harness.cache.on_eviction_record_change = considered.append
    reported, suspend = case.given
    harness.put(trainjob())
    both = [
        recorded(reported),
        trainjob({"annotations": {_RECORD: json.dumps(_TRUE)}}, suspend=suspend),
    ]
    for fields in both if order == "group first" else reversed(both):
        harness.put(fields)

    assert harness.is_terminating == case.want
    assert (Key("ns", "j") in considered) == (reported is not None or suspend)
    harness.put(recorded(None))
    harness.put(trainjob())
    assert not harness.is_terminating


def test_what_cannot_be_read_is_no_record() -> None:
    """Whatever stands there."""
    harness = EvictabilityHarness()
    harness.cache.start_leading()
    harness.put(trainjob(suspend=True))
    for text in ("", "{", "[]", "1", '"t"', '{"trainJob": 1}', "[" * 5000):
        harness.put(recorded(text))
        assert not harness.is_terminating


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_record_counts_before_it_is_seen(*, is_seen: bool) -> None:
    """It was written before the suspension, of which the watch may be quicker; but not for ever."""
    harness = EvictabilityHarness()
    harness.cache.start_leading()
    harness.put(trainjob())
    harness.cache.assume_eviction_record(
        decode_object(recorded(None))[2], json.dumps(_TRUE), until_s=15
    )
    harness.put(trainjob(suspend=True))
    releasing = [harness.is_terminating]
    if is_seen:
        harness.put(recorded(_TRUE))
        releasing.append(harness.is_terminating)
    assert harness.cache.expire(15) == ([] if is_seen else [Key("ns", "g")])
    harness.put(recorded(None))

    assert (*releasing, harness.is_terminating) == (True,) * len(releasing) + (False,)


def test_the_next_leader_sees_it_off() -> None:
    """It was suspended before, and its pods are still there."""
    harness = EvictabilityHarness()
    harness.put(recorded(_TRUE))
    harness.put(trainjob(suspend=True))
    assert not harness.is_terminating
    harness.cache.start_leading()
    assert harness.is_terminating
