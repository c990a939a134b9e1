"""JobSets that users create without a TrainJob: which are ours, and what is written."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import (
    BUNDLED,
    EXTERNAL,
    JOBSET,
    OWNER,
    QUEUE,
    Obj,
    WrittenFields,
    applied,
    job,
    jobset,
    managed,
    request,
    written,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED, AdmissionResponse
from webhook.rules.jobset_mutate import (
    JobSetContext,
    JobSetReview,
    entered_queues,
    mutate_jobset,
    read_jobset,
)
from webhook.rules.trainjob_queue_sources import RequestedQueue

KAI = "kai-scheduler"
ADMITTED = "trainer-kai.dev/admitted"
MARKED = {ADMITTED: "v1"}
NOTHING = JobSetContext(None)
COMPLETE: Obj = {"dependsOn": [{"name": "data", "status": "Complete"}]}


def bare(*jobs: Obj, **parts: Any) -> Obj:
    return jobset(*(jobs or [job("node", KAI)]), ownerReferences=[], **parts)


def read(obj: Obj, rules: GroupingRules = BUNDLED, old: Obj | None = None) -> JobSetReview:
    review = read_jobset(request(obj, JOBSET, old), rules)
    assert isinstance(review, JobSetReview)
    return review


def reviewed(obj: Obj, rules: GroupingRules = BUNDLED, **parts: Any) -> AdmissionResponse:
    return mutate_jobset(read(obj, rules, parts.get("old")), parts.get("context", NOTHING), rules)


OURS: list[Case[Obj, WrittenFields]] = [
    Case(
        "nothing is named",
        bare(),
        WrittenFields("default-queue", MARKED, {"node": (KAI, "default-queue", "Main")}),
    ),
    Case(
        "its label is before that of a pod template",
        bare(job("node", KAI, labels={QUEUE: "b"}), labels={QUEUE: "a"}),
        WrittenFields("a", MARKED, {"node": (KAI, "a", "Main")}),
    ),
    Case(
        "the label of a pod template",
        bare(job("node", KAI, labels={QUEUE: "b"})),
        WrittenFields("b", MARKED, {"node": (KAI, "b", "Main")}),
    ),
    Case(
        "one template names our scheduler, and the others get it",
        bare(job("data"), job("node", KAI, **COMPLETE), labels={QUEUE: "a"}),
        WrittenFields("a", MARKED, {"data": (KAI, "a", "data"), "node": (KAI, "a", "node")}),
    ),
    Case(
        "pods of another scheduler stay there",
        bare(job("data", "volcano"), job("node", KAI), labels={QUEUE: "a"}),
        WrittenFields("a", MARKED, {"data": ("volcano", None, None), "node": (KAI, "a", "Main")}),
    ),
]


@pytest.mark.parametrize("case", OURS, ids=ids)
def test_a_jobset_of_a_user(case: Case[Obj, WrittenFields]) -> None:
    """A second review changes nothing."""
    answer = reviewed(managed(case.given))
    patched = applied(managed(case.given), answer)

    assert answer.denial is None
    assert written(patched) == case.want
    assert reviewed(patched).operations == ()


def test_beside_kai_our_podgrouper_groups_it_too() -> None:
    """KAI reads no dependencies, and its PodGroup of two stages would wait for ever."""
    obj = bare(job("data", KAI), job("node", KAI, **COMPLETE))
    patched = applied(obj, reviewed(obj, EXTERNAL))

    assert patched["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true"
    assert written(patched).jobs["node"][2] == "node"


LEFT: list[Case[Obj, None]] = [
    Case("no template names our scheduler", bare(job("node"), labels={QUEUE: "a"}), None),
    Case("all pods of another scheduler", bare(job("node", "volcano")), None),
    Case(
        "a JobSet of another controller",
        jobset(job("node", KAI), ownerReferences=[{**OWNER, "kind": "Workflow"}]),
        None,
    ),
    Case("another cluster runs it", bare(managedBy="a.io/b"), None),
]


@pytest.mark.parametrize("case", LEFT, ids=ids)
def test_what_is_not_ours_is_left_alone(case: Case[Obj, None]) -> None:
    assert read_jobset(request(case.given, JOBSET), BUNDLED) == UNCHANGED


def test_the_queue_follows_while_it_is_suspended() -> None:
    """A label that is removed is gone; while it runs the old one is restored."""
    obj = managed(bare(labels={QUEUE: "a"}, suspend=True))
    old = applied(obj, reviewed(obj))
    moved = {**old, "metadata": {**old["metadata"], "labels": {QUEUE: "b"}}}

    answer = reviewed(moved, old=old)
    assert written(applied(moved, answer)).jobs["node"] == (KAI, "b", "Main")
    assert [(it.queue, it.is_user_choice) for it in entered(moved, old)] == [("b", True)]
    running = {**old, "spec": {**old["spec"], "suspend": False}}
    moved = {**moved, "spec": running["spec"]}
    assert written(applied(moved, reviewed(moved, old=running))).queue == "a"
    assert entered(moved, running) == ()


def entered(
    obj: Obj, old: Obj | None = None, namespace: Mapping[str, str] | None = None
) -> tuple[RequestedQueue, ...]:
    context = JobSetContext(None, namespace_labels=namespace or {})
    return entered_queues(read(obj, old=old), context, BUNDLED)


def test_whose_choice_the_queues_are() -> None:
    """Those that the JobSet names are its author's; the others are an administrator's."""
    beside = job("b", KAI, labels={QUEUE: "b"})
    named = managed(bare(job("node", KAI), beside, labels={QUEUE: "a"}))

    assert [(it.queue, it.is_user_choice) for it in entered(named)] == [("a", True), ("b", True)]
    unnamed = entered(bare(), namespace={QUEUE: "n"})
    assert [(it.queue, it.is_user_choice) for it in unnamed] == [("n", False)]
