"""Pods with shares of GPUs: what is written on them, once and only once."""

import asyncio
from typing import Any, Final

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.webhook.objects import POD, Obj, applied, request
from webhook.admission.review import UNCHANGED, AdmissionResponse
from webhook.reviews.router import GpuAccessRules, NewPodHandler
from webhook.rules.pod_gpu_share import ShareRules

SHARES: Final = ShareRules(runtime_class="nvidia")
PREFIX: Final = "runai/shared-gpu-configmap"
CONTAINER: Final = "gpu-fraction-container-name"
BASE: Final = "train-x1y2z3a-shared-gpu"
VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
OWNER: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}


def new_pod(*names: str, **parts: Any) -> Obj:
    """Return a pod with containers; *parts* are annotations, or of its metadata or its spec."""
    meta: Obj = {"generateName": "train-0-", "ownerReferences": [OWNER]}
    meta["annotations"] = {"gpu-fraction": "0.5", **parts.pop("annotations", {})}
    for name in ("name", "generateName", "ownerReferences", "managedFields"):
        if name in parts:
            meta[name] = parts.pop(name)
    containers = [{"name": name} for name in names or ("main",)]
    spec = {"schedulerName": "kai-scheduler", "containers": containers, **parts}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def reviewed(
    pod: Obj, rules: ShareRules = SHARES, random: str = "x1y2z3a", **fields: Any
) -> AdmissionResponse:
    handler = NewPodHandler(GpuAccessRules("kai-scheduler", rules), lambda: random)
    return asyncio.run(handler.answer(request(pod, **{"kind": POD, **fields})))


def recorded_for(pod: Obj) -> Obj:
    """Return a pod with what the API server records: the fields that the user sent."""
    fields: Obj = {"f:metadata": {"f:annotations": {f"f:{it}": {} for it in annotations(pod)}}}
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": fields}
    return {**pod, "metadata": {**pod["metadata"], "managedFields": [entry]}}


def annotations(pod: Obj) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"]["annotations"]
    return found


def variable(name: str, config_map: str, **more: Any) -> Obj:
    reference = {"name": config_map, "key": name, **more}
    return {"name": name, "valueFrom": {"configMapKeyRef": reference}}


def ours(config_map: str) -> list[Obj]:
    return [variable(name, config_map) for name in VARIABLES]


def env_from(config_map: str) -> Obj:
    return {"configMapRef": {"name": f"{config_map}-evar", "optional": False}}


def volume(config_map: str) -> Obj:
    return {"name": f"{config_map}-vol", "configMap": {"name": config_map}}


def add(path: str, value: Any) -> Obj:
    return {"op": "add", "path": path, "value": value}


def test_a_pod_of_a_job_gets_what_kai_gives_it() -> None:
    """Lists that are missing are made; nothing else is written."""
    pod = new_pod()

    answer = reviewed(pod)

    assert list(answer.operations) == [
        add("/metadata/annotations/runai~1shared-gpu-configmap", BASE),
        add("/spec/containers/0/env", ours(f"{BASE}-0")),
        add("/spec/containers/0/envFrom", [env_from(f"{BASE}-0")]),
        add("/spec/volumes", [volume(f"{BASE}-0")]),
        add("/spec/runtimeClassName", "nvidia"),
    ]
    assert (answer.warnings, answer.denial) == ((), None)
    assert len(msgspec.json.encode(answer.operations)) < 1000


def test_lists_that_exist_are_appended_to() -> None:
    """Other entries are not sent again; a runtime class of the pod stays."""
    pod = new_pod("main", "second", volumes=[{"name": "v"}], runtimeClassName="own")
    pod["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "b"}], "envFrom": [{}]}

    assert list(reviewed(pod).operations)[1:] == [
        *(add("/spec/containers/0/env/-", it) for it in ours(f"{BASE}-0")),
        add("/spec/containers/0/envFrom/-", env_from(f"{BASE}-0")),
        add("/spec/volumes/-", volume(f"{BASE}-0")),
    ]


def test_variables_with_our_names_are_replaced() -> None:
    """Those of a user are gone, and ours stand at the end."""
    pod = new_pod()
    mine = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "b"}]
    pod["spec"]["containers"][0]["env"] = [*mine, {"name": "GPU_PORTION", "value": "1"}, mine[0]]

    patched = applied(pod, reviewed(pod))

    assert patched["spec"]["containers"][0]["env"] == [mine[1], *ours(f"{BASE}-0")]


