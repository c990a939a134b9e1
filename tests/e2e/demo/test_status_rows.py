"""The rows of the demo: the wait of a TrainJob is the sum of all its waits."""

import pytest

from e2e.cluster.timeline import Moment
from e2e.demo.status_rows import Ended, ended
from tests.e2e.demo.moments import pod, podgroup, trainjob, whole_run
from tests.support.case import Case, ids

_EVICTED = "default/moe gets its resources: queue guests was over its fair share"
_PLACE = "a place on n0 is reserved for its launcher"
_SHARED = {"gpu-fraction": "0.7", "trainer-kai.dev/gpu-devices": "GPU-a"}
_STAGES = [podgroup(11, "moe", stage="1/2"), podgroup(11, "moe", stage="2/2")]

RUNS = [
    Case(
        "from the submission, and from the eviction on, until pods are on nodes",
        whole_run(),
        [
            Ended("night", "guests", "18.0 s", "1", _EVICTED, "n0", "Complete"),
            Ended("moe", "team-b", "5.0 s", "-", _PLACE, "n0", "Complete"),
        ],
    ),
    Case(
        "also from the end of a stage on; all nodes are named",
        [
            *(trainjob(10, "moe"), *_STAGES, pod(11, "moe-1-node", "Pending", "")),
            *(pod(12, "moe-1-node", node="n1"), pod(20, "moe-1-node", "Succeeded", "n1")),
            *(pod(20.5, "moe-2-node", "Pending", ""), pod(23.5, "moe-2-node")),
            trainjob(30, "moe", end="Complete"),
        ],
        [Ended("moe", "team-b", "5.5 s", "-", "-", "n0, n1", "Complete")],
    ),
    Case(
        "the part of a GPU is shown once its pod is on a node",
        [trainjob(10, "moe"), podgroup(11, "moe"), pod(14, "moe-1-node", notes=_SHARED)],
        [Ended("moe", "team-b", "4.0 s", "-", "0.7 of GPU-a", "n0", "runs")],
    ),
    Case(
        "it is not shown before, and who never runs waits for all its life",
        [
            *(trainjob(10, "moe"), podgroup(11, "moe")),
            *(pod(12, "moe-1-node", "Pending", "", _SHARED), trainjob(17, "moe", end="Failed")),
        ],
        [Ended("moe", "team-b", "7.0 s", "-", "-", "-", "Failed")],
    ),
]


@pytest.mark.parametrize("case", RUNS, ids=ids)
def test_what_became_of_trainjobs(case: Case[list[Moment], list[Ended]]) -> None:
    """A wait begins before there are PodGroups and pods."""
    assert ended(case.given) == case.want
