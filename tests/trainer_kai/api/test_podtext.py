"""A pod read by its likeness to a sibling is the pod that a parser would have read."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import pods
from tests.support.case import Case, ids
from trainer_kai.api import family
from trainer_kai.api.decode import DecodeError, decode, decode_page
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod
from trainer_kai.api.podtext import recognise

LABEL = "batch.kubernetes.io/job-completion-index"
TEXTS = [pods.PENDING, pods.RUNNING]


def parsed(text: str) -> Pod:
    """Read a pod without any of the shortcuts, and drop the volumes that claim nothing."""
    pod = msgspec.json.decode(text, type=Pod)
    stored = tuple(v for v in pod.spec.volumes if v.persistent_volume_claim or v.ephemeral)
    spec = msgspec.structs.replace(pod.spec, volumes=stored)
    return msgspec.structs.replace(pod, spec=spec)


def compact(obj: Any) -> str:
    """Write JSON as the API server does."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)


def is_recognised(text: str) -> bool:
    """Say whether a pod is read by likeness."""
    data = text.encode()
    return recognise(data, data.find(b"{", 1), len(data) - 1, alone=True) is not None


@pytest.mark.parametrize("text", TEXTS, ids=["pending", "running"])
def test_siblings_are_recognised_and_read_right(text: str) -> None:
    """From the second pod of a Job on nothing is parsed that is the same in all of them."""
    first, *siblings = pods.pods(text, 200, of_each_job=200)
    decode(Pod, first.encode())

    assert all(map(is_recognised, siblings))
    assert [decode(Pod, sibling.encode()) for sibling in siblings] == [*map(parsed, siblings)]


def test_a_pod_is_recognised_before_and_after_it_is_bound() -> None:
    """The node's name comes into the text, and the family is still the same."""
    pending = json.loads(pods.RUNNING)
    del pending["spec"]["nodeName"]
    decode(Pod, pods.RUNNING.encode())

    assert is_recognised(compact(pending))
    assert decode(Pod, compact(pending).encode()) == parsed(compact(pending))


def without_index(pod: Any) -> None:
    """Make it a pod of something else than an Indexed Job."""
    del pod["metadata"]["labels"][LABEL], pod["metadata"]["annotations"][LABEL]