def test_the_limit_of_memory_is_read_if_there_is_one() -> None:
    """The scheduler does not know the memory of each GPU."""
    pod = new_pod()
    patched = applied(pod, reviewed(pod, SHARES._replace(limits_memory=True)))

    assert patched["spec"]["containers"][0]["env"][3:] == [
        variable("CUDA_DEVICE_MEMORY_LIMIT", f"{BASE}-0", optional=True)
    ]


INIT: Final = {"initContainers": [{"name": "fetch"}, {"name": "main"}]}
# the pod -> the ConfigMap, and where it is read
CHOSEN: Final[list[Case[Obj, tuple[str, str, int]]]] = [
    Case("the first container", new_pod("a", "b", **INIT), ("0", "containers", 0)),
    Case(
        "the named one",
        new_pod("a", "b", annotations={CONTAINER: "b"}),
        ("1", "containers", 1),
    ),
    Case(
        "an init container before a container",
        new_pod("main", annotations={CONTAINER: "main"}, **INIT),
        ("i1", "initContainers", 1),
    ),
    Case(
        "a share by memory gets its ConfigMap",
        new_pod(annotations={"gpu-memory": "9"}),
        ("0", "containers", 0),
    ),
]


@pytest.mark.parametrize("case", CHOSEN, ids=ids)
def test_one_container_gets_the_share(case: Case[Obj, tuple[str, str, int]]) -> None:
    """The others stay as they are."""
    suffix, field, number = case.want
    spec = applied(case.given, reviewed(case.given))["spec"]

    chosen = spec[field].pop(number)
    assert chosen["env"] == ours(f"{BASE}-{suffix}")
    assert chosen["envFrom"] == [env_from(f"{BASE}-{suffix}")]
    assert spec["volumes"] == [volume(f"{BASE}-{suffix}")]
    others = [*spec["containers"], *spec.get("initContainers", ())]
    assert all(set(it) == {"name"} for it in others)


def test_a_container_that_does_not_exist_is_refused() -> None:
    """The message names the annotation, and what there is."""
    pod = new_pod("main", annotations={CONTAINER: "x"}, initContainers=[{"name": "fetch"}])

    denial = reviewed(pod).denial

    assert denial is not None
    assert (denial.code, denial.message) == (
        422,
        (
            f"metadata.annotations[{CONTAINER}]: the pod has no container 'x'. Name one of its "
            "containers: 'fetch', 'main'"
        ),
    )


LONG: Final = "a" * 32
# parts of the metadata -> the prefix
BASES: Final[list[Case[Obj, str]]] = [
    Case("of the owner", {"name": "p"}, BASE),
    Case("without an owner", {"name": "p", "ownerReferences": None}, "p-x1y2z3a-shared-gpu"),
    Case("without a name", {"ownerReferences": []}, "train-0-x1y2z3a-shared-gpu"),
    Case(
        "a long one is cut",
        {"ownerReferences": [{**OWNER, "name": f"{LONG}.{LONG}"}]},
        f"{LONG}-x1y2z3a-shared-gpu",
    ),
    Case(
        "a name that is none",
        {"ownerReferences": [{**OWNER, "name": "../../Kube_root/"}]},
        "kube-root-x1y2z3a-shared-gpu",
    ),
    Case(
        "nothing of a name", {"ownerReferences": [], "generateName": "--"}, "pod-x1y2z3a-shared-gpu"
    ),
]


@pytest.mark.parametrize("case", BASES, ids=ids)
def test_the_config_maps_are_called_after_the_owner(case: Case[Obj, str]) -> None:
    """The name of a pod that a controller creates is not known yet."""
    pod = new_pod(**case.given)

    assert annotations(applied(pod, reviewed(pod)))[PREFIX] == case.want


