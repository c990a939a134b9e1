"""Why a Job cannot create its pods, and for how long such a failure applies."""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.cluster_kinds import Event, ObjectReference
from trainer_kai.api.jobset import (
    Job,
    JobSet,
    JobSetSpec,
    JobSetStatus,
    JobSpec,
    JobTemplate,
    ReplicatedJob,
)
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.policy.pods.creation_failures import (
    CreatedPod,
    PodCreationFailure,
    read_creation_failure,
    still_applies,
)
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.kinds import workload_of_job

NOW: Final = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
AT: Final = "2026-01-01T11:59:00"
JOB: Final = Key("ns", "job-node-0")
QUOTA: Final = "exceeded quota: gpus, requested: pods=1, used: pods=2, limited: pods=2"


def event(message: str, **fields: Any) -> Event:
    about = ObjectReference(kind="Job", namespace="ns", name=JOB.name, uid="u")
    wanted = {"reason": "FailedCreate", "involved_object": about, **fields}
    meta = Meta(name="e", namespace="ns", creation_timestamp="2026-01-01T11:00:00Z")
    return Event(metadata=meta, message=message, last_timestamp=f"{AT}Z", **wanted)


MESSAGES = [
    Case(
        "the message of a quota loses the pod's name",
        f'Error creating: pods "job-node-0-1-x7" is forbidden: {QUOTA}',
        QUOTA,
    ),
    Case(
        "for the tenth time",
        f'(combined from similar events): Error creating: pods "a" is forbidden: {QUOTA}',
        QUOTA,
    ),
    Case(
        "a policy, in several lines",
        'Error creating: pods "a" is forbidden: violates PodSecurity "restricted:latest":\n a (b)',
        'violates PodSecurity "restricted:latest": a (b)',
    ),
    Case(
        "the message of a webhook loses its beginning",
        "Error creating: x denied the request: no",
        "x denied the request: no",
    ),
    Case("any other message stays as it is", "no such thing", "no such thing"),
    Case("a long message is cut", "x" * 1000, "x" * 499 + "…"),
]


@pytest.mark.parametrize("case", MESSAGES, ids=ids)
def test_reasons(case: Case[str, str]) -> None:
    """Without the names of single pods: else the same failure would be reported anew each time."""
    assert read_creation_failure(event(case.given)) == PodCreationFailure(AT, "e", JOB, case.want)


def test_other_events_say_nothing_of_pods() -> None:
    others = [event("x", reason="SuccessfulCreate"), event("x", involved_object=ObjectReference())]

    assert [read_creation_failure(it) for it in others] == [None, None]


@pytest.mark.parametrize("name", ["-" * 10**6 + "1", "job-node-" + "9" * 5000])
def test_events_with_long_names_are_skipped(name: str) -> None:
    """The API server takes any name in there; no Job has one that is so long."""
    about = ObjectReference(kind="Job", namespace="ns", name=name)

    assert read_creation_failure(event("x", involved_object=about)) is None


def jobset(name: str = "job", *jobs: str, **fields: Any) -> JobSet:
    """Return a JobSet with Jobs of four pods each, at most three at a time."""
    template = JobTemplate(spec=JobSpec(parallelism=3, completions=4))
    names = jobs or ("node",)
    replicated = tuple(ReplicatedJob(name=it, replicas=2, template=template) for it in names)
    meta = Meta(namespace="ns", name=name, creation_timestamp=fields.pop("made", f"{AT}Z"))
    status = JobSetStatus(**fields.pop("status", {}))
    return JobSet(
        metadata=meta, spec=JobSetSpec(replicated_jobs=replicated, **fields), status=status
    )


