"""The roster: changes in, which JobSet to look at out, and nothing kept for the dead."""

from tests.support.jobsets import UID, admitted, pod, recorded
from tests.trainer_kai.podgrouper.rosters import BUNDLED, applied, job_of, known, trainjob_of
from tests.trainer_kai.podgrouper.test_plan import NAME, carry_out, look
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.priority import PriorityClass
from trainer_kai.podgrouper.roster import Roster

JOB = Key("default", "job")
GROUP = Key("default", NAME)
POD, BOUND = Key("default", "a"), Key("default", "b")


def test_a_pod_that_came_before_its_job_is_looked_at_when_the_job_is_known() -> None:
    """Watches are not in step with each other."""
    ours = admitted(recorded("torch-distributed"))
    roster = Roster(counts=False)
    roster.jobset_changed(JOB, ours)
    assert roster.pod_changed(POD, pod("a", "node")) == JOB
    assert list(roster.members(ours)) == []

    assert roster.job_changed(*job_of(ours, "node")) == JOB
    assert [seen.key for seen in roster.members(ours)] == [POD]
    assert roster.job_changed(*job_of(ours, "node")) is None


def test_a_jobset_that_came_before_its_trainjob_is_looked_at_when_that_is_known() -> None:
    """Once: what else changes of a TrainJob is none of the podgrouper's business."""
    ours = admitted(recorded("torch-distributed"))
    roster = Roster(counts=False)
    roster.jobset_changed(JOB, ours)
    assert not roster.has_trainjob(ours)
    assert not look(roster).apply

    assert roster.trainjob_changed(*trainjob_of(ours)) == {JOB}
    assert roster.has_trainjob(ours)
    assert look(roster).apply
    assert roster.trainjob_changed(*trainjob_of(ours)) == frozenset()


def test_another_trainjob_of_the_same_name_is_not_the_one_that_is_named() -> None:
    """Nor is one that is gone, or that was made anew."""
    ours = admitted(recorded("torch-distributed"))
    roster = known(ours)
    key, other = trainjob_of(ours, uid="another")

    assert roster.trainjob_changed(key, other) == {JOB}
    assert not roster.has_trainjob(ours)
    roster.trainjob_changed(*trainjob_of(ours))
    roster.trainjob_changed(key, None)
    assert not roster.has_trainjob(ours)


def test_pods_that_are_assigned_are_nobodys_business_in_bundled_mode() -> None:
    """They are not kept, and wake nobody."""
    ours = admitted(recorded("torch-distributed"))
    roster = known(ours)

    assert roster.pod_changed(POD, pod("a", "node", group=NAME)) is None
    assert list(roster.members(ours)) == []


def test_an_external_scheduler_needs_pods_to_be_counted() -> None:
    """A pod wakes its JobSet when something that counts changed."""
    ours = admitted(recorded("torch-distributed"), staged=True)
    roster = known(ours, counts=True)

    assert roster.pod_changed(POD, pod("a", "node", group=NAME)) == JOB
    assert roster.pod_changed(POD, pod("a", "node", group=NAME)) is None
    assert roster.pod_changed(POD, pod("a", "node", group=NAME, phase="Running")) == JOB
    assert roster.pod_changed(POD, None) == JOB
    assert list(roster.members(ours)) == []


def test_an_event_from_before_our_own_write_does_not_undo_it() -> None:
    """The answer to a write is known before the watch shows what was before it."""
    roster = known(admitted(recorded("torch-distributed")))
    (fields,) = look(roster).apply
    roster.group_changed(GROUP, applied(fields, version=7))

    before = {**fields, "spec": {**fields["spec"], "queue": "before"}}
    roster.group_changed(GROUP, applied(before, version=6))
    assert not look(roster).apply
    roster.group_changed(GROUP, applied(before, version=8))
    assert look(roster).apply


def test_only_pods_on_nodes_keep_a_group_as_it_is() -> None:
    """Who is over or going does not; the last one that leaves has its JobSet looked at."""
    roster = known(admitted(recorded("torch-distributed")))
    carry_out(roster)
    on = {"group": NAME, "node": "n", "phase": "Running"}
    for told in ({**on, "node": ""}, {**on, "phase": "Failed"}, {**on, "going": True}):
        assert roster.pod_changed(POD, pod("a", "node", **told)) is None
        assert not roster.is_running(UID)
    for key in (POD, BOUND):
        assert roster.pod_changed(key, pod(key.name, "node", **on)) is None
    assert roster.is_running(UID)
    assert roster.pod_changed(POD, pod("a", "node", **{**on, "phase": "Succeeded"})) is None
    assert roster.is_running(UID)
    assert roster.pod_changed(BOUND, None) == JOB
    assert not roster.is_running(UID)


def test_nothing_is_kept_of_what_is_gone() -> None:
    """A controller that runs for a year knows what there is, and no more."""
    ours = admitted(recorded("deepspeed-distributed"))
    roster = known(ours, counts=True)
    carry_out(roster, BUNDLED)
    roster.pod_changed(POD, pod("a", "node"))
    roster.pod_changed(BOUND, pod("b", "node", group=NAME, node="n", phase="Running"))
    roster.class_changed("train", PriorityClass(metadata=Meta(name="train"), value=50))

    roster.pod_changed(POD, None)
    roster.pod_changed(BOUND, None)
    roster.class_changed("train", None)
    for job in ours.spec.replicated_jobs:
        roster.job_changed(job_of(ours, job.name)[0], None)
    roster.group_gone(GROUP, f"uid-{NAME}")
    roster.jobset_changed(JOB, None)
    roster.trainjob_changed(trainjob_of(ours)[0], None)

    kept = {name: value for name, value in vars(roster).items() if isinstance(value, dict)}
    assert len(kept) == 12
    assert not any(kept.values())
