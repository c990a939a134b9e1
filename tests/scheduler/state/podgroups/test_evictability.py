"""Which PodGroups are not evictable, and why (rule 36); their last checkpoint (33a)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.core.model.resources import ResourceKind
from scheduler.state.cache.cache import ClusterCache
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
    workload,
)
from trainer_kai.api.meta import Key
from trainer_kai.policy.workloads.workload import ObjectKey

Fields = dict[str, Any]

_TRAINJOB = ObjectKey("TrainJob", "ns", "j")
_RECORD = "trainer-kai.dev/evicted-by"
_KUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "lent"}}
_BY_KUEUE = "Kueue suspends and resumes the TrainJob"
_OUR_RECORD = {"managedBy": "trainer.kubeflow.org/trainjob-controller"}


def trainjob(meta: Any = None, **spec: Any) -> dict[str, Any]:
    """Return the TrainJob of the JobSet "j"."""
    return make_object("TrainJob", "j", {"uid": "t", **(meta or {})}, spec=spec)


def jobset(kind: str = "TrainJob") -> dict[str, Any]:
    api = "trainer.kubeflow.org/v1alpha1"
    owner = {"apiVersion": api, "kind": kind, "name": "j", "uid": "t", "controller": True}
    return make_object("JobSet", "j", {"uid": "u", "ownerReferences": [owner]}, spec={})


def recorded(record: Fields | str | None) -> Fields:
    text = record if isinstance(record, str) else json.dumps(record)
    notes = {} if record is None else {_RECORD: text}
    meta = {"ownerReferences": [JOBSET], "annotations": notes}
    return group("g", meta=meta, subGroups=[{"name": "n-replica-0", "minMember": 1}])


def running(*others: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a running PodGroup of the JobSet, and other objects."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    yield from (node("a"), group("g", meta={"ownerReferences": [JOBSET]}, subGroups=subs))
    yield from (jobset_pod("p", "g", node="a"), *others)


# the owner of the JobSet, its TrainJob -> why it is not evictable
REASONS: list[Case[tuple[str, dict[str, Any] | None], str]] = [
    Case("an ordinary one goes", ("TrainJob", trainjob()), ""),
    Case("Trainer's own name goes", ("TrainJob", trainjob(**_OUR_RECORD)), ""),
    Case("a TrainJob of Kueue is not evictable", ("TrainJob", trainjob(_KUEUE)), _BY_KUEUE),
    Case(
        "a TrainJob of another controller is evictable",
        ("TrainJob", trainjob({**_KUEUE}, managedBy="x/y")),
        "",
    ),
    Case(
        "a TrainJob of another uid is not the owner",
        ("TrainJob", trainjob({**_KUEUE, "uid": "s"})),
        "",
    ),
    Case("no TrainJob is known", ("TrainJob", None), ""),
    Case("another kind owns it", ("Other", trainjob(_KUEUE)), ""),
]


@pytest.mark.parametrize("case", REASONS, ids=ids)
def test_non_evictable_reasons(case: Case[tuple[str, dict[str, Any] | None], str]) -> None:
    """It is encoded by way of its JobSet."""
    kind, job = case.given
    encoded = encode_objects(*running(jobset(kind), *([job] if job else [])), kueue=True)

    assert podgroup_of(encoded, "g").non_evictable_reason == case.want


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
@pytest.mark.parametrize("meta", [{}, _KUEUE], ids=["of a user", "of Kueue"])
def test_workloads_without_an_owner(kind: str, meta: Fields) -> None:
    """They are suspended themselves; their labels and checkpoints count."""
    saved = {"annotations": {"trainer-kai.dev/last-checkpoint": "2026-01-05T08:00:07Z"}}
    itself, *others = workload(kind, "x", "a")
    itself["metadata"] |= {**meta, **saved}
    encoded = encode_objects(node("a"), itself, *others, kueue=True)

    podgroup = podgroup_of(encoded, "pg-x")
    reason = f"Kueue suspends and resumes the {kind}" if meta else ""
    assert (podgroup.non_evictable_reason, podgroup.workload) == (reason, "x")
    assert podgroup.checkpoint_at == 1767600007


def test_a_job_of_another_controller_is_no_workload() -> None:
    """Its PodGroup is as one that a user made: it may be evicted in part."""
    other = {"kind": "Sweep", "name": "s", "uid": "s", "controller": True}
    itself, *others = workload("Job", "x", "a")
    itself["metadata"] |= {"ownerReferences": [other]}
    encoded = encode_objects(node("a"), itself, *others)

    assert podgroup_of(encoded, "pg-x").workload == ""


def test_where_kueue_does_not_run_its_label_says_nothing() -> None:
    """Its user may write it."""
    encoded = encode_objects(*running(jobset(), trainjob(_KUEUE)))

    assert podgroup_of(encoded, "g").non_evictable_reason == ""


def test_for_other_jobsets_it_does_not_matter() -> None:
    """A PodGroup of no JobSet is not of the TrainJob with the same name."""
    subs = [{"name": "n-replica-0", "minMember": 1}]
    encoded = encode_objects(
        node("a"),
        group("g", subGroups=subs),
        jobset_pod("p", "g", node="a"),
        jobset(),
        trainjob(_KUEUE),
        kueue=True,
    )

    assert podgroup_of(encoded, "g").non_evictable_reason == ""


def test_a_partly_succeeded_podgroup_is_evictable() -> None:
    """Some of its pods have succeeded and others run."""
    for count in (0, 1):
        done = [jobset_pod(f"d{it}", "g", node="a", phase="Succeeded") for it in range(count)]
        podgroup = podgroup_of(encode_objects(*running(jobset(), trainjob(), *done)), "g")
        assert (podgroup.non_evictable_reason, podgroup.is_partly_succeeded) == ("", bool(count))


@pytest.mark.parametrize("case", ["nothing runs", "no JobSet"])
def test_not_partly_succeeded(case: str) -> None:
    """A finished PodGroup has nothing to lose; pods without a JobSet are not created again."""
    is_over = case == "nothing runs"
    owned = {"ownerReferences": [JOBSET]} if is_over else {}
    subs = [{"name": "n-replica-0", "minMember": 1}]
    some = [jobset_pod("p", "g", node="" if is_over else "a")]
    some.append(jobset_pod("d", "g", node="a", phase="Succeeded"))
    encoded = encode_objects(node("a"), group("g", meta=owned, subGroups=subs), jobset(), *some)

    assert not podgroup_of(encoded, "g").is_partly_succeeded


# the annotation -> when the last checkpoint was saved, in seconds after 08:00
SAVED: list[Case[str, int]] = [
    Case("a time in UTC is read", "2026-01-05T08:00:07Z", 7),
    Case("a time of another zone is converted", "2026-01-05T09:00:07+01:00", 7),
    Case("parts of seconds are cut", "2026-01-05T08:00:07.9Z", 7),
    Case("it is still to come", "2999-01-05T08:00:00Z", 30704918400),
    Case("before all time", "1960-01-01T00:00:00Z", -1767600000),
    Case("a word is no checkpoint", "yesterday", -1767600000),
    Case("an empty annotation is no checkpoint", "", -1767600000),
]


@pytest.mark.parametrize("case", SAVED, ids=ids)
def test_checkpoint_at(case: Case[str, int]) -> None:
    """It is read from the TrainJob; an invalid time counts as none."""
    notes = {"annotations": {"trainer-kai.dev/last-checkpoint": case.given}}
    encoded = encode_objects(*running(jobset(), trainjob(notes)))

    assert podgroup_of(encoded, "g").checkpoint_at == 1767600000 + case.want


def test_a_new_checkpoint_triggers_no_cycle() -> None:
    """The next cycle reads it."""
    harness = EvictabilityHarness()
    harness.put(trainjob())
    assert harness.podgroup.checkpoint_at == 0
    notes = {"annotations": {"trainer-kai.dev/last-checkpoint": "2026-01-05T08:00:07Z"}}
    assert harness.put(trainjob(notes)) == NO_EVENT
    assert harness.podgroup.checkpoint_at == 1767600007


class EvictabilityHarness:
    """A cluster cache that gets one event after the other."""

    def __init__(self) -> None:
        self.cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q", kueue=True))
        for fields in running(jobset(), queue()):
            self.put(fields)

    def put(self, fields: dict[str, Any], *, is_deleted: bool = False) -> Any:
        """Apply an event of an object; return its queueing hint."""
        resource, key, one = decode_object(fields)
        return self.cache.update(resource, key, None if is_deleted else one)

    @property
    def is_terminating(self) -> bool:
        """Say whether the pod counts as releasing, and is charged to no queue."""
        encoded = self.cache.snapshot()
        self.cache.check()
        releasing = bool(encoded.snapshot.nodes.releasing[0, ResourceKind.GPU])
        assert releasing == (not encoded.snapshot.queues.allocated[0, ResourceKind.GPU])
        return releasing

    @property
    def podgroup(self) -> PodGroupInfo:
        encoded = self.cache.snapshot()
        self.cache.check()
        return podgroup_of(encoded, "g")

    @property
    def non_evictable_reason(self) -> str:
        return self.podgroup.non_evictable_reason


def test_a_change_of_evictability_triggers_a_retry() -> None:
    """Other changes of a TrainJob, such as its progress, do not."""
    harness = EvictabilityHarness()
    assert (harness.put(trainjob()), harness.non_evictable_reason) == (NO_EVENT, "")
    assert (harness.put(trainjob(_KUEUE)), harness.non_evictable_reason) == (
        ClusterEvent.ANY,
        _BY_KUEUE,
    )
    further = {**trainjob(_KUEUE), "status": {"conditions": [{"type": "Complete"}]}}
    assert (harness.put(further), harness.non_evictable_reason) == (NO_EVENT, _BY_KUEUE)
    assert (harness.put(trainjob(_KUEUE), is_deleted=True), harness.non_evictable_reason) == (
        ClusterEvent.ANY,
        "",
    )


def test_only_what_trainer_stops_is_suspended() -> None:
    """Pods of a JobSet that a user created for another controller's TrainJob are deleted."""
    harness, group = EvictabilityHarness(), Key("ns", "g")
    harness.put(trainjob(managedBy="x/y"))
    assert harness.cache.in_flight_evictions.suspendable_id(group) is None
    harness.put(trainjob())
    assert harness.cache.in_flight_evictions.suspendable_id(group) == (_TRAINJOB, "t")
    harness.put(trainjob({"uid": "other"}))
    assert harness.cache.in_flight_evictions.suspendable_id(group) is None


