"""JobSets that are suspended, or on the way into or out of it."""

import copy
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import (
    BUNDLED,
    CONTEXT,
    EXTERNAL,
    GANG,
    OWNER,
    QUEUE,
    Obj,
    WrittenFields,
    applied,
    job,
    jobset,
    jobset_context,
    managed,
    recorded,
    reviewed_jobset,
    with_managed_fields_of,
    written,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED
from webhook.rules.jobset_mutate import JobSetContext

Changes: TypeAlias = Mapping[str, str | None]

KAI = "kai-scheduler"
ADMITTED = "trainer-kai.dev/admitted"
MARKED = {ADMITTED: "v1"}
SKIP = "kai.scheduler/skip-podgrouper"


def admitted(obj: Obj, known: JobSetContext = CONTEXT, rules: GroupingRules = BUNDLED) -> Obj:
    obj = managed(obj)
    made = applied(obj, reviewed_jobset(obj, known, rules))
    made["spec"]["suspend"] = True
    return with_managed_fields_of(made, obj)


def changed(obj: Obj, annotations: Changes, labels: Changes | None = None) -> Obj:
    """Return a JobSet with other labels or annotations; None takes one away."""
    other = copy.deepcopy(obj)
    for part, changes in (("labels", labels or {}), ("annotations", annotations)):
        members = other["metadata"].setdefault(part, {})
        for name, value in changes.items():
            members.pop(name, None)
            if value is not None:
                members[name] = value
    return other


def relabelled(obj: Obj, name: str, value: str | None) -> Obj:
    other = copy.deepcopy(obj)
    for it in other["spec"]["replicatedJobs"]:
        members = it["template"]["spec"]["template"]["metadata"]["labels"]
        members.pop(name, None)
        if value is not None:
            members[name] = value
    return other


def with_jobs(obj: Obj, *jobs: Obj) -> Obj:
    return {**obj, "spec": {**obj["spec"], "replicatedJobs": [*_jobs(obj), *jobs]}}


def reordered(obj: Obj) -> Obj:
    return {**obj, "spec": {**obj["spec"], "replicatedJobs": [*reversed(_jobs(obj))]}}


def _jobs(obj: Obj) -> list[Obj]:
    jobs: list[Obj] = obj["spec"]["replicatedJobs"]
    return jobs


class Update(NamedTuple):
    old: Obj
    new: Obj
    context: JobSetContext = CONTEXT
    rules: GroupingRules = BUNDLED


PLAIN = admitted(jobset())
TEAM_T = admitted(jobset(), jobset_context({QUEUE: "t"}))
OVERWRITTEN = admitted(
    jobset(job("node", labels={QUEUE: "p"}), labels={QUEUE: "j"}), jobset_context({QUEUE: "t"})
)
OUTSIDE = admitted(
    jobset(job("node"), job("after", dependsOn=[{"name": "node", "status": "Ready"}])),
    rules=EXTERNAL,
)
SELF_GROUPED = admitted(jobset(annotations={SKIP: "true"}))
WHOLE = {"node": (KAI, "default-queue", "Main")}

UPDATES = [
    Case("nothing changed", Update(PLAIN, PLAIN), WrittenFields("default-queue", MARKED, WHOLE)),
    Case(
        "the TrainJob was given a queue",
        Update(PLAIN, PLAIN, jobset_context({QUEUE: "t"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "the TrainJob was given another queue",
        Update(TEAM_T, TEAM_T, jobset_context({QUEUE: "u"})),
        WrittenFields("u", MARKED, {"node": (KAI, "u", "Main")}),
    ),
    Case(
        "its label was removed: no user wanted what we wrote",
        Update(TEAM_T, TEAM_T, jobset_context(namespace_labels={QUEUE: "n"})),
        WrittenFields("n", MARKED, {"node": (KAI, "n", "Main")}),
    ),
    Case(
        "its label was taken away, and Trainer wrote its own again",
        Update(OVERWRITTEN, relabelled(changed(OVERWRITTEN, {}, {QUEUE: "j"}), QUEUE, "p")),
        WrittenFields("j", MARKED, {"node": (KAI, "p", "Main")}),
    ),
    Case(
        "Trainer wrote its own again, and the label still outranks it",
        Update(
            OVERWRITTEN,
            relabelled(changed(OVERWRITTEN, {}, {QUEUE: "j"}), QUEUE, "p"),
            jobset_context({QUEUE: "t"}),
        ),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "marks that got lost come back",
        Update(PLAIN, relabelled(changed(PLAIN, {ADMITTED: None}), GANG, None)),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "marks that were changed are put right",
        Update(PLAIN, relabelled(changed(PLAIN, {ADMITTED: "v7"}), GANG, "x")),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "beside an external scheduler the annotation comes back, too",
        Update(OUTSIDE, changed(OUTSIDE, {SKIP: None}), rules=EXTERNAL),
        WrittenFields(
            "default-queue",
            {**MARKED, SKIP: "true"},
            {"node": (KAI, "default-queue", "node"), "after": (KAI, "default-queue", "after")},
        ),
    ),
    Case(
        "a user that made the PodGroup keeps it",
        Update(SELF_GROUPED, relabelled(SELF_GROUPED, GANG, "Main")),
        WrittenFields(
            "default-queue", {**MARKED, SKIP: "true"}, {"node": (KAI, "default-queue", None)}
        ),
    ),
    Case(
        "a user that wants to begin with it is too late",
        Update(PLAIN, changed(PLAIN, {SKIP: "true"})),
        WrittenFields("default-queue", {**MARKED, SKIP: "true"}, WHOLE),
    ),
    Case(
        "a wish that the TrainJob has now: wishes are carried at creation, only the queue follows",
        Update(PLAIN, PLAIN, jobset_context(annotations={"kai.scheduler/topology": "racks"})),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "the queue of a runtime that no label can name changes nothing",
        Update(TEAM_T, TEAM_T, jobset_context(runtime_queue="Team A")),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
]


@pytest.mark.parametrize("case", UPDATES, ids=ids)
def test_what_is_written(case: Case[Update, WrittenFields]) -> None:
    """The patch says it, applies, and is not needed a second time."""
    old, new, known, rules = case.given

    answer = reviewed_jobset(new, known, rules, old)
    patched = applied(new, answer)

    assert answer.denial is None
    assert written(patched) == case.want
    assert reviewed_jobset(patched, known, rules, old).operations == ()


def test_a_scheduler_name_is_never_added() -> None:
    """JobSet refuses it, and the TrainJob would be stuck for good."""
    bare = copy.deepcopy(PLAIN)
    del bare["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"]

    answer = reviewed_jobset(bare, jobset_context({QUEUE: "t"}), BUNDLED, bare)

    assert written(applied(bare, answer)).jobs == {"node": (None, "t", "Main")}


def running(obj: Obj) -> Obj:
    other = copy.deepcopy(obj)
    other["spec"]["suspend"] = False
    return other


RUNNING = running(OVERWRITTEN)
APPLIED_AGAIN = relabelled(changed(RUNNING, {}, {QUEUE: "j"}), QUEUE, "p")
STAGED = running(OUTSIDE)
UNLABELLED = changed(RUNNING, {}, {QUEUE: None})
KEPT = [
    Case(
        "Trainer wrote its own again: what outranked it comes back",
        Update(RUNNING, APPLIED_AGAIN, jobset_context({QUEUE: "t"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "although the TrainJob has another label by now: that counts when it is suspended",
        Update(RUNNING, APPLIED_AGAIN, jobset_context({QUEUE: "u"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "or the runtime names the queue",
        Update(RUNNING, APPLIED_AGAIN, jobset_context(runtime_queue="r")),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "a label that a user changes on the JobSet, which nothing outranks",
        Update(RUNNING, changed(RUNNING, {}, {QUEUE: "x"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "a label that a user removes from the JobSet",
        Update(RUNNING, changed(RUNNING, {}, {QUEUE: None})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "only the label of the JobSet",
        Update(RUNNING, changed(RUNNING, {}, {QUEUE: "j"}), jobset_context({QUEUE: "t"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "where there was no label there is none to put back",
        Update(UNLABELLED, changed(RUNNING, {}, {QUEUE: "j"}), jobset_context({QUEUE: "t"})),
        WrittenFields("j", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "a part that is new has nothing to get back, and does no harm",
        Update(RUNNING, with_jobs(APPLIED_AGAIN, job("late")), jobset_context({QUEUE: "t"})),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main"), "late": (None, None, None)}),
    ),
    Case(
        "parts in another order get back what was theirs",
        Update(STAGED, reordered(relabelled(STAGED, GANG, "x")), rules=EXTERNAL),
        WrittenFields(
            "default-queue",
            {**MARKED, SKIP: "true"},
            {"node": (KAI, "default-queue", "node"), "after": (KAI, "default-queue", "after")},
        ),
    ),
    Case(
        "a gang that is changed, or that is new",
        Update(RUNNING, relabelled(RUNNING, GANG, "x")),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main")}),
    ),
    Case(
        "a gang where there was none",
        Update(running(SELF_GROUPED), relabelled(running(SELF_GROUPED), GANG, "x")),
        WrittenFields(
            "default-queue", {**MARKED, SKIP: "true"}, {"node": (KAI, "default-queue", None)}
        ),
    ),
]


@pytest.mark.parametrize("case", KEPT, ids=ids)
def test_what_runs_keeps_its_queue(case: Case[Update, WrittenFields]) -> None:
    """Trainer may apply a JobSet once more before it sees that there is one."""
    old, new, known, rules = case.given

    answer = reviewed_jobset(new, known, rules, old)
    patched = applied(new, answer)

    assert (answer.denial, answer.warnings) == (None, ())
    assert written(patched) == case.want
    assert reviewed_jobset(patched, known, rules, old).operations == ()


LEFT: list[Case[tuple[Any, Obj], None]] = [
    Case("one that runs", (running(PLAIN), running(PLAIN)), None),
    Case("one that was never admitted", (changed(PLAIN, {ADMITTED: None}), PLAIN), None),
    Case("one with a mark of another program", (changed(PLAIN, {ADMITTED: "v0"}), PLAIN), None),
    Case("one without a past", ({}, PLAIN), None),
    Case("one with an unreadable past", ({"metadata": 7}, PLAIN), None),
    Case(
        "one that is being deleted",
        (
            PLAIN,
            {
                **PLAIN,
                "metadata": {**PLAIN["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
            },
        ),
        None,
    ),
    Case(
        "one that another object controls now",
        (
            PLAIN,
            {
                **PLAIN,
                "metadata": {
                    **PLAIN["metadata"],
                    "ownerReferences": [{**OWNER, "kind": "Workflow"}],
                },
            },
        ),
        None,
    ),
]


@pytest.mark.parametrize("case", LEFT, ids=ids)
def test_what_is_left_alone(case: Case[tuple[Any, Obj], None]) -> None:
    """Although the TrainJob names another queue."""
    old, new = case.given

    assert reviewed_jobset(new, jobset_context({QUEUE: "t"}), BUNDLED, old) == UNCHANGED


@pytest.mark.parametrize(("old", "new"), [(True, False), (False, True), (True, True)])
def test_suspended_before_or_after_is_suspended(old: bool, new: bool) -> None:
    """That is when JobSet lets labels change."""
    before, after = copy.deepcopy(PLAIN), copy.deepcopy(PLAIN)
    before["spec"]["suspend"], after["spec"]["suspend"] = old, new

    answer = reviewed_jobset(after, jobset_context({QUEUE: "t"}), BUNDLED, before)

    assert written(applied(after, answer)).queue == "t"


def test_nothing_is_refused_any_more() -> None:
    """What would have been refused at creation is told, and goes on."""
    both = copy.deepcopy(PLAIN)
    both["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "rack"
    labels = both["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"]
    labels["scheduling.x-k8s.io/pod-group"] = "job"

    answer = reviewed_jobset(both, jobset_context(runtime_queue="Team A"), BUNDLED, both)

    assert answer.denial is None
    assert "the queue is not changed" in answer.warnings[0]


def claiming(obj: Obj, *policies: Obj) -> Obj:
    claims = [copy.deepcopy(it) for it in policies]
    return {**obj, "spec": {**obj["spec"], "volumeClaimPolicies": claims}}


FILLED: Obj = {"templates": [], "retentionPolicy": {"whenDeleted": "Delete", "whenScaled": 1}}
BARE: Obj = {"templates": []}
RETAINED: Obj = {"templates": [], "retentionPolicy": {"whenDeleted": "Retain"}}
CLAIMS: list[Case[tuple[list[Obj], list[Obj]], list[Obj]]] = [
    Case("what was filled in comes back", ([FILLED, FILLED], [BARE, FILLED]), [FILLED, FILLED]),
    Case("for each its own", ([FILLED, RETAINED], [BARE, BARE]), [FILLED, RETAINED]),
    Case("what a user wrote stays, to be refused", ([FILLED], [RETAINED]), [RETAINED]),
    Case("where there was nothing there is nothing", ([BARE], [BARE]), [BARE]),
    Case("one that is new has nothing to get back", ([FILLED], [BARE, BARE]), [FILLED, BARE]),
    Case("one that is gone stays away", ([FILLED, FILLED], [BARE]), [FILLED]),
]


@pytest.mark.parametrize("case", CLAIMS, ids=ids)
@pytest.mark.parametrize(("before", "after"), [(PLAIN, PLAIN), (PLAIN, running(PLAIN))])
def test_claims(
    case: Case[tuple[list[Obj], list[Obj]], list[Obj]], before: Obj, after: Obj
) -> None:
    """JobSet allows no change of them, and Trainer applies them without what JobSet filled in."""
    old, new = claiming(before, *case.given[0]), claiming(after, *case.given[1])

    for one, other in ((old, new), (running(old), running(new))):
        patched = applied(other, reviewed_jobset(other, CONTEXT, BUNDLED, one))
        assert patched["spec"]["volumeClaimPolicies"] == case.want
        assert reviewed_jobset(patched, CONTEXT, BUNDLED, one).operations == ()


def test_a_real_update_follows_the_label() -> None:
    """As the API server sends it: Trainer's suspend, with our labels on it."""
    asked = json.loads(recorded("jobset-update"))["request"]
    old, new = asked["oldObject"], asked["object"]

    stays = reviewed_jobset(new, jobset_context({QUEUE: "team-b"}), BUNDLED, old)
    falls_back = applied(new, reviewed_jobset(new, CONTEXT, BUNDLED, old))

    assert stays.operations == ()
    assert written(falls_back).queue == "default-queue"
    assert {it[1] for it in written(falls_back).jobs.values()} == {"default-queue"}
