"""A healthy installation as the doctor reads it, made of the manifests; and parts to break it."""

import base64
import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from tests.support.certificates import CertificateFiles, make_certificates
from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.support.workloads.simulate_objects import queue
from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import ACCESS, APP, GPU, INJECT, RESERVATION_APP, RESERVED_DEVICE
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.checks.all_checks import CHECKS, run_checks
from trainer_kai.cli.commands.doctor.checks.api_kinds import JOBSET_KINDS, TRAINER_KINDS
from trainer_kai.cli.commands.doctor.expected import expected_manifests
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    Installation,
    InstallationFacts,
    NodeFacts,
    Obj,
    name_of,
    require,
)
from trainer_kai.kube.rest.response import ErrorDetails

NOW: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOSTS: Final = ("trainer-kai-webhook.trainer-kai.svc",)
MODE_EXTERNAL: Final = "kai.scheduler/skip-podgrouper"
REFUSED: Final = ErrorDetails(
    "POST /apis/trainer.kubeflow.org",
    403,
    "Forbidden",
    'admission webhook "trainjob.trainer-kai.dev" denied the request:'
    " metadata.labels[kai.scheduler/queue]: no",
)
BASE: Final = ROOT / "manifests" / "base"
OPEN: Final = {ACCESS: "open"}
RESERVATIONS: Final = Meta(name=RESERVATION_APP, labels={INJECT: "disabled"})  # a namespace


