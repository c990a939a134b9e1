"""What pods and volumes do: the stages given to KWOK, judged by a reading of their selectors."""

import copy
import itertools
import re
from collections.abc import Collection
from typing import Any

import pytest

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.cluster.kwok_stages import (
    FAIL_SECONDS,
    READY_SECONDS,
    RUN_SECONDS,
    WAITING_CLASS,
    all_stages,
    storage_classes,
)
from e2e.cluster.resources import Obj
from tests.support.case import Case, ids
from tests.support.cluster_layout import KWOK

ANNOTATED = (READY_SECONDS, RUN_SECONDS, FAIL_SECONDS)
IS_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
STAGES = {stage["metadata"]["name"]: stage for stage in all_stages(KWOK)}
POD_STAGES = {
    name: stage for name, stage in STAGES.items() if stage["spec"]["resourceRef"]["kind"] == "Pod"
}


def pod(
    phase: str,
    annotated: Collection[str] = (),
    *,
    ready: str | None = None,
    deleting: bool = False,
    namespace: str = "default",
) -> Obj:
    """Return a pod in one situation; *ready* is the status of its condition, if it has one."""
    annotations = dict.fromkeys(annotated, "1s")
    metadata: Obj = {"namespace": namespace, "annotations": annotations}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Initialized", "status": "True"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


SITUATIONS = [
    pod(phase, told, ready=ready, deleting=deleting, namespace=namespace)
    for count in range(len(ANNOTATED) + 1)
    for told in itertools.combinations(ANNOTATED, count)
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    for ready in (None, "False", "True")
    for deleting in (False, True)
    for namespace in ("default", RESERVATIONS)
]


def test_no_two_stages_match_the_same_pod() -> None:
    """KWOK draws among the stages that match, so chance would decide if there were two."""
    assert len(SITUATIONS) == 8 * 5 * 3 * 2 * 2

    drawn = [(found, pod) for pod in SITUATIONS if len(found := stages_of(pod)) > 1]

    assert drawn == []


NEXT = [
    Case("told nothing, it is ready at once", pod("Pending"), ["pod-ready"]),
    Case("told how long to run, it is ready at once", pod("Pending", [RUN_SECONDS]), ["pod-ready"]),
    Case("told when to be ready, it starts", pod("Pending", [READY_SECONDS]), ["pod-started"]),
    Case(
        "started, it gets ready",
        pod("Running", [READY_SECONDS], ready="False"),
        ["pod-ready-later"],
    ),
    Case(
        "its run time begins when it is ready",
        pod("Running", [READY_SECONDS, RUN_SECONDS], ready="False"),
        ["pod-ready-later"],
    ),
    Case(
        "its time to fail begins when it is ready",
        pod("Running", [READY_SECONDS, FAIL_SECONDS], ready="False"),
        ["pod-ready-later"],
    ),
    Case("ready and told nothing, it stays", pod("Running", ready="True"), []),
    Case("made unready by somebody, it stays so", pod("Running", ready="False"), []),
    Case("ready late, it stays", pod("Running", [READY_SECONDS], ready="True"), []),
    Case("it succeeds", pod("Running", [RUN_SECONDS], ready="True"), ["pod-complete"]),
    Case("it fails", pod("Running", [FAIL_SECONDS], ready="True"), ["pod-failed"]),
    Case("failing outranks succeeding", pod("Running", ANNOTATED, ready="True"), ["pod-failed"]),
    Case("what succeeded stays so", pod("Succeeded", ANNOTATED, ready="False"), []),
    Case("what failed stays so", pod("Failed", ANNOTATED, ready="False"), []),
    Case("it reserves a GPU: agents begin it", pod("Pending", namespace=RESERVATIONS), []),
    Case("so they do with others", pod("Pending", [READY_SECONDS], namespace=RESERVATIONS), []),
    Case(
        "it takes time to go",
        pod("Running", deleting=True, namespace=RESERVATIONS),
        ["reservation-pod-delete"],
    ),
    Case(
        "deleted before it ran, it goes", pod("Pending", ANNOTATED, deleting=True), ["pod-delete"]
    ),
    Case(
        "deleted while it ran, it goes",
        pod("Running", ANNOTATED, ready="True", deleting=True),
        ["pod-delete"],
    ),
]


@pytest.mark.parametrize("case", NEXT, ids=ids)
def test_what_a_bound_pod_does_next(case: Case[Obj, list[str]]) -> None:
    """The annotations of a pod and how far it is decide its next stage."""
    assert stages_of(case.given) == case.want


def test_a_stage_takes_nothing_but_the_writing_from_its_model() -> None:
    """Delay, jitter and weight of the shipped stages would be added to what the pod says."""
    waits_for = {
        "pod-ready": None,
        "pod-started": None,
        "pod-ready-later": READY_SECONDS,
        "pod-complete": RUN_SECONDS,
        "pod-failed": FAIL_SECONDS,
    }

    rest = {name: without(POD_STAGES[name]["spec"], "selector", "next") for name in waits_for}

    assert rest == {
        name: {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}} | delay_of(annotation)
        for name, annotation in waits_for.items()
    }


WRITTEN = [
    Case("ready at once", "pod-ready", "pod-ready"),
    Case("success", "pod-complete", "pod-complete"),
    Case("failure", "pod-failed", "pod-container-running-failed"),
]


