"""The model of JobSet does what JobSet v0.12 does, as far as one can see from its source."""

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.jobset_model import (
    Job,
    State,
    finished,
    restarted,
    settled,
    suspended,
    with_pod,
)
from tests.trainer_kai.policy.specs import jobset, rjob
from trainer_kai.api.jobset import JobSet

PAUSED = {"parallelism": 0, "completions": 2}


def with_all(subject: JobSet, state: State, name: str, phase: str) -> State:
    """Let all pods of a replicatedJob get so far, and both controllers see it."""
    for pod in state.pods:
        if pod.job.name == name and pod.is_alive:
            state = with_pod(state, pod, phase)
    return settled(subject.spec, state)


def alive(state: State) -> str:
    return " ".join(sorted(pod.job.name for pod in state.pods if pod.is_alive))


def made(state: State) -> str:
    return " ".join(sorted({job.name for job in state.jobs}))


# a JobSet -> the Jobs made at once, and the pods
FIRST: list[Case[JobSet, tuple[str, str]]] = [
    Case("all that depend on nothing", jobset(rjob("a", replicas=2), rjob("b")), ("a b", "a a b")),
    Case("not what depends on them", jobset(rjob("a"), rjob("b", "a Ready")), ("a", "a")),
    Case("only the first in order", jobset(rjob("a"), rjob("b"), order="InOrder"), ("a", "a")),
    Case(
        "no replicas are reached",
        jobset(rjob("a", replicas=0), rjob("b", "a Complete")),
        ("b", "b"),
    ),
    Case("fewer are not", jobset(rjob("a", replicas=-1), rjob("b", "a Ready")), ("", "")),
    Case("a paused Job is Ready", jobset(rjob("a", **PAUSED), rjob("b", "a Ready")), ("a b", "b")),
    Case("but not Complete", jobset(rjob("a", **PAUSED), rjob("b", "a Complete")), ("a", "")),
    Case(
        "nothing to complete is Complete",
        jobset(rjob("a", completions=0), rjob("b", "a Complete")),
        ("a b", "b"),
    ),
    Case(
        "fewer completions than parallelism",
        jobset(rjob("a", parallelism=3, completions=2)),
        ("a", "a a"),
    ),
    Case(
        "what the API server refuses ends the round",
        jobset(rjob("a", completions=None), rjob("b")),
        ("", ""),
    ),
    Case(
        "what waits for itself is never made", jobset(rjob("x"), rjob("a", "a Ready")), ("x", "x")
    ),
]


@pytest.mark.parametrize("case", FIRST, ids=ids)
def test_what_is_made_at_once(case: Case[JobSet, tuple[str, str]]) -> None:
    state = settled(case.given.spec, State())

    assert (made(state), alive(state)) == case.want


def test_dependents_are_made_when_all_are_ready_or_complete() -> None:
    """Complete is more than Ready, and Running is less."""
    subject = jobset(
        rjob("a", replicas=2), rjob("b", "a Ready"), rjob("c", "a Complete", "b Ready")
    )
    state = settled(subject.spec, State())

    assert made(with_all(subject, state, "a", "Running")) == "a"
    state = with_all(subject, state, "a", "Ready")
    assert made(state) == "a b"
    state = with_all(subject, with_all(subject, state, "b", "Ready"), "a", "Succeeded")
    assert made(state) == "a b c"
    assert finished(subject.spec, state) == {Job("a", 0), Job("a", 1)}


def test_pods_are_made_until_all_are_completed() -> None:
    """Each index once, as many at a time as may run; a failed pod is created again."""
    subject = jobset(rjob("a", parallelism=2, completions=3))
    state = settled(subject.spec, State())
    first, second = state.pods

    state = settled(subject.spec, with_pod(state, first, "Failed"))
    assert [pod.completion for pod in state.pods if pod.is_alive] == [1, 0]
    state = settled(subject.spec, with_pod(state, second, "Succeeded"))
    assert [pod.completion for pod in state.pods if pod.is_alive] == [0, 2]
    state = with_all(subject, state, "a", "Succeeded")
    assert alive(state) == ""
    assert finished(subject.spec, state) == {Job("a", 0)}


def test_a_work_queue_makes_no_pod_again_after_a_success() -> None:
    """It is Complete when no pod is left."""
    subject = jobset(rjob("a", parallelism=3, completions=None, mode="NonIndexed"))
    state = settled(subject.spec, State())
    first, second, third = state.pods

    state = settled(subject.spec, with_pod(with_pod(state, first, "Succeeded"), second, "Failed"))
    assert alive(state) == "a"
    assert finished(subject.spec, state) == frozenset()
    state = settled(subject.spec, with_pod(state, third, "Failed"))
    assert finished(subject.spec, state) == {Job("a", 0)}


def test_suspended_jobs_have_no_pods_and_are_resumed_in_order() -> None:
    """What is Complete stays so."""
    subject = jobset(rjob("x"), rjob("a", "x Complete"), rjob("b", "a Ready"))
    state = with_all(subject, settled(subject.spec, State()), "x", "Succeeded")
    state = with_all(subject, with_all(subject, state, "a", "Ready"), "b", "Ready")

    state = settled(subject.spec, suspended(state, now=True))
    assert (made(state), alive(state)) == ("a b x", "")
    state = settled(subject.spec, suspended(state, now=False))
    assert alive(state) == "a"
    assert alive(with_all(subject, state, "a", "Ready")) == "a b"


def test_a_restart_begins_anew_once_the_old_jobs_are_gone() -> None:
    """Of each Job for itself."""
    subject = jobset(rjob("a"), rjob("b"))
    state = settled(subject.spec, restarted(settled(subject.spec, State())))

    assert (made(state), alive(state)) == ("", "")
    state = settled(subject.spec, state._replace(previous=frozenset({Job("b", 0)})))
    assert (made(state), alive(state)) == ("a", "a")
    assert [pod.attempt for pod in state.pods if pod.is_alive] == [1]
