"""What is said of a Job whose pods would wait, in both modes."""

import pytest

from tests.support.case import Case, ids
from tests.webhook.jobs import CRON_JOB, JOB
from tests.webhook.objects import BUNDLED, EXTERNAL, Obj
from tests.webhook.workload_reviews import (
    A_LABEL,
    OTHER,
    PREEMPTIBILITY,
    QUEUE,
    reviewed,
    short,
    ways_out,
    workload,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules

MINIMUM = "kai.scheduler/batch-min-member"
NON_PREEMPTIBLE = {PREEMPTIBILITY: "non-preemptible"}


def job(parallelism: int = 4, completions: int | None = None, **parts: object) -> Obj:
    obj = workload(**parts)  # type: ignore[arg-type]
    obj["spec"] |= {"parallelism": parallelism, "completions": completions}
    return obj


def with_deadline(seconds: int, **parts: object) -> Obj:
    obj = job(**parts)  # type: ignore[arg-type]
    obj["spec"]["activeDeadlineSeconds"] = seconds
    return obj


def minimum(text: str) -> Obj:
    return {"annotations": {MINIMUM: text}}


TYPO = (
    f"metadata.labels[{QUEUE}]: queue 'team-c' does not exist. Did you mean 'team-a'? Otherwise "
    "create the queue, or name an existing one"
)
MISPLACED_SHARE = (
    "metadata.annotations[gpu-fraction]: has no effect on the pods: move it to "
    "spec.template.metadata.annotations"
)
MISPLACED_MINIMUM = (
    f"spec.template.metadata.annotations[{MINIMUM}]: has no effect in a pod template: move it to "
    "metadata.annotations"
)
WITH_QUEUE = (
    "spec.activeDeadlineSeconds: counts from the creation or the last resume, so it includes the "
    "time for which the pods wait in their queue"
)
TOO_MANY = f"metadata.annotations[{MINIMUM}]: 5 is more than the 4 pods that run at the same time, "
# in mode bundled, and in mode external
JOBS: list[Case[Obj, tuple[str, str]]] = [
    Case("a Job is preemptible", job(), ("", "")),
    Case(
        "a label of its own",
        job(labels={**NON_PREEMPTIBLE, QUEUE: "team-b"}, parallelism=5),
        (short(f"label {PREEMPTIBILITY}", "5 GPU", "team-b", "4 GPU") + ways_out(),) * 2,
    ),
    Case(
        "a label of its pods",
        job(of_pods={**NON_PREEMPTIBLE, QUEUE: "team-b"}, parallelism=5),
        (
            short(f"label {PREEMPTIBILITY}", "5 GPU", "team-b", "4 GPU")
            + ways_out("spec.template.metadata.labels"),
        )
        * 2,
    ),
    Case(
        "fewer completions than pods",
        job(labels={**NON_PREEMPTIBLE, QUEUE: "team-b"}, parallelism=9, completions=4),
        ("", ""),
    ),
    Case(
        "the queue of another scheduler",
        job(scheduler="default-scheduler", labels=A_LABEL),
        (OTHER.format("default-scheduler"),) * 2,
    ),
    Case(
        "an unknown queue",
        job(labels={QUEUE: "team-c"}),
        (TYPO,) * 2,
    ),
    Case(
        "a share on the Job",
        job(gpus=0, metadata={"annotations": {"gpu-fraction": "0.5"}}),
        (MISPLACED_SHARE,) * 2,
    ),
    Case("all pods at once", job(metadata=minimum("4")), ("", "")),
    Case(
        "no number",
        job(metadata=minimum("all")),
        (f"metadata.annotations[{MINIMUM}]: 'all' must be an integer of 1 or more",) * 2,
    ),
    Case(
        "more than there are",
        job(metadata=minimum("5")),
        (f"{TOO_MANY}so 4 counts. Lower it", f"{TOO_MANY}so no pod starts. Lower it"),
    ),
    Case(
        "a number on the pods",
        job(notes={MINIMUM: "4"}),
        (MISPLACED_MINIMUM,) * 2,
    ),
    Case("a short deadline", with_deadline(3600), (WITH_QUEUE,) * 2),
    Case("a long deadline", with_deadline(86_400), ("", "")),
    Case("a short deadline without GPUs", with_deadline(3600, gpus=0), ("", "")),
    Case("a run of a CronJob", job(metadata={"ownerReferences": [CRON_JOB]}, labels={}), ("", "")),
]


@pytest.mark.parametrize("case", JOBS, ids=ids)
def test_a_job(case: Case[Obj, tuple[str, str]]) -> None:
    """As other workloads, but its own labels count in both modes; an update repeats nothing."""
    for rules, want in zip((BUNDLED, EXTERNAL), case.want, strict=True):
        assert reviewed(case.given, JOB, rules) == want
        assert reviewed(case.given, JOB, rules, old=case.given) == ""


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
def test_more_pods_are_compared_with_the_quota(rules: GroupingRules) -> None:
    old, new = (job(it, labels={**NON_PREEMPTIBLE, QUEUE: "team-b"}) for it in (2, 7))

    assert "request 5 GPU more" in reviewed(new, JOB, rules, old=old)
