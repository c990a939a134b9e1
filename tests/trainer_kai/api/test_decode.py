"""Objects arrive whole, whatever is null, unknown or wrong in them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.workloads import recorded_pods
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import DecodeError, decode, decode_page, decode_watch_event, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Meta, PartialObject
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import ALL
from trainer_kai.api.trainjob import Runtime, TrainJob

FIXTURES = Path(__file__).parents[2] / "fixtures"
SUBMITTED = sorted((FIXTURES / "jobsets").rglob("*.yaml"))
RUNTIMES = sorted((FIXTURES / "runtimes").glob("*.yaml"))

# JSON of an object -> its metadata
META_CASES: list[Case[str, Meta]] = [
    Case("an empty object has defaults", '{"metadata":{}}', Meta()),
    Case(
        "a field that is null has its default",
        '{"metadata":{"name":null,"labels":null,"finalizers":null,"creationTimestamp":null}}',
        Meta(),
    ),
    Case(
        "null beside values loses none of them",
        '{"metadata":{"name":"a","generation":2,"labels":{"b":"c"},"annotations":null}}',
        Meta(name="a", generation=2, labels={"b": "c"}),
    ),
    Case(
        "a label that is null is absent",
        '{"metadata":{"labels":{"a":null,"b":"c"}}}',
        Meta(labels={"b": "c"}),
    ),
    Case(
        "fields of a newer cluster are skipped",
        '{"metadata":{"name":"a","new":{"deep":[1,{"x":null}]}},"newer":[]}',
        Meta(name="a"),
    ),
]

# JSON of an object -> where and what is wrong
FAULT_CASES: list[Case[str, str]] = [
    Case(
        "a number for a name",
        '{"metadata":{"name":5}}',
        "metadata.name: must be a string, not a whole number",
    ),
    Case(
        "a number for a label",
        '{"metadata":{"labels":{"a":1}}}',
        "metadata.labels[...]: must be a string, not a whole number",
    ),
    Case(
        "no metadata",
        "{}",
        "metadata: is missing",
    ),
    Case(
        "a fault beside a null",
        '{"metadata":{"name":null,"generation":"2"}}',
        "metadata.generation: must be a whole number, not a string",
    ),
    Case(
        "null in a list is nobody's default",
        '{"metadata":{"finalizers":[null]}}',
        "metadata.finalizers[0]: must be a string, not null",
    ),
    Case("half an object", '{"metadata":', "is not valid JSON: Input data was truncated"),
]


@pytest.mark.parametrize("case", META_CASES, ids=ids)
def test_what_metadata_says(case: Case[str, Meta]) -> None:
    """Null and nothing mean the same; what we do not read does not matter."""
    assert decode(PartialObject, case.given.encode()).metadata == case.want
    assert decode(Pod, case.given.encode()).metadata == case.want


@pytest.mark.parametrize("case", FAULT_CASES, ids=ids)
@pytest.mark.parametrize("struct", [PartialObject, Pod])
def test_a_fault_is_named_by_its_field(struct: type[Any], case: Case[str, str]) -> None:
    """One error, with the path as kubectl writes it."""
    with pytest.raises(DecodeError) as caught:
        decode(struct, case.given.encode())

    assert str(caught.value) == case.want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "null",
        "[]",
        "\xff",
        "[" * 100_000,
        '{"metadata":null,"status":{]}',
        '{"metadata":{"name":null},"x":' + "[" * 100_000,
    ],
)
def test_what_is_no_object_is_a_decode_error(text: str) -> None:
    for struct in (Pod, Node):
        with pytest.raises(DecodeError):
            decode(struct, text.encode("latin-1"))
        with pytest.raises(DecodeError):
            decode_page(struct, text.encode("latin-1"))


@pytest.mark.parametrize("struct", [PartialObject, Pod])
def test_pages(struct: type[Any]) -> None:
    """A page says where it stands, and null items are none."""
    page = decode_page(
        struct,
        b'{"metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":2},'
        b'"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b","labels":null}}]}',
    )

    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert page.metadata.resource_version == "7"
    assert page.metadata.continue_token == "c"
    assert decode_page(struct, b'{"metadata":null,"items":null}').items == ()


@pytest.mark.parametrize("struct", [PartialObject, Pod])
def test_a_fault_in_a_page_is_named_by_its_item(struct: type[Any]) -> None:
    """The item's place in the page is part of the path."""
    with pytest.raises(DecodeError, match=r"^items\[1\]\.metadata\.name: must be a string"):
        decode_page(struct, b'{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":1}}]}')


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}',
        b'{"object":{"metadata":{"name":"a"}},"type":"ADDED"}\n',
        b'{ "type": "ADDED", "object": {"metadata":{"name":"a"}} }\r\n',
    ],
)
def test_lines_of_a_watch(line: bytes) -> None:
    """However a line is written, its object is cut out of it."""
    read = decode_watch_event(line)

    assert (read.type, read.object) == ("ADDED", b'{"metadata":{"name":"a"}}')


