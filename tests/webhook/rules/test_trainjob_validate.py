"""TrainJobs while their author is there: denied, warned about, or left alone."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import BUNDLED, QUEUE, Obj, job
from tests.webhook.trainjobs import (
    TrainJobCase,
    messages,
    patch,
    queue_tree,
    runtime,
    submitted,
    trainjob_context,
    validate_case,
    validated_trainjob,
)
from trainer_kai.api.bounds import MOST_JOBS
from webhook.admission.review import NO_OBJECTIONS
from webhook.rules.trainjob_validate import TrainJobValidation

LABEL = "metadata.labels[kai.scheduler/queue]"
VOLCANO: Obj = {"volcano": {}}
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
STRATEGY = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
LATE = (
    " an existing TrainJob. Create a new TrainJob. The pod templates of its JobSet are immutable, "
    "so after the next suspension Trainer could not apply the JobSet any more"
)
QUEUES = queue_tree("a", "b")
DENIED = trainjob_context(queues=QUEUES, denies_unknown_queues=True)
TWO = (
    "spec.runtimeRef: two schedulers are requested: another one by podGroupPolicy.volcano of "
    "the runtime, KAI by the label kai.scheduler/queue of the TrainJob. Remove "
    "podGroupPolicy.volcano from the runtime to use KAI, or remove the label "
    "kai.scheduler/queue of the TrainJob to use the other scheduler"
)
ALONE = (
    "in the JobSet, metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]: a gang "
    "with this annotation never starts, because JobSet creates only the first pod of each Job "
    "until that pod is bound. Remove the annotation and request a topology, or also set "
    "alpha.jobset.sigs.k8s.io/node-selector"
)
CONTRADICTIONS = [
    Case(
        "two schedulers for one TrainJob are refused",
        TrainJobCase(submitted({QUEUE: "a"}), trainjob_context(runtime(policy=VOLCANO))),
        [TWO],
    ),
    Case(
        "two schedulers, the second one later",
        TrainJobCase(
            submitted({QUEUE: "a"}, suspend=True),
            trainjob_context(runtime(policy=VOLCANO)),
            submitted(suspend=True),
        ),
        [TWO],
    ),
    Case(
        "two schedulers, as it was let in",
        TrainJobCase(
            submitted({QUEUE: "a"}, suspend=True),
            trainjob_context(runtime(policy=VOLCANO)),
            submitted({QUEUE: "a"}),
        ),
        [],
    ),
    Case(
        "two schedulers, by marks of pods",
        TrainJobCase(
            submitted({QUEUE: "a"}),
            trainjob_context(
                runtime(job("node", annotations={"scheduling.k8s.io/group-name": "x"}))
            ),
        ),
        [TWO],
    ),
    Case(
        "an exclusive placement is refused",
        TrainJobCase(submitted(), trainjob_context(runtime(annotations=EXCLUSIVE))),
        [f"spec.runtimeRef: {ALONE}"],
    ),
    Case(
        "exclusive by a patch",
        TrainJobCase(submitted(runtimePatches=[patch(annotations=EXCLUSIVE)])),
        [f"spec.runtimePatches: {ALONE}"],
    ),
    Case(
        "exclusive with the strategy",
        TrainJobCase(
            submitted(runtimePatches=[patch(annotations=STRATEGY)]),
            trainjob_context(runtime(annotations=EXCLUSIVE)),
        ),
        [],
    ),
    Case(
        "too many jobs",
        TrainJobCase(
            submitted(), trainjob_context(runtime(*(job(f"j{i}") for i in range(MOST_JOBS + 6))))
        ),
        [
            (
                "spec.runtimeRef: the runtime has 70 replicatedJobs, and the maximum is 64. "
                "Combine equal ones into one with more replicas"
            )
        ],
    ),
    Case(
        "several faults are told together",
        TrainJobCase(
            submitted({QUEUE: "Team_A"}, trainer={}),
            trainjob_context(runtime(annotations=EXCLUSIVE)),
            submitted(suspend=True),
        ),
        [f"spec.trainer: cannot be added to{LATE}", f"{LABEL}: 'Team_A' must be 1 to"],
    ),
]


@pytest.mark.parametrize("case", CONTRADICTIONS, ids=ids)
def test_what_cannot_go_together(case: Case[TrainJobCase, list[str]]) -> None:
    """It is said at once; the denial of the JobSet would be seen by few users."""
    denials, _ = messages(validate_case(case.given))

    assert [text[: len(want)] for text, want in zip(denials, case.want, strict=True)] == case.want


ODD = {"kai.scheduler/batch-min-member": "many"}


@pytest.mark.parametrize(
    "given",
    [
        TrainJobCase(
            submitted(annotations=ODD), trainjob_context(runtime(policy={"coscheduling": {}}))
        ),
        TrainJobCase(
            submitted({QUEUE: "x"}, annotations=ODD),
            trainjob_context(runtime(job("node", "volcano")), queues=QUEUES),
        ),
        TrainJobCase(submitted({QUEUE: "X_"}, managedBy="kueue.x-k8s.io/multikueue"), DENIED),
        TrainJobCase(submitted({QUEUE: "X_"}, deletionTimestamp="2026-01-31T12:00:00Z"), DENIED),
        TrainJobCase(
            {**submitted(managedBy="kueue.x-k8s.io/multikueue"), "metadata": {"labels": 5}}, DENIED
        ),
    ],
    ids=["by policy", "by name", "managed elsewhere", "being deleted", "unreadable and foreign"],
)
def test_what_is_not_ours_is_let_alone(given: TrainJobCase) -> None:
    """No refusal, no warning, no question."""
    assert validate_case(given) == TrainJobValidation(NO_OBJECTIONS)


PARTS = [
    Case(
        "a trainer cannot be added later",
        (submitted(), submitted(trainer={})),
        [f"spec.trainer: cannot be added to{LATE}"],
    ),
    Case(
        "none any more",
        (submitted(trainer={}), submitted()),
        [f"spec.trainer: cannot be removed from{LATE}"],
    ),
    Case(
        "an initializer cannot be added later",
        (submitted(), submitted(initializer={"dataset": {}})),
        [f"spec.initializer: cannot be added to{LATE}"],
    ),
    Case(
        "a trainer may be changed", (submitted(trainer={}), submitted(trainer={"numNodes": 2})), []
    ),
]


@pytest.mark.parametrize("case", PARTS, ids=ids)
def test_parts_come_with_the_trainjob_or_not_at_all(case: Case[Any, list[str]]) -> None:
    """The API server lets them come later, and the next suspension never ends."""
    old, new = case.given

    assert messages(validated_trainjob(new, old=old))[0] == case.want


OLD_ODD = submitted({QUEUE: "Team_A"}, annotations=ODD, own=True)
STRICT = trainjob_context(
    runtime(policy=VOLCANO, annotations=EXCLUSIVE), queues=QUEUES, denies_unknown_queues=True
)
HAD = [
    Case("as it was", OLD_ODD, None),
    Case(
        "a suspension is allowed despite old faults",
        submitted({QUEUE: "Team_A"}, annotations=ODD, own=True, suspend=True),
        None,
    ),
    Case(
        "an annotation is allowed despite old faults",
        submitted({QUEUE: "Team_A"}, annotations=ODD | {"a": "b"}, own=True),
        None,
    ),
]


@pytest.mark.parametrize("case", HAD, ids=ids)
def test_what_exists_keeps_what_it_has(case: Case[Obj, None]) -> None:
    """Whatever of it would be denied today, and whichever user changes it."""
    assert validated_trainjob(OLD_ODD, STRICT).result.denials
    assert validated_trainjob(case.given, STRICT, OLD_ODD) == TrainJobValidation(NO_OBJECTIONS)


WISHES = [
    Case(
        "values that cannot be meant",
        submitted(
            {"kai.scheduler/preemptibility": "maybe"},
            annotations={
                "trainer-kai.dev/last-checkpoint": "yesterday",
                "kai.scheduler/preemption-delay": "soon",
                "kai.scheduler/staleness-grace-period": "1x",
                "kai.scheduler/batch-min-member": "0",
                "kai.scheduler/topology": "Racks!",
                "gpu-fraction": "7",
            },
        ),
        [
            "metadata.labels[kai.scheduler/preemptibility]",
            "metadata.annotations[kai.scheduler/batch-min-member]",
            "metadata.annotations[kai.scheduler/preemption-delay]",
            "metadata.annotations[kai.scheduler/staleness-grace-period]",
            "metadata.annotations[kai.scheduler/topology]",
            "metadata.annotations[trainer-kai.dev/last-checkpoint]",
        ],
    ),
    Case(
        "a placement in no topology",
        submitted(annotations={"kai.scheduler/topology-required-placement": "rack"}),
        ["metadata.annotations[kai.scheduler/topology-required-placement]"],
    ),
    Case(
        "names that are not read",
        submitted({"kai.scheduler/que": "a"}, annotations={"trainer-kai.dev/last_checkpoint": "x"}),
        [
            "metadata.labels[kai.scheduler/que]",
            "metadata.annotations[trainer-kai.dev/last_checkpoint]",
        ],
    ),
    Case(
        "requests for shares of GPUs that are not read",
        submitted({"gpu-fraction": "0.5"}, annotations={"gpu_memory": "9", "mps": "true"}),
        ["metadata.labels[gpu-fraction]", "metadata.annotations[gpu_memory]"],
    ),
    Case("a priority class that exists is fine", submitted({"priorityClassName": "train"}), []),
]


@pytest.mark.parametrize("case", WISHES, ids=ids)
def test_ineffective_annotations_give_warnings(case: Case[Obj, list[str]]) -> None:
    """Each by its place; nothing is refused for them."""
    denials, warnings = messages(validated_trainjob(case.given))

    assert denials == []
    assert [it.partition(": ")[0] for it in warnings] == case.want


def test_only_new_faults_give_warnings() -> None:
    """An update of the checkpoint gives no second warning of the delay."""
    delay = {"kai.scheduler/preemption-delay": "soon"}
    later = {**delay, "trainer-kai.dev/last-checkpoint": "now"}

    _, warnings = messages(
        validated_trainjob(submitted(annotations=later), old=submitted(annotations=delay))
    )

    assert [it.partition(": ")[0] for it in warnings] == [
        "metadata.annotations[trainer-kai.dev/last-checkpoint]"
    ]


KUEUE = {"kueue.x-k8s.io/queue-name": "lent"}


# what changes on a TrainJob -> the fields with a warning
TOO_LATE: list[Case[dict[str, dict[str, str]], list[str]]] = [
    Case(
        "a share",
        {"annotations": {"gpu-fraction": "0.5"}},
        ["metadata.annotations[gpu-fraction]"],
    ),
    Case(
        "the pool",
        {"labels": {"kai.scheduler/node-pool": "a"}},
        ["metadata.labels[kai.scheduler/node-pool]"],
    ),
    Case(
        "who groups the pods",
        {"annotations": {"kai.scheduler/skip-podgrouper": "true"}},
        ["metadata.annotations[kai.scheduler/skip-podgrouper]"],
    ),
    Case("a priority follows", {"labels": {"priorityClassName": "train"}}, []),
    Case("a delay follows", {"annotations": {"kai.scheduler/preemption-delay": "5m"}}, []),
]


@pytest.mark.parametrize("case", TOO_LATE, ids=ids)
def test_a_change_that_comes_too_late_gives_a_warning(
    case: Case[dict[str, dict[str, str]], list[str]],
) -> None:
    """With the steps that work; at creation there is none."""
    changed = submitted(**case.given)
    _, warnings = messages(validated_trainjob(changed, old=submitted()))

    assert [it.partition(": ")[0] for it in warnings] == case.want
    assert all("delete the TrainJob and create it again" in it for it in warnings)
    assert messages(validated_trainjob(changed))[1] == []


def test_the_label_of_a_kueue_that_does_not_run_gives_a_warning_when_it_is_new() -> None:
    """It keeps nothing, and its user hears of the setting; where Kueue runs nothing is said."""
    there = BUNDLED._replace(kueue=True)

    (warning,) = messages(validated_trainjob(submitted(KUEUE)))[1]
    assert warning.startswith("metadata.labels[kueue.x-k8s.io/queue-name]: the label has no effect")
    assert "setting kueue" in warning
    assert messages(validated_trainjob(submitted(KUEUE), old=submitted()))[1] == [warning]
    assert messages(validated_trainjob(submitted(KUEUE), old=submitted(KUEUE)))[1] == []
    assert messages(validated_trainjob(submitted(KUEUE), rules=there))[1] == []


UNREADABLE = {**submitted(), "spec": {"runtimePatches": "none"}}


def test_what_cannot_be_read_is_refused_where_it_is_new() -> None:
    """What was let in like that stays."""
    denials = validated_trainjob(UNREADABLE).result.denials

    assert [(it.code, it.message.partition(":")[0]) for it in denials] == [
        (400, "request.object.spec.runtimePatches")
    ]
    assert validated_trainjob(UNREADABLE, old=submitted()).result.denials == denials
    assert validated_trainjob(UNREADABLE, old=UNREADABLE) == TrainJobValidation(NO_OBJECTIONS)


def test_a_huge_runtime_is_kept_small() -> None:
    """However many ports or jobs a user gives it: what is kept stays as small."""
    ports = [{"containerPort": i} for i in range(12_000)]
    huge = runtime(*(job(f"j{i}", labels={"x": "y"}) for i in range(2_000)), labels={"x": "y"})
    wide = job("node")
    wide["template"]["spec"]["template"]["spec"]["containers"] = [{"name": "node", "ports": ports}]

    assert (len(huge.jobs), huge.left_out_jobs, huge.jobset_metadata.labels) == (
        MOST_JOBS,
        2_000 - MOST_JOBS,
        {},
    )
    assert runtime(wide) == runtime(job("node"))
