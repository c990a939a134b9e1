"""The podgrouper store: changes in, workloads to reconcile out, no leak of deleted objects."""

from msgspec.structs import replace

from tests.support.workloads.jobsets import UID, admitted, pod, recorded
from tests.trainer_kai.podgrouper.running_podgrouper import batch_job, job_pod
from tests.trainer_kai.podgrouper.stores import (
    BUNDLED,
    NAME,
    applied,
    apply_plan,
    change_jobset,
    job_for,
    next_plan,
    store_with,
    trainjob_for,
)
from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import Job
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.pod import Pod
from trainer_kai.podgrouper.store import PodgrouperStore
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import ObjectKey

JOB = ObjectKey("JobSet", "default", "job")
GROUP = Key("default", NAME)
POD, BOUND = Key("default", "a"), Key("default", "b")


def test_a_pod_that_came_before_its_job_is_looked_at_when_the_job_is_known() -> None:
    """Watches are not in step with each other."""
    ours = admitted(recorded("torch-distributed"))
    store = PodgrouperStore(counts=False)
    change_jobset(store, ours)
    assert store.pod_changed(POD, pod("a", "node")) == JOB
    assert list(store.members(jobset_workload(ours))) == []

    assert store.job_changed(*job_for(ours, "node")) == JOB
    assert [record.key for record in store.members(jobset_workload(ours))] == [POD]
    assert store.job_changed(*job_for(ours, "node")) is None


def test_a_jobset_that_came_before_its_trainjob_is_looked_at_when_that_is_known() -> None:
    """Once: other changes of a TrainJob cause no reconcile."""
    ours = admitted(recorded("torch-distributed"))
    store = PodgrouperStore(counts=False)
    change_jobset(store, ours)
    assert not store.has_owner(jobset_workload(ours))
    assert not next_plan(store).apply

    assert store.owner_changed(*trainjob_for(ours)) == {JOB}
    assert store.has_owner(jobset_workload(ours))
    assert next_plan(store).apply
    assert store.owner_changed(*trainjob_for(ours)) == frozenset()


def test_another_trainjob_of_the_same_name_is_not_the_one_that_is_named() -> None:
    """Nor is one that is gone, or that was made anew."""
    ours = admitted(recorded("torch-distributed"))
    store = store_with(ours)
    key, other = trainjob_for(ours, uid="another")

    assert store.owner_changed(key, other) == {JOB}
    assert not store.has_owner(jobset_workload(ours))
    store.owner_changed(*trainjob_for(ours))
    store.owner_changed(key, None)
    assert not store.has_owner(jobset_workload(ours))


def test_a_job_that_a_jobset_takes_over_is_forgotten() -> None:
    """It is a part of that workload from then on."""
    store, key = PodgrouperStore(counts=False), ObjectKey("Job", "default", "train")
    ours = job_workload(decode(Job, encode(batch_job("train"))))
    assert ours is not None
    assert store.workload_changed(key, ours) == key
    assert store.pod_changed(POD, decode(Pod, encode(job_pod("a", batch_job("train"))))) == key
    assert [it.key for it in store.members(ours)] == [POD]

    assert store.workload_changed(key, None) is None
    assert store.workloads == {}


def test_a_pod_of_another_job_with_its_name_is_no_member() -> None:
    """The Job was deleted and created again; pods of the first one may still be there."""
    store = PodgrouperStore(counts=False)
    ours = job_workload(decode(Job, encode(batch_job("train"))))
    assert ours is not None
    store.workload_changed(ours.key, ours)
    before = job_pod("a", batch_job("train", uid="another"))
    store.pod_changed(POD, decode(Pod, encode(before)))

    assert list(store.members(ours)) == []


def test_a_kind_without_owners_waits_for_none() -> None:
    """Its workloads are created by users, and an owner that one names makes no difference."""
    ours = jobset_workload(admitted(recorded("torch-distributed")))
    kind = ours.kind._replace(owner=None)
    store = PodgrouperStore(counts=False)
    assert not store.has_owner(ours)
    assert store.has_owner(replace(ours, kind=kind, owner=None, needs_owner=False))


def test_two_kinds_may_have_workloads_of_one_name() -> None:
    """The deletion of one leaves the other."""
    ours = jobset_workload(admitted(recorded("torch-distributed")))
    other = replace(ours, key=ours.key._replace(kind="Other"))
    store = PodgrouperStore(counts=False)
    for it in (ours, other):
        assert store.workload_changed(it.key, it) == it.key

    store.workload_changed(ours.key, None)
    assert store.workloads == {other.key: other}


