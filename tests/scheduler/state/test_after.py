"""What has to be over before a gang may begin, and how that is seen."""

import json
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.clusters import JOBSET, bar_of, encoded, group, jobset_pod, made, node

_LEAF = {"name": "n-replica-0", "minMember": 1}
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


def _gang(**after: Any) -> dict[str, Any]:
    said = {
        "replicatedJob": "data",
        "status": "Complete",
        "group": "first",
        "replicas": 1,
        "count": 2,
    }
    text = json.dumps({"after": [{**said, "subGroupPrefix": "data-replica-", **after}]})
    meta = {"annotations": {"trainer-kai.dev/anticipated": text}, "ownerReferences": [JOBSET]}
    return group("g", meta=meta, subGroups=[_LEAF])


_FIRST = group(
    "first",
    subGroups=[{"name": "data-replica-0", "minMember": 2}],
    meta={"ownerReferences": [JOBSET]},
)
_COUNTS = [{"name": "data", "succeeded": 1}]

# what the gang waits for, pods of the stage before, status of the JobSet → what is told
STAGES = [
    Case("nothing has begun", ({}, [], []), "0 of 2 pods of data have succeeded"),
    Case("one is over", ({}, [_DONE, {"node": "a"}], []), "1 of 2 pods of data have succeeded"),
    Case(
        "ready is not over yet",
        ({}, [_DONE, {"node": "a", **_READY}], []),
        "1 of 2 pods of data have succeeded",
    ),
    Case("both are over", ({}, [_DONE, _DONE], []), None),
    Case(
        "one more runs",
        ({}, [_DONE, _DONE, {"node": "a"}], []),
        "2 of 2 pods of data have succeeded, but some still run",
    ),
    Case(
        "more than asked for is no more",
        ({"replicas": 2}, [_DONE, _DONE, _DONE], []),
        "2 of 4 pods of data have succeeded",
    ),
    Case("the JobSet says so", ({}, [], _COUNTS), None),
    Case(
        "the JobSet says so of one of two",
        ({"replicas": 2}, [], _COUNTS),
        "0 of 4 pods of data have succeeded",
    ),
    Case(
        "the JobSet says so of another",
        ({}, [], [{"name": "x", "succeeded": 1}]),
        "0 of 2 pods of data have succeeded",
    ),
    Case("a pod proves it", ({"before": ["n-replica-"]}, [], []), None),
    Case(
        "a pod of another proves nothing",
        ({"before": ["m-replica-"]}, [], []),
        "0 of 2 pods of data have succeeded",
    ),
    Case("another scheduler has them", ({"group": ""}, [], []), None),
    Case("ready is enough", ({"status": "Ready"}, [_DONE, {"node": "a", **_READY}], []), None),
    Case(
        "not ready any more",
        ({"status": "Ready"}, [_DONE, {"node": "a", **_UNREADY}], []),
        "1 of 2 pods of data are ready",
    ),
    Case(
        "running is not ready",
        ({"status": "Ready"}, [_DONE, {"node": "a"}], []),
        "1 of 2 pods of data are ready",
    ),
    Case(
        "the JobSet says that they are ready",
        ({"status": "Ready"}, [], [{"name": "data", "ready": 1}]),
        None,
    ),
    Case(
        "ready is not over",
        ({}, [], [{"name": "data", "ready": 1}]),
        "0 of 2 pods of data have succeeded",
    ),
]


@pytest.mark.parametrize("case", STAGES, ids=ids)
def test_stages(case: Case[tuple[dict[str, Any], list[Any], list[Any]], str | None]) -> None:
    """Until then the gang asks for nothing."""
    after, pods, counts = case.given
    jobset = made("JobSet", "j", {"uid": "u"}, status={"replicatedJobsStatus": counts})
    earlier = [jobset_pod(f"d{i}", "first", "data", **said) for i, said in enumerate(pods)]

    found = encoded(node("a"), jobset, _FIRST, _gang(**after), *earlier, jobset_pod("p", "g"))

    assert bar_of(found, "g") == (("WaitingForStage", case.want) if case.want else None)
    running = sum(
        "node" in said and said is not _DONE and said.get("phase") != "Succeeded" for said in pods
    )
    assert found.snapshot.queues.requested[0, 2] == 1000 * (running + (case.want is None))


def test_what_cannot_be_read_is_told_of_the_group() -> None:
    """The annotation is the podgrouper's."""
    meta = {"annotations": {"trainer-kai.dev/anticipated": "{"}, "ownerReferences": [JOBSET]}

    found = encoded(group("g", meta=meta, subGroups=[_LEAF]), jobset_pod("p", "g"))

    verdict, message = bar_of(found, "g") or ("", "")
    assert verdict == "Misconfigured"
    assert message.startswith("metadata.annotations[trainer-kai.dev/anticipated]: ")
