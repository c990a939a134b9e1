"""What is passed over in the text of a pod reaches nothing that we read."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.workloads import recorded_pods
from tests.trainer_kai.api.template_reading import LABEL, compact, is_matched, learn, parsed
from trainer_kai.api import pod_text
from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.pod import Pod
from trainer_kai.api.pod_text_templates import PodTextTemplates

TEXTS = [recorded_pods.PENDING, recorded_pods.RUNNING]
SPEC_ORDER = [  # as the API server writes them
    "volumes",
    "initContainers",
    "containers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "dnsPolicy",
    "nodeSelector",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "nodeName",
    "hostNetwork",
    "securityContext",
    "imagePullSecrets",
    "hostname",
    "subdomain",
    "affinity",
    "schedulerName",
    "tolerations",
    "hostAliases",
    "priorityClassName",
    "priority",
    "enableServiceLinks",
    "preemptionPolicy",
    "overhead",
    "topologySpreadConstraints",
    "schedulingGates",
    "resourceClaims",
    "resources",
]


def canonical(pod: Any) -> str:
    pod["spec"] = {
        **{name: pod["spec"][name] for name in SPEC_ORDER if name in pod["spec"]},
        **pod["spec"],
    }
    return compact(pod)


def nodes(value: str) -> Any:
    return {"nodeSelector": {"pool": value, "serviceAccount": value, "nodeName": value}}


def neighbours(value: str) -> Any:
    selector = {"matchLabels": {"hostname": value, "schedulerName": "x"}}
    term = {"labelSelector": selector, "topologyKey": "zone"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": rule}}


def spread(value: str) -> Any:
    selector = {"matchLabels": {"hostname": value, "subdomain": "x"}}
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": selector}]}


def claimed(value: str) -> Any:
    return {"volumes": [{"name": value, "persistentVolumeClaim": {"claimName": value}}]}


def odd(value: str) -> Any:
    """Have a volume that is a token's and a claim at once, which no API server would take."""
    claim = {"claimName": "data"}
    return {"volumes": [{"name": value, "projected": {}, "persistentVolumeClaim": claim}]}


def ephemeral(value: str) -> Any:
    return {"volumes": [{"name": value, "ephemeral": {}}]}


def contained(value: str) -> Any:
    return {"containers": [{"name": value, "image": "i"}]}


LOOK_LIKE_HOLES: list[Case[Callable[[str], Any], None]] = [
    Case("a label of nodes", nodes, None),
    Case("a label of nodes alone", lambda value: {"nodeSelector": {"pool": value}}, None),
    Case("a label of neighbours", neighbours, None),
    Case("a label to spread by", spread, None),
    Case("a claim", claimed, None),
    Case("a token that claims", odd, None),
    Case("an ephemeral volume", ephemeral, None),
    Case("a container", contained, None),
    Case("a gate", lambda value: {"schedulingGates": [{"name": value}]}, None),
    Case(
        "a toleration", lambda value: {"tolerations": [{"key": "hostname", "value": value}]}, None
    ),
]


@pytest.mark.parametrize("has_host", [True, False], ids=["with a hostname", "without one"])
@pytest.mark.parametrize(
    "values", [("kube-api-access-aaaaa", "kube-api-access-bbbbb"), ("w", "x1")]
)
@pytest.mark.parametrize("case", LOOK_LIKE_HOLES, ids=ids)
def test_what_looks_like_a_hole_and_is_read_is_none(
    case: Case[Callable[[str], Any], None], values: tuple[str, str], *, has_host: bool
) -> None:
    """Names of tokens and hostnames are passed over only where they reach no field."""
    first, second = (
        json.loads(recorded_pods.similar_pod(recorded_pods.RUNNING, 6, index)) for index in (0, 1)
    )
    for pod, value in zip((first, second), values, strict=True):
        if not has_host:
            del pod["spec"]["hostname"]
        pod["spec"].update(case.given(value))
    learn(canonical(first))

    assert decode(Pod, canonical(first).encode()) == parsed(canonical(first))
    assert decode(Pod, canonical(second).encode()) == parsed(canonical(second))


@pytest.mark.parametrize("field", ["finalizers", "ownerReferences", "another"])
def test_what_stands_before_the_labels_is_read(field: str) -> None:
    """Where a server writes metadata in another order, nothing of it is lost."""
    pod = json.loads(recorded_pods.RUNNING)
    pod["metadata"].pop(field, None)
    moved = compact(pod).replace('"labels":{', f'"{field}":[],"labels":{{', 1)
    learn(moved)

    text = moved.replace(f'"{field}":[]', f'"{field}":[{"{}" if field != "finalizers" else 1}]')
    text = text.replace("[1]", '["a"]')
    assert not is_matched(text)
    assert decode(Pod, text.encode()) == parsed(text)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
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
    return value[1:] + "7" if isinstance(value, str) else value ^ 1