def healthy_installation() -> InstallationFacts:
    manifests = expected_manifests()
    return InstallationFacts(
        Installation("trainer-kai", "kai-scheduler", "https://127.0.0.1:6443"),
        manifests,
        NOW,
        version={"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
        definitions={
            **{str(it): crd(str(it), it.version) for it in (*JOBSET_KINDS, *TRAINER_KINDS)},
            **{it.name: from_manifests(it.name) for it in manifests.definitions},
        },
        configurations=webhook_configurations(),
        policies=[],
        validating_policies=_objects("ValidatingAdmissionPolicy"),
        secret=secret(),
        runtimes_with_queue_field=[],
        namespaces=[*map(_namespace, ("default", "kube-system", "trainer-kai")), RESERVATIONS],
        jobset=DryRun(dry_run_objects.jobset("default"), injected_jobset()),
        gang_pod=DryRun(dry_run_objects.gang_pod("default"), grouped_pod()),
        foreign_pod=DryRun(dry_run_objects.foreign_pod("default"), untouched_pod()),
        trainjob=DryRun(dry_run_objects.trainjob("default", "plain"), None, REFUSED),
        accounts={it.name: True for it in manifests.accounts},
        denied_permissions={it.name: [] for it in manifests.accounts},
        deployments=[deployment(it) for it in manifests.deployments],
        leases=[lease("trainer-kai-podgrouper"), lease("trainer-kai-scheduler")],
        other_scheduler_leases=[],
        other_scheduler_deployments=[],
        skew_s=0.0,
        queues=queues(queue("all", annotations=OPEN), queue("default-queue", parent="all")),
        podgroup_queues=[],
        priority_classes=manifests.classes,
        nodes=NodeFacts(2, 3, (GPU,)),
        kueue_trainjobs=[],
        runtime_classes=["nvidia"],
        reservation_pods=[reservation_pod("gpu-reservation-1", device="GPU-1")],
        scheduler_leases=[lease("trainer-kai-scheduler")],
    )


def _namespace(name: str) -> Meta:
    return Meta(name=name, labels={"kubernetes.io/metadata.name": name})


def broken_installation() -> InstallationFacts:
    """Return one with a wrong authority in its configuration, and a queue without its parent."""
    hook = "jobset-create.trainer-kai.dev"
    post = 'Post "https://trainer-kai-webhook.trainer-kai.svc:443/mutate/jobset?timeout=5s"'
    why = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    pod = dry_run_objects.gang_pod("default")
    all_queues = (
        queue("all", annotations=OPEN),
        queue("default-queue", parent="all"),
        queue("a", parent="research", annotations=OPEN),
    )
    return healthy_installation()._replace(
        configurations=webhook_configurations(make_certificates(HOSTS, NOW).authority),
        jobset=refused_jobset(
            f'failed calling webhook "{hook}": failed to call webhook: {post}: {why}'
        ),
        gang_pod=DryRun(pod, pod),
        trainjob=accepted_trainjob(),
        queues=queues(*all_queues),
    )


def check_results(facts: InstallationFacts, name: str) -> list[tuple[str, str]]:
    """Return what one check says: its state, and how it is."""
    return [(it.state.value, it.observed) for it in run_checks(facts, {name: CHECKS[name]})]


@cache
def certificate_files(days: int = 0) -> CertificateFiles:
    """Return a certificate that was made so many days ago."""
    return make_certificates(HOSTS, NOW - timedelta(days=days))


def secret(files_of_certificate: CertificateFiles | None = None, *, key: bool = True) -> Obj:
    """Return the Secret of a certificate; without the authority's key it was made by others."""
    files_of_certificate = files_of_certificate or certificate_files()
    files = {
        "tls.crt": files_of_certificate.certificate,
        "tls.key": files_of_certificate.key,
        "ca.crt": files_of_certificate.authority,
    }
    if key:
        files["ca.key"] = files_of_certificate.authority_key
    return {"data": {name: base64.b64encode(it).decode() for name, it in files.items()}}


def webhook_configurations(
    authority: bytes | None = None, change: Callable[[Any], None] = lambda _: None
) -> list[Obj]:
    """Return our configurations, the authority in them, and JobSet's before them."""
    found = [it for kind in ("Mutating", "Validating") for it in _objects(f"{kind}Webhook")]
    bundle = base64.b64encode(authority or certificate_files().authority).decode()
    for configuration in found:
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
    change(found)
    rule = {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"]}
    jobset = {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "jobset-mutating-webhook-configuration"},
        "webhooks": [{"name": "mjobset.kb.io", "rules": [rule]}],
    }
    return [*found, jobset]


def from_manifests(name: str) -> Obj:
    (found,) = (it for it in _objects("CustomResource") if it["metadata"]["name"] == name)
    return {**found, "status": _established()}


def crd(name: str, version: str, fields: Mapping[str, Any] | None = None) -> Obj:
    schema = {"type": "object", "properties": fields or {}}
    served = {"name": version, "served": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": name},
        "spec": {"versions": [served]},
        "status": _established(),
    }


def injected_jobset(**notes: str) -> Obj:
    """Return the JobSet of a dry run as our webhook leaves it."""
    got = copy.deepcopy(dry_run_objects.jobset("default"))
    got["metadata"] |= {
        "labels": {"kai.scheduler/queue": "default-queue"},
        "annotations": {"trainer-kai.dev/admitted": "v1", **notes},
    }
    template = got["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"labels": {"trainer-kai.dev/gang": ""}}
    template["spec"]["schedulerName"] = "kai-scheduler"
    return got


def grouped_pod() -> Obj:
    """Return the pod of a TrainJob as our webhook leaves it."""
    got = dry_run_objects.gang_pod("default")
    got["metadata"]["annotations"] = {"pod-group-name": "pg"}
    return got


def untouched_pod() -> Obj:
    """Return a pod of others as the API server completes it."""
    got = dry_run_objects.foreign_pod("default")
    got["spec"]["schedulerName"] = "default-scheduler"
    return got


def accepted_trainjob() -> DryRun:
    """Return a TrainJob that was to be refused, and is not."""
    body = dry_run_objects.trainjob("default", "plain")
    return DryRun(body, body)


def refused_jobset(message: str, status: int = 500, reason: str = "InternalError") -> DryRun:
    refusal = ErrorDetails("POST /apis/jobset.x-k8s.io", status, reason, message)
    return DryRun(dry_run_objects.jobset("default"), None, refusal)


def deployment(name: str, ready: int = 2, **environment: str) -> Obj:
    """Return a Deployment of two replicas."""
    variables = [{"name": it, "value": value} for it, value in environment.items()]
    container = {"image": "trainer-kai:1", "env": variables}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready},
    }


