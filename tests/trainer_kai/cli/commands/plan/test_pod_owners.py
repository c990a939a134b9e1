"""`trainer-kai plan` of Deployments and other objects with one pod template."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.terminal import Terminal
from tests.support.workloads.pod_owners import owned_by, pod_owner, template
from tests.support.workloads.simulate_objects import node

MIN_MEMBER = "kai.scheduler/batch-min-member"


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return Terminal("plan", tmp_path, capsys)


def _using_claim(name: str) -> dict[str, Any]:
    found = template()
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    found["spec"]["containers"][0]["resources"]["claims"] = [{"name": name}]
    return found


WEB = pod_owner("Deployment", replicas=3)
TOO_MANY = (
    f"never runs: metadata.annotations[{MIN_MEMBER}]: 3 is more than its 1 pod, so it can never "
    "start"
)
BAD_CLAIM = (
    "never runs: spec.template.spec.containers[0].resources.claims[0].name: 'gup' is no name in "
    "spec.resourceClaims of the pod, so no pod can be created. Name one of these: gpu"
)
NO_PODGROUP = "No PodGroup: it is not for this scheduler"
# the objects -> lines of the text
CASES: list[Case[list[dict[str, Any]], tuple[str, ...]]] = [
    Case(
        "a Deployment starts with its first pod",
        [WEB],
        (
            "Deployment default/web queue team-a (the Deployment's label) mode bundled",
            "1/1 pg-web-UID - 3 pods 1 pod nvidia.com/gpu 3",
        ),
    ),
    Case(
        "a gang",
        [pod_owner("Deployment", replicas=3, annotations={MIN_MEMBER: "3"})],
        ("1/1 pg-web-UID - 3 pods 3 pods nvidia.com/gpu 3",),
    ),
    Case(
        "more than there are",
        [pod_owner("ReplicaSet", replicas=1, annotations={MIN_MEMBER: "3"})],
        (f"{TOO_MANY}. Lower it to 1, or raise spec.replicas",),
    ),
    Case(
        "more than a Notebook has",
        [pod_owner("Notebook", annotations={MIN_MEMBER: "3"})],
        (f"{TOO_MANY}. Lower it to 1",),
    ),
    Case(
        "a claim that the pod does not have",
        [pod_owner("Deployment", template=_using_claim("gup"))],
        (BAD_CLAIM,),
    ),
    Case(
        "a StatefulSet that makes its pods one after another",
        [pod_owner("StatefulSet", replicas=2, annotations={MIN_MEMBER: "2"})],
        ("1/1 pg-web-UID - 2 pods 1 pod nvidia.com/gpu 2",),
    ),
    Case(
        "the queue of a project",
        [pod_owner("Notebook", labels={"project": "p"})],
        ("Notebook default/web queue p (the Notebook's label) mode bundled",),
    ),
    Case(
        "the queue of the pods",
        [
            pod_owner(
                "Deployment", labels={}, template=template(labels={"kai.scheduler/queue": "q"})
            )
        ],
        ("Deployment default/web queue q (the label of a pod template) mode bundled",),
    ),
    Case(
        "no node is large enough",
        [pod_owner("Deployment", template=template(16)), node("n", 8)],
        ("never runs: spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: each",),
    ),
    Case(
        "another scheduler",
        [pod_owner("Deployment", template=template(scheduler=""))],
        (NO_PODGROUP, "note: spec.template.spec.schedulerName: the pods are for scheduler"),
    ),
    Case(
        "no pods",
        [pod_owner("Deployment", replicas=0)],
        (NO_PODGROUP, "note: spec.replicas: its number of pods is 0"),
    ),
    Case(
        "a part of another one",
        [pod_owner("ReplicaSet", "web-1", ownerReferences=owned_by(WEB))],
        ("note: metadata.ownerReferences: the ReplicaSet belongs to Deployment web. Plan that",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_planned(
    case: Case[list[dict[str, Any]], tuple[str, ...]], terminal: Terminal
) -> None:
    _, out, _ = terminal.run("-f", terminal.write("a.yaml", *case.given))
    lines = [" ".join(line.split()) for line in out.splitlines()]

    assert [it for it in case.want if not any(line.startswith(it) for line in lines)] == []


def test_the_exit_code_tells_that_it_never_starts(terminal: Terminal) -> None:
    codes = [
        terminal.run("-f", terminal.write("a.yaml", pod_owner("Deployment", **given)))[0]
        for given in (
            {"replicas": 2, "annotations": {MIN_MEMBER: "3"}},
            {"replicas": 3, "annotations": {MIN_MEMBER: "3"}},
            {"template": _using_claim("gup")},
            {"template": _using_claim("gpu")},
        )
    ]
    assert codes == [1, 0, 1, 0]


def test_the_podgroup_is_that_of_the_podgrouper(terminal: Terminal) -> None:
    _, out, _ = terminal.run("-f", terminal.write("a.yaml", WEB), "-o", "json")
    (plan,) = json.loads(out)["plans"]
    (manifest,) = plan["manifests"]

    assert manifest["metadata"]["labels"] == {
        "trainer-kai.dev/gang": "Main",
        "kai.scheduler/queue": "team-a",
    }
    assert manifest["spec"] == {
        "queue": "team-a",
        "priorityClassName": "inference",
        "minMember": 1,
    }
    assert (plan["podGroups"][0]["minMembers"], plan["queue"]["source"]) == (1, "deployment")


def test_kai_groups_it_in_mode_external(terminal: Terminal) -> None:
    _, out, _ = terminal.run("-f", terminal.write("a.yaml", WEB), "--mode", "external")

    assert "note: metadata: the podgrouper of KAI groups its pods" in out


def test_a_kind_whose_pods_are_not_known_is_told(terminal: Terminal) -> None:
    meta = {"name": "s", "namespace": "default"}
    kind = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    _, _, err = terminal.run("-f", terminal.write("a.yaml", WEB, {**kind, "metadata": meta}))

    assert "SparkApplication default/s, because only its controller knows its pods" in err