@pytest.mark.parametrize("case", WRITTEN, ids=ids)
def test_a_stage_writes_what_kwok_would(case: Case[str, str]) -> None:
    """The status of a pod that is ready, done or failed is the shipped one."""
    assert POD_STAGES[case.given]["spec"]["next"] == KWOK[case.want]["spec"]["next"]


def test_a_pod_that_starts_is_not_ready() -> None:
    """Only being ready is taken back: it is initialized, its init containers are done, it runs."""
    assert POD_STAGES["pod-started"]["spec"]["next"]["statusTemplate"].splitlines() == [
        "conditions:",
        '- status: "True"',
        "  type: Initialized",
        '- status: "False"',
        "  type: Ready",
        '- status: "False"',
        "  type: ContainersReady",
        "containerStatuses:",
        "- ready: false",
        "initContainerStatuses:",
        "- ready: true",
        "phase: Running",
    ]


SELECTED_NODE = "volume.kubernetes.io/selected-node"
VOLUMES = ["pv-bind", "pv-delete", "pvc-delete", "pvc-provision"]


@pytest.mark.parametrize("name", VOLUMES)
def test_each_class_has_the_volume_stages_to_itself(name: str) -> None:
    """A volume stage is there twice, and each of the two names its own class only."""
    shipped, waiting = str(STAGES[name]), str(STAGES[f"{name}-waiting"])

    assert STAGES[name] == KWOK[name]
    assert ("kwok-volume" in waiting, WAITING_CLASS in shipped) == (False, False)
    assert waiting.count(WAITING_CLASS) == shipped.count("kwok-volume") == 1


def test_a_waiting_claim_is_provisioned_on_its_node() -> None:
    """It needs a chosen node, and the volume that is made for it can be used there only."""
    stage, model = STAGES["pvc-provision-waiting"], KWOK["pvc-provision"]

    (condition,) = stage["spec"]["selector"]["matchExpressions"][2:]
    provision, mark_bound = stage["spec"]["steps"]

    assert f"'{SELECTED_NODE}' in self.metadata.annotations" in condition["cel"]["expression"]
    assert provision["apply"]["template"].splitlines() == [
        *model["spec"]["steps"][0]["apply"]["template"].splitlines(),
        "  nodeAffinity:",
        "    required:",
        "      nodeSelectorTerms:",
        "      - matchExpressions:",
        "        - key: kubernetes.io/hostname",
        "          operator: In",
        "          values:",
        f'          - {{{{ index .metadata.annotations "{SELECTED_NODE}" | Quote }}}}',
    ]
    assert mark_bound == model["spec"]["steps"][1]


def test_there_are_two_storage_classes() -> None:
    """The default one binds at once, as shipped; the other waits and is nobody's default."""
    default, waiting = storage_classes(KWOK)

    assert default == KWOK["kwok-volume"]
    assert waiting == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": WAITING_CLASS},
        "provisioner": "kwok.x-k8s.io/volume",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def test_the_catalogue_stays_as_it_was() -> None:
    """Stages are made from copies: whoever reads the catalogue next finds what is shipped."""
    before = copy.deepcopy(KWOK)

    all_stages(KWOK)
    storage_classes(KWOK)

    assert before == KWOK


def test_no_two_stages_share_a_name() -> None:
    """The later of two stages with one name would replace the earlier."""
    assert len(STAGES) == len(all_stages(KWOK))


def stages_of(pod: Obj) -> list[str]:
    """Return the names of the stages that match a pod."""
    return [name for name, stage in POD_STAGES.items() if matches(stage, pod)]


def matches(stage: Obj, pod: Obj) -> bool:
    """Say whether a stage matches a pod, as KWOK reads its selector."""
    assert list(stage["spec"]["selector"]) == ["matchExpressions"]
    return all(holds(e, pod) for e in stage["spec"]["selector"]["matchExpressions"])


def holds(expression: Obj, pod: Obj) -> bool:
    """Judge one expression; one that is not known here is a KeyError, not a guess."""
    found = values_at(expression["key"], pod)
    return {
        "Exists": lambda: bool(found),
        "DoesNotExist": lambda: not found,
        "In": lambda: any(value in expression["values"] for value in found),
        "NotIn": lambda: not any(value in expression["values"] for value in found),
    }[expression["operator"]]()


def values_at(key: str, pod: Obj) -> list[Any]:
    """Return what a selector's key finds in a pod: nothing, or one value."""
    annotation = re.fullmatch(r'\.metadata\.annotations\["(.+)"\]', key)
    known = {
        ".metadata.deletionTimestamp": [pod["metadata"].get("deletionTimestamp")],
        ".metadata.namespace": [pod["metadata"]["namespace"]],
        ".status.phase": [pod["status"]["phase"]],
        IS_READY: [c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready"],
    }
    found = [pod["metadata"]["annotations"].get(annotation[1])] if annotation else known[key]
    return [value for value in found if value is not None]


def without(mapping: Obj, *keys: str) -> Obj:
    """Return a mapping without some keys."""
    return {key: value for key, value in mapping.items() if key not in keys}


def delay_of(annotation: str | None) -> Obj:
    """Return the delay that an annotation stands for, with or without the unit it may lack."""
    if annotation is None:
        return {}
    seconds = f'.metadata.annotations["{annotation}"] | rtrimstr("s") + "s"'
    return {"delay": {"durationFrom": {"expressionFrom": seconds}}}