def test_a_second_review_changes_nothing() -> None:
    """With what the API server records and without it; defaults of the API server do not count."""
    for pod in (new_pod(**INIT), recorded_for(new_pod("a", "b", annotations={CONTAINER: "b"}))):
        patched = applied(pod, reviewed(pod))
        patched["spec"]["volumes"][0]["configMap"]["defaultMode"] = 420

        assert reviewed(patched, random="another").operations == ()


def test_a_prefix_of_the_user_is_replaced() -> None:
    """It could be that of another pod; a copy of a pod refers to nothing of the original."""
    original = new_pod("a", "b", annotations={CONTAINER: "b"}, env=None)
    copied = recorded_for(applied(original, reviewed(original)))
    copied["metadata"]["annotations"][CONTAINER] = "a"
    copied["spec"]["volumes"].insert(0, {"name": "own"})

    patched = applied(copied, reviewed(copied, random="bbbbbbb"))

    prefix = "train-bbbbbbb-shared-gpu"
    a, b = patched["spec"]["containers"]
    assert annotations(patched)[PREFIX] == prefix
    assert (a["env"], a["envFrom"]) == (ours(f"{prefix}-0"), [env_from(f"{prefix}-0")])
    assert (b["env"], b["envFrom"]) == ([], [])
    assert patched["spec"]["volumes"] == [{"name": "own"}, volume(f"{prefix}-0")]


@pytest.mark.parametrize("prefix", ["", "kube-root-ca.crt", "-shared-gpu", "A-shared-gpu"])
def test_any_other_text_is_replaced(prefix: str) -> None:
    """Also where nothing is recorded."""
    pod = new_pod(annotations={PREFIX: prefix})

    assert annotations(applied(pod, reviewed(pod)))[PREFIX] == BASE


def test_a_container_in_front_does_not_take_the_share() -> None:
    """Another webhook added it after us: the container that was prepared is named now."""
    pod = recorded_for(new_pod("main", **INIT))
    patched = applied(pod, reviewed(pod))
    patched["spec"]["containers"].insert(0, {"name": "sidecar"})

    moved = applied(patched, reviewed(patched, random="another"))

    sidecar, main = moved["spec"]["containers"]
    assert annotations(moved) == {**annotations(patched), CONTAINER: "main"}
    assert sidecar == {"name": "sidecar"}
    assert (main["env"], main["envFrom"]) == (ours(f"{BASE}-1"), [env_from(f"{BASE}-1")])
    assert moved["spec"]["volumes"] == [volume(f"{BASE}-1")]
    assert reviewed(moved).operations == ()


def test_the_container_of_a_copied_prefix_is_named() -> None:
    """The API server says in each review that the user set the prefix: it is replaced each time."""
    pod = recorded_for(new_pod("main", annotations={PREFIX: "old-x1y2z3a-shared-gpu"}))
    patched = applied(pod, reviewed(pod))
    patched["spec"]["containers"].insert(0, {"name": "sidecar"})

    moved = applied(patched, reviewed(patched, random="bbbbbbb"))

    sidecar, main = moved["spec"]["containers"]
    prefix = "train-bbbbbbb-shared-gpu"
    assert annotations(moved)[CONTAINER] == "main"
    assert [sidecar.get(it, []) for it in ("env", "envFrom")] == [[], []]
    assert (main["env"], main["envFrom"]) == (ours(f"{prefix}-1"), [env_from(f"{prefix}-1")])
    assert moved["spec"]["volumes"] == [volume(f"{prefix}-1")]


def test_an_empty_name_means_the_first_container() -> None:
    """As if the annotation were absent."""
    pod = new_pod("a", "b", annotations={CONTAINER: ""})

    assert reviewed(pod).denial is None
    assert applied(pod, reviewed(pod))["spec"]["containers"][0]["env"] == ours(f"{BASE}-0")


