"""The PodGroups of any JobSet let it run to its end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.support.size import examples
from tests.trainer_kai.policy.podgroups.simulation import OURS, simulate_jobset
from tests.trainer_kai.policy.specs import any_jobset, jobset, rjob
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.policy.podgroups.grouping import (
    MAIN,
    PlannedPodGroup,
    PodGroupPlan,
    plan_podgroups,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules

BUNDLED = GroupingRules("bundled", OURS, "default-queue")
EXTERNAL = GroupingRules("external", OURS, "default-queue")
RECORDED = sorted((ROOT / "tests" / "fixtures" / "jobsets").rglob("*.yaml"))

DEEPSPEED = jobset(
    rjob("node", parallelism=3), rjob("launcher", "node Ready", step="trainer"), name="job"
)
TORCHTUNE = jobset(
    rjob("dataset-initializer", step="dataset-initializer"),
    rjob("model-initializer", step="model-initializer"),
    rjob("node", "dataset-initializer Complete", "model-initializer Complete", parallelism=2),
)
# Each part waits for the next, but only the third leads back to the first.
CIRCLE = jobset(
    *(rjob(name) for name in ("p2", "q2", "r2")),
    *(rjob(f"{of}1", f"{before}2 Complete") for of, before in ("pr", "qp", "rq")),
    *(rjob(f"{of}3", f"{of}1 Ready", f"{of}2 Ready") for of in "pqr"),
)
MIXED = [
    jobset(rjob("a"), rjob("x", "a Ready", scheduler="default-scheduler"), rjob("b", f"x {status}"))
    for status in ("Ready", "Complete")
]


def one_podgroup(of: JobSet) -> PodGroupPlan:
    """Return a plan that knows no start order: one PodGroup with all replicatedJobs."""
    podgroups = plan_podgroups(of, OURS).podgroups
    subgroups = tuple(
        subgroup._replace(is_anticipated=False)
        for podgroup in podgroups
        for subgroup in podgroup.subgroups
    )
    return PodGroupPlan((PlannedPodGroup(MAIN, subgroups, len(subgroups), ()),))


@settings(max_examples=examples(100))
@given(any_jobset(), st.integers(0, 2**32))
def test_our_scheduler_never_waits_for_a_pod_that_cannot_exist(of: JobSet, seed: int) -> None:
    """It ends where a scheduler without groups ends, and no pod is left waiting."""
    end = simulate_jobset(of, BUNDLED, seed)

    assert end.stuck == ()
    assert end.finished == simulate_jobset(of, None).finished


@settings(max_examples=examples(100))
@given(any_jobset(), st.integers(0, 2**32))
def test_an_external_one_never_waits_for_a_pod_that_cannot_exist(of: JobSet, seed: int) -> None:
    """It ends where a scheduler without groups ends, and no pod is left waiting."""
    end = simulate_jobset(of, EXTERNAL, seed)

    assert end.stuck == ()
    assert end.finished == simulate_jobset(of, None).finished


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
@pytest.mark.parametrize("of", [DEEPSPEED, TORCHTUNE, CIRCLE, *MIXED])
def test_start_orders_that_are_easy_to_get_wrong_come_to_their_end(
    of: JobSet, rules: GroupingRules
) -> None:
    """Also with another scheduler in the middle, and with parts that wait for each other."""
    for seed in range(examples(4)):
        end = simulate_jobset(of, rules, seed)

        assert end.stuck == ()
        assert end.finished == simulate_jobset(of, None).finished


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
def test_what_trainer_builds_comes_to_its_end(rules: GroupingRules) -> None:
    """Every shipped runtime, at every size."""
    assert len(RECORDED) == 72
    for file in RECORDED:
        of = decode(JobSet, encode(documents(file)[1]))
        assert simulate_jobset(of, rules, seed=1) == simulate_jobset(of, None)


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
@pytest.mark.parametrize(
    ("of", "stuck"), [(DEEPSPEED, 3), (TORCHTUNE, 2)], ids=["deepspeed", "torchtune"]
)
def test_one_group_with_everything_in_it_waits_for_ever(
    of: JobSet, stuck: int, rules: GroupingRules
) -> None:
    """So it is the groups, and not the binder, that carry the others."""
    end = simulate_jobset(of, rules, plan=one_podgroup(of))

    assert len(end.stuck) == stuck
    assert end.finished == frozenset()
