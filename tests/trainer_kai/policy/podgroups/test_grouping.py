"""What starts together is one PodGroup; a replicatedJob with pods is in exactly one."""

from itertools import permutations
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.support.size import examples
from tests.trainer_kai.policy.specs import any_jobset, jobset, rjob
from trainer_kai.api.bounds import MOST_EXPECTED, MOST_SUB_GROUPS
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.policy.podgroups.grouping import PlannedPodGroup, PodGroupPlan, plan_podgroups
from trainer_kai.policy.start_order import start_order, with_dependents

OURS = "kai-scheduler"
FOREIGN = "default-scheduler"
MIN = "kai.scheduler/batch-min-member"
MODEL, DATA = "model-initializer", "dataset-initializer"


def init(name: str, *after: str) -> dict[str, Any]:
    return rjob(name, *after, step=name)


def descriptions(plan: PodGroupPlan) -> list[str]:
    return [_description(podgroup) for podgroup in plan.podgroups]


def _description(podgroup: PlannedPodGroup) -> str:
    subgroups = " + ".join(
        f"{subgroup.replicas}x{subgroup.pods} {subgroup.name}"
        + (" later" if subgroup.is_anticipated else "")
        for subgroup in podgroup.subgroups
    )
    after = ", ".join(f"{edge.before} {edge.status}" for edge in podgroup.after)
    return f"{podgroup.suffix}: {subgroups}" + (f" after {after}" if after else "")


TORCH = jobset(rjob("node", parallelism=4, step="trainer"))
MPI = jobset(rjob("node", parallelism=3), rjob("launcher", "node Ready", step="trainer"))
TUNE = jobset(
    init(DATA),
    init(MODEL),
    rjob("node", f"{DATA} Complete", f"{MODEL} Complete", parallelism=2, step="trainer"),
)
CACHE = jobset(init(DATA), rjob("node", f"{DATA} Complete", parallelism=2, step="trainer"))
TUNED = ["node: 1x2 node after dataset-initializer Complete, model-initializer Complete"]
ROOTS = [f"{DATA}: 1x1 {DATA}", f"{MODEL}: 1x1 {MODEL}"]