def test_a_line_that_is_none() -> None:
    for line in (b"", b"{}", b'{"type":"ADDED","object":{"a":1}', b'{"type":5,"object":{}}'):
        with pytest.raises(DecodeError):
            decode_watch_event(line)


def test_equal_labels_of_many_objects_are_one_object() -> None:
    """A thousand nodes of a pool hold one set of labels in memory."""
    item = {"metadata": {"labels": {"pool": "a", "zone": "b"}, "namespace": "n"}}
    data = encode({"items": [item] * 3})

    first, *rest = decode_page(Node, data).items

    assert first.metadata.labels == {"pool": "a", "zone": "b"}
    assert all(node.metadata.labels is first.metadata.labels for node in rest)
    assert decode(Node, encode(item)).metadata.labels is first.metadata.labels


@pytest.mark.parametrize("file", SUBMITTED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_recorded_jobsets(file: Path) -> None:
    submitted, built = documents(file)

    trainjob, jobset = decode(TrainJob, encode(submitted)), decode(JobSet, encode(built))

    assert trainjob.spec.runtime_ref.name == file.parent.name
    assert jobset.metadata.key == trainjob.metadata.key
    for job, want in zip(jobset.spec.replicated_jobs, built["spec"]["replicatedJobs"], strict=True):
        assert job.name == want["name"]
        assert job.replicas == want["replicas"]
        assert job.template.spec.parallelism == want["template"]["spec"]["parallelism"]
        assert job.template.metadata.labels == want["template"]["metadata"].get("labels", {})
        assert [(on.name, on.status) for on in job.depends_on] == [
            (on["name"], on["status"]) for on in want.get("dependsOn", ())
        ]
        containers = want["template"]["spec"]["template"]["spec"]["containers"]
        assert [c.resources.limits for c in job.template.spec.template.spec.containers] == [
            container.get("resources", {}).get("limits", {}) for container in containers
        ]


@pytest.mark.parametrize("file", RUNTIMES, ids=lambda file: file.stem)
def test_recorded_runtimes(file: Path) -> None:
    [recorded] = documents(file)

    runtime = decode(Runtime, encode(recorded))

    assert runtime.metadata.name == file.stem
    assert runtime.spec.ml_policy is not None
    assert runtime.spec.ml_policy.num_nodes == recorded["spec"]["mlPolicy"]["numNodes"]
    assert [job.name for job in runtime.spec.template.spec.replicated_jobs] == [
        job["name"] for job in recorded["spec"]["template"]["spec"]["replicatedJobs"]
    ]


def test_a_recorded_pod() -> None:
    pod = decode(Pod, recorded_pods.RUNNING.encode())

    assert str(pod.metadata.key) == "record-pods/job-node-0-0-hjklm"
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "Job"
    assert pod.metadata.labels["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    assert pod.spec.node_name == "recorded-0"
    assert pod.spec.containers[0].resources.requests == {"nvidia.com/gpu": "1"}
    assert [toleration.effect for toleration in pod.spec.tolerations] == ["NoExecute"] * 2
    assert pod.status.phase == "Running"
    assert [c.type for c in pod.status.conditions if c.status == "True"] == [
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]


@pytest.mark.parametrize("resource", ALL, ids=str)
def test_every_kind_is_read_from_next_to_nothing(resource: Any) -> None:
    """Metadata alone is enough for every kind, and parts that are null are none."""
    nulls = {"metadata": {"name": "a"}, "spec": None, "status": None}

    plain = decode(resource.struct, b'{"metadata":{"name":"a"}}')

    assert decode(resource.struct, encode(nulls)) == plain
    assert plain.metadata.name == "a"


@pytest.mark.parametrize("resource", ALL, ids=str)
def test_every_kind_is_written_as_it_is_read(resource: Any) -> None:
    """A struct written as JSON is read as an equal one: names are spelled the same both ways."""
    read = decode(resource.struct, b'{"metadata":{"name":"a"}}')

    assert decode(resource.struct, msgspec.json.encode(read)) == read


def test_plain_objects_are_written_compactly() -> None:
    assert encode({"a": [1, "b", None]}) == b'{"a":[1,"b",null]}'
    assert json.loads(encode({"ü": "\n"})) == {"ü": "\n"}


def test_labels_of_a_pod_are_written() -> None:
    """Those of an Indexed Job, which are no dict, as any others."""
    labels = decode(Pod, recorded_pods.RUNNING.encode()).metadata.labels

    assert not isinstance(labels, dict)
    assert json.loads(encode({"labels": labels})) == {"labels": dict(labels)}
    with pytest.raises(TypeError, match="object cannot be encoded as JSON"):
        encode({"a": object()})
