"""What has to be complete before a PodGroup may start, and how that is seen."""

import json
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    encode_objects,
    group,
    jobset_pod,
    make_object,
    node,
    prefilter_failure_of,
)

_PODSET = {"name": "n-replica-0", "minMember": 1}
_READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
_UNREADY = {
    "status": {
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "PodScheduled", "status": "True"},
        ]
    }
}
_DONE = {"node": "a", "phase": "Succeeded"}


def _podgroup(**after: Any) -> dict[str, Any]:
    pod_fields = {
        "replicatedJob": "data",
        "status": "Complete",
        "group": "first",
        "replicas": 1,
        "count": 2,
    }
    text = json.dumps({"after": [{**pod_fields, "subGroupPrefix": "data-replica-", **after}]})
    meta = {"annotations": {"trainer-kai.dev/anticipated": text}, "ownerReferences": [JOBSET]}
    return group("g", meta=meta, subGroups=[_PODSET])


_FIRST = group(
    "first",
    subGroups=[{"name": "data-replica-0", "minMember": 2}],
    meta={"ownerReferences": [JOBSET]},
)
_COUNTS = [{"name": "data", "succeeded": 1}]

SUCCEEDED = "pods of replicatedJob data have succeeded"
COMPLETE = ". It can start when that earlier stage is complete"
READY = "pods of replicatedJob data are ready. It can start when that earlier stage is ready"
# the stage dependency, pods of the earlier stage, status of the JobSet → the message
STAGES = [
    Case("nothing has begun", ({}, [], []), f"0 of 2 {SUCCEEDED}{COMPLETE}"),
    Case("one is over", ({}, [_DONE, {"node": "a"}], []), f"1 of 2 {SUCCEEDED}{COMPLETE}"),
    Case(
        "ready is not over yet",
        ({}, [_DONE, {"node": "a", **_READY}], []),
        f"1 of 2 {SUCCEEDED}{COMPLETE}",
    ),
    Case("both are over", ({}, [_DONE, _DONE], []), None),
    Case(
        "one more runs",
        ({}, [_DONE, _DONE, {"node": "a"}], []),
        f"2 of 2 {SUCCEEDED}, but some still run{COMPLETE}",
    ),
    Case(
        "more than asked for is no more",
        ({"replicas": 2}, [_DONE, _DONE, _DONE], []),
        f"2 of 4 {SUCCEEDED}{COMPLETE}",
    ),
    Case("the JobSet says so", ({}, [], _COUNTS), None),
    Case(
        "the JobSet says so of one of two",
        ({"replicas": 2}, [], _COUNTS),
        f"0 of 4 {SUCCEEDED}{COMPLETE}",
    ),
    Case(
        "the JobSet says so of another",
        ({}, [], [{"name": "x", "succeeded": 1}]),
        f"0 of 2 {SUCCEEDED}{COMPLETE}",
    ),
    Case("a pod proves it", ({"before": ["n-replica-"]}, [], []), None),
    Case(
        "a pod of another proves nothing",
        ({"before": ["m-replica-"]}, [], []),
        f"0 of 2 {SUCCEEDED}{COMPLETE}",
    ),
    Case("another scheduler has them", ({"group": ""}, [], []), None),
    Case("ready is enough", ({"status": "Ready"}, [_DONE, {"node": "a", **_READY}], []), None),
    Case(
        "not ready any more",
        ({"status": "Ready"}, [_DONE, {"node": "a", **_UNREADY}], []),
        f"1 of 2 {READY}",
    ),
    Case(
        "running is not ready",
        ({"status": "Ready"}, [_DONE, {"node": "a"}], []),
        f"1 of 2 {READY}",
    ),
    Case(
        "the JobSet says that they are ready",
        ({"status": "Ready"}, [], [{"name": "data", "ready": 1}]),
        None,
    ),
    Case(
        "ready is not over",
        ({}, [], [{"name": "data", "ready": 1}]),
        f"0 of 2 {SUCCEEDED}{COMPLETE}",
    ),
]


@pytest.mark.parametrize("case", STAGES, ids=ids)
def test_stages(case: Case[tuple[dict[str, Any], list[Any], list[Any]], str | None]) -> None:
    """Until then the PodGroup requests nothing."""
    after, pods, counts = case.given
    jobset = make_object("JobSet", "j", {"uid": "u"}, status={"replicatedJobsStatus": counts})
    earlier = [
        jobset_pod(f"d{i}", "first", "data", **pod_fields) for i, pod_fields in enumerate(pods)
    ]

    encoded = encode_objects(
        node("a"), jobset, _FIRST, _podgroup(**after), *earlier, jobset_pod("p", "g")
    )

    assert prefilter_failure_of(encoded, "g") == (
        ("WaitingForStage", case.want) if case.want else None
    )
    running = sum(
        "node" in pod_fields and pod_fields is not _DONE and pod_fields.get("phase") != "Succeeded"
        for pod_fields in pods
    )
    assert encoded.snapshot.queues.requested[0, 2] == 1000 * (running + (case.want is None))


@pytest.mark.parametrize("numbers", ["0", "01", "02"])
def test_a_stage_in_segments(numbers: str) -> None:
    """The pods of a Job count in all its segments, and no others."""
    earlier = group(
        "first",
        subGroups=[{"name": f"data-replica-0-segment-{i}", "minMember": 1} for i in "01"],
        meta={"ownerReferences": [JOBSET]},
    )
    pods = [jobset_pod(f"d{it}", "first", "data", **_DONE) for it in numbers]
    for it, number in zip(pods, numbers, strict=True):
        name = f"data-replica-0-segment-{number}"
        it["metadata"]["labels"]["kai.scheduler/subgroup-name"] = name
    jobset = make_object("JobSet", "j", {"uid": "u"}, status={"replicatedJobsStatus": []})

    encoded = encode_objects(
        node("a"), jobset, earlier, _podgroup(segments=2), *pods, jobset_pod("p", "g")
    )

    waits = ("WaitingForStage", f"1 of 2 {SUCCEEDED}{COMPLETE}")
    assert prefilter_failure_of(encoded, "g") == (None if numbers == "01" else waits)


def test_what_cannot_be_read_is_reported_for_the_group() -> None:
    """The podgrouper writes the annotation."""
    meta = {"annotations": {"trainer-kai.dev/anticipated": "{"}, "ownerReferences": [JOBSET]}

    encoded = encode_objects(group("g", meta=meta, subGroups=[_PODSET]), jobset_pod("p", "g"))

    reason, message = prefilter_failure_of(encoded, "g") or ("", "")
    assert reason == "Misconfigured"
    assert message.startswith(
        "The PodGroup is invalid: metadata.annotations[trainer-kai.dev/anticipated]: "
    )