def test_what_cannot_be_suspended_is_not_evictable() -> None:
    """As long as it cannot; nothing is known of another TrainJob with its name."""
    harness, job, reason = EvictabilityHarness(), _TRAINJOB, "its runtime is gone"
    set_refusal = harness.cache.suspended_workloads.set_refusal
    harness.put(trainjob())
    assert (set_refusal(job, reason), harness.non_evictable_reason) == (ClusterEvent.ANY, reason)
    assert set_refusal(job, reason) == NO_EVENT
    assert (set_refusal(job, None), harness.non_evictable_reason) == (ClusterEvent.ANY, "")
    set_refusal(job, reason)
    harness.put(trainjob({"uid": "other"}))
    assert harness.non_evictable_reason == ""
    harness.cache.suspended_workloads.set_refusal(job, "its runtime is gone")
    harness.put(trainjob({"uid": "other"}), is_deleted=True)
    assert harness.cache.cluster.suspend_refusals == {}


_TRUE: Fields = {"trainJob": "t", "podGroup": "g"}
# record of the PodGroup, whether its TrainJob is suspended -> whether its pod is releasing
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
def test_suspended_by_eviction(case: Case[tuple[Fields | None, bool], bool], order: str) -> None:
    """The PodGroup records it with the uids of both; annotations of the TrainJob do not count."""
    harness, considered = EvictabilityHarness(), list[ObjectKey]()
    harness.cache.start_leading()
    harness.cache.suspended_workloads.on_record_change = considered.append
    reported, suspend = case.given
    harness.put(trainjob())
    both = [
        recorded(reported),
        trainjob({"annotations": {_RECORD: json.dumps(_TRUE)}}, suspend=suspend),
    ]
    for fields in both if order == "group first" else reversed(both):
        harness.put(fields)

    assert harness.is_terminating == case.want
    assert (_TRAINJOB in considered) == (reported is not None or suspend)
    harness.put(recorded(None))
    harness.put(trainjob())
    assert not harness.is_terminating


def test_what_cannot_be_read_is_no_record() -> None:
    """Whatever the text is."""
    harness = EvictabilityHarness()
    harness.cache.start_leading()
    harness.put(trainjob(suspend=True))
    for text in ("", "{", "[]", "1", '"t"', '{"trainJob": 1}', "[" * 5000):
        harness.put(recorded(text))
        assert not harness.is_terminating


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_record_counts_before_it_is_seen(*, is_seen: bool) -> None:
    """It was written before the suspension, which a watch may deliver first; but not forever."""
    harness = EvictabilityHarness()
    harness.cache.start_leading()
    harness.put(trainjob())
    harness.cache.assumed.record_eviction(
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


def test_the_next_leader_completes_an_eviction() -> None:
    """The TrainJob was suspended before, and its pods still exist."""
    harness = EvictabilityHarness()
    harness.put(recorded(_TRUE))
    harness.put(trainjob(suspend=True))
    assert not harness.is_terminating
    harness.cache.start_leading()
    assert harness.is_terminating