OWNERS = [
    Case("by its name", ("job-node-1", [jobset()]), "job node"),
    Case("there are not so many", ("job-node-2", [jobset()]), ""),
    Case("a Job of another replicatedJob has no owner", ("job-launcher-0", [jobset()]), ""),
    Case("a Job of no JobSet has no owner", ("other-node-0", [jobset()]), ""),
    Case("a Job of a CronJob has no owner", ("job-node-29000000", [jobset()]), ""),
    Case("a Job without a number has no owner", ("job-node-x", [jobset()]), ""),
    Case("names in which hyphens are", ("a-b-c-d-0", [jobset("a-b", "c-d")]), "a-b c-d"),
    Case("names that begin alike", ("a-b-c-0", [jobset("a", "x"), jobset("a-b", "c")]), "a-b c"),
]


@pytest.mark.parametrize("case", OWNERS, ids=ids)
def test_workload_of_job(case: Case[tuple[str, list[JobSet]], str]) -> None:
    """Events name nothing but the Job."""
    name, jobsets = case.given
    workloads = map(jobset_workload, jobsets)

    found = workload_of_job(Key("ns", name), {it.key: it for it in workloads})

    assert (f"{found[0].key.name} {found[1].name}" if found else "") == case.want


def test_a_job_that_is_a_workload() -> None:
    """It has as many pods as it runs at once; a Job of another controller is unknown."""
    spec = JobSpec(parallelism=3, completions=4)
    job = job_workload(Job(metadata=Meta(namespace="ns", name=JOB.name), spec=spec))
    assert job is not None
    failure = PodCreationFailure(AT, "e", JOB, QUOTA)
    assert still_applies(failure, job, pods(2), NOW)
    assert not still_applies(failure, job, pods(3), NOW)
    assert not still_applies(failure._replace(job=Key("ns", "other")), job, (), NOW)


JOBSET: Final = jobset()


class Scene(NamedTuple):
    jobset: JobSet = JOBSET
    pods: tuple[CreatedPod, ...] = ()
    at: str = AT


def pods(number: int, created: str = AT, *, counts: bool = True) -> tuple[CreatedPod, ...]:
    return (CreatedPod(JOB.name, f"{created}Z", counts),) * number


def resumed(at: str) -> JobSet:
    condition = Condition(type="Suspended", status="False", last_transition_time=at)
    return jobset(made="2026-01-01T11:00:00Z", status={"conditions": (condition,)})


LATER: Final = "2026-01-01T11:59:01"
STILL_APPLIES = [
    Case("no pod at all", Scene(), True),
    Case("some, made until then", Scene(pods=pods(2)), True),
    Case("one that was made since", Scene(pods=pods(1, LATER)), False),
    Case("one of another Job", Scene(pods=(CreatedPod("job-node-1", LATER, counts=True),)), True),
    Case("all it may have at once", Scene(pods=pods(3)), False),
    Case("all, but one is going", Scene(pods=pods(2) + pods(1, counts=False)), want=True),
    Case("a failure of a suspended JobSet is over", Scene(jobset(suspend=True)), False),
    Case("suspended and resumed since", Scene(resumed(f"{LATER}Z")), False),
    Case("suspended and resumed before", Scene(resumed(f"{AT}Z")), True),
    Case("a JobSet that was made since", Scene(jobset(made=f"{LATER}Z")), False),
    Case("it is over", Scene(jobset(status={"terminal_state": "Failed"})), False),
    Case(
        "so long ago that it would have been said again",
        Scene(jobset(made="2026-01-01T11:00:00Z"), at="2026-01-01T11:49:59"),
        False,
    ),
    Case("a clock that is ahead", Scene(at="2026-01-01T12:01:00"), True),
    Case("of the future", Scene(at="2026-01-01T12:01:01"), False),
]


@pytest.mark.parametrize("case", STILL_APPLIES, ids=ids)
def test_an_old_refusal_is_not_the_reason_of_another_shortage(case: Case[Scene, bool]) -> None:
    """It holds until something shows that it does not."""
    scene = case.given
    one = PodCreationFailure(scene.at, "e", JOB, QUOTA)

    assert still_applies(one, jobset_workload(scene.jobset), scene.pods, NOW) == case.want
