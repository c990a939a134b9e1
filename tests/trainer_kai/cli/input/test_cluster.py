"""Objects are read once, checked, and stored by kind; all faults are reported at once."""

import random
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import (
    bind_request,
    group,
    node,
    pod,
    queue,
    resource_reservation_pod,
    trainjob,
)
from trainer_kai.api.meta import Key
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError

GPU = "nvidia.com/gpu"


def read(*objects: dict[str, Any]) -> InputCluster:
    return read_cluster(Document("a.yaml", it) for it in objects)


def faults(*objects: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(*objects)
    return [str(fault) for fault in caught.value.faults]


def changed(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *order, last = path.split("/")
    at = obj
    for step in order:
        at = at.setdefault(step, {})
    at[last] = value
    return obj


def test_everything_is_put_where_it_belongs() -> None:
    """What has no namespace goes by its name; a pod that names none is in `default`."""
    bare = pod("p", "g")
    del bare["metadata"]["namespace"]

    inputs = read(node("n"), queue("q"), group("g"), bare)

    assert list(inputs.cluster.nodes) == ["n"]
    assert list(inputs.cluster.queues) == ["q"]
    assert list(inputs.cluster.pod_groups) == [Key("default", "g")]
    assert inputs.cluster.pods[Key("default", "p")].metadata.uid == "default.p"
    assert inputs.notes == []


INVALID = [
    Case(
        "an object must not be a list",
        changed(node("n"), "status/allocatable", [1]),
        "status.allocatable: must be an object, not a list",
    ),
    Case(
        "a limit must be a number",
        changed(queue("q"), "spec/resources/gpu/limit", "lots"),
        "spec.resources.gpu.limit: 'lots' must be a number",
    ),
    Case(
        "wrong type in a list",
        group("g", subGroups=[{"name": "a", "minMember": "two"}]),
        "spec.subGroups[0].minMember: 'two' must be a whole number, not a string",
    ),
    Case(
        "a name has no capitals",
        trainjob("Ok_1", "x"),
        "metadata.name: 'Ok_1' must be at most 63 of a-z, 0-9",
    ),
    Case(
        "a name is at most 63 long",
        trainjob("a" * 80, "x"),
        "aaa' must be at most 63 of a-z, 0-9 and -",
    ),
    Case("a TrainJob names its runtime", trainjob("ok", ""), "spec.runtimeRef.name: is missing"),
    Case(
        "a runtime of another kind",
        changed(trainjob("ok", "x"), "spec/runtimeRef/kind", "Runtime"),
        "spec.runtimeRef.kind: 'Runtime' must be TrainingRuntime or ClusterTrainingRuntime",
    ),
    Case(
        "a capacity is a quantity",
        changed(node("n"), f"status/allocatable/{'cpu'}", "4x"),
        "[cpu]: '4x' ends",
    ),
    Case(
        "a capacity is not negative",
        changed(node("n"), "status/allocatable/cpu", "-1"),
        "must not be negative",
    ),
    Case(
        "a label's value has no space",
        node("n", labels={"zone": "a b"}),
        "metadata.labels[zone]: 'a b' must be",
    ),
    Case("a minimum is not negative", group("g", -1), "spec.minMember: -1 must be 0 or more"),
    Case(
        "a minimum that no cluster counts",
        group("g", 2**31),
        "spec.minMember: 2147483648 must be at most 2147483647",
    ),
    Case(
        "negative minimum below",
        group("g", subGroups=[{"name": "a", "minMember": -2}]),
        "spec.subGroups[0].minMember: -2 must be 0 or more",
    ),
    Case("a minimum below -1 is refused", group("g", -2), "spec.minMember: -2 must be 0 or more"),
    Case(
        "a creation time is a time",
        node("n", creationTimestamp="today"),
        "metadata.creationTimestamp: 'today'",
    ),
    Case(
        "a version must be one of the API",
        changed(queue("q"), "apiVersion", "scheduling.run.ai/v3"),
        "apiVersion: ",
    ),
    Case(
        "an object has a name", changed(node("n"), "metadata/name", ""), "metadata.name: is missing"
    ),
    Case("an object has metadata", changed(node("n"), "metadata", None), "metadata: is missing"),
    Case(
        "a placement of a plugin",
        resource_reservation_pod(plugins={"nodeplacement": {"arguments": {"gpu": "sprad"}}}),
        "spec.plugins.nodeplacement.arguments.gpu: 'sprad' must be 'binpack', 'spread' or"
        " 'fragmentation'",
    ),
    Case(
        "a placement strategy is a known one",
        resource_reservation_pod(placementStrategy={"gpu": "pack"}),
        "spec.placementStrategy.gpu: 'pack' must be 'binpack', 'spread' or 'fragmentation'",
    ),
]


@pytest.mark.parametrize("case", INVALID, ids=ids)
def test_an_invalid_object_is_an_error(case: Case[dict[str, Any], str]) -> None:
    """It names the file, the object, the field and what would be right."""
    obj, message = case.given, case.want

    (fault,) = faults(obj)

    assert fault.startswith(f"a.yaml: {obj['kind']}")
    assert message in fault


def test_every_fault_is_reported_at_once() -> None:
    """Of all objects, and of each of them all."""
    broken = pod("p", labels={"a": "b c", "d": "e f"})

    assert len(faults(broken, group("g", -2), node("n"), node("n"))) == 4


VERDICTS = [
    Case(
        "parent of a sub-group",
        group("g", subGroups=[{"name": "a", "parent": "b", "minMember": 1}]),
        None,
    ),
    Case("a sub-group needs no minimum", group("g", subGroups=[{"name": "a"}]), None),
    Case("a group may state both minima", group("g", 1, minSubGroup=1), None),
    Case(
        "two sub-groups may share a name",
        group("g", subGroups=[{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]),
        None,
    ),
    Case("a queue may be its own parent", queue("q", parent="q"), None),
    Case("no such queue", queue("q", parent="none"), None),
    Case("a parent that cannot be", queue("q", parent="No Queue"), None),
    Case("a quota of -2 is accepted", queue("q", -2), None),
    Case("a queue needs no resources", changed(queue("q"), "spec", {}), None),
]


@pytest.mark.parametrize("case", VERDICTS, ids=ids)
def test_what_the_scheduler_reports_is_no_error(case: Case[dict[str, Any], None]) -> None:
    """The scheduler itself tells what cannot be meant."""
    assert read(case.given).notes == []


def test_an_object_is_there_once() -> None:
    """The same kind and name in two files is reported with both."""
    documents = [Document("a.yaml", node("n")), Document("b.yaml", node("n"))]

    with pytest.raises(ConfigError) as caught:
        read_cluster(documents)

    assert str(caught.value) == "b.yaml: Node n: metadata.name: exists twice, first in a.yaml"


VERSION = "topology.node.k8s.io/v1alpha2"


def test_what_is_not_read_is_reported() -> None:
    """Once for each kind, with a count."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    topology = {
        "apiVersion": VERSION,
        "kind": "NodeResourceTopology",
        "metadata": {"name": "c"},
    }

    typo = {**node("n"), "kind": "node"}

    inputs = read(secret, {**secret, "metadata": {"name": "t"}}, topology, {"metadata": {}}, typo)

    assert inputs.notes == [
        "ignored: an object without a kind (1)",
        "ignored: v1 Secret (2)",
        "ignored: v1 node; did you mean v1 Node? (1)",
        f"read, but without effect on scheduling yet: {VERSION} NodeResourceTopology (1)",
    ]


TIMES = [
    Case(
        "the time of creation counts",
        node("n", creationTimestamp="2026-01-05T09:00:00Z"),
        1767603600,
    ),
    Case("with an offset", node("n", creationTimestamp="2026-01-05T10:00:00+01:00"), 1767603600),
    Case(
        "a deletion that was asked for then",
        node("n", deletionTimestamp="2026-01-05T09:00:30Z", deletionGracePeriodSeconds=30),
        1767603600,
    ),
    Case(
        "a time in an annotation counts",
        node("n", annotations={"a": "2026-01-05T09:00:00.5Z"}),
        1767603600,
    ),
    Case(
        "a condition's time counts",
        changed(
            node("n"),
            "status/conditions",
            [{"type": "Ready", "lastTransitionTime": "2026-01-05T09:00:00Z"}],
        ),
        1767603600,
    ),
    Case(
        "a text that is no time counts as none",
        node("n", annotations={"a": "soon", "b": "2026-99-05T09:00:00Z"}),
        0,
    ),
    Case(
        "a time of an ignored kind does not count",
        {**node("n", creationTimestamp="2026-01-05T09:00:00Z"), "kind": "Secret"},
        0,
    ),
]


@pytest.mark.parametrize("case", TIMES, ids=ids)
def test_the_newest_time_of_the_input(case: Case[dict[str, Any], int]) -> None:
    """It is whatever an object that is read says of itself, its annotations or its status."""
    obj, newest = case.given, case.want

    assert read(node("other", creationTimestamp="1969-01-01T00:00:00Z"), obj).latest_time == newest


REQUESTS = [
    Case("a new request binds its pod", {}, "n"),
    Case("a request that succeeded binds its pod", {"phase": "Succeeded"}, "n"),
    Case("a request that failed binds nothing", {"phase": "Failed", "failedAttempts": 1}, ""),
]


@pytest.mark.parametrize("case", REQUESTS, ids=ids)
def test_the_pod_of_a_live_bind_request_is_on_its_node(
    case: Case[dict[str, Any], str],
) -> None:
    """A failed one is as good as absent."""
    status, expected = case.given, case.want

    inputs = read(pod("p", "g"), bind_request("p", "n", ["d"], **status))

    found = inputs.cluster.pods[Key("default", "p")]
    assert found.spec.node_name == expected
    assert (found.metadata.labels.get("runai-gpu-group") == "d") == bool(expected)


def test_a_bind_request_of_another_pod_of_the_name_says_nothing() -> None:
    """Its owner is a pod that is gone."""
    request = bind_request("p", "n")
    request["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": "old"}]

    assert not read(pod("p"), request).cluster.pods[Key("default", "p")].spec.node_name


def test_the_order_of_objects_changes_nothing() -> None:
    """Neither what is there nor the order in which it is kept."""
    objects = [node(f"n{i}") for i in range(9)] + [pod(f"p{i}") for i in range(9)]
    other = random.Random(7).sample(objects, len(objects))

    assert list(read(*objects).cluster.nodes) == list(read(*other).cluster.nodes)
    assert read(*objects).cluster == read(*other).cluster
