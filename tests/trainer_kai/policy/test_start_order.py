"""Which replicatedJob begins after which, checked against a model of JobSet."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.workloads.jobset_model import Job, ModelPod, State, finished, settled, with_pod
from tests.trainer_kai.policy.specs import any_jobset, jobset, rjob
from trainer_kai.api.jobset import JobSet, JobSpec, ReplicatedJob
from trainer_kai.policy.start_order import (
    COMPLETE,
    READY,
    Edge,
    pods_at_once,
    start_order,
    with_dependents,
)

EdgeTexts = tuple[str, ...]
PAUSED = {"parallelism": 0, "completions": 2}
EMPTY = {"parallelism": 2, "completions": 0}

# a JobSet -> the replicatedJobs with pods, and the edges
CASES: list[Case[JobSet, tuple[str, EdgeTexts]]] = [
    Case("without dependsOn no job waits", jobset(rjob("a"), rjob("b")), ("a b", ())),
    Case(
        "both kinds of dependence",
        jobset(rjob("a"), rjob("b", "a Ready"), rjob("c", "a Complete", "b Ready")),
        ("a b c", ("a Ready b", "a Complete c", "b Ready c")),
    ),
    Case(
        "in order is a chain of Ready",
        jobset(rjob("a"), rjob("b"), rjob("c"), order="InOrder"),
        ("a b c", ("a Ready b", "b Ready c")),
    ),
    Case(
        "a chain leaves out one without replicas",
        jobset(rjob("a"), rjob("b", replicas=0), rjob("c"), order="InOrder"),
        ("a c", ("a Ready c",)),
    ),
    Case(
        "a chain leads through a paused one",
        jobset(rjob("a"), rjob("b", **PAUSED), rjob("c"), order="InOrder"),
        ("a c", ("a Ready c",)),
    ),
    Case(
        "an edge that is drawn twice is one",
        jobset(rjob("a"), rjob("b", "a Ready", "a Ready", "a Complete")),
        ("a b", ("a Ready b", "a Complete b")),
    ),
    Case(
        "without replicas all is reached at once, whatever it waits for",
        jobset(rjob("a"), rjob("b", "a Complete", replicas=0), rjob("c", "b Complete")),
        ("a c", ()),
    ),
    Case(
        "also if it would wait for ever",
        jobset(
            rjob("a", **PAUSED),
            rjob("b", "a Complete", "b Ready", replicas=0),
            rjob("c", "b Ready"),
        ),
        ("c", ()),
    ),
    Case(
        "Jobs without pods are Ready as soon as they are made",
        jobset(rjob("a"), rjob("b", "a Complete", **PAUSED), rjob("c", "b Ready")),
        ("a c", ("a Complete c",)),
    ),
    Case(
        "Jobs with nothing to complete are Complete as soon as they are made",
        jobset(rjob("a"), rjob("b", "a Ready", **EMPTY), rjob("c", "b Complete")),
        ("a c", ("a Ready c",)),
    ),
    Case(
        "through several without pods",
        jobset(
            rjob("a"),
            rjob("b", "a Ready", **EMPTY),
            rjob("c", "b Complete", **PAUSED),
            rjob("d", "c Ready", "a Complete"),
        ),
        ("a d", ("a Ready d", "a Complete d")),
    ),
]

# a JobSet -> the replicatedJobs that are left, and the findings
FAULTS: list[Case[JobSet, tuple[str, list[str]]]] = [
    Case(
        "a paused Job is never Complete, so neither is what is behind",
        jobset(rjob("a", **PAUSED), rjob("b", "a Complete"), rjob("c", "b Ready"), rjob("d")),
        (
            "d",
            [
                "spec.replicatedJobs[1].dependsOn: 'a' never becomes Complete, so 'b' never begins",
            ],
        ),
    ),
    Case(
        "fewer than no replicas are never reached",
        jobset(rjob("a", replicas=-1), rjob("b", "a Ready")),
        ("", ["spec.replicatedJobs[1].dependsOn: 'a' never becomes Ready, so 'b' never begins"]),
    ),
    Case(
        "not in order either",
        jobset(rjob("a", replicas=-1), rjob("b"), order="InOrder"),
        ("", ["spec.replicatedJobs[1]: 'a' never becomes Ready, so 'b' never begins"]),
    ),
    Case(
        "a name that is not there",
        jobset(rjob("a"), rjob("b", "launcer Ready")),
        (
            "a",
            [
                (
                    "spec.replicatedJobs[1].dependsOn[0].name: replicatedJob 'launcer' does "
                    "not exist. Name one that is listed before: a"
                )
            ],
        ),
    ),
    Case(
        "the first depends on something",
        jobset(rjob("a", "b Ready"), rjob("b")),
        ("a b", ["spec.replicatedJobs[0].dependsOn[0].name: 'b' must be listed before 'a'"]),
    ),
    Case(
        "one that depends on an unknown one",
        jobset(rjob("a", "x Ready")),
        (
            "",
            [
                (
                    "spec.replicatedJobs[0].dependsOn[0].name: replicatedJob 'x' does not "
                    "exist. Remove dependsOn"
                )
            ],
        ),
    ),
    Case(
        "a status that is none",
        jobset(rjob("a"), rjob("b", "a Running")),
        (
            "a",
            ["spec.replicatedJobs[1].dependsOn[0].status: 'Running' must be 'Ready' or 'Complete'"],
        ),
    ),
    Case(
        "one that waits for itself",
        jobset(rjob("a"), rjob("b", "b Ready"), rjob("c", "b Complete")),
        (
            "a",
            [
                "spec.replicatedJobs: replicatedJob b depends on itself, so it never begins",
            ],
        ),
    ),
    Case(
        "a circle of jobs is a finding",
        jobset(rjob("a", "b Ready"), rjob("b", "a Complete"), rjob("c")),
        (
            "c",
            [
                "spec.replicatedJobs[0].dependsOn[0].name: 'b' must be listed before 'a'",
                (
                    "spec.replicatedJobs: replicatedJobs a and b depend on each other, so they "
                    "never begin"
                ),
            ],
        ),
    ),
    Case(
        "Indexed without completions: the API server refuses its Jobs",
        jobset(rjob("a", completions=None), rjob("b", "a Ready"), rjob("c")),
        (
            "c",
            [
                (
                    "spec.replicatedJobs[0].template.spec.completions: must be set: 'a' is "
                    "Indexed, and the API server refuses its Jobs"
                )
            ],
        ),
    ),
    Case(
        "without both numbers there is one pod",
        jobset(rjob("a", completions=None, parallelism=None)),
        ("a", []),
    ),
]

# parallelism, completions -> pods at once
PODS = [
    Case("without numbers it is one pod at once", (None, None), 1),
    Case("only parallelism: a list of work", (3, None), 3),
    Case("only completions: one after another", (None, 5), 1),
    Case("fewer completions than parallelism", (4, 2), 2),
    Case("more completions than parallelism wait", (2, 4), 2),
    Case("a paused job has no pods", (0, 4), 0),
    Case("nothing to complete", (4, 0), 0),
    Case("what cannot be", (-3, -1), 0),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_start_orders(case: Case[JobSet, tuple[str, EdgeTexts]]) -> None:
    """The replicatedJobs with pods, as they are listed, and the edges between them."""
    order = start_order(case.given.spec)
    edges = tuple(f"{edge.before} {edge.status} {edge.after}" for edge in order.edges)

    assert (" ".join(order.names), edges, order.findings) == (*case.want, ())


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_jobs_that_never_start_are_left_out(case: Case[JobSet, tuple[str, list[str]]]) -> None:
    """And a finding says why."""
    order = start_order(case.given.spec)

    reported = [str(finding) for finding in order.findings]
    assert (" ".join(order.names), reported) == case.want
    assert all(finding.blocks for finding in order.findings)


@pytest.mark.parametrize("case", PODS, ids=ids)
def test_pods_at_once(case: Case[tuple[int | None, int | None], int]) -> None:
    """As the Job controller makes them."""
    parallelism, completions = case.given
    spec = JobSpec(parallelism=parallelism, completions=completions)
    subject = ReplicatedJob(name="a")

    assert pods_at_once(subject) == 1
    assert pods_at_once(_with(subject, spec)) == case.want


def _with(subject: ReplicatedJob, spec: JobSpec) -> ReplicatedJob:
    template = type(subject.template)(spec=spec)
    return ReplicatedJob(name=subject.name, template=template)


def test_all_behind_are_reached() -> None:
    """Themselves included, in circles too."""
    edges = [Edge("a", "b", READY), Edge("b", "c", COMPLETE), Edge("c", "b", READY)]

    assert with_dependents(["a"], edges) == {"a", "b", "c"}
    assert with_dependents(["c"], edges) == {"b", "c"}
    assert with_dependents(["d"], edges) == {"d"}
    assert with_dependents([], edges) == frozenset()


@settings(max_examples=examples(100))
@given(any_jobset(), st.integers(0, 2**32))
def test_jobs_are_made_exactly_when_all_before_them_have_got_so_far(
    subject: JobSet, seed: int
) -> None:
    """At every moment, for each that has pods; and no other ever has one."""
    order = start_order(subject.spec)
    seen: set[str] = set()
    for state in _states(subject, Random(seed)):
        seen |= {pod.job.name for pod in state.pods}
        for name in order.names:
            before = [edge for edge in order.edges if edge.after == name]
            exists = Job(name, 0) in state.jobs
            assert exists == all(_has_reached(subject, state, edge) for edge in before), name

    assert seen == set(order.names)


def _states(subject: JobSet, chance: Random) -> Iterator[State]:
    """Yield what there is, until nothing happens any more; pods begin and end by chance."""
    state = State()
    next_phase = {"Pending": "Ready", "Ready": "Succeeded"}
    while True:
        state = settled(subject.spec, state)
        yield state
        unfinished = [pod for pod in state.pods if pod.phase in next_phase]
        if not unfinished:
            return
        for pod in chance.sample(unfinished, chance.randint(1, len(unfinished))):
            state = with_pod(state, pod, next_phase[pod.phase])


def _has_reached(subject: JobSet, state: State, edge: Edge) -> bool:
    one = next(job for job in subject.spec.replicated_jobs if job.name == edge.before)
    jobs = {Job(one.name, number) for number in range(one.replicas)}
    if edge.status == COMPLETE:
        return jobs <= finished(subject.spec, state)
    return all(_begun(state.pods, job) >= pods_at_once(one) for job in jobs)


def _begun(pods: tuple[ModelPod, ...], job: Job) -> int:
    return sum(pod.job == job and pod.phase in {"Ready", "Succeeded"} for pod in pods)
