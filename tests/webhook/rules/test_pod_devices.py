"""Which containers may see GPUs."""

import asyncio
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import POD, Obj, applied, denied, request, told
from webhook.admission.review import AdmissionResponse
from webhook.reviews.router import GpuAccessRules, NewPodHandler
from webhook.rules.pod_gpu_share import ShareRules

NAME: Final = "NVIDIA_VISIBLE_DEVICES"
VOID: Final = {"name": NAME, "value": "void"}
SHARE: Final = {"gpu-fraction": "0.5"}
BY_KAI: Final = ShareRules(is_enabled=False, is_by_kai=True)
OFF: Final = ShareRules(is_enabled=False)


def container(value: Any = None, name: str = "c", **resources: str) -> Obj:
    """Return a container; *value* is of the variable, or a whole entry."""
    found: Obj = {"name": name, "resources": {"limits": resources}}
    if value is not None:
        found["env"] = [value if isinstance(value, dict) else {"name": NAME, "value": value}]
    return found


def pod(*containers: Obj, annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    whole = {"schedulerName": "kai-scheduler", "containers": list(containers), **spec}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": whole}


def reviewed(obj: Obj, shares: ShareRules = OFF) -> AdmissionResponse:
    rules = GpuAccessRules("kai-scheduler", shares, restricts_devices=True)
    return asyncio.run(NewPodHandler(rules, lambda: "x1y2z3a").answer(request(obj, POD)))


def env_of(obj: Obj, answer: AdmissionResponse) -> list[Any]:
    spec = applied(obj, answer)["spec"]
    listed = (*spec.get("initContainers", ()), *spec["containers"])
    return [it.get("env") for it in listed]


GPU: Final = {"nvidia.com/gpu": "1"}
# a pod -> the variables of its containers
HIDDEN: Final[list[Case[Obj, list[Any]]]] = [
    Case("without a GPU", pod(container(cpu="1")), [[VOID]]),
    Case("no GPU requested", pod(container(**{"nvidia.com/gpu": "0"})), [[VOID]]),
    Case("with a GPU", pod(container(**GPU)), [None]),
    Case("with a GPU of another vendor", pod(container(**{"amd.com/gpu": "1"})), [None]),
    Case("with a replica of a GPU", pod(container(**{"nvidia.com/gpu.shared": "1"})), [None]),
    Case(
        "a request of no replica hides the devices",
        pod(container(**{"nvidia.com/gpu.shared": "0"})),
        [[VOID]],
    ),
    Case("with a MIG profile", pod(container(**{"nvidia.com/mig-1g.5gb": "1"})), [None]),
    Case(
        "init containers as well",
        pod(container(**GPU), initContainers=[container({"name": "A"}), container(**GPU)]),
        [[{"name": "A"}, VOID], None, None],
    ),
    Case("devices that are hidden stay so", pod(container("void")), [[VOID]]),
    Case(
        "none stays for a container with GPUs",
        pod(container("none", **GPU)),
        [[{"name": NAME, "value": "none"}]],
    ),
    Case("an empty variable stays", pod(container({"name": NAME})), [[{"name": NAME}]]),
    Case("a claim may give GPUs", pod(container(), resourceClaims=[{"name": "gpu"}]), [None]),
]


@pytest.mark.parametrize("case", HIDDEN, ids=ids)
def test_gpus_are_hidden(case: Case[Obj, list[Any]]) -> None:
    """From containers that request none; a second review changes nothing."""
    answer = reviewed(case.given)

    assert answer.denial is None
    assert env_of(case.given, answer) == case.want
    assert reviewed(applied(case.given, answer)).operations == ()


REMEDY: Final = (
    ", and so chooses its GPUs itself. Remove the variable, or set it to void; request GPUs in "
    "the resources of the container"
)
FIELD: Final = {"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
SECRET: Final = {"name": NAME, "value": "", "valueFrom": {}}
# a pod -> the field, and what is wrong
REFUSED: Final[list[Case[Obj, tuple[str, str]]]] = [
    Case("all devices are refused", pod(container("all")), ("containers[0]", "sets it to 'all'")),
    Case("with a GPU, too", pod(container("0", **GPU)), ("containers[0]", "sets it to '0'")),
    Case("void and more", pod(container("void,0")), ("containers[0]", "sets it to 'void,0'")),
    Case(
        "a variable that is expanded is refused",
        pod(container("$(X)")),
        ("containers[0]", "sets it to '$(X)'"),
    ),
    Case(
        "a long one",
        pod(container("GPU-" * 99)),
        ("containers[0]", f"sets it to '{'GPU-' * 10}…'"),
    ),
    Case(
        "a field as value is refused",
        pod(container(FIELD)),
        ("containers[0]", "reads it from another object"),
    ),
    Case(
        "a Secret as value is refused",
        pod(container(SECRET)),
        ("containers[0]", "reads it from another object"),
    ),
    Case(
        "an init container",
        pod(container(), initContainers=[container(), container("all")]),
        ("initContainers[1]", "sets it to 'all'"),
    ),
    Case(
        "in spite of a claim",
        pod(container("all"), resourceClaims=[{"name": "gpu"}]),
        ("containers[0]", "sets it to 'all'"),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_no_container_chooses_its_gpus(case: Case[Obj, tuple[str, str]]) -> None:
    """The message names the container and the value."""
    field, fault = case.want

    answer = reviewed(case.given)

    assert answer.operations == ()
    assert told(answer) == denied(f"spec.{field}.env[{NAME}]: container 'c' {fault}{REMEDY}")


def test_the_last_of_several_values_counts_as_any_other() -> None:
    """A runtime reads the last one, so each is looked at."""
    obj = pod(container("void"))
    obj["spec"]["containers"][0]["env"].append({"name": NAME, "value": "all"})

    assert "sets it to 'all'" in told(reviewed(obj))


def test_the_container_with_the_share_reads_the_one_of_admission() -> None:
    """Whatever the user set; the other containers see no GPU."""
    obj = pod(container("all"), container(), annotations=SHARE)

    answer = reviewed(obj, ShareRules())
    first, second = env_of(obj, answer)

    assert [it["name"] for it in first].count(NAME) == 1
    assert all("value" not in it for it in first)
    assert second == [VOID]
    assert reviewed(applied(obj, answer), ShareRules()).operations == ()


def test_what_a_copy_read_before_is_gone_and_gpus_are_hidden_once() -> None:
    """Both change the same list of variables."""
    prefix = "old-x1y2z3a-shared-gpu"
    reference = {"configMapKeyRef": {"name": f"{prefix}-1", "key": "GPU_PORTION"}}
    copied = container({"name": "GPU_PORTION", "valueFrom": reference})
    copied["env"].append({"name": "A"})
    obj = pod(container(), copied, annotations={**SHARE, "runai/shared-gpu-configmap": prefix})

    answer = reviewed(obj, ShareRules())

    assert env_of(obj, answer)[1] == [{"name": "A"}, VOID]


def test_kai_replaces_it_where_kai_prepares_shares() -> None:
    """Its admission is called after ours; where shares are off nothing replaces it."""
    obj = pod(container("all"), container(), annotations=SHARE)

    assert env_of(obj, reviewed(obj, BY_KAI)) == [obj["spec"]["containers"][0]["env"], [VOID]]
    assert "sets it to 'all'" in told(reviewed(obj))


def test_all_faults_are_in_one_message() -> None:
    """A user corrects them at once."""
    annotations = {**SHARE, "gpu-fraction-container-name": "x"}
    obj = pod(container("all"), container("1"), annotations=annotations)

    message = told(reviewed(obj, ShareRules()))

    assert message.count("chooses its GPUs itself") == 2
    assert message.startswith("denied: metadata.annotations[gpu-fraction-container-name]: the pod")