# a JobSet -> its PodGroups for our scheduler, and for one that knows no later pods
CASES: list[Case[JobSet, tuple[list[str], list[str]]]] = [
    Case("torch is one PodGroup", TORCH, (["Main: 1x4 node"], ["Main: 1x4 node"])),
    Case(
        "deepspeed and mlx",
        MPI,
        (
            ["Main: 1x3 node + 1x1 launcher later"],
            ["node: 1x3 node", "launcher: 1x1 launcher after node Ready"],
        ),
    ),
    Case("torchtune has its initializers first", TUNE, (ROOTS + TUNED, ROOTS + TUNED)),
    Case(
        "torch with a cache",
        CACHE,
        tuple(  # type: ignore[arg-type]  # the same twice
            [[f"{DATA}: 1x1 {DATA}", f"node: 1x2 node after {DATA} Complete"]] * 2
        ),
    ),
    Case(
        "nothing has pods",
        jobset(rjob("a", replicas=0), rjob("b", parallelism=0)),
        ([], []),
    ),
    Case(
        "all that begin at the start, connected or not",
        jobset(rjob("a", replicas=2), rjob("b", parallelism=3)),
        (["Main: 2x1 a + 1x3 b"], ["Main: 2x1 a + 1x3 b"]),
    ),
    Case(
        "all that begin at the same moment, after a stage",
        jobset(
            rjob("a"), rjob("b", "a Complete"), rjob("c", "a Complete"), rjob("d", "b Complete")
        ),
        (
            [
                "a: 1x1 a",
                "b: 1x1 b + 1x1 c after a Complete, a Complete",
                "d: 1x1 d after b Complete",
            ],
        )
        * 2,
    ),
    Case(
        "initializers never join, however they are connected",
        jobset(init(DATA), init(MODEL, f"{DATA} Ready"), rjob("node", f"{MODEL} Ready"), rjob("x")),
        (
            [
                f"{DATA}: 1x1 {DATA}",
                f"{MODEL}: 1x1 {MODEL} after {DATA} Ready",
                f"node: 1x1 node after {MODEL} Ready",
                "x: 1x1 x",
            ],
        )
        * 2,
    ),
    Case(
        "an order makes each wait for the one before",
        jobset(rjob("a"), rjob("b"), rjob("c"), order="InOrder"),
        (
            ["Main: 1x1 a + 1x1 b later + 1x1 c later"],
            ["a: 1x1 a", "b: 1x1 b after a Ready", "c: 1x1 c after b Ready"],
        ),
    ),
    Case(
        "ready of one, complete of another: it waits for both, and then has room for all",
        jobset(rjob("x", step=DATA), rjob("a"), rjob("b", "a Ready", "x Complete")),
        (
            ["x: 1x1 x", "a: 1x1 a + 1x1 b later after x Complete"],
            ["x: 1x1 x", "a: 1x1 a", "b: 1x1 b after a Ready, x Complete"],
        ),
    ),
    Case(
        "a unit begins after one that is listed behind it",
        jobset(rjob("a"), rjob("x"), rjob("b", "a Ready", "x Complete"), rjob("y", "x Ready")),
        (
            ["x: 1x1 x + 1x1 y later", "a: 1x1 a + 1x1 b later after x Complete"],
            ["a: 1x1 a + 1x1 x", "b: 1x1 b after a Ready, x Complete", "y: 1x1 y after x Ready"],
        ),
    ),
    Case(
        "another scheduler between two of ours",
        jobset(rjob("a"), rjob("x", "a Ready", scheduler=FOREIGN), rjob("b", "x Ready")),
        (["a: 1x1 a", "b: 1x1 b after x Ready"],) * 2,
    ),
    Case(
        "another scheduler beside and between: later, but for none of ours",
        jobset(
            rjob("a"), rjob("x", "a Ready", scheduler=FOREIGN), rjob("b", "x Complete", "a Ready")
        ),
        (["Main: 1x1 a + 1x1 b later"], ["a: 1x1 a", "b: 1x1 b after x Complete, a Ready"]),
    ),
    Case(
        "two that would wait for each other",
        jobset(rjob("a"), rjob("x", "a Complete"), rjob("c", "a Ready", "x Complete")),
        (
            ["Main: 1x1 a + 1x1 x later + 1x1 c later"],
            ["a: 1x1 a", "x: 1x1 x after a Complete", "c: 1x1 c after a Ready, x Complete"],
        ),
    ),
    Case(
        "an initializer, if all else would wait for ever",
        jobset(rjob("a"), rjob("i", "a Complete", step=DATA), rjob("c", "a Ready", "i Complete")),
        (
            ["Main: 1x1 a + 1x1 i later + 1x1 c later"],
            ["a: 1x1 a", "i: 1x1 i after a Complete", "c: 1x1 c after a Ready, i Complete"],
        ),
    ),
]
THREE = jobset(
    *(rjob(name) for name in ("p2", "q2", "r2")),
    *(rjob(f"{of}1", f"{before}2 Complete") for of, before in ("pr", "qp", "rq")),
    *(rjob(f"{of}3", f"{of}1 Ready", f"{of}2 Ready") for of in "pqr"),
)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_planned_podgroups(case: Case[JobSet, tuple[list[str], list[str]]]) -> None:
    """For our scheduler, and in stages for one that takes each PodGroup by itself."""
    scheduled, external = case.want

    assert descriptions(plan_podgroups(case.given, OURS)) == scheduled
    assert descriptions(plan_podgroups(case.given, OURS, staged=True)) == external


def test_three_that_would_wait_in_a_circle_are_one() -> None:
    """None of them leads back to itself but through both others."""
    [podgroup] = plan_podgroups(THREE, OURS).podgroups

    assert len(podgroup.subgroups) == 9
    assert podgroup.after == ()
    assert [subgroup.name for subgroup in podgroup.subgroups if not subgroup.is_anticipated] == [
        "p2",
        "q2",
        "r2",
    ]


def test_pods_of_another_scheduler_are_reported() -> None:
    """By the path of the scheduler name; pods without one are ours."""
    subject = jobset(
        rjob("a", scheduler=""), rjob("b", scheduler=FOREIGN), rjob("c", scheduler=OURS)
    )

    plan = plan_podgroups(subject, OURS)

    assert descriptions(plan) == ["Main: 1x1 a + 1x1 c"]
    assert [str(finding) for finding in plan.findings] == [
        (
            "spec.replicatedJobs[1].template.spec.template.spec.schedulerName: the pods of b "
            "are in no PodGroup: scheduler 'default-scheduler' places them"
        )
    ]
    assert not plan.findings[0].blocks
    assert plan.podgroup_of("b") is None
    assert plan.podgroup_of("c") is plan.podgroups[0]


# what stands on the template, with three pods at once -> the minimum, and the findings
AT = "spec.replicatedJobs[0].template.metadata.annotations[kai.scheduler/batch-min-member]"
MIN_MEMBERS = [
    Case("without a minimum all pods are needed", {}, (3, [])),
    Case("a minimum of one counts", {"minimum": "1"}, (1, [])),
    Case("as many as there are", {"minimum": "3"}, (3, [])),
    Case(
        "more than there can be",
        {"minimum": "4"},
        (3, [f"{AT}: 4 is more than the pods of each Job at the same time. 3 is used"]),
    ),
    *(
        Case(
            f"{text} is no count",
            {"minimum": text},
            (3, [f"{AT}: ignored: {text!r} must be a whole number, 1 or more"]),
        )
        for text in ("0", "-1", "1.5", "two", " 1", "01", "9" * 30)
    ),
    Case("a list of work", {"mode": "NonIndexed", "completions": 9}, (1, [])),
    Case("a list without an end", {"mode": "NonIndexed", "completions": None}, (1, [])),
    Case(
        "a list is a gang if asked to",
        {"mode": "NonIndexed", "completions": 9, "minimum": "2"},
        (2, []),
    ),
    Case("all at once is no list", {"mode": "NonIndexed", "completions": 3}, (3, [])),
    Case("Indexed pods know each other", {"completions": 9}, (3, [])),
]


