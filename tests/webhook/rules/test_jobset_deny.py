"""JobSets that are denied at creation, and those that are left to another scheduler."""

from typing import NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import (
    BUNDLED,
    CONTEXT,
    EXTERNAL,
    QUEUE,
    Obj,
    job,
    jobset,
    jobset_context,
    managed,
    reviewed_jobset,
)
from trainer_kai.api.bounds import MOST_JOBS
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED, AdmissionDenial
from webhook.rules.jobset_mutate import JobSetContext

COSCHEDULED: Obj = {"labels": {"scheduling.x-k8s.io/pod-group": "job"}}
VOLCANO: Obj = {"annotations": {"scheduling.k8s.io/group-name": "job"}}
EXCLUSIVE: Obj = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
STRATEGY: Obj = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}


class JobSetCase(NamedTuple):
    obj: Obj
    context: JobSetContext = CONTEXT
    rules: GroupingRules = BUNDLED


def why_denied(given: JobSetCase) -> str:
    """Return code and message; "" if it is not denied."""
    denial = reviewed_jobset(*given).denial
    return f"{denial.code} {denial.message}" if denial else ""


def check_denial(given: JobSetCase, want: str | None) -> None:
    denial = why_denied(given)
    assert (denial[:4], want in denial) == ("422 ", True) if want else not denial


LEFT = [
    Case("coscheduling", JobSetCase(jobset(job("node", **COSCHEDULED))), None),
    Case("volcano", JobSetCase(jobset(job("node", **VOLCANO))), None),
    Case("volcano, by name", JobSetCase(jobset(job("node", "volcano", **VOLCANO))), None),
    Case("both of them", JobSetCase(jobset(job("node", **COSCHEDULED, **VOLCANO))), None),
    Case(
        "although the namespace has a queue",
        JobSetCase(jobset(job("node", **VOLCANO)), jobset_context(namespace_labels={QUEUE: "n"})),
        None,
    ),
    Case(
        "although the TrainJob has a priority",
        JobSetCase(jobset(job("node", **VOLCANO)), jobset_context({"priorityClassName": "train"})),
        None,
    ),
]


@pytest.mark.parametrize("case", LEFT, ids=ids)
def test_a_jobset_for_another_scheduler_gets_that(case: Case[JobSetCase, None]) -> None:
    """Nothing is injected, no mark, no warning."""
    assert reviewed_jobset(case.given.obj, case.given.context) == UNCHANGED


NODE = job("node", **VOLCANO)
BOTH = [
    Case(
        "the TrainJob's label",
        JobSetCase(jobset(NODE), jobset_context({QUEUE: "t"})),
        "of the TrainJob",
    ),
    Case(
        "the runtime's field",
        JobSetCase(jobset(NODE), jobset_context(runtime_queue="r")),
        "podGroupPolicy.kaiScheduler.queue",
    ),
    Case(
        "the JobSet's label",
        JobSetCase(managed(jobset(NODE, labels={QUEUE: "j"}))),
        "of the JobSet",
    ),
    Case(
        "a pod template's label",
        JobSetCase(managed(jobset(NODE, job("a", labels={QUEUE: "p"})))),
        "of a pod template",
    ),
    Case(
        "our scheduler's name",
        JobSetCase(jobset(job("node", "kai-scheduler", **VOLCANO))),
        "schedulerName: kai-scheduler in a pod template",
    ),
    Case(
        "although no pod is ours",
        JobSetCase(jobset(job("node", "volcano", **VOLCANO)), jobset_context({QUEUE: "t"})),
        "of the TrainJob",
    ),
]


@pytest.mark.parametrize("case", BOTH, ids=ids)
def test_two_schedulers_are_refused(case: Case[JobSetCase, str]) -> None:
    """Both are named, and what to remove."""
    fault, _, remedy = why_denied(case.given).partition("Remove")

    assert f"{fault}{remedy}".startswith("422 ")
    assert "podGroupPolicy.volcano of the runtime" in f"{fault}{remedy}"
    assert (case.want in fault, case.want in remedy) == (True, True)


PODS_ALONE = [
    Case("on the JobSet", jobset(annotations=EXCLUSIVE), "metadata"),
    Case(
        "on a Job",
        jobset(job("a"), job("node", of_job={"annotations": EXCLUSIVE})),
        "spec.replicatedJobs[1].template.metadata",
    ),
    Case(
        "with a strategy that JobSet does not see there",
        jobset(job("node", of_job={"annotations": EXCLUSIVE}), annotations=STRATEGY),
        "spec.replicatedJobs[0].template.metadata",
    ),
    Case("with the strategy", jobset(annotations=EXCLUSIVE | STRATEGY), None),
    Case(
        "with the strategy on a Job",
        jobset(job("node", of_job={"annotations": EXCLUSIVE | STRATEGY})),
        None,
    ),
    Case(
        "on a Job of another scheduler",
        jobset(job("node"), job("a", "other", of_job={"annotations": EXCLUSIVE})),
        None,
    ),
    Case("of another scheduler altogether", jobset(job("a", "other"), annotations=EXCLUSIVE), None),
]


