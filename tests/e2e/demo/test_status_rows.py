"""The rows of the demo: the wait of a TrainJob is the sum of all its waits."""

from e2e.cluster.resources import PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Key, Moment
from e2e.demo.status_rows import Ended, ended
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, QUEUE

_EVICTED_BY = '{"why": "default/other gets its resources"}'


def _moment(at_s: float, resource: Resource, name: str, **fields: Obj) -> Moment:
    obj: Obj = {"spec": {}, "status": {}} | fields
    obj["metadata"] = {"name": name} | obj.get("metadata", {})
    key = Key(resource, "default", name)
    return Moment(at_s, int(at_s * 10), "MODIFIED", key, obj)


def _trainjob(at_s: float, *, evicted: bool = False, end: str = "") -> Moment:
    annotations = {"trainer-kai.dev/evicted-by": _EVICTED_BY} if evicted else {}
    metadata = {"labels": {QUEUE: "team-a"}, "annotations": annotations}
    conditions = [{"type": end, "status": "True"}] if end else []
    return _moment(at_s, TRAINJOBS, "job", metadata=metadata, status={"conditions": conditions})


def _podgroup(at_s: float, stage: int = 1) -> Moment:
    metadata = {
        "annotations": {"trainer-kai.dev/stage": f"{stage}/2"},
        "ownerReferences": [{"name": "job"}],
    }
    return _moment(at_s, PODGROUPS, f"pg-{stage}", metadata=metadata, spec={"minMember": 1})


def _pod(at_s: float, node: str = "", phase: str = "Pending", stage: int = 1) -> Moment:
    metadata = {"annotations": {PODGROUP: f"pg-{stage}"}}
    spec = {"nodeName": node} if node else {}
    return _moment(
        at_s, PODS, f"pod-{stage}", metadata=metadata, spec=spec, status={"phase": phase}
    )


def _deleted(moment: Moment) -> Moment:
    return moment._replace(type="DELETED")


def test_a_wait_ends_when_a_pod_is_on_a_node() -> None:
    """It begins with the submission, before there are PodGroups and pods."""
    history = [
        _trainjob(10),
        _podgroup(11),
        _pod(12),
        _pod(14.5, "n1"),
        _trainjob(20, end="Complete"),
    ]

    assert ended(history) == [Ended("job", "team-a", "4.5 s", "-", "-", "n1", "Complete")]


def test_the_wait_after_an_eviction_counts() -> None:
    """From the eviction on, while its pods terminate and until new pods are on a node."""
    history = [
        *(_trainjob(10), _podgroup(11), _pod(11.5), _pod(12, "n1")),
        *(_trainjob(15, evicted=True), _deleted(_pod(16, "n1")), _trainjob(17)),
        *(_pod(18), _pod(25, "n2"), _trainjob(30, end="Complete")),
    ]

    [row] = ended(history)

    assert (row.waited, row.evicted, row.nodes) == ("12.0 s", "1", "n1, n2")
    assert row.message == "default/other gets its resources"


def test_the_wait_of_a_later_stage_counts() -> None:
    """From the end of the stage before until a pod of the later stage is on a node."""
    history = [
        *(_trainjob(10), _podgroup(10), _podgroup(10, stage=2), _pod(10), _pod(11, "n1")),
        *(_pod(20, "n1", "Succeeded"), _pod(20.5, stage=2), _pod(23, "n1", stage=2)),
        _trainjob(30, end="Complete"),
    ]

    assert [row.waited for row in ended(history)] == ["4.0 s"]


def test_the_part_of_a_gpu_is_shown() -> None:
    """Once the pod is on a node: the part, and the device."""
    shared = {"gpu-fraction": "0.7", "trainer-kai.dev/gpu-devices": "GPU-a"}
    early, late = _pod(12), _pod(14, "n1", "Running")
    for pod in (early, late):
        pod.obj["metadata"]["annotations"] |= shared
    history = [_trainjob(10), _podgroup(11), early]

    assert [it.message for it in ended(history)] == ["-"]
    assert [it.message for it in ended([*history, late])] == ["0.7 of GPU-a"]


def test_a_trainjob_that_never_runs_waits_to_its_end() -> None:
    """Its wait is its whole life."""
    history = [_trainjob(10), _podgroup(11), _trainjob(17, end="Failed")]

    assert [(row.waited, row.state) for row in ended(history)] == [("7.0 s", "Failed")]