@pytest.mark.parametrize("case", MIN_MEMBERS, ids=ids)
def test_min_member_of_subgroups(case: Case[dict[str, Any], tuple[int, list[str]]]) -> None:
    """All pods, or the requested number; never more than there are at once."""
    plan = plan_podgroups(jobset(rjob("node", parallelism=3, **case.given)), OURS)

    messages = [str(finding) for finding in plan.findings]
    assert (plan.podgroups[0].subgroups[0].min_member, messages) == case.want


# the annotation of a JobSet with PodGroups of two and of one SubGroup -> how many each needs
@pytest.mark.parametrize(
    ("text", "needed"), [("1", [1, 1]), ("2", [2, 1]), ("9", [2, 1]), ("0", [2, 1]), ("", [2, 1])]
)
def test_min_subgroups_of_podgroups(text: str, needed: list[int]) -> None:
    """Each PodGroup by itself: all SubGroups, or the requested number."""
    subject = jobset(
        rjob("a"), rjob("b", "a Ready"), rjob("c", "b Complete"), annotations={MIN: text}
    )

    plan = plan_podgroups(subject, OURS)

    assert [podgroup.min_subgroups for podgroup in plan.podgroups] == needed
    assert len(plan.findings) == (text in {"0", ""})


# replicas and pods of each of what comes later, in stages or not -> the finding
TOO_LARGE: list[Case[tuple[int, int, bool], str]] = [
    Case("as many as are expected", (100, MOST_EXPECTED // 100, False), ""),
    Case(
        "one pod above the most is a finding",
        (1, MOST_EXPECTED + 1, False),
        "b would have 100001 expected pods (they start after others",
    ),
    Case(
        "many of many",
        (300, 334, False),
        "b would have 100200 expected pods (they start after others",
    ),
    Case("all pods of a stage are there at once", (1, MOST_EXPECTED + 1, True), ""),
    Case("as many sub-groups as there may be", (MOST_SUB_GROUPS - 3, 1, False), ""),
    Case(
        "one more sub-group",
        (MOST_SUB_GROUPS - 2, 1, False),
        "the PodGroup of a and b would have 3001 sub-groups",
    ),
    Case("as many Jobs as a stage may have", (MOST_SUB_GROUPS, 1, True), ""),
    Case("one more Job", (MOST_SUB_GROUPS + 1, 1, True), "the PodGroup of b would have 3001 Jobs"),
    Case(
        "as many as can be written",
        (2**31 - 1, 2**31 - 1, True),
        "the PodGroup of b would have 2147483647 Jobs",
    ),
]


@pytest.mark.parametrize("case", TOO_LARGE, ids=ids)
def test_what_no_group_can_hold(case: Case[tuple[int, int, bool], str]) -> None:
    """It is in no PodGroup, is listed as too large, and the finding says what would be right."""
    replicas, pods, staged = case.given
    anticipated = rjob("b", "a Ready", replicas=replicas, parallelism=pods)

    plan = plan_podgroups(jobset(rjob("a"), anticipated), OURS, staged=staged)

    assert ("b" in plan.too_large) == (plan.podgroup_of("b") is None) == bool(case.want)
    blocking = [it for it in plan.findings if it.blocks]
    assert [it.message.startswith(case.want) for it in blocking] == [True] * bool(case.want)


@settings(max_examples=examples(100))
@given(any_jobset(), st.booleans())
def test_podgroups_partition_the_replicated_jobs_with_pods(subject: JobSet, staged: bool) -> None:
    """Each is in one PodGroup, in the order of the list; and no PodGroup is empty."""
    plan = plan_podgroups(subject, OURS, staged=staged)
    by_name = {job.name: job for job in subject.spec.replicated_jobs}
    scheduled = [
        name
        for name in start_order(subject.spec).names
        if by_name[name].template.spec.template.spec.scheduler_name in {"", OURS}
    ]

    subgroups = [subgroup.name for podgroup in plan.podgroups for subgroup in podgroup.subgroups]
    assert sorted(subgroups) == sorted(scheduled)
    for podgroup in plan.podgroups:
        names = [subgroup.name for subgroup in podgroup.subgroups]
        assert names == sorted(names, key=scheduled.index)
        assert names
        assert 1 <= podgroup.min_subgroups <= len(names)
        assert podgroup.suffix == ("Main" if len(plan.podgroups) == 1 else names[0])
        assert any(not subgroup.is_anticipated for subgroup in podgroup.subgroups)


@settings(max_examples=examples(100))
@given(any_jobset(), st.booleans())
def test_no_podgroup_waits_for_one_that_waits_for_it(subject: JobSet, staged: bool) -> None:
    """Each comes after all that it waits for, through others or not; in stages no pod is later."""
    plan = plan_podgroups(subject, OURS, staged=staged)
    edges = start_order(subject.spec).edges
    begun: set[str] = set()
    for podgroup in plan.podgroups:
        names = {subgroup.name for subgroup in podgroup.subgroups}
        for edge in podgroup.after:
            assert edge.before not in with_dependents(names, edges)
            assert plan.podgroup_of(edge.before) is None or edge.before in begun
        begun |= names
    if staged:
        assert not any(
            subgroup.is_anticipated
            for podgroup in plan.podgroups
            for subgroup in podgroup.subgroups
        )


@settings(max_examples=examples(100))
@given(any_jobset(), st.integers(0, 2**32))
def test_the_same_jobset_has_the_same_plan(subject: JobSet, seed: int) -> None:
    """In whatever order its maps and the conditions of each were written down."""
    again = decode(JobSet, encode(_shuffled(msgspec.to_builtins(subject), Random(seed))))

    assert plan_podgroups(again, OURS) == plan_podgroups(subject, OURS)


def _shuffled(value: Any, chance: Random) -> Any:
    if isinstance(value, list | tuple):
        return [_shuffled(subgroup, chance) for subgroup in value]
    if not isinstance(value, dict):
        return value
    names = chance.sample(sorted(value), len(value))
    return {name: _shuffled(value[name], chance) for name in names}


def test_the_order_of_unconnected_jobs_changes_no_podgroup() -> None:
    """Only their names do, by the first replicatedJob."""
    jobs = [rjob("a"), rjob("b"), rjob("c"), init(DATA)]
    found = {
        frozenset(
            frozenset(subgroup.name for subgroup in podgroup.subgroups)
            for podgroup in plan_podgroups(jobset(*order), OURS).podgroups
        )
        for order in permutations(jobs)
    }

    assert found == {frozenset({frozenset("abc"), frozenset({DATA})})}


@settings(max_examples=examples(100))
@given(st.data())
def test_no_plan_raises(data: st.DataObject) -> None:
    """Names that are there twice or not at all, numbers below zero, words without a meaning."""
    number = st.none() | st.integers(-3, 3)
    word = st.sampled_from(["", "Ready", "Complete", "Indexed", "NonIndexed", "x", "\x00", "é"])
    jobs = []
    for _ in range(data.draw(st.integers(0, 4))):
        job = rjob(data.draw(st.sampled_from(["a", "b", "", "Main"])))
        job["replicas"] = data.draw(st.integers(-3, 3))
        spec = job["template"]["spec"]
        spec["parallelism"], spec["completions"] = data.draw(number), data.draw(number)
        spec["completionMode"] = data.draw(word)
        job["template"]["metadata"]["annotations"] = {MIN: data.draw(st.text(max_size=3))}
        name = st.sampled_from(["a", "b", "", "Main", "z"])
        job["dependsOn"] = [
            {"name": data.draw(name), "status": data.draw(word)}
            for _ in range(data.draw(st.integers(0, 2)))
        ]
        jobs.append(job)
    subject = jobset(
        *jobs, order=data.draw(word), annotations={MIN: data.draw(st.text(max_size=3))}
    )

    for staged in (False, True):
        plan = plan_podgroups(subject, OURS, staged=staged)
        assert all(str(finding) for finding in plan.findings)


NUMBERS = range(32)
MANY = [
    Case("all begin at the start", jobset(*(rjob(f"j{i}") for i in range(64))), 500_000),
    Case(
        "all begin after all initializers",
        jobset(
            *(init(DATA) | {"name": f"i{i}"} for i in NUMBERS),
            *(rjob(f"j{i}", *(f"i{k} Complete" for k in NUMBERS[:20])) for i in NUMBERS),
        ),
        1_500_000,
    ),
    Case(
        "one after another",
        jobset(rjob("j0"), *(rjob(f"j{i}", f"j{i - 1} Complete") for i in range(1, 64))),
        1_000_000,
    ),
]


@pytest.mark.parametrize("case", MANY, ids=ids)
def test_as_many_as_are_planned_take_a_moment(case: Case[JobSet, int]) -> None:
    """A million instructions are about 10 ms, in which all others wait."""
    assert count_instructions(lambda: plan_podgroups(case.given, OURS)) < case.want
