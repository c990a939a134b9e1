"""Jobs that are made and changed: which are ours, what is written, which queue they enter."""

import copy
from typing import Any, NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.webhook.jobs import CRON_JOB, JOB, JOBSET, job
from tests.webhook.objects import BUNDLED, EXTERNAL, GANG, QUEUE, Obj, applied, request
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED, AdmissionResponse
from webhook.rules.job_mutate import JobAnswer, mutate_job, read_job

ADMITTED = "trainer-kai.dev/admitted"
MINIMUM = "kai.scheduler/batch-min-member"
SKIP = "kai.scheduler/skip-podgrouper"
INDEXED = BUNDLED._replace(indexed_jobs=True)
REMOVED = (
    f"metadata.annotations[{ADMITTED}]: removed: only trainer-kai sets this annotation, on Jobs "
    "that it schedules"
)


def answered(
    obj: Obj,
    rules: GroupingRules = BUNDLED,
    namespace: dict[str, str] | None = None,
    old: Obj | None = None,
) -> JobAnswer:
    review = read_job(request(obj, JOB, old), rules)
    if isinstance(review, AdmissionResponse):
        return JobAnswer(review)
    return mutate_job(review, namespace or {}, rules)


class Written(NamedTuple):
    queue: str | None
    annotations: dict[str, str]
    of_pods: dict[str, str]


def written(obj: Obj) -> Written:
    meta, template = obj["metadata"], obj["spec"]["template"]["metadata"]
    labels = template.get("labels") or {}
    queue = (meta.get("labels") or {}).get(QUEUE)
    return Written(queue, meta.get("annotations") or {}, labels)


def whole(queue: str, **annotations: str) -> Written:
    return Written(queue, {ADMITTED: "v1", **annotations}, {QUEUE: queue, GANG: "Main"})


NAMED = {QUEUE: "a"}
FULL: Obj = {"completionMode": "Indexed", "parallelism": 4, "completions": 4}
CREATED: list[Case[tuple[Obj, GroupingRules], Written]] = [
    Case("a Job that names no queue", (job(), BUNDLED), whole("default-queue")),
    Case("its own label", (job(labels=NAMED), BUNDLED), whole("a")),
    Case("the label of its pods", (job(of_pods=NAMED), BUNDLED), whole("a")),
    Case(
        "its own label before that of its pods",
        (job(labels=NAMED, of_pods={QUEUE: "b"}), BUNDLED),
        whole("a"),
    ),
    Case("a run of a CronJob", (job(ownerReferences=[CRON_JOB]), BUNDLED), whole("default-queue")),
    Case(
        "an owner that is no controller",
        (job(ownerReferences=[{**JOBSET, "controller": False}]), BUNDLED),
        whole("default-queue"),
    ),
    Case(
        "a label of another PodGroup is written over",
        (job(of_pods={GANG: "node"}), BUNDLED),
        whole("default-queue"),
    ),
    Case(
        "one that its user groups",
        (job(annotations={SKIP: "true"}, of_pods={GANG: "Main"}), BUNDLED),
        Written("default-queue", {SKIP: "true", ADMITTED: "v1"}, {QUEUE: "default-queue"}),
    ),
    Case(
        "an Indexed Job starts with its first pod", (job(**FULL), BUNDLED), whole("default-queue")
    ),
    Case(
        "or as a whole, by the setting",
        (job(**FULL), INDEXED),
        whole("default-queue", **{MINIMUM: "4"}),
    ),
    Case(
        "but not against its annotation",
        (job(**FULL, annotations={MINIMUM: "2"}), INDEXED),
        whole("default-queue", **{MINIMUM: "2"}),
    ),
    Case(
        "nor with more completions than pods",
        (job(**{**FULL, "completions": 8}), INDEXED),
        whole("default-queue"),
    ),
    Case(
        "nor without indexes",
        (job(**{**FULL, "completionMode": "NonIndexed"}), INDEXED),
        whole("default-queue"),
    ),
    Case("nor without pods", (job(**{**FULL, "parallelism": 0}), INDEXED), whole("default-queue")),
    Case(
        "beside KAI only what KAI reads is written",
        (job(**FULL, labels=NAMED), INDEXED._replace(mode="external")),
        Written("a", {MINIMUM: "4"}, {}),
    ),
    Case("or nothing at all", (job(**FULL, labels=NAMED), EXTERNAL), Written("a", {}, {})),
]


@pytest.mark.parametrize("case", CREATED, ids=ids)
def test_a_job_that_is_made(case: Case[tuple[Obj, GroupingRules], Written]) -> None:
    """A second review changes nothing."""
    obj, rules = case.given
    answer = answered(obj, rules)
    patched = applied(obj, answer.response)

    assert written(patched) == case.want
    assert answer.response.denial is None
    assert answered(patched, rules).response.operations == ()


def test_the_namespace_names_the_queue_where_the_job_does_not() -> None:
    answer = answered(job(), namespace=NAMED)

    assert written(applied(job(), answer.response)) == whole("a")


FOREIGN: list[Case[tuple[Obj, GroupingRules], None]] = [
    Case("of another scheduler", (job("default-scheduler"), BUNDLED), None),
    Case("of a JobSet", (job(ownerReferences=[JOBSET]), BUNDLED), None),
    Case(
        "of a kind that has the name of CronJobs",
        (job(ownerReferences=[{**CRON_JOB, "apiVersion": "example.com/v1"}]), BUNDLED),
        None,
    ),
    Case("managed by another controller", (job(managedBy="a.io/b"), BUNDLED), None),
    Case("beside KAI", (job(), EXTERNAL), None),
]