def test_the_status_of_a_workload_causes_no_reconcile() -> None:
    """What its PodGroups depend on does; the queue of a kind without mark may have changed."""
    read = batch_job("train")
    ours = job_workload(decode(Job, encode(read)))
    running = {**read, "metadata": {**read["metadata"], "resourceVersion": "6"}}
    then = job_workload(decode(Job, encode({**running, "status": {"active": 1}})))
    assert ours is not None
    assert then is not None
    store = PodgrouperStore(counts=False)
    assert store.workload_changed(ours.key, ours) == ours.key

    assert store.workload_changed(ours.key, then) is None
    assert store.workloads[ours.key] == then
    suspended = replace(then, is_suspended=True)
    assert store.workload_changed(ours.key, suspended) == ours.key
    unmarked = replace(suspended, kind=ours.kind._replace(has_mark=False))
    assert store.workload_changed(ours.key, unmarked) == ours.key
    assert store.workload_changed(ours.key, unmarked) == ours.key


def test_a_podgroup_as_it_is_stored_causes_no_reconcile() -> None:
    """It is the echo of our own write, or only its status changed."""
    store = store_with(admitted(recorded("torch-distributed")))
    (fields,) = next_plan(store).apply

    assert store.group_changed(GROUP, applied(fields, version=7)) == JOB
    assert store.group_changed(GROUP, applied(fields, version=7)) is None
    assert store.group_changed(GROUP, applied(fields, version=8)) is None
    (group,) = store.groups(UID).values()
    assert group.version == "8"
    changed = {**fields, "spec": {**fields["spec"], "queue": "another"}}
    assert store.group_changed(GROUP, applied(changed, version=9)) == JOB


def test_assigned_pods_are_not_kept_in_bundled_mode() -> None:
    """They are not kept, and cause no reconcile."""
    ours = admitted(recorded("torch-distributed"))
    store = store_with(ours)

    assert store.pod_changed(POD, pod("a", "node", group=NAME)) is None
    assert list(store.members(jobset_workload(ours))) == []


def test_an_external_scheduler_needs_pods_to_be_counted() -> None:
    """A pod has its JobSet reconciled when something that counts changed."""
    ours = admitted(recorded("torch-distributed"), staged=True)
    store = store_with(ours, counts=True)

    assert store.pod_changed(POD, pod("a", "node", group=NAME)) == JOB
    assert store.pod_changed(POD, pod("a", "node", group=NAME)) is None
    assert store.pod_changed(POD, pod("a", "node", group=NAME, phase="Running")) == JOB
    assert store.pod_changed(POD, None) == JOB
    assert list(store.members(jobset_workload(ours))) == []


def test_an_event_from_before_our_own_write_does_not_undo_it() -> None:
    """The answer to a write is known before the watch shows what was before it."""
    store = store_with(admitted(recorded("torch-distributed")))
    (fields,) = next_plan(store).apply
    store.group_changed(GROUP, applied(fields, version=7))

    before = {**fields, "spec": {**fields["spec"], "queue": "before"}}
    store.group_changed(GROUP, applied(before, version=6))
    assert not next_plan(store).apply
    store.group_changed(GROUP, applied(before, version=8))
    assert next_plan(store).apply


def test_only_pods_on_nodes_keep_a_group_as_it_is() -> None:
    """A finished or terminating pod does not; after the last one its JobSet is reconciled."""
    store = store_with(admitted(recorded("torch-distributed")))
    apply_plan(store)
    on = {"group": NAME, "node": "n", "phase": "Running"}
    for change in ({**on, "node": ""}, {**on, "phase": "Failed"}, {**on, "going": True}):
        assert store.pod_changed(POD, pod("a", "node", **change)) is None
        assert not store.is_running(UID)
    for key in (POD, BOUND):
        assert store.pod_changed(key, pod(key.name, "node", **on)) is None
    assert store.is_running(UID)
    assert store.pod_changed(POD, pod("a", "node", **{**on, "phase": "Succeeded"})) is None
    assert store.is_running(UID)
    assert store.pod_changed(BOUND, None) == JOB
    assert not store.is_running(UID)


def test_nothing_is_kept_of_what_is_gone() -> None:
    """A controller that runs for a year keeps existing objects, and no more."""
    ours = admitted(recorded("deepspeed-distributed"))
    store = store_with(ours, counts=True)
    apply_plan(store, BUNDLED)
    store.pod_changed(POD, pod("a", "node"))
    store.pod_changed(BOUND, pod("b", "node", group=NAME, node="n", phase="Running"))
    store.priority_class_changed("train", PriorityClass(metadata=Meta(name="train"), value=50))

    store.pod_changed(POD, None)
    store.pod_changed(BOUND, None)
    store.priority_class_changed("train", None)
    for job in ours.spec.replicated_jobs:
        store.job_changed(job_for(ours, job.name)[0], None)
    store.group_deleted(GROUP, f"uid-{NAME}")
    store.workload_changed(JOB, None)
    store.owner_changed(trainjob_for(ours)[0], None)

    kept = {name: value for name, value in vars(store).items() if isinstance(value, dict)}
    assert len(kept) == 15
    assert not any(kept.values())
