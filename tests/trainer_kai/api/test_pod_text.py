"""A pod read by its likeness to a sibling is the pod that a parser would have read."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads import recorded_pods
from tests.trainer_kai.api.template_reading import LABEL, compact, is_matched, learn, parsed
from trainer_kai.api.decode import DecodeError, decode, decode_page
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod
from trainer_kai.api.pod_text_templates import PodTextTemplates

TEXTS = [recorded_pods.PENDING, recorded_pods.RUNNING]


@pytest.mark.parametrize("text", TEXTS, ids=["pending", "running"])
def test_siblings_are_recognised_and_read_right(text: str) -> None:
    """From the second pod of a Job on nothing is parsed that is the same in all of them."""
    first, *siblings = recorded_pods.pods(text, 200, of_each_job=200)
    learn(first)

    assert all(map(is_matched, siblings))
    assert [decode(Pod, sibling.encode()) for sibling in siblings] == [*map(parsed, siblings)]


def test_a_pod_is_recognised_before_and_after_it_is_bound() -> None:
    """The node's name comes into the text, and the template is still the same."""
    pending = json.loads(recorded_pods.RUNNING)
    del pending["spec"]["nodeName"]
    learn(recorded_pods.RUNNING)

    assert is_matched(compact(pending))
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
    one, two = (json.loads(recorded_pods.similar_pod(text, 4, 1)) for _ in "ab")
    two["metadata"].update(name="two", uid="u")
    case.given(one)
    case.given(two)

    for _ in range(2):
        assert decode(Pod, compact(one).encode()) == parsed(compact(one))
    assert is_matched(compact(two)) is case.want
    assert decode(Pod, compact(two).encode()) == parsed(compact(two))


@pytest.mark.parametrize("index", ["ü", "\\", 'a"b', "-1", ""])
def test_an_index_that_is_no_number_is_parsed(index: str) -> None:
    """What a label may hold is for the API server to say; it is read as it was written."""
    learn(recorded_pods.similar_pod(recorded_pods.PENDING, 5, 0))
    pod = json.loads(recorded_pods.similar_pod(recorded_pods.PENDING, 5, 1))
    pod["metadata"]["labels"][LABEL] = pod["metadata"]["annotations"][LABEL] = index

    assert decode(Pod, compact(pod).encode()) == parsed(compact(pod))


def test_keys_in_another_order_are_read_right() -> None:
    """A proxy that sorts keys takes the speed away, and nothing else."""
    text = json.dumps(json.loads(recorded_pods.RUNNING), separators=(",", ":"), sort_keys=True)

    for _ in range(2):
        assert not is_matched(text)
        assert decode(Pod, text.encode()) == parsed(text)


def test_siblings_share_what_is_equal() -> None:
    """Of two siblings only what differs is in memory twice."""
    learn(recorded_pods.similar_pod(recorded_pods.RUNNING, 1, 2))
    one, two = (
        decode(Pod, recorded_pods.similar_pod(recorded_pods.RUNNING, 1, index).encode())
        for index in (0, 1)
    )

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
    learn(recorded_pods.similar_pod(recorded_pods.RUNNING, 2, 0))
    text = recorded_pods.similar_pod(recorded_pods.RUNNING, 2, 5)
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


def test_the_templates_are_bounded(
    monkeypatch: pytest.MonkeyPatch, templates: PodTextTemplates
) -> None:
    """A cluster that runs for a year does not fill the memory with jobs of the past."""
    for bound, most in (("MAX_TEMPLATES", 40), ("MAX_TEXT_BYTES", 200_000)):
        monkeypatch.setattr(PodTextTemplates, bound, most)
        for job in range(100):
            learn(recorded_pods.similar_pod(recorded_pods.PENDING, job, 0))
            # a template that is used stays
            assert is_matched(recorded_pods.similar_pod(recorded_pods.PENDING, 0, 3))

        assert len(templates) <= 40
        assert templates.text_bytes <= PodTextTemplates.MAX_TEXT_BYTES
        assert is_matched(recorded_pods.similar_pod(recorded_pods.PENDING, 99, 3))
        assert not is_matched(recorded_pods.similar_pod(recorded_pods.PENDING, 1, 3))


def test_the_variants_of_templates_are_bounded(
    monkeypatch: pytest.MonkeyPatch, templates: PodTextTemplates
) -> None:
    """Indexes and nodes of all templates together, and what is forgotten is made again."""
    monkeypatch.setattr(PodTextTemplates, "MAX_VARIANTS", 20)
    for text in recorded_pods.pods(recorded_pods.RUNNING, 300, of_each_job=30):
        assert decode(Pod, text.encode()) == parsed(text)
        remembered = [
            template.by_index.keys() | template.by_node.keys() for template in templates.all()
        ]
        assert sum(map(len, remembered)) <= 20


def test_a_pod_that_is_alone_of_its_kind_is_not_learnt(templates: PodTextTemplates) -> None:
    """Learning costs more than parsing: it waits for a second one, and then ever longer."""
    for text in recorded_pods.pods(recorded_pods.PENDING, 50, of_each_job=1):
        decode(Pod, text.encode())
    assert len(templates) == 0

    due = [n for n in range(1, 50) if templates.should_learn(b"mark", 0)]
    assert due == [2, 4, 8, 16, 32]


@pytest.mark.parametrize("text", TEXTS, ids=["pending", "running"])
def test_pages_of_pods(text: str) -> None:
    """A page is read pod by pod, whether templates are known or not."""
    items = list(recorded_pods.pods(text, 50))

    page = decode_page(Pod, recorded_pods.pod_list_page(items, "more"))

    assert list(page.items) == [*map(parsed, items)]
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9000", "more")


CLAIMS = [{"name": "gpu", "resourceClaimName": "gpu-x7k2p"}]
# what is put into a status behind its conditions, in the API server's order, and at its end
RARE: list[Case[tuple[dict[str, Any], dict[str, Any]], None]] = [
    Case("nothing", ({}, {}), None),
    Case("a nomination", ({"nominatedNodeName": "n7"}, {}), None),
    Case("claims", ({}, {"resourceClaimStatuses": CLAIMS}), None),
    Case("both", ({"nominatedNodeName": "n7"}, {"resourceClaimStatuses": CLAIMS}), None),
    Case("a message first", ({"message": "m", "nominatedNodeName": "n7"}, {}), None),
]


@pytest.mark.parametrize("case", RARE, ids=ids)
def test_what_is_rare_in_a_status_is_read(
    case: Case[tuple[dict[str, Any], dict[str, Any]], None],
) -> None:
    """A status is passed over only where nothing of ours can stand in it."""
    learn(recorded_pods.RUNNING)
    pod = json.loads(recorded_pods.RUNNING)
    status = pod["status"]
    begun = {name: status.pop(name) for name in ("phase", "conditions")}
    pod["status"] = {**begun, **case.given[0], **status, **case.given[1]}

    assert is_matched(compact(pod))
    assert decode(Pod, compact(pod).encode()) == parsed(compact(pod))


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
    learn(recorded_pods.RUNNING)

    with pytest.raises(DecodeError):
        decode(Pod, broken(recorded_pods.RUNNING).encode())
