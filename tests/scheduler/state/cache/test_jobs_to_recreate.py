"""Which Jobs of a suspended JobSet are recreated."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode
from trainer_kai.api.decode import encode as to_bytes
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.policy.workloads.jobset import JOBSET_KIND, jobset_workload
from trainer_kai.policy.workloads.recreation import job_progress, jobs_to_recreate

_COMPLETE = [{"type": "Complete", "status": "True"}]


def replicated(name: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    template = {"spec": {"parallelism": 4, "completions": 4}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(name: str, succeeded: int = 0, **more: Any) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": name.partition("-")[0]}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels},
        "spec": {"parallelism": 4, "completions": more.pop("completions", 4)},
        "status": {"succeeded": succeeded, **more},
    }


def recreated(
    jobs: list[Any],
    found: list[Any],
    pods: dict[str, int] | None = None,
    evicted: dict[str, int] | None = None,
) -> list[str]:
    metadata = {"name": "j", "namespace": "ns", "uid": "u"}
    spec = {"replicatedJobs": jobs, "suspend": True}
    jobset = jobset_workload(decode(JobSet, to_bytes({"metadata": metadata, "spec": spec})))
    read = [job_progress(decode(Job, to_bytes(it)), JOBSET_KIND) for it in found]
    made = jobs_to_recreate(jobset, "kai-scheduler", read, pods or {}, evicted or {})
    return sorted(it.uid for it in made)


_STAGES = [replicated("a"), replicated("b", dependsOn=[{"name": "a", "status": "Complete"}])]
_TOGETHER = [replicated("a"), replicated("b", dependsOn=[{"name": "a", "status": "Ready"}])]

CASES: list[Case[tuple[Any, ...], list[str]]] = [
    Case("no rank is done", ([replicated("a")], [job("a-0")]), []),
    Case("one rank is done", ([replicated("a")], [job("a-0", 1)]), ["a-0"]),
    Case("its Job does not know yet", ([replicated("a")], [job("a-0")], {"a-0": 1}), ["a-0"]),
    Case("all ranks are done", ([replicated("a")], [job("a-0", 4)]), []),
    Case("it is Complete", ([replicated("a")], [job("a-0", 4, conditions=_COMPLETE)]), []),
    Case(
        "one of two Jobs is Complete",
        ([replicated("a", 2)], [job("a-0", 4, conditions=_COMPLETE), job("a-1")]),
        ["a-0"],
    ),
    Case("the stage before is over", (_STAGES, [job("a-0", 4), job("b-0", 1)]), ["b-0"]),
    Case("the stage after has not begun", (_STAGES, [job("a-0", 4)]), []),
    Case("Jobs that started together run again together", (_TOGETHER, [job("a-0", 4)]), ["a-0"]),
    Case("it runs in rounds", ([replicated("a")], [job("a-0", 5, completions=8)]), []),
    Case(
        "its failures are pods that a drain evicted",
        ([replicated("a")], [job("a-0", failed=2)], {}, {"a-0": 2}),
        ["a-0"],
    ),
    Case(
        "one of them is about to be counted",
        (
            [replicated("a")],
            [job("a-0", uncountedTerminatedPods={"failed": ["p"]})],
            {},
            {"a-0": 1},
        ),
        ["a-0"],
    ),
    Case(
        "it has failed on its own as well",
        ([replicated("a")], [job("a-0", failed=2)], {}, {"a-0": 1}),
        [],
    ),
    Case(
        "evicted pods of a Job in rounds, of which some have succeeded",
        ([replicated("a")], [job("a-0", 5, completions=8, failed=1)], {}, {"a-0": 1}),
        [],
    ),
    Case("it is of no PodGroup", ([replicated("a")], [job("other-0", 1)]), []),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_which_jobs_are_recreated(case: Case[tuple[Any, ...], list[str]]) -> None:
    """Jobs that are partly complete, or that count evicted pods; complete ones with others."""
    assert recreated(*case.given) == case.want
