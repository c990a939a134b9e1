"""Why pods are missing that could not be made, and when that is told no more."""

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.scenes import Scene
from trainer_kai.cli.answer import State

Change: TypeAlias = Callable[[Scene], None]
Told: TypeAlias = tuple[str, ...]

WAITS: Final = State.WAITS


def over_quota(scene: Scene) -> None:
    """Have a Job whose pods are refused."""
    scene.pods("node", 1)
    scene.event("Job job-node-0", "FailedCreate", 'pods "x" is forbidden: exceeded quota')
    scene.event("Job other-node-0", "FailedCreate", "not ours", 2027)


def counted_and_refused(scene: Scene) -> None:
    """Have the scheduler count them, too."""
    over_quota(scene)
    scene.said(("PodsMissing", "1 of 4 exist"))


def told_by_the_scheduler(scene: Scene) -> None:
    """Have no pods at all, and a scheduler that has heard why."""
    scene.event("Job job-node-0", "FailedCreate", "violates PodSecurity, in other words")
    scene.said(
        ("PodsMissing", "0 of 4 exist. Job job-node-0 cannot make them: violates PodSecurity")
    )


def refused_long_ago(scene: Scene) -> None:
    """Have a word that its Job would have repeated since."""
    scene.pods("node", 1)
    scene.event("Job job-node-0", "FailedCreate", "exceeded quota", 2025)


def made_since(scene: Scene) -> None:
    """Have a pod that was made after others were refused."""
    labels = {"batch.kubernetes.io/job-name": "job-node-0"}
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    scene.pods("node", 1, labels=labels, meta=meta)
    scene.event("Job job-node-0", "FailedCreate", "exceeded quota", 2026)


def without_a_look_at_jobsets(scene: Scene) -> None:
    """Have the same, asked by somebody with fewer rights."""
    over_quota(scene)
    scene.shelf.forbidden = {"jobsets"}


CASES: list[Case[Change, Told]] = [
    Case(
        "pods that were not made say why",
        over_quota,
        (
            WAITS,
            (
                "PodsMissing: pods are missing: 1 of 4 exist. Job job-node-0 cannot make them: "
                "exceeded quota. It goes on when that can be made"
            ),
        ),
    ),
    Case(
        "why pods are missing is known to their Job alone",
        counted_and_refused,
        (
            WAITS,
            (
                "PodsMissing: 1 of 4 exist. Job job-node-0 cannot make them: "
                "exceeded quota. It goes on when that can be made"
            ),
        ),
    ),
    Case(
        "what the scheduler says of it is enough",
        told_by_the_scheduler,
        (
            WAITS,
            (
                "PodsMissing: 0 of 4 exist. Job job-node-0 cannot make them: violates PodSecurity. "
                "It goes on when that can be made"
            ),
        ),
    ),
    Case(
        "an old refusal is not the reason of another shortage",
        refused_long_ago,
        (WAITS, "PodsMissing: pods are missing: 1 of 4 exist. Their Jobs make the others"),
    ),
    Case(
        "a refusal is over when a pod was made after it",
        made_since,
        (WAITS, "PodsMissing: pods are missing: 1 of 4 exist. Their Jobs make the others"),
    ),
    Case(
        "who may not read JobSets is told of refusals by the names of Jobs",
        without_a_look_at_jobsets,
        (
            WAITS,
            (
                "PodsMissing: pods are missing: 1 of 4 exist. Job job-node-0 cannot make them: "
                "exceeded quota. It goes on when that can be made"
            ),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_the_reason(case: Case[Change, Told]) -> None:
    """It is what the Job was refused for, as long as that holds."""
    scene = Scene()
    case.given(scene)

    told = await scene.why()

    reasons = [it for it in (told.reason, *(unit.reason for unit in told.units)) if it]
    assert (told.state, *(f"{it.title}: {it.sentence}" for it in reasons)) == case.want
