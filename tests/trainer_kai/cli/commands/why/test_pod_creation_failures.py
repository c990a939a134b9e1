"""Why pods could not be created, and when that is no longer reported."""

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.policy.workloads.state import WorkloadState

Change: TypeAlias = Callable[[TrainJobCluster], None]
Expected: TypeAlias = tuple[str, ...]

WAITS: Final = WorkloadState.WAITS
RETRIED: Final = "The Job retries, and creates the pods when the cause is removed"


def over_quota(cluster: TrainJobCluster) -> None:
    """Have a Job for which the API server refuses pods."""
    cluster.pods("node", 1)
    cluster.event("Job job-node-0", "FailedCreate", 'pods "x" is forbidden: exceeded quota')
    cluster.event("Job other-node-0", "FailedCreate", "not ours", 2027)


def counted_and_refused(cluster: TrainJobCluster) -> None:
    """Have the scheduler count them, too."""
    over_quota(cluster)
    cluster.condition(("PodsMissing", "1 of 4 exist"))


def explained_by_the_scheduler(cluster: TrainJobCluster) -> None:
    """Have no pods at all, and a scheduler that has heard why."""
    cluster.event("Job job-node-0", "FailedCreate", "violates PodSecurity, in other words")
    cluster.condition(
        ("PodsMissing", "0 of 4 exist. Job job-node-0 cannot create its pods: violates PodSecurity")
    )


def refused_long_ago(cluster: TrainJobCluster) -> None:
    """Have an Event that its Job would have repeated since."""
    cluster.pods("node", 1)
    cluster.event("Job job-node-0", "FailedCreate", "exceeded quota", 2025)


def created_since(cluster: TrainJobCluster) -> None:
    """Have a pod that was made after others were refused."""
    labels = {"batch.kubernetes.io/job-name": "job-node-0"}
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster.pods("node", 1, labels=labels, meta=meta)
    cluster.event("Job job-node-0", "FailedCreate", "exceeded quota", 2026)


def without_a_look_at_jobsets(cluster: TrainJobCluster) -> None:
    """Have the same, read by a user with fewer permissions."""
    over_quota(cluster)
    cluster.store.forbidden = {"jobsets"}


CASES: list[Case[Change, Expected]] = [
    Case(
        "the Event of a Job has the reason",
        over_quota,
        (
            WAITS,
            (
                "PodsMissing: 1 of 4 pods exist. Job job-node-0 cannot create its pods: "
                f"exceeded quota. {RETRIED}"
            ),
        ),
    ),
    Case(
        "only the Event of the Job has the reason",
        counted_and_refused,
        (
            WAITS,
            (
                "PodsMissing: 1 of 4 exist. Job job-node-0 cannot create its pods: "
                f"exceeded quota. {RETRIED}"
            ),
        ),
    ),
    Case(
        "the scheduler has the reason already",
        explained_by_the_scheduler,
        (
            WAITS,
            (
                "PodsMissing: 0 of 4 exist. Job job-node-0 cannot create its pods: violates "
                f"PodSecurity. {RETRIED}"
            ),
        ),
    ),
    Case(
        "an old refusal is not the reason of another shortage",
        refused_long_ago,
        (WAITS, "PodsMissing: 1 of 4 pods exist. The Job controller creates the missing pods"),
    ),
    Case(
        "a refusal is over when a pod was made after it",
        created_since,
        (WAITS, "PodsMissing: 1 of 4 pods exist. The Job controller creates the missing pods"),
    ),
    Case(
        "without JobSets the Jobs are found by their names",
        without_a_look_at_jobsets,
        (
            WAITS,
            (
                "PodsMissing: 1 of 4 pods exist. Job job-node-0 cannot create its pods: "
                f"exceeded quota. {RETRIED}"
            ),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_the_reason(case: Case[Change, Expected]) -> None:
    """It is what the Job was refused for, as long as that holds."""
    cluster = TrainJobCluster()
    case.given(cluster)

    assert await cluster.reasons() == case.want