# parts of the pod, the rules, and parts of the review
LEFT_ALONE: Final[list[Case[tuple[Obj, ShareRules, Obj], None]]] = [
    Case("of another scheduler", ({"schedulerName": "other"}, SHARES, {}), None),
    Case("where KAI prepares them", ({}, ShareRules(is_enabled=False, is_by_kai=True), {}), None),
    Case("where shares are off", ({}, ShareRules(is_enabled=False), {}), None),
    Case("an update is left alone", ({}, SHARES, {"operation": "UPDATE"}), None),
    Case("a sub-resource is left alone", ({}, SHARES, {"subResource": "binding"}), None),
    Case("another kind is left alone", ({}, SHARES, {"kind": {**POD, "kind": "Node"}}), None),
    Case("a pod without containers is left alone", ({"containers": None}, SHARES, {}), None),
]


@pytest.mark.parametrize("case", LEFT_ALONE, ids=ids)
def test_what_is_left_alone(case: Case[tuple[Obj, ShareRules, Obj], None]) -> None:
    """Also with a container that does not exist."""
    parts, rules, fields = case.given
    pod = new_pod(annotations={CONTAINER: "x"} if parts != {"containers": None} else {}, **parts)

    assert reviewed(pod, rules, **fields) == UNCHANGED


def test_a_pod_without_a_share_is_left_alone() -> None:
    """It keeps an annotation that means nothing."""
    pod = new_pod(annotations={PREFIX: "mine"})
    del pod["metadata"]["annotations"]["gpu-fraction"]

    assert reviewed(pod) == UNCHANGED


def test_entries_of_any_form_are_kept() -> None:
    """The API server would refuse them; we do not fail."""
    strange: list[Obj] = [
        {},
        {"name": []},
        {"name": {"a": 1}, "valueFrom": 7},
        {"name": None, "valueFrom": {"configMapKeyRef": {"name": ["x"]}}},
    ]
    pod = recorded_for(new_pod(annotations={PREFIX: BASE}, volumes=[*strange]))
    pod["spec"]["containers"][0] |= {"env": [*strange], "envFrom": [*strange]}

    spec = applied(pod, reviewed(pod))["spec"]

    assert spec["containers"][0]["env"] == [*strange, *ours(f"{BASE}-0")]
    assert spec["containers"][0]["envFrom"] == [*strange, env_from(f"{BASE}-0")]
    assert spec["volumes"] == [*strange, volume(f"{BASE}-0")]


def test_a_dry_run_gets_the_same() -> None:
    """And what cannot be read is refused with the field."""
    pod = new_pod()
    broken = new_pod(volumes=["x"])

    denial = reviewed(broken).denial

    assert reviewed(pod, dryRun=True) == reviewed(pod)
    assert denial is not None
    assert denial.message == "request.object.spec.volumes[0]: must be an object, not a string"


def large(size: int) -> Obj:
    """Return a pod in which everything has to be looked at, and lists to be replaced."""
    pod = new_pod(*(f"c-{i}" for i in range(size)), annotations={CONTAINER: "c-7"})
    patched = recorded_for(applied(pod, reviewed(pod)))
    chosen, spec = patched["spec"]["containers"][7], patched["spec"]
    chosen["env"] += [{"name": f"V{i % 9}", "value": "x"} for i in range(3 * size)]
    chosen["env"] += [{"name": "GPU_PORTION"} for _ in range(size)]
    spec["volumes"] += [{"name": f"v-{i}", "emptyDir": {}} for i in range(size)]
    return patched


def test_the_work_grows_with_the_pod_and_no_faster() -> None:
    """A pod with 300 containers and 1,000 variables takes 5 ms."""

    def work(pod: Obj) -> int:
        asked = request(pod, POD)
        rules = GpuAccessRules("kai-scheduler", SHARES, restricts_devices=True)
        handler = NewPodHandler(rules, lambda: "x1y2z3a")
        answers: list[AdmissionResponse] = []
        count = count_instructions(lambda: answers.append(asyncio.run(handler.answer(asked))))
        assert len(answers[0].operations) >= len(pod["spec"]["containers"])
        return count

    assert work(large(160)) < 2.5 * work(large(80))