@pytest.mark.parametrize("has_host", [True, False], ids=["with a hostname", "without one"])
@pytest.mark.parametrize("path", TELLING, ids=lambda path: ".".join(map(str, path)))
def test_a_difference_as_long_as_the_original_is_seen(
    path: tuple[Any, ...], *, has_host: bool
) -> None:
    """Wherever it is: nothing moves, so only the comparison can tell."""
    first, second = (
        json.loads(recorded_pods.similar_pod(recorded_pods.RUNNING, 6, index)) for index in (0, 1)
    )
    *above, last = path
    if not has_host:
        del first["spec"]["hostname"], second["spec"]["hostname"]
    parent = second
    for key in above:
        parent = parent[key]
    if last in parent or isinstance(parent, list):
        parent[last] = turned(parent[last])
    learn(compact(first))

    assert decode(Pod, compact(second).encode()) == parsed(compact(second))


MARKERS = st.sampled_from(
    [
        "kube-api-access-aaaaa",
        "kube-api-access-bbbbb",
        "hostname",
        "serviceAccount",
        "nodeName",
        "affinity",
        "schedulerName",
        '},"spec":{',
        '},"status":',
        "web-1",
        "web-22",
    ]
)
MARKED: list[Callable[[str], Any]] = [case.given for case in LOOK_LIKE_HOLES]
PAIRS = st.dictionaries(MARKERS, MARKERS, min_size=1, max_size=3)


@st.composite
def marked(draw: st.DrawFn) -> Any:
    """Return fields of a spec that hold what we look for in a text, as names and as values."""
    if draw(st.booleans()):
        return draw(st.sampled_from(MARKED))(draw(MARKERS))
    selector = {"matchLabels": draw(PAIRS)}
    term = {"labelSelector": selector, "topologyKey": draw(MARKERS)}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return draw(st.sampled_from([{"nodeSelector": draw(PAIRS)}, {"affinity": affinity}]))


def change(draw: st.DrawFn, pod: Any, path: tuple[Any, ...]) -> None:
    """Change, add, remove or move what is at a place, if there is anything."""
    *above, last = path
    parent = pod
    try:
        for key in above:
            parent = parent[key]
        old = parent[last]
    except (KeyError, IndexError, TypeError):
        return
    match draw(st.sampled_from(["change", "turn", "add", "remove", "move"])):
        case "change" if isinstance(old, str):
            parent[last] = draw(STRINGS | MARKERS)
        case "turn" if isinstance(old, str | int):
            parent[last] = turned(old)
        case "add" if isinstance(parent, dict):
            parent[draw(STRINGS | MARKERS)] = draw(STRINGS | MARKERS)
        case "remove":
            del parent[last]
        case "move" if isinstance(parent, dict):
            parent[last] = parent.pop(last)
        case _:
            pass


@st.composite
def pods_of_templates(draw: st.DrawFn) -> list[str]:
    text = draw(st.sampled_from(TEXTS))
    extra = draw(st.none() | marked())
    has_host = draw(st.booleans())
    paths = st.lists(st.sampled_from(TELLING) | st.sampled_from(SPOTS[text]), max_size=2)
    common = draw(paths)
    texts = []
    for index in range(draw(st.integers(1, 4))):
        pod = json.loads(recorded_pods.similar_pod(text, 3, index))
        if not has_host:
            del pod["spec"]["hostname"]
        pod["spec"].update(extra or {})
        if index and extra and draw(st.booleans()):
            pod["spec"].update(draw(marked()))
        for path in common if not index else draw(paths):
            change(draw, pod, path)
        texts.append(canonical(pod) if isinstance(pod.get("spec"), dict) else compact(pod))
    return texts


@settings(max_examples=examples(100))
@given(pods_of_templates())
def test_reading_by_likeness_and_parsing_never_differ(texts: list[str]) -> None:
    """Whatever is changed in a pod, and whatever was read before, the answer is the parser's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_text, "TEMPLATES", PodTextTemplates())
        for text in (texts[0], *texts):
            try:
                want = parsed(text)
            except msgspec.ValidationError:
                with pytest.raises(DecodeError):
                    decode(Pod, text.encode())
            else:
                assert decode(Pod, text.encode()) == want