def with_more(pod: Any) -> None:
    """Give it a claim, a second container and a sidecar."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod["spec"]["volumes"].insert(0, claim)
    pod["spec"]["containers"] *= 2
    pod["spec"]["initContainers"] = [{"name": "s", "restartPolicy": "Always"}]


# how a pod differs from those of a JobSet -> whether its siblings are recognised all the same
SHAPES: list[Case[Callable[[Any], object], bool]] = [
    Case("it has no index", without_index, True),
    Case("it has no hostname", lambda pod: pod["spec"].pop("hostname"), True),
    Case("it has no token", lambda pod: pod["spec"].update(volumes=[], containers=[]), True),
    Case("it has no annotations", lambda pod: pod["metadata"].pop("annotations"), False),
    Case("it has no labels", lambda pod: pod["metadata"].pop("labels"), False),
    Case("it has no status", lambda pod: pod.pop("status"), False),
    Case("it has no managedFields", lambda pod: pod["metadata"].pop("managedFields"), False),
    Case("it has more volumes and containers", with_more, True),
]


@pytest.mark.parametrize("case", SHAPES, ids=ids)
@pytest.mark.parametrize("text", TEXTS, ids=["pending", "running"])
def test_pods_of_other_shapes(text: str, case: Case[Callable[[Any], object], bool]) -> None:
    """Whether its likeness helps or not, a pod is read right."""
    one, two = (json.loads(pods.sibling(text, 4, 1)) for _ in "ab")
    two["metadata"].update(name="two", uid="u")
    case.given(one)
    case.given(two)

    assert decode(Pod, compact(one).encode()) == parsed(compact(one))
    assert is_recognised(compact(two)) is case.want
    assert decode(Pod, compact(two).encode()) == parsed(compact(two))


@pytest.mark.parametrize("index", ["ü", "\\", 'a"b', "-1", ""])
def test_an_index_that_is_no_number_is_parsed(index: str) -> None:
    """What a label may hold is for the API server to say; it is read as it was written."""
    decode(Pod, pods.sibling(pods.PENDING, 5, 0).encode())
    pod = json.loads(pods.sibling(pods.PENDING, 5, 1))
    pod["metadata"]["labels"][LABEL] = pod["metadata"]["annotations"][LABEL] = index

    assert decode(Pod, compact(pod).encode()) == parsed(compact(pod))


def test_keys_in_another_order_are_read_right() -> None:
    """A proxy that sorts keys takes the speed away, and nothing else."""
    text = json.dumps(json.loads(pods.RUNNING), separators=(",", ":"), sort_keys=True)

    for _ in range(2):
        assert not is_recognised(text)
        assert decode(Pod, text.encode()) == parsed(text)


def test_siblings_share_what_is_equal() -> None:
    """Of two siblings only what differs is in memory twice."""
    one, two = (decode(Pod, pods.sibling(pods.RUNNING, 1, index).encode()) for index in (0, 1))

    assert one.metadata.owner_references is two.metadata.owner_references
    assert one.metadata.namespace is two.metadata.namespace
    assert one.spec.containers is two.spec.containers
    assert one.spec.tolerations is two.spec.tolerations
    assert one.status.conditions is two.status.conditions
    for labels, others in (
        (one.metadata.labels, two.metadata.labels),
        (one.metadata.annotations, two.metadata.annotations),
    ):
        assert (labels[COMPLETION_INDEX], others[COMPLETION_INDEX]) == ("0", "1")
        differing = {name for name in labels if labels[name] is not others[name]}
        assert differing == {COMPLETION_INDEX}


def test_labels_with_an_index_are_a_mapping_like_any_other() -> None:
    """Length, order, absence and equality are those of the dict that was on the wire."""
    decode(Pod, pods.sibling(pods.RUNNING, 2, 0).encode())
    text = pods.sibling(pods.RUNNING, 2, 5)
    labels = decode(Pod, text.encode()).metadata.labels
    want = json.loads(text)["metadata"]["labels"]

    assert isinstance(labels, Mapping)
    assert not isinstance(labels, dict)
    assert labels == want
    assert dict(labels) == want
    assert list(labels.items()) == list(want.items())
    assert len(labels) == len(want)
    assert labels.get("absent") is None
    assert labels != {**want, COMPLETION_INDEX: "4"}
    assert repr(labels) == repr(want)


def test_the_families_that_are_kept_are_bounded() -> None:
    """A cluster that runs for a year does not fill the memory with jobs of the past."""
    for text in pods.pods(pods.PENDING, 1000, of_each_job=1):
        decode(Pod, text.encode())

    assert len(family._FAMILIES) <= 256
    assert is_recognised(pods.sibling(pods.PENDING, 999, 3))
    assert not is_recognised(pods.sibling(pods.PENDING, 0, 3))


@pytest.mark.parametrize("text", TEXTS, ids=["pending", "running"])
def test_pages_of_pods(text: str) -> None:
    """A page is read pod by pod, whether families are known or not."""
    items = list(pods.pods(text, 50))

    page = decode_page(Pod, pods.page(items, "more"))

    assert list(page.items) == [*map(parsed, items)]
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9000", "more")


@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text.replace('"phase":"Running"', '"phase":5'),
        lambda text: text[:-20],
        lambda text: text + "}",
        lambda text: text + "x",
        lambda text: text.replace('"generation":1', '"generation":"1"'),
    ],
    ids=["wrong status", "cut off", "a brace more", "a word more", "wrong metadata"],
)
def test_a_broken_sibling_is_refused(broken: Any) -> None:
    """Likeness to what was right makes nothing right."""
    decode(Pod, pods.RUNNING.encode())

    with pytest.raises(DecodeError):
        decode(Pod, broken(pods.RUNNING).encode())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in an object."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    if isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(deeper for key, part in items for deeper in places(part, (*path, key)))]


SPOTS = {text: [path for path in places(json.loads(text)) if len(path) > 1] for text in TEXTS}
TELLING: list[tuple[Any, ...]] = [  # what we read, or what stands beside it
    ("metadata", "name"),
    ("metadata", "creationTimestamp"),
    ("metadata", "labels", LABEL),
    ("metadata", "annotations", LABEL),
    ("spec", "nodeName"),
    ("spec", "hostname"),
    ("spec", "serviceAccount"),
    ("spec", "volumes", 0, "name"),
    ("spec", "containers", 0, "volumeMounts", 0, "name"),
    ("spec", "containers", 0, "resources", "requests", "nvidia.com/gpu"),
    ("spec", "tolerations", 0, "key"),
    ("spec", "priority"),
    ("metadata", "ownerReferences", 0, "uid"),
    ("metadata", "labels", "job-name"),
    ("status", "phase"),
    ("status", "conditions", 1, "status"),
    ("status", "podIP"),
]
STRINGS = st.sampled_from(
    [
        '}],"',
        '"',
        "\\",
        '"},"spec":{"',
        "]",
        "7",
        "ü",
        "",
        '","labels":{"a":"b"',
        "\n",
        "x" * 300,
        "-0",
    ]
)


def turned(value: Any) -> Any:
    """Return another value that is as long."""
    return value[1:] + "7" if isinstance(value, str) else value ^ 1


@pytest.mark.parametrize("has_host", [True, False], ids=["with a hostname", "without one"])
@pytest.mark.parametrize("path", TELLING, ids=lambda path: ".".join(map(str, path)))
def test_a_difference_as_long_as_the_original_is_seen(
    path: tuple[Any, ...], *, has_host: bool
) -> None:
    """Wherever it is: nothing moves, so only the comparison can tell."""
    first, second = (json.loads(pods.sibling(pods.RUNNING, 6, index)) for index in (0, 1))
    *above, last = path
    if not has_host:
        del first["spec"]["hostname"], second["spec"]["hostname"]
    parent = second
    for key in above:
        parent = parent[key]
    if last in parent or isinstance(parent, list):
        parent[last] = turned(parent[last])
    decode(Pod, compact(first).encode())

    assert decode(Pod, compact(second).encode()) == parsed(compact(second))


@st.composite
def edited(draw: st.DrawFn) -> str:
    """Return a recorded pod with some values changed, added, removed or put elsewhere."""
    text = draw(st.sampled_from(TEXTS))
    pod = json.loads(pods.sibling(text, 3, draw(st.integers(0, 12))))
    for path in draw(st.lists(st.sampled_from(TELLING) | st.sampled_from(SPOTS[text]), max_size=3)):
        *above, last = path
        parent = pod
        try:
            for key in above:
                parent = parent[key]
            old = parent[last]
        except (KeyError, IndexError):
            continue
        match draw(st.sampled_from(["change", "turn", "add", "remove", "move"])):
            case "change" if isinstance(old, str):
                parent[last] = draw(STRINGS)
            case "turn" if isinstance(old, str | int):
                parent[last] = turned(old)
            case "add" if isinstance(parent, dict):
                parent[draw(STRINGS)] = draw(STRINGS)
            case "remove":
                del parent[last]
            case "move" if isinstance(parent, dict):
                parent[last] = parent.pop(last)
            case _:
                pass
    return compact(pod)


@settings(max_examples=400, deadline=None)
@given(st.lists(edited(), min_size=1, max_size=4))
def test_reading_by_likeness_and_parsing_never_differ(texts: list[str]) -> None:
    """Whatever is changed in a pod, and whatever was read before, the answer is the parser's."""
    decode(Pod, pods.sibling(pods.RUNNING, 3, 0).encode())
    for text in texts:
        try:
            want = parsed(text)
        except msgspec.ValidationError:
            with pytest.raises(DecodeError):
                decode(Pod, text.encode())
        else:
            assert decode(Pod, text.encode()) == want
