"""The plan for a JobSet: nothing without a reason, and all that is needed."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.jobsets import RUNTIMES, UID, admitted, jobset, pod, recorded
from tests.trainer_kai.podgrouper.rosters import BUNDLED, EXTERNAL, applied, job_of, known
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ADMITTED,
    BATCH_MIN_MEMBER,
    CONTROLLER_UID,
    GANG,
    NODE_POOL,
    POD_GROUP,
    PREEMPTIBILITY,
    QUEUE,
    RESERVED,
    SUBGROUP,
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.podgrouper.plan import Known, Plan, plan
from trainer_kai.podgrouper.roster import Roster
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.units import MOST_SUB_GROUPS

TORCH = "torch-distributed"
DEEPSPEED = "deepspeed-distributed"
NAME = f"pg-job-{UID}"
OTHER_RULES = {"annotations": {ADMITTED: "v2"}}


def look(roster: Roster, rules: Rules = BUNDLED) -> Plan:
    """Plan for the one JobSet of a roster."""
    (found,) = roster.jobsets.values()
    is_of = roster.has_trainjob(found)
    there = Known(roster.groups(found.metadata.uid), has_trainjob=is_of)
    return plan(found, there, roster.members(found), rules)


def carry_out(roster: Roster, rules: Rules = BUNDLED, **more: Any) -> Plan:
    """Do what the plan says, as the API server would."""
    steps = look(roster, rules)
    for fields in steps.apply:
        key = Key(fields["metadata"]["namespace"], fields["metadata"]["name"])
        roster.group_changed(key, applied(fields, more=more))
    return steps


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_groups_are_made_once(runtime: str, rules: Rules) -> None:
    """Each unit gets its group before any pod exists, and then nothing is left to do."""
    roster = known(admitted(recorded(runtime), staged=rules is EXTERNAL))

    first = carry_out(roster, rules)
    assert first.is_first
    assert len(first.apply) == len(first.outline.units) > 0
    assert look(roster, rules) == Plan(outline=first.outline)


def suspended(obj: dict[str, Any]) -> None:
    """Suspend it."""
    obj["spec"]["suspend"] = True


def unmarked(obj: dict[str, Any]) -> None:
    """Take the mark from the pods."""
    for job in obj["spec"]["replicatedJobs"]:
        del job["template"]["spec"]["template"]["metadata"]["labels"][GANG]


# what became of a JobSet that was admitted
IDLE: list[Case[Any, None]] = [
    Case("it is suspended", suspended, None),
    Case("it is over", lambda obj: obj.update(status={"terminalState": "Completed"}), None),
    Case(
        "it is going",
        lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        None,
    ),
    Case("another cluster runs it", lambda obj: obj["spec"].update(managedBy="a.io/b"), None),
    Case("it was not admitted", lambda obj: obj["metadata"].pop("annotations"), None),
    Case("it was admitted by other rules", lambda obj: obj["metadata"].update(OTHER_RULES), None),
    Case("its groups are its user's", unmarked, None),
]


@pytest.mark.parametrize("case", IDLE, ids=ids)
def test_nothing_is_written(case: Case[Any, None]) -> None:
    """What is not running here, or not ours, is left alone, with its groups and its pods."""
    obj = recorded(TORCH)
    admitted(obj)
    case.given(obj)
    roster = known(jobset(obj))
    roster.pod_changed(Key("default", "a"), pod("a", "node"))

    assert look(roster)[:2] == ((), ())


# what somebody did to a group -> whether it is brought in line
DRIFTS: list[Case[dict[str, Any], bool]] = [
    Case("a scheduler reserved slots", {"annotations": {RESERVED: "{}"}}, False),
    Case("somebody added a field", {"spec": {"schedulingBackoff": 1}}, False),
    Case(
        "somebody assigned a topology", {"spec": {"topologyConstraint": {"topology": "t"}}}, False
    ),
    Case("somebody lowered the minimum", {"spec": {"minSubGroup": 0}}, True),
    Case("somebody moved it to another queue", {"spec": {"queue": "mine"}}, True),
    Case("somebody cut the tree", {"spec": {"subGroups": []}}, True),
]


@pytest.mark.parametrize("case", DRIFTS, ids=ids)
def test_drift_is_told_from_the_work_of_others(case: Case[dict[str, Any], bool]) -> None:
    """Fields that are ours are put right, all of them at once; fields of others stay."""
    roster = known(admitted(recorded(TORCH)))
    carry_out(roster, **case.given)

    again = look(roster)
    assert bool(again.apply) is case.want
    assert not again.is_first


# what a JobSet asked for when its group was made, and no longer asks for
WISHES: list[Case[tuple[str, dict[str, str]], None]] = [
    Case("preemptibility", ("labels", {PREEMPTIBILITY: "preemptible"}), None),
    Case("a node pool", ("labels", {NODE_POOL: "pool-a"}), None),
    Case("a topology", ("annotations", {TOPOLOGY: "t", TOPOLOGY_REQUIRED: "rack"}), None),
    Case("a minimum", ("annotations", {BATCH_MIN_MEMBER: "1"}), None),
]


@pytest.mark.parametrize("case", WISHES, ids=ids)
def test_a_wish_that_is_taken_back_is_applied(case: Case[tuple[str, dict[str, str]], None]) -> None:
    """What was ours and is wanted no more is noticed, although all that is wanted is there."""
    obj = recorded(DEEPSPEED)
    where, wish = case.given
    obj["metadata"].setdefault(where, {}).update(wish)
    roster = known(admitted(obj))
    carry_out(roster)
    assert not look(roster).apply

    for name in wish:
        del obj["metadata"][where][name]
    roster.jobset_changed(Key("default", "job"), jobset(obj))
    assert len(look(roster).apply) == 1


def test_the_queue_follows_the_jobset_when_it_is_resumed() -> None:
    """While it is suspended the group keeps its queue; it asks for nothing there."""
    obj = recorded(TORCH)
    roster = known(admitted(obj))
    carry_out(roster)
    obj["metadata"]["labels"][QUEUE] = "team-b"

    suspended(obj)
    roster.jobset_changed(Key("default", "job"), jobset(obj))
    assert not look(roster).apply
    obj["spec"]["suspend"] = False
    roster.jobset_changed(Key("default", "job"), jobset(obj))
    (fields,) = look(roster).apply
    assert fields["metadata"]["name"] == NAME
    assert (fields["spec"]["queue"], fields["metadata"]["labels"][QUEUE]) == ("team-b", "team-b")


def test_a_pod_that_admission_missed_is_assigned() -> None:
    """It is told group and sub-group, by its uid."""
    roster = known(admitted(recorded(DEEPSPEED)))
    roster.pod_changed(Key("default", "a"), pod("a", "launcher"))

    (assign,) = look(roster).assign
    assert assign.key == Key("default", "a")
    assert assign.fields["metadata"] == {
        "uid": "uid-a",
        "annotations": {POD_GROUP: NAME},
        "labels": {SUBGROUP: "launcher-replica-0"},
    }


def test_for_an_external_scheduler_a_pod_has_no_sub_group() -> None:
    """Its groups are flat, one for each stage."""
    roster = known(admitted(recorded(DEEPSPEED), staged=True), counts=True)
    roster.pod_changed(Key("default", "a"), pod("a", "launcher"))

    (assign,) = look(roster, EXTERNAL).assign
    assert assign.fields["metadata"] == {
        "uid": "uid-a",
        "annotations": {POD_GROUP: f"{NAME}-launcher"},
    }


# pods that carry all our labels, and are nobody's we know
FORGED: list[Case[dict[str, Any], None]] = [
    Case("it has no owner", {"ownerReferences": []}, None),
    Case("its owner is no Job", {"kind": "ReplicaSet", "apiVersion": "apps/v1"}, None),
    Case("its owner is no controller", {"controller": False}, None),
    Case("its Job is of another group", {"apiVersion": "example.com/v1"}, None),
    Case("its Job is unknown", {"uid": "job-of-somebody-else"}, None),
    Case("its Job does not select it", {"labels": {}}, None),
    Case("its Job keeps no account of it", {"finalizers": ()}, None),
]


@pytest.mark.parametrize("case", FORGED, ids=ids)
def test_forged_pods_never_count(case: Case[dict[str, Any], None]) -> None:
    """Labels alone make nobody a member."""
    roster = known(admitted(recorded(TORCH)), counts=True)
    true = pod("a", "node")
    meta = true.metadata
    if "labels" in case.given:
        labels = {name: it for name, it in meta.labels.items() if name != CONTROLLER_UID}
        meta = msgspec.structs.replace(meta, labels=labels)
    elif "finalizers" in case.given:
        meta = msgspec.structs.replace(meta, **case.given)
    else:
        owners = case.given.get("ownerReferences")
        if owners is None:
            forged = {"api_version" if k == "apiVersion" else k: v for k, v in case.given.items()}
            owners = [msgspec.structs.replace(meta.owner_references[0], **forged)]
        meta = msgspec.structs.replace(meta, owner_references=tuple(owners))
    roster.pod_changed(Key("default", "a"), msgspec.structs.replace(true, metadata=meta))

    (found,) = roster.jobsets.values()
    assert list(roster.members(found)) == []


def test_a_job_that_somebody_else_controls_brings_no_members() -> None:
    """A Job may carry the labels of a JobSet; its controller says whose it is."""
    ours = admitted(recorded(TORCH))
    roster = Roster(counts=True)
    roster.jobset_changed(Key("default", "job"), ours)
    roster.job_changed(*job_of(ours, "node", owner="another-jobset"))
    roster.pod_changed(Key("default", "a"), pod("a", "node"))

    assert list(roster.members(ours)) == []


def test_an_external_minimum_sinks_only_for_a_pod_that_waits() -> None:
    """Beside members that are done, one that is made again must not wait for them."""
    roster = known(admitted(recorded(TORCH), staged=True), counts=True)
    carry_out(roster, EXTERNAL)
    for i, phase in enumerate(["Succeeded", "Succeeded", "Running", "Running"]):
        seen = pod(f"p{i}", "node", phase=phase, node="n", group=NAME)
        roster.pod_changed(Key("default", f"p{i}"), seen)
    assert not look(roster, EXTERNAL).apply

    roster.pod_changed(Key("default", "p3"), pod("p3", "node", phase="Failed", group=NAME))
    roster.pod_changed(Key("default", "p4"), pod("p4", "node", group=NAME))
    (fields,) = carry_out(roster, EXTERNAL).apply
    assert fields["spec"]["minMember"] == 2

    seen = pod("p4", "node", phase="Running", node="n", group=NAME)
    roster.pod_changed(Key("default", "p4"), seen)
    assert not look(roster, EXTERNAL).apply  # nobody waits: nobody is helped by raising it again


def test_a_field_that_a_definition_does_not_have_is_not_missed() -> None:
    """An older KAI drops what it does not know; to apply it again would change nothing."""
    roster = known(admitted(recorded(TORCH), staged=True), counts=True)
    (found,) = roster.jobsets.values()
    (fields,) = look(roster, EXTERNAL).apply
    known_there = {k: it for k, it in fields["spec"].items() if k != "stalenessGracePeriod"}
    roster.group_changed(Key("default", NAME), applied({**fields, "spec": known_there}))

    groups = roster.groups(UID)
    assert plan(found, Known(groups), (), EXTERNAL).apply
    assert not plan(found, Known(groups, {"stalenessGracePeriod"}), (), EXTERNAL).apply


def test_what_cannot_be_read_is_said_and_hurts_nobody() -> None:
    """A quantity that nobody can read is told; there is no group, and no crash."""
    obj = recorded(DEEPSPEED)
    pod_spec = obj["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    pod_spec["containers"][0]["resources"] = {"limits": {"cpu": "many"}}

    steps = look(known(admitted(obj)))
    assert steps.apply == ()
    (finding,) = steps.outline.findings
    assert finding.message.startswith("cannot be planned: 'many' is no quantity; write one such as")


def test_a_unit_that_no_group_can_hold_is_said() -> None:
    """A definition allows so many sub-groups; beyond that nothing is built, and nothing applied."""
    obj = recorded(TORCH)
    marked = admitted(obj)
    (job,) = marked.spec.replicated_jobs
    jobs = (msgspec.structs.replace(job, replicas=MOST_SUB_GROUPS),)
    spec = msgspec.structs.replace(marked.spec, replicated_jobs=jobs)
    steps = look(known(msgspec.structs.replace(marked, spec=spec)))

    assert steps.apply == ()
    assert "3001 sub-groups" in steps.outline.findings[0].message


def test_a_namesake_has_groups_of_its_own() -> None:
    """A JobSet made again under its name does not take over what belonged to the one before."""
    obj = recorded(TORCH)
    roster = known(admitted(obj))
    carry_out(roster)

    obj["metadata"]["uid"] = "another"
    roster.jobset_changed(Key("default", "job"), jobset(obj))
    (fields,) = look(roster).apply
    assert fields["metadata"]["name"] == "pg-job-another"
    assert fields["metadata"]["ownerReferences"][0]["uid"] == "another"


def test_a_group_that_was_deleted_comes_back() -> None:
    """Who deletes a group does not end the gang."""
    roster = known(admitted(recorded(TORCH)))
    (made,) = carry_out(roster).apply

    key = Key("default", NAME)
    assert roster.group_gone(key, "the uid of the one before") is None
    assert look(roster).apply == ()
    assert roster.group_gone(key, f"uid-{NAME}") == Key("default", "job")
    assert look(roster).apply == (made,)
