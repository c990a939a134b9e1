"""Times of a PodGroup: until when its preemption delay lasts, since when it runs."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    NOW,
    encode_objects,
    group,
    jobset_pod,
    node,
    pod,
    podgroup_of,
    prefilter_failure_of,
    queue,
    trainjob,
    workload,
)

_MADE = {"creationTimestamp": "2026-01-05T07:00:00Z"}
_HOUR = 3600
_EVICTION = "kai.scheduler/last-eviction-timestamp"


def evicted(at: str, made: str = "2026-01-05T07:00:00Z") -> dict[str, Any]:
    return {"creationTimestamp": made, "annotations": {_EVICTION: at}}


# metadata, delay → until when it may evict no others, in seconds after NOW - 1 h
DELAYS = [
    Case("without a delay it may evict at once", (_MADE, ""), None),
    Case("ten minutes after it was made", (_MADE, "10m"), 600),
    Case("a delay is rounded up", (_MADE, "1.2s"), 2),
    Case("a delay of zero is none", (_MADE, "0s"), None),
    Case("less than nothing is none", (_MADE, "-10m"), None),
    Case("after it lost its place", (evicted("2026-01-05T07:30:00Z"), "10m"), 2400),
    Case("it lost its place before it was made", (evicted("2020-01-01T00:00:00Z"), "10m"), 600),
    Case("what is no time is none", (evicted("yesterday"), "10m"), 600),
]


@pytest.mark.parametrize("case", DELAYS, ids=ids)
def test_preemption_delay(case: Case[tuple[dict[str, Any], str], int | None]) -> None:
    """It counts from the creation or the last eviction, whichever is later."""
    meta, delay = case.given

    podgroup = podgroup_of(
        encode_objects(group("g", meta=meta, preemptionDelay=delay), pod("p", "g")), "g"
    )

    want = 0 if case.want is None else NOW - _HOUR + case.want
    assert (podgroup.preemption_delay_until, podgroup.preemption_delay) == (want, delay)


def test_an_invalid_delay_is_reported() -> None:
    """The PodGroup has no delay, and can be placed."""
    encoded = encode_objects(group("g", meta=_MADE, preemptionDelay="soon"), pod("p", "g"))

    (warning,) = encoded.warnings
    begin = "PodGroup ns/g: spec.preemptionDelay: 'soon' is not a duration"
    assert (warning.still_counts, warning.message[: len(begin)]) == (True, begin)
    assert prefilter_failure_of(encoded, "g") is None
    assert podgroup_of(encoded, "g").preemption_delay_until == 0


@pytest.mark.parametrize(("delay", "want"), [("10m", NOW - _HOUR + 600), ("soon", 0), ("", 0)])
def test_the_preemption_delay_of_a_pod_without_a_podgroup(delay: str, want: int) -> None:
    """Its own annotation counts; an invalid one does not."""
    annotations = {"kai.scheduler/preemption-delay": delay} if delay else {}
    encoded = encode_objects(node("a"), pod("p", annotations=annotations, meta={**_MADE}))

    assert podgroup_of(encoded, "pg-p-p").preemption_delay_until == want


_START = "kai.scheduler/last-start-timestamp"


def scheduled(at: str, status: str = "True") -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": at}
    return {"conditions": [{"type": "Ready", "status": "True"}, condition]}


_SEVEN, _EIGHT = scheduled("2026-01-05T07:00:00Z"), scheduled("2026-01-05T08:00:00Z")

# annotation of the PodGroup, its pods -> since when it runs, in seconds after NOW - 1 h
RUNNING_SINCE: list[Case[tuple[str, list[dict[str, Any]]], int | None]] = [
    Case("the pod that has its place for longest", ("", [_EIGHT, _SEVEN]), 0),
    Case("what is written", ("2026-01-05T07:30:00Z", [_SEVEN]), 1800),
    Case("what is written is no time", ("today", [_EIGHT]), 3600),
    Case("without an annotation or a node it is unknown", ("", [{}]), None),
    Case("one of them says it", ("", [{}, _EIGHT]), 3600),
    Case("a time that is none", ("", [scheduled("now")]), None),
    Case("it is unscheduled", ("", [scheduled("2026-01-05T07:00:00Z", "False")]), None),
]


@pytest.mark.parametrize("case", RUNNING_SINCE, ids=ids)
def test_since(case: Case[tuple[str, list[dict[str, Any]]], int | None]) -> None:
    """Pods that join later, or come back, do not change it."""
    written, pods = case.given
    annotations = {_START: written} if written else {}
    encoded = encode_objects(
        node("a"),
        group("g", meta={"annotations": annotations}, minMember=1),
        *(pod(f"p{i}", "g", node="a", status=it) for i, it in enumerate(pods)),
    )

    assert podgroup_of(encoded, "g").running_since == (
        0 if case.want is None else NOW - _HOUR + case.want
    )


def test_pending_podgroups_do_not_run() -> None:
    """Whatever the annotation says; pods of an older attempt do not count as running either."""
    meta = {"annotations": {_START: "2026-01-05T07:00:00Z"}, "ownerReferences": [JOBSET]}
    subs = [{"name": "n-replica-0", "minMember": 1}]
    encoded = encode_objects(
        node("a"),
        group("g", meta=meta, subGroups=subs),
        jobset_pod("old", "g", attempt=0, node="a", status=_SEVEN),
        jobset_pod("new", "g", attempt=1),
    )

    assert podgroup_of(encoded, "g").running_since == 0


def test_a_pod_without_a_podgroup_runs_since_it_was_scheduled() -> None:
    """A pending one does not run."""
    encoded = encode_objects(
        node("a"), pod("p", node="a", status=_SEVEN), pod("q", status=_SEVEN), queue()
    )

    assert podgroup_of(encoded, "pg-p-p").running_since == NOW - _HOUR
    assert podgroup_of(encoded, "pg-q-q").running_since == 0


def test_min_runtimes_of_queues() -> None:
    """Each queue has its own; most set none, and an invalid one does not count."""
    queues = encode_objects(
        queue("a", preemptMinRuntime="90s"),
        queue("b", preemptMinRuntime="0s", parentQueue="a"),
        queue("q", preemptMinRuntime="soon", meta={"uid": "x"}),
    ).snapshot.queues

    min_seconds = dict(zip(queues.names, queues.preempt_min_s, strict=True))
    assert (min_seconds, queues.reclaim_min_s) == ({"a": 90, "b": 0, "q": -1}, ())


def test_pods_that_differ_only_in_their_preemption_delay() -> None:
    """Each has its own, though everything else is computed once for their class."""
    delays = {"a": "10m", "b": ""}
    pods = [
        pod(name, annotations={"kai.scheduler/preemption-delay": delay}, meta=_MADE)
        for name, delay in delays.items()
    ]
    encoded = encode_objects(node("n"), *pods)
    assert {one.name: one.preemption_delay for one in encoded.snapshot.podgroups} == {
        f"ns/pg-{name}-{name}": delay for name, delay in delays.items()
    }


# of a TrainJob: metadata, spec, status -> when it has ended by force, in seconds after NOW
DEADLINES: list[Case[dict[str, Any], int]] = [
    Case("without a deadline it never ends", {"metadata": _MADE}, 0),
    Case(
        "the deadline counts from the creation, and the pods have a grace period",
        {"metadata": _MADE, "spec": {"activeDeadlineSeconds": 7200}},
        3630,
    ),
    Case(
        "it counts anew from the resume",
        {
            "metadata": _MADE,
            "spec": {"activeDeadlineSeconds": 7200},
            "status": {
                "conditions": [
                    {
                        "type": "Suspended",
                        "status": "False",
                        "lastTransitionTime": "2026-01-05T07:30:00Z",
                    }
                ]
            },
        },
        5430,
    ),
    Case(
        "it does not count while the TrainJob is suspended",
        {"metadata": _MADE, "spec": {"activeDeadlineSeconds": 7200, "suspend": True}},
        0,
    ),
    Case(
        "one that is too late is none",
        {"metadata": _MADE, "spec": {"activeDeadlineSeconds": 2**62}},
        0,
    ),
    Case(
        "as is one in thousands of years",
        {"metadata": _MADE, "spec": {"activeDeadlineSeconds": 10**12}},
        0,
    ),
]


@pytest.mark.parametrize("case", DEADLINES, ids=ids)
def test_the_end_by_a_deadline(case: Case[dict[str, Any], int]) -> None:
    """Of a TrainJob."""
    job, *others = trainjob("t", "a")
    for part, fields in case.given.items():
        job = {**job, part: {**job.get(part, {}), **fields}}
    found = podgroup_of(encode_objects(node("a"), queue("borrower"), job, *others), "pg-t")
    assert found.ends_at == (NOW + case.want if case.want else 0)


# grace period in seconds -> how much of it comes on top
GRACES: list[Case[int, int]] = [
    Case("none", 0, 0),
    Case("an hour", _HOUR, _HOUR),
    Case("more than the most that counts", 2**40, _HOUR),
]


@pytest.mark.parametrize("case", GRACES, ids=ids)
def test_the_grace_period_of_its_pods_comes_after_a_deadline(case: Case[int, int]) -> None:
    """They are there until then."""
    job, *others = trainjob("t", "a")
    job = {**job, "metadata": {**job["metadata"], **_MADE}}
    job = {**job, "spec": {**job["spec"], "activeDeadlineSeconds": 7200}}
    grace = {"terminationGracePeriodSeconds": case.given}
    others = [
        {**it, "spec": {**it["spec"], **grace}} if it["kind"] == "Pod" else it for it in others
    ]
    found = podgroup_of(encode_objects(node("a"), queue("borrower"), job, *others), "pg-t")
    assert found.ends_at == NOW + _HOUR + case.want


def test_the_deadline_of_a_job_counts_from_its_start() -> None:
    """Which its controller writes when it is not suspended."""
    job, *others = workload("Job", "j", "a", activeDeadlineSeconds=7200)
    started = {**job, "status": {"startTime": "2026-01-05T07:00:00Z"}}
    ends = [
        podgroup_of(encode_objects(node("a"), queue("borrower"), it, *others), "pg-j").ends_at
        for it in (job, started)
    ]
    assert ends == [0, NOW + 3630]
