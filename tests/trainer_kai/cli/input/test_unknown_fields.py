"""An unknown field is reported, one that the API has and we do not read is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.support.schemas import crd_schema, unread_properties
from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import (
    cron_job,
    node,
    pod,
    queue,
    resource_reservation_pod,
    trainjob,
)
from tests.support.workloads.simulate_objects import job as batch_job
from trainer_kai.api.resources import PODGROUPS, QUEUES, TOPOLOGIES, Resource
from trainer_kai.cli.input.documents import Document, read_files
from trainer_kai.cli.input.kinds import KINDS
from trainer_kai.cli.input.unknown_fields import UNREAD_FIELDS, InputWarnings

CRDS: Final = ROOT / "manifests" / "base" / "crds"


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("simulate", tmp_path, capsys)


def warning_lines(*documents: Document) -> list[str]:
    found = InputWarnings()
    for document in documents:
        found.add(document, KINDS[document.group, document.kind].resource.struct)
    return list(found.lines())


def renamed(obj: Any, old: str, new: Any) -> Any:
    if isinstance(obj, dict):
        return {new if name == old else name: renamed(it, old, new) for name, it in obj.items()}
    return [renamed(it, old, new) for it in obj] if isinstance(obj, list) else obj


def with_spec(obj: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**obj, "spec": {**obj["spec"], **spec}}


def job(**spec: Any) -> dict[str, Any]:
    return with_spec(trainjob("job", "torch"), **spec)


TAINTS = {"taints": [{"key": "a", "effect": "NoShedule"}, {"key": "b", "effect": "NoShedule"}]}
TOLERATIONS = [{"key": "a", "operator": "exists"}]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"}
VOLUME = {"name": "v", "persistentVolumeClaim": {"claim": "c"}}
STRANGE = [
    Case(
        "a misspelt limit is named",
        renamed(queue("q"), "limit", "limt"),
        "spec.resources.cpu.limt: is not a known field ",
    ),
    Case(
        "a misspelt parent is named",
        renamed(queue("q", parent="p"), "parentQueue", "parentQeue"),
        "n parentQueue?",
    ),
    Case(
        "a misspelt number of nodes is named",
        job(trainer={"numNode": 2}),
        "spec.trainer.numNode: is not a known field and is ignored; ",
    ),
    Case(
        "misspelt resources are named",
        job(trainer={"resourcePerNode": {}}),
        "; did you mean resourcesPerNode?",
    ),
    Case(
        "an old name of a field is named",
        job(podTemplateOverrides=[]),
        "spec.podTemplateOverrides: is not a known field and is i",
    ),
    Case(
        "a misspelt capacity of a node is named",
        renamed(node("n"), "allocatable", "allocateable"),
        "status.allocateable: is not ",
    ),
    Case(
        "a key in the wrong case is named",
        resource_reservation_pod(placementStrategy={"GPU": "spread"}),
        "spec.placementStrategy.GPU: is not ",
    ),
    Case(
        "a field inside a list is named",
        with_spec(pod("p"), volumes=[VOLUME]),
        "spec.volumes[].persistentVolumeClaim.claim: is ",
    ),
    Case(
        "a misspelt field of a plugin is named",
        resource_reservation_pod(plugins={"priority": {"enable": False}}),
        "spec.plugins.priority.enable",
    ),
    Case(
        "a misspelt field of a Job is named",
        renamed(batch_job("j"), "completions", "completion"),
        "spec.completion: is not a known field and is ignored; did you mean completions?",
    ),
    Case(
        "an unknown field of a Job is named",
        with_spec(batch_job("j"), schedulerName="kai-scheduler"),
        "spec.schedulerName: is not a known field and is ignored",
    ),
    Case(
        "a misspelt field of the Job of a CronJob is named",
        cron_job("c", renamed(batch_job("j"), "parallelism", "paralelism")),
        "spec.jobTemplate.spec.paralelism: is not a known field and is ignored; did you mean par",
    ),
    Case(
        "a misspelt field of a CronJob is named",
        with_spec(cron_job("c", batch_job("j")), scedule="x"),
        "spec.scedule: is not a known field",
    ),
    Case(
        "an unknown effect of a taint is named",
        {**node("n"), "spec": TAINTS},
        "spec.taints[].effect: 'NoShedule' is not valid; valid values are No",
    ),
    Case(
        "an unknown operator of a toleration is named",
        with_spec(pod("p"), tolerations=TOLERATIONS),
        "[].operator: 'exists' is not valid; valid values are Equal, ",
    ),
    Case(
        "an unknown spread policy is named",
        with_spec(pod("p"), topologySpreadConstraints=[SPREAD]),
        "'Never' is not valid; valid values are DoNotSchedule",
    ),
]


@pytest.mark.parametrize("case", STRANGE, ids=ids)
def test_what_is_strange_is_reported(case: Case[dict[str, Any], str]) -> None:
    """By its path, with the nearest name or the words that there are."""
    lines = warning_lines(Document("a.yaml", case.given))

    assert case.want in lines[0]
    assert lines[0].startswith(f"a.yaml: {case.given['kind']} ")


def test_it_is_reported_once_for_each_file_and_field(terminal: Terminal) -> None:
    """With how many objects have it; nothing is refused for it."""
    nodes = [renamed(node(name), "allocatable", "alocatable") for name in ("b", "a", "c")]
    file, other = (
        terminal.write("1.yaml", *nodes),
        terminal.write("2.yaml", job(suspended=True, suspend=True)),
    )

    code, _, err = terminal.run("-f", file, "-f", other)

    assert code == 0
    first, second = err.splitlines()[:2]
    assert first.startswith(f"trainer-kai: {file}: Node a and 2 more: status.alocatable: is not a")
    assert first.endswith(" and is ignored; did you mean allocatable?")
    assert second.startswith(f"trainer-kai: {other}: TrainJob default/job: spec.suspended: is not")


def test_a_field_that_is_null_is_as_good_as_absent() -> None:
    """Kubernetes writes some of them so."""
    assert warning_lines(Document("a.yaml", job(labels=None))) == []


def recorded() -> Iterator[Path]:
    """Yield files with objects as the API server, Trainer and people write them."""
    for folder in ("manifests/base/queues", "manifests/examples", "tests/fixtures"):
        files = (it for it in (ROOT / folder).rglob("*") if it.suffix in {".yaml", ".json"})
        yield from (it for it in files if it.name != "kustomization.yaml")


def test_what_is_real_is_not_strange() -> None:
    """Runtimes and JobSets of Trainer, pods of the API server, our examples."""
    documents = [it for it in read_files(map(str, recorded())) if (it.group, it.kind) in KINDS]

    assert len(documents) > 200
    assert warning_lines(*documents) == []


def test_a_real_job_and_cron_job_are_not_strange() -> None:
    """Fields as the API server stores them."""
    names = (
        "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode manualSelector"
        " maxFailedIndexes podFailurePolicy podReplacementPolicy selector successPolicy"
        " ttlSecondsAfterFinished"
    )
    stored = batch_job("train")
    stored["spec"] |= dict.fromkeys(names.split(), "x")
    names = (
        "active completedIndexes completionTime failed failedIndexes ready startTime succeeded"
        " terminating uncountedTerminatedPods"
    )
    stored["status"] = dict.fromkeys(names.split(), "x")
    nightly = cron_job("nightly", stored)
    names = (
        "failedJobsHistoryLimit startingDeadlineSeconds successfulJobsHistoryLimit suspend timeZone"
    )
    nightly["spec"] |= dict.fromkeys(names.split(), "x")
    nightly["status"] = dict.fromkeys(("active", "lastScheduleTime", "lastSuccessfulTime"), "x")

    assert warning_lines(Document("a", stored), Document("a", nightly)) == []


def test_a_real_node_and_claim_are_not_strange() -> None:
    """Fields of which no schema is here."""
    spec = dict.fromkeys(("podCIDR", "podCIDRs", "providerID", "externalID", "configSource"), "x")
    names = (
        "addresses capacity config daemonEndpoints features images nodeInfo phase runtimeHandlers"
    )
    status: dict[str, Any] = dict.fromkeys((*names.split(), "volumesAttached", "volumesInUse"), "x")
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    status["conditions"] = [{"type": "Ready", "status": "True", **times}]
    metadata = {"name": "c", "generateName": "c", "managedFields": [], "finalizers": []}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    claim |= {"spec": {"volumeMode": "Filesystem", "dataSource": {}, "selector": {}}}
    whole = {**node("n"), "spec": spec, "status": status}

    assert warning_lines(Document("a", whole), Document("a", claim)) == []


@pytest.mark.parametrize("resource", [QUEUES, PODGROUPS, TOPOLOGIES], ids=lambda it: it.kind)
def test_what_is_known_is_what_our_schemas_have(resource: Resource[Any]) -> None:
    """Neither more nor less."""
    [crd] = documents(CRDS / f"{resource.plural}.yaml")

    found = unread_properties(resource.struct, crd_schema(crd, resource.version))

    assert {name: set(UNREAD_FIELDS[name].split()) for name in found} == found


def test_bounds_of_autoscalers_are_known() -> None:
    """They resemble `replicas` and `minReplicas`, which count."""
    ray = {"workerGroupSpecs": [{"groupName": "a", "replicas": 1, "maxReplicas": 2}]}
    elastic = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}
    objects = (
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": ray},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": elastic},
    )

    assert warning_lines(*(Document("a.yaml", it) for it in objects)) == []