@pytest.mark.parametrize("case", FOREIGN, ids=ids)
def test_a_job_that_is_not_ours_keeps_no_mark(case: Case[tuple[Obj, GroupingRules], None]) -> None:
    obj, rules = case.given
    assert answered(obj, rules) == JobAnswer(UNCHANGED)

    obj = copy.deepcopy(obj)
    obj["metadata"]["annotations"] = {ADMITTED: "v1"}
    answer = answered(obj, rules)
    assert answer.response.warnings == (REMOVED,)
    assert written(applied(obj, answer.response)).annotations == {}


def test_a_queue_name_that_no_label_can_have_is_refused() -> None:
    denial = answered(job(labels={QUEUE: "a b"})).response.denial

    assert denial is not None
    assert denial.message.startswith("the queue name from its own label is invalid")


def test_a_label_of_its_pods_that_does_not_count_is_reported() -> None:
    answer = answered(job(labels=NAMED, of_pods={QUEUE: "b"}))

    [warning] = answer.response.warnings
    assert warning == (
        f"spec.template.metadata.labels[{QUEUE}]: the pods use queue a, from its own label. "
        "Remove this label"
    )


def test_whose_choice_the_queue_is() -> None:
    """The user's, unless namespace or settings name it, or the Job is a run of a CronJob."""
    assert [it.is_user_choice for it in answered(job(labels=NAMED)).queues] == [True]
    assert [it.is_user_choice for it in answered(job(of_pods=NAMED)).queues] == [True]
    assert [it.is_user_choice for it in answered(job(), namespace=NAMED).queues] == [False]
    run = job(labels=NAMED, ownerReferences=[CRON_JOB])
    assert [(it.queue, it.is_user_choice) for it in answered(run).queues] == [("a", False)]


STORED = applied(
    job(labels=NAMED, suspend=True), answered(job(labels=NAMED, suspend=True)).response
)


def stored(**status: Any) -> Obj:
    """Return a Job that is suspended, in queue a; with a start time it has run before."""
    fields: Obj = {"f:metadata": {"f:labels": {f"f:{QUEUE}": {}}}, "f:spec": {"f:suspend": {}}}
    obj = copy.deepcopy(STORED)
    obj["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": fields}]
    return {**obj, "status": status}


def changed(obj: Obj, queue: str | None, *, suspend: bool = True) -> Obj:
    obj = copy.deepcopy(obj)
    obj["metadata"]["labels"] = {QUEUE: queue} if queue else {}
    if queue is None:
        obj["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = {}
    obj["spec"]["suspend"] = suspend
    return obj


def test_a_suspended_job_changes_its_queue() -> None:
    """Its pods too, as long as the API server lets them; the new queue is checked."""
    new = changed(stored(), "b", suspend=False)
    answer = answered(new, old=stored())

    assert written(applied(new, answer.response)) == whole("b")
    assert [(it.queue, it.is_user_choice) for it in answer.queues] == [("b", True)]
    for status in ({"startTime": "2026-01-01T00:00:00Z"}, {"active": 1}):
        started = stored(**status)
        new = changed(started, "b")
        answer = answered(new, old=started)
        wanted = Written("b", {ADMITTED: "v1"}, whole("a").of_pods)
        assert written(applied(new, answer.response)) == wanted


def test_a_label_that_is_removed_is_gone() -> None:
    """What admission wrote on the pods names no queue."""
    new = changed(stored(), None)

    answer = answered(new, old=stored())
    assert written(applied(new, answer.response)) == whole("default-queue")
    assert answer.queues == ()


def test_a_job_that_runs_keeps_its_queue() -> None:
    running = changed(stored(), "a", suspend=False)
    new = changed(running, "b", suspend=False)

    answer = answered(new, old=running)
    assert written(applied(new, answer.response)).queue == "a"
    assert answer.queues == ()
    [warning] = answer.response.warnings
    assert warning == (
        f"metadata.labels[{QUEUE}]: remains 'a' while the Job runs. To change the queue, suspend "
        "the Job (spec.suspend: true)"
    )


def test_an_invalid_queue_of_a_suspended_job_changes_nothing() -> None:
    answer = answered(changed(stored(), "a b"), old=stored())

    assert answer.response.operations == ()
    [warning] = answer.response.warnings
    assert warning.startswith(f"metadata.labels[{QUEUE}]: the queue is not changed: ")


def test_a_job_that_was_not_admitted_is_left_alone() -> None:
    """It began without us, and its pods are placed one by one."""
    old = stored()
    old["metadata"]["annotations"] = {}

    assert answered(changed(old, "b"), old=old) == JobAnswer(UNCHANGED)


def test_a_job_that_cannot_be_read_is_refused() -> None:
    denial = answered(job(parallelism="many")).response.denial

    assert denial is not None
    assert denial.message.startswith("request.object.spec.parallelism: ")


def test_a_job_that_is_too_large_is_not_read() -> None:
    """Its pods are placed one by one; it keeps no mark."""
    large = job(annotations={ADMITTED: "v1"})
    large["spec"]["template"]["spec"]["containers"] = [{"env": [{"x": 1}] * 60_000}]

    assert answered(large).response.warnings == (REMOVED,)
    assert answered(large, old=stored()) == JobAnswer(UNCHANGED)
