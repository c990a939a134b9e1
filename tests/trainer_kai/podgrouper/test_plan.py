"""The plan for a JobSet: nothing without a reason, and all that is needed."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.workloads.jobsets import RUNTIMES, UID, admitted, jobset, pod, recorded
from tests.trainer_kai.podgrouper.stores import (
    BUNDLED,
    EXTERNAL,
    NAME,
    applied,
    apply_plan,
    change_jobset,
    job_for,
    next_plan,
    store_with,
    trainjob_for,
)
from trainer_kai.api.bounds import MOST_SUB_GROUPS
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ADMITTED,
    BATCH_MIN_MEMBER,
    CONTROLLER_UID,
    FOLLOWS_TRAINJOB,
    GANG,
    NODE_POOL,
    POD_GROUP,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    RESERVED,
    STALENESS_GRACE_PERIOD,
    SUBGROUP,
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.podgrouper.plan import GroupingPlan, ObservedState, plan
from trainer_kai.podgrouper.store import PodgrouperStore
from trainer_kai.policy.podgroups.followed_values import followed_names
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import ObjectKey

TORCH = "torch-distributed"
DEEPSPEED = "deepspeed-distributed"
JOB = ObjectKey("JobSet", "default", "job")
OTHER_RULES = {"annotations": {ADMITTED: "v2"}}


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_groups_are_made_once(runtime: str, rules: GroupingRules) -> None:
    """Each PodGroup is applied before any pod exists, and then nothing is left to do."""
    store = store_with(admitted(recorded(runtime), staged=rules is EXTERNAL))

    first = apply_plan(store, rules)
    assert first.is_first
    assert len(first.apply) == len(first.podgroup_plan.podgroups) > 0
    assert next_plan(store, rules) == GroupingPlan(podgroup_plan=first.podgroup_plan)


# labels and annotations of a TrainJob that its JobSet follows -> the fields of the PodGroup
FOLLOWED: list[Case[dict[str, dict[str, str]], dict[str, Any]]] = [
    Case(
        "another priority class",
        {"labels": {PRIORITY_CLASS_NAME: "build"}},
        {"priorityClassName": "build"},
    ),
    Case(
        "another preemptibility",
        {"labels": {PREEMPTIBILITY: "non-preemptible"}},
        {"preemptibility": "non-preemptible"},
    ),
    Case(
        "a topology and delays",
        {
            "annotations": {
                TOPOLOGY: "dc",
                TOPOLOGY_REQUIRED: "rack",
                PREEMPTION_DELAY: "5m",
                STALENESS_GRACE_PERIOD: "30s",
            }
        },
        {
            "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"},
            "preemptionDelay": "5m",
            "stalenessGracePeriod": "30s",
        },
    ),
]


def following(**copied: dict[str, str]) -> JobSet:
    """Return a JobSet that follows its TrainJob in all values, with those that it had then."""
    names = followed_names({}, {})
    fields = recorded(TORCH)
    fields["metadata"].setdefault("annotations", {})[FOLLOWS_TRAINJOB] = names
    for what, values in copied.items():
        fields["metadata"].setdefault(what, {}).update(values)
    return admitted(fields)


def spec_of(store: PodgrouperStore) -> dict[str, Any]:
    (fields,) = next_plan(store).apply
    spec: dict[str, Any] = fields["spec"]
    return spec


@pytest.mark.parametrize("case", FOLLOWED, ids=ids)
def test_a_podgroup_follows_its_trainjob(
    case: Case[dict[str, dict[str, str]], dict[str, Any]],
) -> None:
    """A change reconciles the JobSet; a removed value is none again."""
    ours = following(**case.given)
    store = store_with(ours)
    bare = spec_of(store)
    assert bare["priorityClassName"] == "train"
    assert bare.keys().isdisjoint(case.want.keys() - {"priorityClassName"})

    assert store.owner_changed(*trainjob_for(ours, **case.given)) == {JOB}
    assert spec_of(store).items() >= case.want.items()
    assert store.owner_changed(*trainjob_for(ours, **case.given)) == frozenset()
    assert store.owner_changed(*trainjob_for(ours)) == {JOB}
    assert spec_of(store) == bare


def test_a_value_of_the_runtime_does_not_follow() -> None:
    """Nor any of a JobSet that an earlier version admitted."""
    ours = admitted(recorded(TORCH))
    store = store_with(ours)
    store.owner_changed(*trainjob_for(ours, labels={PRIORITY_CLASS_NAME: "build"}))

    assert spec_of(store)["priorityClassName"] == "train"


def suspended(obj: dict[str, Any]) -> None:
    obj["spec"]["suspend"] = True


def unmarked(obj: dict[str, Any]) -> None:
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
    """A JobSet that does not run here, or is not ours, is left alone, with PodGroups and pods."""
    obj = recorded(TORCH)
    admitted(obj)
    case.given(obj)
    store = store_with(jobset(obj))
    store.pod_changed(Key("default", "a"), pod("a", "node"))

    assert next_plan(store)[:2] == ((), ())


# what another client did to a PodGroup -> whether it is brought in line
DRIFTS: list[Case[dict[str, Any], bool]] = [
    Case("a scheduler reserved places", {"annotations": {RESERVED: "{}"}}, False),
    Case("a client added a field", {"spec": {"schedulingBackoff": 1}}, False),
    Case(
        "a client assigned a topology", {"spec": {"topologyConstraint": {"topology": "t"}}}, False
    ),
    Case("a client lowered the minimum", {"spec": {"minSubGroup": 0}}, True),
    Case("a client changed the queue", {"spec": {"queue": "mine"}}, True),
    Case("a client removed the sub-groups", {"spec": {"subGroups": []}}, True),
]


@pytest.mark.parametrize("case", DRIFTS, ids=ids)
def test_drift_is_distinguished_from_the_work_of_others(case: Case[dict[str, Any], bool]) -> None:
    """Fields that are ours are put right, all of them at once; fields of others stay."""
    store = store_with(admitted(recorded(TORCH)))
    apply_plan(store, **case.given)

    again = next_plan(store)
    assert bool(again.apply) is case.want
    assert not again.is_first


# what a JobSet asked for when its group was made, and no longer asks for
WITHDRAWN_REQUESTS: list[Case[tuple[str, dict[str, str]], None]] = [
    Case("preemptibility", ("labels", {PREEMPTIBILITY: "preemptible"}), None),
    Case("a node pool", ("labels", {NODE_POOL: "pool-a"}), None),
    Case("a topology", ("annotations", {TOPOLOGY: "t", TOPOLOGY_REQUIRED: "rack"}), None),
    Case("a minimum", ("annotations", {BATCH_MIN_MEMBER: "1"}), None),
]


@pytest.mark.parametrize("case", WITHDRAWN_REQUESTS, ids=ids)
def test_a_withdrawn_request_is_applied(case: Case[tuple[str, dict[str, str]], None]) -> None:
    """What was ours and is wanted no more is noticed, although all that is wanted is there."""
    obj = recorded(DEEPSPEED)
    where, wish = case.given
    obj["metadata"].setdefault(where, {}).update(wish)
    store = store_with(admitted(obj))
    apply_plan(store)
    assert not next_plan(store).apply

    for name in wish:
        del obj["metadata"][where][name]
    change_jobset(store, jobset(obj))
    assert len(next_plan(store).apply) == 1


def test_the_queue_follows_the_jobset_when_it_is_resumed() -> None:
    """While it is suspended the PodGroup keeps its queue; it requests nothing there."""
    obj = recorded(TORCH)
    store = store_with(admitted(obj))
    apply_plan(store)
    obj["metadata"]["labels"][QUEUE] = "team-b"

    suspended(obj)
    change_jobset(store, jobset(obj))
    assert not next_plan(store).apply
    obj["spec"]["suspend"] = False
    change_jobset(store, jobset(obj))
    (fields,) = next_plan(store).apply
    assert fields["metadata"]["name"] == NAME
    assert (fields["spec"]["queue"], fields["metadata"]["labels"][QUEUE]) == ("team-b", "team-b")


def test_a_pod_that_admission_missed_is_assigned() -> None:
    """It gets its PodGroup and PodSet, by its uid."""
    store = store_with(admitted(recorded(DEEPSPEED)))
    store.pod_changed(Key("default", "a"), pod("a", "launcher"))

    (assign,) = next_plan(store).assign
    assert assign.key == Key("default", "a")
    assert assign.fields["metadata"] == {
        "uid": "uid-a",
        "annotations": {POD_GROUP: NAME},
        "labels": {SUBGROUP: "launcher-replica-0"},
    }


def test_for_an_external_scheduler_a_pod_has_no_sub_group() -> None:
    """Its PodGroups are flat, one for each stage."""
    store = store_with(admitted(recorded(DEEPSPEED), staged=True), counts=True)
    store.pod_changed(Key("default", "a"), pod("a", "launcher"))

    (assign,) = next_plan(store, EXTERNAL).assign
    assert assign.fields["metadata"] == {
        "uid": "uid-a",
        "annotations": {POD_GROUP: f"{NAME}-launcher"},
    }


# pods that carry all our labels, and have no known owner
FORGED: list[Case[dict[str, Any], None]] = [
    Case("it has no owner", {"ownerReferences": []}, None),
    Case("its owner is no Job", {"kind": "ReplicaSet", "apiVersion": "apps/v1"}, None),
    Case("its owner is no controller", {"controller": False}, None),
    Case("its Job is of another group", {"apiVersion": "example.com/v1"}, None),
    Case("its Job is unknown", {"uid": "another-job"}, None),
    Case("its Job does not select it", {"labels": {}}, None),
    Case("its Job keeps no account of it", {"finalizers": ()}, None),
]


@pytest.mark.parametrize("case", FORGED, ids=ids)
def test_forged_pods_never_count(case: Case[dict[str, Any], None]) -> None:
    """Labels alone make no pod a member."""
    store = store_with(admitted(recorded(TORCH)), counts=True)
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
    store.pod_changed(Key("default", "a"), msgspec.structs.replace(true, metadata=meta))

    (found,) = store.workloads.values()
    assert list(store.members(found)) == []


def test_a_job_of_another_controller_brings_no_members() -> None:
    """A Job may carry the labels of a JobSet; its controller is its owner."""
    ours = admitted(recorded(TORCH))
    store = PodgrouperStore(counts=True)
    change_jobset(store, ours)
    store.job_changed(*job_for(ours, "node", owner="another-jobset"))
    store.pod_changed(Key("default", "a"), pod("a", "node"))

    assert list(store.members(jobset_workload(ours))) == []


def test_an_external_minimum_sinks_only_for_a_pod_that_waits() -> None:
    """A pod that is recreated beside pods that have succeeded must not wait for them."""
    store = store_with(admitted(recorded(TORCH), staged=True), counts=True)
    apply_plan(store, EXTERNAL)
    for i, phase in enumerate(["Succeeded", "Succeeded", "Running", "Running"]):
        pod_record = pod(f"p{i}", "node", phase=phase, node="n", group=NAME)
        store.pod_changed(Key("default", f"p{i}"), pod_record)
    assert not next_plan(store, EXTERNAL).apply

    store.pod_changed(Key("default", "p3"), pod("p3", "node", phase="Failed", group=NAME))
    store.pod_changed(Key("default", "p4"), pod("p4", "node", group=NAME))
    (fields,) = apply_plan(store, EXTERNAL).apply
    assert fields["spec"]["minMember"] == 2

    pod_record = pod("p4", "node", phase="Running", node="n", group=NAME)
    store.pod_changed(Key("default", "p4"), pod_record)
    assert not next_plan(store, EXTERNAL).apply  # no pod waits: a higher minimum would help none


def test_a_field_that_a_definition_does_not_have_is_not_missed() -> None:
    """An older KAI drops what it does not know; to apply it again would change nothing."""
    store = store_with(admitted(recorded(TORCH), staged=True), counts=True)
    (found,) = store.workloads.values()
    (fields,) = next_plan(store, EXTERNAL).apply
    known_there = {k: it for k, it in fields["spec"].items() if k != "stalenessGracePeriod"}
    store.group_changed(Key("default", NAME), applied({**fields, "spec": known_there}))

    groups = store.groups(UID)
    assert plan(found, ObservedState(groups), (), EXTERNAL).apply
    assert not plan(found, ObservedState(groups, {"stalenessGracePeriod"}), (), EXTERNAL).apply


def test_an_unreadable_jobset_is_reported_and_hurts_no_other() -> None:
    """An invalid quantity is reported; there is no PodGroup, and no crash."""
    obj = recorded(DEEPSPEED)
    pod_spec = obj["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    pod_spec["containers"][0]["resources"] = {"limits": {"cpu": "many"}}

    steps = next_plan(store_with(admitted(obj)))
    assert steps.apply == ()
    (finding,) = steps.podgroup_plan.findings
    assert finding.message.startswith(
        "the PodGroups cannot be planned: 'many' is not a quantity; write one such as"
    )


def test_a_podgroup_that_is_too_large_is_reported() -> None:
    """The CRD allows so many SubGroups; beyond that no PodGroup is applied."""
    obj = recorded(TORCH)
    marked = admitted(obj)
    (job,) = marked.spec.replicated_jobs
    jobs = (msgspec.structs.replace(job, replicas=MOST_SUB_GROUPS),)
    spec = msgspec.structs.replace(marked.spec, replicated_jobs=jobs)
    steps = next_plan(store_with(msgspec.structs.replace(marked, spec=spec)))

    assert steps.apply == ()
    assert "3001 sub-groups" in steps.podgroup_plan.findings[0].message


def test_a_namesake_has_groups_of_its_own() -> None:
    """A recreated JobSet does not take over the PodGroups of the one before."""
    obj = recorded(TORCH)
    store = store_with(admitted(obj))
    apply_plan(store)

    obj["metadata"]["uid"] = "another"
    change_jobset(store, jobset(obj))
    (fields,) = next_plan(store).apply
    assert fields["metadata"]["name"] == "pg-job-another"
    assert fields["metadata"]["ownerReferences"][0]["uid"] == "another"


@pytest.mark.parametrize("api_version", ["v1", "example.com/v1"])
def test_another_owner_of_a_group_is_left_alone(api_version: str) -> None:
    """Also one whose kind has the name of ours, in a group of its own."""
    store = store_with(admitted(recorded(TORCH)))
    (fields,) = next_plan(store).apply
    other = {"apiVersion": api_version, "kind": "JobSet", "name": "job", "uid": "another"}
    owners = [*fields["metadata"]["ownerReferences"], other]
    metadata = {**fields["metadata"], "ownerReferences": owners}
    store.group_changed(Key("default", NAME), applied({**fields, "metadata": metadata}))

    assert next_plan(store).apply == ()


def test_a_group_that_was_deleted_comes_back() -> None:
    store = store_with(admitted(recorded(TORCH)))
    (made,) = apply_plan(store).apply

    key = Key("default", NAME)
    assert store.group_deleted(key, "the uid of the one before") is None
    assert next_plan(store).apply == ()
    assert store.group_deleted(key, f"uid-{NAME}") == ObjectKey("JobSet", "default", "job")
    assert next_plan(store).apply == (made,)