@pytest.mark.parametrize("case", PODS_ALONE, ids=ids)
def test_exclusive_placement(case: Case[Obj, str | None]) -> None:
    """Without node selectors the leaders start alone, which a gang never does."""
    denial = why_denied(JobSetCase(case.given))

    want = f"422 {case.want}.annotations[alpha.jobset"
    assert denial.startswith(want) if case.want else not denial


def test_a_queue_that_no_label_can_name_is_refused() -> None:
    """The API server would refuse the JobSet, and not know where the name comes from."""
    assert reviewed_jobset(
        jobset(), jobset_context(runtime_queue="Team A")
    ).denial == AdmissionDenial(
        422,
        "the queue name from the runtime's podGroupPolicy.kaiScheduler.queue is invalid: "
        "'Team A' must be at most 63 letters, digits, '-', '_' and '.', and begin and end "
        "with a letter or digit",
    )


def chain(length: int, width: int) -> Obj:
    jobs = []
    for i in range(length):
        before = [{"name": f"j{j}", "status": "Ready"} for j in range(max(0, i - width), i)]
        jobs.append(job(f"j{i}", dependsOn=before))
    return jobset(*jobs)


MANY: list[Case[Obj, str | None]] = [
    Case("as many as are planned", chain(MOST_JOBS, 1), None),
    Case(
        "one more",
        chain(MOST_JOBS + 1, 0),
        "the JobSet has 65 replicatedJobs, and the maximum is 64",
    ),
    Case(
        "too many edges",
        chain(MOST_JOBS, 20),
        "the JobSet has 1070 dependencies (dependsOn), and the maximum is 640. Remove some",
    ),
]


@pytest.mark.parametrize("case", MANY, ids=ids)
def test_what_takes_long_to_plan_is_refused(case: Case[Obj, str | None]) -> None:
    """The pods of all other users would wait for it. What exists already stays as it is."""
    check_denial(JobSetCase(case.given), case.want)

    if case.want:
        case.given["metadata"]["annotations"] = {"trainer-kai.dev/admitted": "v1"}
        case.given["spec"]["suspend"] = True
        later = reviewed_jobset(case.given, old=case.given)
        assert (later.denial, later.operations) == (None, ())
        assert case.want in later.warnings[0]


def _numerous(name: str, pods: int) -> Obj:
    """Return a replicatedJob of so many pods, which come later."""
    made = job(name, dependsOn=[{"name": "a", "status": "Ready"}])
    made["template"]["spec"] |= {"parallelism": pods, "completions": pods}
    return made


LARGE: list[Case[JobSetCase, str | None]] = [
    Case("a group has room for it", JobSetCase(jobset(job("node", replicas=2900))), None),
    Case(
        "it has not",
        JobSetCase(jobset(job("node", replicas=3000))),
        "the PodGroup of node would have 3001 sub-groups",
    ),
    Case(
        "a part has not",
        JobSetCase(
            jobset(
                job("a"),
                job("b", replicas=3000, dependsOn=[{"name": "a", "status": "Complete"}]),
            )
        ),
        "the PodGroup of b would have 3001 sub-groups",
    ),
    Case(
        "a user that makes the PodGroup needs none",
        JobSetCase(
            jobset(job("node", replicas=3000)),
            jobset_context(annotations={"kai.scheduler/skip-podgrouper": "true"}),
        ),
        None,
    ),
    Case("what has no pods needs none", JobSetCase(jobset(job("a"), job("b", replicas=0))), None),
    Case(
        "as many pods come later as may",
        JobSetCase(jobset(job("a"), _numerous("b", 100_000))),
        None,
    ),
    Case(
        "one more comes later",
        JobSetCase(jobset(job("a"), _numerous("b", 100_001))),
        "b would have 100001 expected pods (they start after others",
    ),
    Case(
        "a stage has very many Jobs",
        JobSetCase(jobset(job("node", replicas=2**31 - 1)), rules=EXTERNAL),
        "the PodGroup of node would have 2147483647 Jobs, and the maximum is 3000. Lower replicas",
    ),
]


@pytest.mark.parametrize("case", LARGE, ids=ids)
def test_what_no_group_can_hold_is_refused(case: Case[JobSetCase, str | None]) -> None:
    """Its pods would be of our scheduler and of no PodGroup, and be placed one by one."""
    check_denial(case.given, case.want)
