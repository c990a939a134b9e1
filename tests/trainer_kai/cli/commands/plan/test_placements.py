"""`trainer-kai plan` with racks and ResourceClaims: where pods would start, with which devices."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.pod_owners import pod_owner
from tests.support.workloads.simulate_objects import cron_job, job, node, queue
from trainer_kai.cli.commands.plan.requests import GPUS_OF_CLAIMS

CLAIMS: Final = ROOT / "tests/fixtures/clusters/claims"
TOPOLOGY: Final = ROOT / "tests/fixtures/clusters/topology"
REQUIRED: Final = {
    "kai.scheduler/topology": "cluster",
    "kai.scheduler/topology-required-placement": "rack",
}

SEGMENTS: Final = {
    "kai.scheduler/segment-size": "2",
    "kai.scheduler/segment-topology-required-placement": "rack",
}


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return Terminal("plan", tmp_path, capsys)


def racked(*sizes: int) -> list[dict[str, Any]]:
    """Return a Topology, and a rack with one node for each number of GPUs."""
    levels = [
        {"nodeLabel": "example.org/rack", "alias": "rack"},
        {"nodeLabel": "kubernetes.io/hostname"},
    ]
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "cluster"},
        "spec": {"levels": levels},
    }
    nodes = [
        node(f"n{i}", gpus, labels={"example.org/rack": f"r{i}", "kubernetes.io/hostname": f"n{i}"})
        for i, gpus in enumerate(sizes)
    ]
    return [topology, *nodes, queue("team-a", 64)]


def gang(pods: int, annotations: dict[str, str], **meta: Any) -> dict[str, Any]:
    minimum = {"kai.scheduler/batch-min-member": str(pods)}
    labels = {"kai.scheduler/queue": "team-a"}
    return job("train", pods, labels=labels, annotations={**minimum, **annotations}, **meta)


def suspended(it: dict[str, Any]) -> dict[str, Any]:
    return {**it, "spec": {**it["spec"], "suspend": True}}


def periodic() -> dict[str, Any]:
    it = cron_job("train", job("train", 2, labels={"kai.scheduler/queue": "team-a"}))
    it["spec"]["jobTemplate"]["metadata"]["annotations"] = REQUIRED
    return it


def placed(text: str) -> list[str]:
    """Return the lines about where pods start; without them nothing was tried."""
    _, found, part = text.partition("On an empty cluster:\n")
    return [" ".join(line.split()) for line in part.splitlines()] if found else []


DEFAULT: Final = queue("team-a", 64, annotations=REQUIRED)
IN_R1: Final = "pg-train-UID starts in r1 (3 pods), at level example.org/rack of Topology cluster"
RACKS: Final[list[Case[list[dict[str, Any]], list[str]]]] = [
    Case("a rack that is large enough", [*racked(2, 4), gang(3, REQUIRED)], [IN_R1]),
    Case("no matter that it is suspended", [*racked(2, 4), suspended(gang(3, REQUIRED))], [IN_R1]),
    Case("the default of the queue", [*racked(2, 4)[:-1], DEFAULT, gang(3, {})], [IN_R1]),
    Case("a queue that is in no file", [*racked(2, 4)[:-1], gang(3, REQUIRED)], [IN_R1]),
    Case("no constraint", [*racked(2, 4), gang(3, {})], []),
    Case("no nodes", [racked()[0], gang(3, REQUIRED)], []),
    Case(
        "a Job of a CronJob",
        [*racked(2, 4), periodic()],
        ["pg-train-TIME-UID starts in r0 (2 pods), at level example.org/rack of Topology cluster"],
    ),
    Case(
        "a Deployment",
        [*racked(2, 4), pod_owner("Deployment", replicas=2, annotations=REQUIRED)],
        ["pg-web-UID starts in r0 (2 pods), at level example.org/rack of Topology cluster"],
    ),
]


@pytest.mark.parametrize("case", RACKS, ids=ids)
def test_in_which_rack_it_would_start(
    case: Case[list[dict[str, Any]], list[str]], terminal: Terminal
) -> None:
    code, out, _ = terminal.run("-f", terminal.write("a.yaml", *case.given))

    assert (code, placed(out)) == (0, case.want)


def test_why_no_rack_holds_it(terminal: Terminal) -> None:
    """Two racks have 3 GPUs each, enough for the 6 pods, but for two of the segments of 2."""
    pods = gang(6, {"kai.scheduler/topology": "cluster"})
    pods["spec"]["completionMode"] = "Indexed"
    pods["spec"]["template"]["metadata"] = {"annotations": SEGMENTS}
    code, out, _ = terminal.run("-f", terminal.write("a.yaml", *racked(3, 3), pods), "-o", "json")
    (plan,) = json.loads(out)["plans"]
    (placement,) = plan["placements"]

    assert (code, placement["reason"]) == (0, "TopologyUnfit")
    assert "in one domain of level example.org/rack of Topology cluster" in placement["message"]
    assert (placement["pods"], placement["domains"]) == ([], {})


def test_a_rack_that_is_too_small_is_a_finding(terminal: Terminal) -> None:
    """Then it is not tried."""
    code, out, _ = terminal.run("-f", terminal.write("a.yaml", *racked(2, 2), gang(3, REQUIRED)))

    assert (code, placed(out)) == (1, [])
    assert "3 pods must be in one rack of Topology cluster, and the largest holds 2" in out


def test_of_many_workloads_the_first_ones_are_tried(terminal: Terminal) -> None:
    jobs = [{**gang(1, REQUIRED)} for _ in range(66)]
    for i, it in enumerate(jobs):
        it["metadata"] = {**it["metadata"], "name": f"job-{i}"}
    _, out, _ = terminal.run("-f", terminal.write("a.yaml", *racked(2, 4), *jobs))

    assert out.count("On an empty cluster:") == 64
    assert out.count("only the first 64 workloads are placed on an empty cluster") == 2


def test_kai_decides_in_mode_external(terminal: Terminal) -> None:
    file = terminal.write("a.yaml", *racked(2, 4), gang(3, REQUIRED))

    assert placed(terminal.run("-f", file, "--mode", "external")[1]) == []


def test_later_stages_are_told(terminal: Terminal) -> None:
    """A place is kept for the launcher, which counts in the domain."""
    files = [TOPOLOGY / "block-a.yaml", TOPOLOGY / "deepspeed.yaml"]
    runtime = ROOT / "tests/fixtures/runtimes/deepspeed-distributed.yaml"
    arguments = [part for it in (*files, runtime) for part in ("-f", str(it))]
    document = json.loads(terminal.run(*arguments, "-o", "json")[1])
    (placement,) = document["plans"][0]["placements"]

    assert placement["domains"] == {"a/a1": 4}
    assert [it["count"] for it in placement["reserved"]] == [1]


def test_which_claim_gets_which_device(terminal: Terminal) -> None:
    files = ["-f", str(CLAIMS / "cluster.yaml"), "-f", str(CLAIMS / "train.yaml")]
    code, out, err = terminal.run(*files, "-o", "json")
    (plan,) = json.loads(out)["plans"]
    (placement,) = plan["placements"]
    device = "gpu.nvidia.com/gpu-1/gpu-0"

    assert (code, err) == (0, "")
    assert plan["podGroups"][0]["requests"][GPUS_OF_CLAIMS] == "4"
    assert placement["pods"][0] == {
        "pod": "train-node-0-0",
        "node": "gpu-1",
        "claims": {"train-node-0-0-gpu": [device]},
    }
    lines = placed(terminal.run(*files)[1])
    assert lines[:2] == [
        "pg-train-UID starts on gpu-1 (3 pods), gpu-2 (1 pod)",
        f"claim train-node-0-0-gpu: {device} on gpu-1",
    ]


def test_why_no_node_has_the_devices(terminal: Terminal) -> None:
    files = ["-f", str(CLAIMS / "cluster.yaml"), "-f", str(CLAIMS / "four-on-a-node.yaml")]
    text = " ".join(placed(terminal.run(*files)[1]))

    assert text.startswith("pg-large-UID waits (NoNodeMatches): A pod requests 8 CPU")
    assert "of 8 devices there, 2 are not selected, at most 3 are free on one node" in text


def claim(name: str, template: bool, **request: Any) -> dict[str, Any]:
    """Return a template, or a claim that several pods share."""
    exactly = {"deviceClassName": "gpu.nvidia.com", **request.pop("exactly", {})}
    requests = [{"name": "gpu", **(request or {"exactly": exactly})}]
    spec: dict[str, Any] = {"devices": {"requests": requests}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": spec} if template else spec,
    }


def claiming(pods: int, **use: str) -> dict[str, Any]:
    it = gang(pods, {})
    spec = it["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", **use}]
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return it


def other_class() -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "nic"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'nic'"}}]},
    }


TWO_WAYS: Final = [
    {"name": "many", "deviceClassName": "gpu.nvidia.com", "count": 4},
    {"name": "few", "deviceClassName": "gpu.nvidia.com", "count": 2},
]
GPUS: Final[list[Case[list[dict[str, Any]], str]]] = [
    Case(
        "for each pod its own",
        [claim("c", True, exactly={"count": 2}), claiming(3, resourceClaimTemplateName="c")],
        "GPUs of claims 6",
    ),
    Case(
        "one claim of all pods is counted once",
        [claim("c", False, exactly={"count": 2}), claiming(3, resourceClaimName="c")],
        "GPUs of claims 2",
    ),
    Case(
        "the least of alternatives",
        [claim("c", True, firstAvailable=TWO_WAYS), claiming(1, resourceClaimTemplateName="c")],
        "GPUs of claims 2",
    ),
    Case(
        "devices that are no GPUs",
        [
            other_class(),
            claim("c", True, exactly={"deviceClassName": "nic"}),
            claiming(1, resourceClaimTemplateName="c"),
        ],
        "-",
    ),
    Case("a template that is in no file", [claiming(1, resourceClaimTemplateName="c")], "-"),
]


@pytest.mark.parametrize("case", GPUS, ids=ids)
def test_how_many_gpus_claims_request(
    case: Case[list[dict[str, Any]], str], terminal: Terminal
) -> None:
    """Without nodes as well; the classes of NVIDIA and AMD need not be in the files."""
    _, out, err = terminal.run("-f", terminal.write("a.yaml", *case.given))

    row = next(line for line in out.splitlines() if line.startswith("1/1"))
    assert row.split("   ")[-1].strip() == case.want
    assert (err, placed(out)) == ("", [])
