"""The queue of a TrainJob: what may be named, which user chose it, and when it may change."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import QUEUE, Obj, job
from tests.webhook.trainjobs import (
    TrainJobCase,
    messages,
    patch,
    pod_patch,
    queue_tree,
    runtime,
    submitted,
    trainjob_context,
    validate_case,
    validated_trainjob,
)
from webhook.rules.trainjob_queue_sources import RequestedQueue
from webhook.rules.trainjob_validate import TrainJobContext, TrainJobValidation

LABEL = "metadata.labels[kai.scheduler/queue]"
PATCH = "spec.runtimePatches[0].trainingRuntimeSpec.template"
ASLEEP = (
    "the queue can change only while the TrainJob is suspended. Set spec.suspend to true "
    "before, or in the same update"
)
SUBDOMAIN = (
    "must be 1 to 253 lower-case letters, digits, '-' and '.', and each part between dots begin "
    "and end with a letter or digit"
)
LABEL_VALUE = (
    "must be at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit"
)
BELOW = "has child queues and cannot hold workloads. Name one of the children: below"
OF_JOBSET = f"{PATCH}.metadata.labels[{QUEUE}]"
OF_FIELD = "spec.runtimeRef: the queue name from the runtime's podGroupPolicy.kaiScheduler.queue"

QUEUES = queue_tree("a", "b", "top", below="top")
DENIED = trainjob_context(queues=QUEUES, denies_unknown_queues=True)
TOLD = trainjob_context(queues=QUEUES)
MISSING = "does not exist. Create the queue, or name an existing one"
UNSAID: tuple[list[str], list[str]] = ([], [])
NAMED = [
    Case("a queue that is there", TrainJobCase(submitted({QUEUE: "a"}), DENIED), UNSAID),
    Case("one below another", TrainJobCase(submitted({QUEUE: "below"}), DENIED), UNSAID),
    Case(
        "none that is there",
        TrainJobCase(submitted({QUEUE: "c"}), TOLD),
        ([], [f"{LABEL}: queue 'c' {MISSING}"]),
    ),
    Case(
        "none that is there, where that is refused",
        TrainJobCase(submitted({QUEUE: "c"}), DENIED),
        ([f"{LABEL}: queue 'c' {MISSING}"], []),
    ),
    Case(
        "one with others below it",
        TrainJobCase(submitted({QUEUE: "top"}), DENIED),
        (
            [f"{LABEL}: queue 'top' {BELOW}"],
            [],
        ),
    ),
    Case(
        "no queue at all",
        TrainJobCase(submitted(), TOLD),
        ([], [f"{LABEL}: queue 'default-queue' (from the setting default_queue) {MISSING}"]),
    ),
    Case(
        "the namespace's queue must exist",
        TrainJobCase(
            submitted(), trainjob_context(queues=QUEUES, namespace_labels={QUEUE: "No_Queue"})
        ),
        ([], [f"{LABEL}: queue 'No_Queue' (from the namespace's label) {MISSING}"]),
    ),
    Case("before queues were listed", TrainJobCase(submitted({QUEUE: "c"})), UNSAID),
    Case(
        "a name that no queue can have",
        TrainJobCase(submitted({QUEUE: "Team_A"}), TOLD),
        (
            [f"{LABEL}: 'Team_A' {SUBDOMAIN}"],
            [],
        ),
    ),
    Case(
        "a patch that no label can hold",
        TrainJobCase(submitted(runtimePatches=[patch(labels={QUEUE: "team a"})])),
        (
            [
                (
                    f"{OF_JOBSET}: the queue name from the label of the runtime's "
                    f"template: 'team a' {LABEL_VALUE}"
                )
            ],
            [],
        ),
    ),
    Case(
        "a field of the runtime that is too long",
        TrainJobCase(
            submitted(), trainjob_context(runtime(policy={"kaiScheduler": {"queue": "x" * 64}}))
        ),
        (
            [f"{OF_FIELD}: '{'x' * 64}' {LABEL_VALUE}"],
            [],
        ),
    ),
]


@pytest.mark.parametrize("case", NAMED, ids=ids)
def test_the_queue_that_is_named(case: Case[TrainJobCase, Any]) -> None:
    """What it is, which place names it, where, and what would be right."""
    assert messages(validate_case(case.given)) == case.want


FIELD = runtime(policy={"kaiScheduler": {"queue": "r"}})
JOBSET_LABEL = runtime(labels={QUEUE: "j"})
POD_LABEL = runtime(job("a"), job("node", labels={QUEUE: "p"}))
OF_PODS = f"{PATCH}.spec.replicatedJobs[0].template.spec.template.metadata.labels[{QUEUE}]"
_POD_X = job("node", labels={QUEUE: "x"})
CHOICES = [
    Case(
        "the user's label is a request",
        TrainJobCase(submitted({QUEUE: "a"})),
        [RequestedQueue("a", LABEL)],
    ),
    Case(
        "his label over all",
        TrainJobCase(submitted({QUEUE: "a"}), trainjob_context(FIELD)),
        [RequestedQueue("a", LABEL)],
    ),
    Case("no label is no request", TrainJobCase(submitted()), []),
    Case(
        "the namespace's label is no request of the user",
        TrainJobCase(submitted(), trainjob_context(namespace_labels={QUEUE: "n"})),
        [],
    ),
    Case(
        "the field of a runtime of the cluster",
        TrainJobCase(submitted(), trainjob_context(FIELD)),
        [],
    ),
    Case(
        "the template's label is no request of the user",
        TrainJobCase(submitted(), trainjob_context(JOBSET_LABEL)),
        [],
    ),
    Case(
        "the pods' label is no request of the user",
        TrainJobCase(submitted(), trainjob_context(POD_LABEL)),
        [],
    ),
    Case(
        "the field of his own runtime",
        TrainJobCase(submitted(own=True), trainjob_context(FIELD)),
        [RequestedQueue("r", "spec.runtimeRef")],
    ),
    Case(
        "the template of his own runtime",
        TrainJobCase(submitted(own=True), trainjob_context(JOBSET_LABEL)),
        [RequestedQueue("j", "spec.runtimeRef")],
    ),
    Case(
        "the pods of his own runtime",
        TrainJobCase(submitted(own=True), trainjob_context(POD_LABEL)),
        [RequestedQueue("p", "spec.runtimeRef")],
    ),
    Case(
        "a patch of the JobSet",
        TrainJobCase(
            submitted(runtimePatches=[patch(labels={QUEUE: "x"})]), trainjob_context(JOBSET_LABEL)
        ),
        [RequestedQueue("x", f"{PATCH}.metadata.labels[{QUEUE}]")],
    ),
    Case(
        "the last of two patches",
        TrainJobCase(submitted(runtimePatches=[patch(labels={QUEUE: it}) for it in "xy"])),
        [RequestedQueue("y", f"{PATCH.replace('0', '1')}.metadata.labels[{QUEUE}]")],
    ),
    Case(
        "a patch of pods",
        TrainJobCase(submitted(runtimePatches=[patch(pod_patch(labels={QUEUE: "x"}))])),
        [RequestedQueue("x", OF_PODS)],
    ),
    Case(
        "a patch of pods that are never created",
        TrainJobCase(submitted(runtimePatches=[patch(pod_patch("other", labels={QUEUE: "x"}))])),
        [],
    ),
    Case(
        "pods of a patch beside a label",
        TrainJobCase(
            submitted({QUEUE: "a"}, runtimePatches=[patch(pod_patch(labels={QUEUE: "x"}))])
        ),
        [RequestedQueue("a", LABEL), RequestedQueue("x", OF_PODS)],
    ),
    Case(
        "pods of a patch beside the runtime's field",
        TrainJobCase(
            submitted(runtimePatches=[patch(pod_patch(labels={QUEUE: "x"}))]),
            trainjob_context(FIELD),
        ),
        [RequestedQueue("x", OF_PODS)],
    ),
    Case(
        "pods of his own runtime beside its field",
        TrainJobCase(
            submitted(own=True),
            trainjob_context(runtime(_POD_X, policy={"kaiScheduler": {"queue": "r"}})),
        ),
        [RequestedQueue("r", "spec.runtimeRef"), RequestedQueue("x", "spec.runtimeRef")],
    ),
    Case(
        "pods of a runtime of the cluster beside a label",
        TrainJobCase(submitted({QUEUE: "a"}), trainjob_context(runtime(_POD_X))),
        [RequestedQueue("a", LABEL)],
    ),
    Case(
        "a patch that the runtime's field outranks",
        TrainJobCase(
            submitted(runtimePatches=[patch(labels={QUEUE: "x"})]), trainjob_context(FIELD)
        ),
        [],
    ),
]


def chosen(found: TrainJobValidation) -> list[RequestedQueue]:
    """Return the queues that its author must be allowed to use."""
    return [it._replace(is_user_choice=False) for it in found.requested_queues if it.is_user_choice]


@pytest.mark.parametrize("case", CHOICES, ids=ids)
def test_which_queues_the_user_chose(case: Case[TrainJobCase, list[RequestedQueue]]) -> None:
    """Users answer for what they can write: TrainJobs, and runtimes of their namespace."""
    found = validate_case(case.given)

    assert (chosen(found), found.may_miss_queue) == (case.want, False)


NAMED_BY_OTHERS = [
    Case(
        "without a name it is the default queue",
        TrainJobCase(submitted()),
        [RequestedQueue("default-queue", "")],
    ),
    Case(
        "without a name it is the namespace's queue",
        TrainJobCase(submitted(), trainjob_context(namespace_labels={QUEUE: "n"})),
        [RequestedQueue("n", "")],
    ),
    Case(
        "the field of a runtime of the cluster",
        TrainJobCase(submitted(), trainjob_context(FIELD)),
        [RequestedQueue("r", "spec.runtimeRef")],
    ),
    Case(
        "pods of a runtime of the cluster beside a label",
        TrainJobCase(submitted({QUEUE: "a"}), trainjob_context(runtime(_POD_X))),
        [RequestedQueue("a", LABEL, is_user_choice=True), RequestedQueue("x", "spec.runtimeRef")],
    ),
    Case(
        "a queue that it had",
        TrainJobCase(submitted({QUEUE: "default-queue"}), old=submitted()),
        [],
    ),
]


@pytest.mark.parametrize("case", NAMED_BY_OTHERS, ids=ids)
def test_all_new_queues_are_returned(case: Case[TrainJobCase, list[RequestedQueue]]) -> None:
    """Also those of runtime, namespace and settings: the pods would be in them."""
    assert list(validate_case(case.given).requested_queues) == case.want


UNREAD = TrainJobContext(None, {}, queue_tree())
ASLEEP_OWN = submitted({QUEUE: "a"}, own=True, suspend=True)
UNSURE = [
    Case("a runtime of his own", submitted(own=True), True),
    Case("one of his own, and a label", submitted({QUEUE: "a"}, own=True), True),
    Case("one of his own, and an empty label", submitted({QUEUE: ""}, own=True), True),
    Case("one of the cluster", submitted(), False),
]


@pytest.mark.parametrize("case", UNSURE, ids=ids)
def test_a_runtime_that_cannot_be_read(case: Case[Obj, bool]) -> None:
    """It may name a queue: beside a label of the TrainJob, for pods."""
    assert validated_trainjob(case.given, UNREAD).may_miss_queue == case.want


def test_what_a_patch_says_of_pods_counts_without_the_runtime() -> None:
    """Whether they will be made is not known; that they would be in that queue is."""
    found = validated_trainjob(
        submitted(runtimePatches=[patch(pod_patch(labels={QUEUE: "x"}))]), UNREAD
    )

    assert found.requested_queues == (RequestedQueue("x", OF_PODS, is_user_choice=True),)
    assert not found.may_miss_queue


# what it was -> whether the runtime decides now
UNREAD_LATER = [
    Case(
        "a label that is new", (submitted({QUEUE: "b"}, own=True, suspend=True), ASLEEP_OWN), False
    ),
    Case("no label any more", (submitted(own=True, suspend=True), ASLEEP_OWN), True),
    Case(
        "a patch that says nothing of queues",
        (submitted(own=True, runtimePatches=[patch(annotations={"x": "y"})]), submitted(own=True)),
        False,
    ),
    Case(
        "pods of a queue",
        (submitted(own=True, runtimePatches=[patch(_POD_X)]), submitted(own=True)),
        True,
    ),
]


@pytest.mark.parametrize("case", UNREAD_LATER, ids=ids)
def test_a_missing_runtime_stops_no_other_user(case: Case[tuple[Obj, Obj], bool]) -> None:
    """Kueue suspends with a patch; that says nothing of queues."""
    obj, old = case.given

    assert validated_trainjob(obj, UNREAD, old).may_miss_queue == case.want


def test_an_unread_runtime_is_not_taken_for_one_that_names_nothing() -> None:
    """Taking the label away leads to whatever it says."""
    old = submitted({QUEUE: "default-queue"}, own=True, suspend=True)

    assert validated_trainjob(submitted(own=True, suspend=True), UNREAD, old).may_miss_queue


ASLEEP_A = submitted({QUEUE: "a"}, suspend=True)
RUNS_A, RUNS_B = submitted({QUEUE: "a"}), submitted({QUEUE: "b"})
LATER = [
    Case(
        "while it runs",
        TrainJobCase(RUNS_B, old=RUNS_A),
        ([f"{LABEL}: {ASLEEP}"], [RequestedQueue("b", LABEL)]),
    ),
    Case(
        "taken away while it runs",
        TrainJobCase(submitted(), old=RUNS_A),
        ([f"{LABEL}: {ASLEEP}"], []),
    ),
    Case(
        "a TrainJob that was suspended may move",
        TrainJobCase(RUNS_B, old=ASLEEP_A),
        ([], [RequestedQueue("b", LABEL)]),
    ),
    Case(
        "suspended with it", TrainJobCase(ASLEEP_A, old=RUNS_B), ([], [RequestedQueue("a", LABEL)])
    ),
    Case("a suspension requests nothing", TrainJobCase(ASLEEP_A, old=RUNS_A), ([], [])),
    Case("a resumption requests nothing", TrainJobCase(RUNS_A, old=ASLEEP_A), ([], [])),
    Case(
        "a label of what it was anyway",
        TrainJobCase(submitted({QUEUE: "default-queue"}), old=submitted()),
        ([], []),
    ),
    Case(
        "a patch by a controller",
        TrainJobCase(submitted({QUEUE: "a"}, runtimePatches=[patch()]), old=ASLEEP_A),
        ([], []),
    ),
    Case(
        "pods that name another, of what it names anyway",
        TrainJobCase(
            submitted({QUEUE: "a"}, runtimePatches=[patch(_POD_X)], suspend=True), old=ASLEEP_A
        ),
        ([], [RequestedQueue("x", OF_PODS)]),
    ),
    Case(
        "a patch that names one",
        TrainJobCase(submitted(runtimePatches=[patch(labels={QUEUE: "x"})]), old=submitted()),
        (
            [f"{PATCH}.metadata.labels[{QUEUE}]: {ASLEEP}"],
            [RequestedQueue("x", f"{PATCH}.metadata.labels[{QUEUE}]")],
        ),
    ),
]


@pytest.mark.parametrize("case", LATER, ids=ids)
def test_a_queue_changes_only_while_suspended(case: Case[TrainJobCase, Any]) -> None:
    """And only the user that changes it is checked."""
    found = validate_case(case.given)

    assert (messages(found)[0], chosen(found)) == case.want