def lease(
    name: str,
    holder: str = "one",
    ago_s: float = 1.0,
    namespace: str = "",
    duration_s: int = 15,
) -> Lease:
    """Return a Lease that was renewed so long ago."""
    renewed = (NOW - timedelta(seconds=ago_s)).isoformat()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": renewed}
    place = namespace or "trainer-kai"
    metadata = {"name": name, "namespace": place, "uid": f"{place}/{name}"}
    return decode(Lease, encode({"metadata": metadata, "spec": spec}))


def reservation_pod(
    name: str, ago_s: float = 600.0, device: str = "", reason: str = "", phase: str = "Running"
) -> Obj:
    """Return a pod that reserves a GPU, or has none yet, for some reason."""
    annotations = {RESERVED_DEVICE: device} if device else {}
    metadata = {
        "namespace": RESERVATION_APP,
        "name": name,
        "labels": {APP: RESERVATION_APP},
        "annotations": annotations,
        "creationTimestamp": f"{NOW - timedelta(seconds=ago_s):%Y-%m-%dT%H:%M:%SZ}",
    }
    waiting = [{"state": {"waiting": {"reason": reason}}}] if reason else []
    status = {"phase": phase, "containerStatuses": waiting}
    return {"metadata": metadata, "spec": {"nodeName": "node-0"}, "status": status}


def queues(*found: Mapping[str, Any]) -> Sequence[Queue]:
    return [decode(Queue, encode(it)) for it in found]


def _objects(prefix: str) -> list[Any]:
    # without the aliases of the text: what is changed in one is not changed in another
    return [_plain(it) for it in _read() if it["kind"].startswith(prefix)]


@cache
def _read() -> list[Any]:
    files = [it for it in sorted(BASE.rglob("*.yaml")) if it.stem != "kustomization"]
    return [obj for file in files for obj in documents(file)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(it) for name, it in value.items()}
    return [_plain(it) for it in value] if isinstance(value, list) else value


def _established() -> Obj:
    return {"conditions": [{"type": "Established", "status": "True"}]}


def beside_a_kai(facts: InstallationFacts) -> InstallationFacts:
    """Take our scheduler away, and have a KAI that binds."""
    left_out = [it.name for it in facts.manifests.policies if not it.beside_kai]
    assert len(left_out) == 5
    return facts._replace(
        jobset=DryRun(
            dry_run_objects.jobset("default"), injected_jobset(**{MODE_EXTERNAL: "true"})
        ),
        validating_policies=[
            it for it in require(facts.validating_policies) if name_of(it) not in left_out
        ],
        accounts={**facts.accounts, "trainer-kai-scheduler": False},
        deployments=[
            it for it in require(facts.deployments) if not name_of(it).endswith("scheduler")
        ],
        leases=[lease("trainer-kai-podgrouper")],
        other_scheduler_leases=[lease("kai-scheduler", namespace="kai-scheduler")],
    )


def by_policy(facts: InstallationFacts) -> InstallationFacts:
    """Have nothing but a policy of the API server, and a KAI."""
    got: Any = injected_jobset()
    got["metadata"] = {"name": "x"}
    del got["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]
    policy = {"metadata": {"name": "kai-trainer"}, "spec": {"matchConstraints": {}}}
    return facts._replace(
        configurations=[],
        policies=[policy],
        secret=None,
        jobset=DryRun(dry_run_objects.jobset("default"), got),
        gang_pod=DryRun(dry_run_objects.gang_pod("default"), dry_run_objects.gang_pod("default")),
        accounts=dict.fromkeys(facts.accounts, False),
        deployments=[],
        leases=[],
        other_scheduler_leases=[lease("kai-scheduler", namespace="kai-scheduler")],
    )
