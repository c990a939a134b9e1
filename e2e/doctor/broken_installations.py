"""Ways to break an installation and to repair it, and what the doctor must report."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import yaml

from e2e.cluster.api import ApiError
from e2e.cluster.patience import patience
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    RUNTIMES,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from e2e.doctor.installation import RUNTIME_CLASSES, DoctorInstallation
from e2e.fixtures.install import (
    CLUSTER_ROLES,
    PODGROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    RULE_BINDINGS,
    RULES,
)
from e2e.fixtures.processes import NAMESPACE
from e2e.install.test_runtime_field import PATCH, runtime
from tests.support.certificates import make_certificates
from tests.support.workloads.simulate_objects import queue
from trainer_kai.api.names import ACCESS, RESERVATION_APP

WEBHOOK_CONFIGURATION: Final = "kai-trainer"
_SECRET: Final = "trainer-kai-webhook-tls"  # noqa: S105 - a name
_JSON_PATCH: Final = "application/json-patch+json"


@asynccontextmanager
async def no_configuration(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Leave the API server without a webhook of ours to ask."""
    async with doctor_installation.without(MUTATING_WEBHOOKS, None, WEBHOOK_CONFIGURATION):
        yield
    await doctor_installation.until_injected()


@asynccontextmanager
async def no_trainjob_review(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let TrainJobs be taken as they are."""
    async with doctor_installation.without(VALIDATING_WEBHOOKS, None, WEBHOOK_CONFIGURATION):
        yield
    await doctor_installation.until_reviewed()


@asynccontextmanager
async def no_dry_runs(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Make the webhook refuse: it may not read TrainJobs any more."""

    def lose(role: Any) -> None:
        for rule in role["rules"]:
            if "trainjobs" in rule["resources"]:
                rule["verbs"].remove("get")

    async with doctor_installation.with_change(CLUSTER_ROLES, "trainer-kai-webhook", lose):
        await doctor_installation.until_refused("cannot be read")
        yield
    await doctor_installation.until_injected()


@asynccontextmanager
async def no_right_to_bind(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Take a rule from the scheduler."""

    def lose(role: Any) -> None:
        role["rules"] = [it for it in role["rules"] if it["resources"] != ["pods/binding"]]

    async with doctor_installation.with_change(CLUSTER_ROLES, "trainer-kai-scheduler", lose):
        yield


@asynccontextmanager
async def a_field_dropped(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Have a definition of PodGroups that does not know a field."""

    def lose(crd: Any) -> None:
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["spec"]["properties"]["preemptionDelay"]

    async with doctor_installation.with_change(CRDS, "podgroups.scheduling.run.ai", lose):
        await _until_known(doctor_installation, is_known=False)
        yield
    await _until_known(doctor_installation, is_known=True)


async def _until_known(doctor_installation: DoctorInstallation, *, is_known: bool) -> None:
    """Wait until the API server goes by the definition: it serves the kind anew."""
    group: Obj = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": "default", "name": "tried"},
        "spec": {"minMember": 1, "preemptionDelay": "1s"},
    }
    path, query = PODGROUPS.path("default"), {"dryRun": "All", "fieldValidation": "Strict"}
    output = None
    async with patience(30):
        while output is not is_known:
            await asyncio.sleep(0.05)
            try:
                await doctor_installation.cluster.api.request("POST", path, group, query=query)
                output = True
            except ApiError as error:
                if "unknown field" not in str(error):
                    raise
                output = False


@asynccontextmanager
async def queue_cycle(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Make two queues each other's parent, which the webhook would refuse."""
    await doctor_installation.webhook.stop()
    async with doctor_installation.with_objects(
        QUEUES, queue("one", parent="two"), queue("two", parent="one")
    ):
        await doctor_installation.webhook.start()
        await doctor_installation.until_injected()
        yield


@asynccontextmanager
async def a_queue_without_parent(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Give a queue a parent that does not exist."""
    async with doctor_installation.with_objects(QUEUES, queue("orphan", parent="missing")):
        yield


@asynccontextmanager
async def children_above_their_parent(
    doctor_installation: DoctorInstallation,
) -> AsyncIterator[None]:
    """Let two children own more than their parent."""
    parent = queue("parent", 8, annotations={ACCESS: "open"})
    queues = [parent, *(queue(it, 6, parent="parent") for it in "ab")]
    for it in queues:  # else there is more to say about them
        bounded = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
        it["spec"]["resources"] |= {"cpu": bounded, "memory": bounded}
    async with doctor_installation.with_objects(QUEUES, *queues):
        yield


@asynccontextmanager
async def no_queue_annotated(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let a queue be open because neither it nor its parent says who may use it."""
    async with doctor_installation.with_change(QUEUES, "default-queue", _without_annotations):
        yield


def _without_annotations(found: Any) -> None:
    found["metadata"]["annotations"] = {}


@asynccontextmanager
async def no_default_queue(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let what names no queue go to one that is not there."""
    async with doctor_installation.without(QUEUES, None, "default-queue"):
        yield


@asynccontextmanager
async def another_scheduler(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Have another scheduler hold a Lease of our scheduler's name; ours is paused."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "kai-0", "leaseDurationSeconds": 60, "renewTime": now}
    lease = {"metadata": {"namespace": NAMESPACE, "name": "kai-scheduler-default"}, "spec": spec}
    async with doctor_installation.with_objects(LEASES, lease):
        yield
    await doctor_installation.until_leaders()


@asynccontextmanager
async def no_policy(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let records of evictions be written by all users."""
    async with doctor_installation.without(RULES, None, "trainer-kai-podgroups"):
        yield


@asynccontextmanager
async def no_binding(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let a policy be bound to nothing."""
    async with doctor_installation.without(RULE_BINDINGS, None, "trainer-kai-jobsets"):
        yield


@asynccontextmanager
async def a_policy_that_only_warns(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let a policy refuse nothing."""

    def warn(binding: Any) -> None:
        binding["spec"]["validationActions"] = ["Warn"]

    async with doctor_installation.with_change(RULE_BINDINGS, "trainer-kai-trainjobs", warn):
        yield


@asynccontextmanager
async def no_leader(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Kill the podgrouper."""
    await doctor_installation.podgrouper.kill()
    await doctor_installation.until_stale("trainer-kai-podgrouper")
    yield
    await doctor_installation.podgrouper.start()
    await doctor_installation.until_leaders()


@asynccontextmanager
async def webhook_away(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Kill the webhook."""
    await doctor_installation.webhook.kill()
    yield
    await doctor_installation.webhook.start()
    await doctor_installation.until_injected()


@asynccontextmanager
async def expired(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Kill the webhook, and leave it a certificate that is long over."""
    async with webhook_away(doctor_installation):
        pair = make_certificates(
            ("localhost", "127.0.0.1"), datetime.now(UTC) - timedelta(days=400)
        )
        files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.authority}
        data = {name: base64.b64encode(it).decode() for name, it in files.items()}
        found = await doctor_installation.cluster.api.get(SECRETS, NAMESPACE, _SECRET)
        await doctor_installation.cluster.api.merge(SECRETS, NAMESPACE, _SECRET, {"data": data})
        yield
        await doctor_installation.cluster.api.merge(
            SECRETS, NAMESPACE, _SECRET, {"data": found["data"]}
        )


@asynccontextmanager
async def half_patched(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let only one of the two kinds of runtimes name a queue."""
    async with _patched(doctor_installation, RUNTIMES):
        yield


@asynccontextmanager
async def upgraded(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Let a runtime name its queue, and then apply Trainer's definitions anew."""
    api = doctor_installation.cluster.api
    async with (
        _patched(doctor_installation, RUNTIMES),
        _patched(doctor_installation, CLUSTER_RUNTIMES),
    ):
        await _make_when_kept(doctor_installation, runtime(CLUSTER_RUNTIMES, "team-a", "upgraded"))
    yield
    await api.delete(CLUSTER_RUNTIMES, None, "upgraded")


@asynccontextmanager
async def _patched(
    doctor_installation: DoctorInstallation, resource: Resource
) -> AsyncIterator[None]:
    """Have a definition patched for a while."""
    name = f"{resource.plural}.{resource.group}"
    operations = yaml.safe_load(PATCH.read_text())
    path = CRDS.path(None, name)
    before = await doctor_installation.cluster.api.get(CRDS, None, name)
    await doctor_installation.cluster.api.request(
        "PATCH", path, operations, content_type=_JSON_PATCH
    )
    yield
    versions = {"spec": {"versions": before["spec"]["versions"]}}
    await doctor_installation.cluster.api.merge(CRDS, None, name, versions)


async def _make_when_kept(doctor_installation: DoctorInstallation, body: Obj) -> None:
    """Make a runtime as soon as the definition knows the field."""
    query = {"fieldValidation": "Strict"}
    path = CLUSTER_RUNTIMES.path()
    while True:
        try:
            await doctor_installation.cluster.api.request("POST", path, body, query=query)
        except ApiError as error:
            if error.status != 400:
                raise
        else:
            return


@asynccontextmanager
async def no_classes(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Take a priority class away."""
    async with doctor_installation.without(PRIORITY_CLASSES, None, "train"):
        yield


@asynccontextmanager
async def no_gpu_sharing(doctor_installation: DoctorInstallation) -> AsyncIterator[None]:
    """Have no RuntimeClass for pods that share GPUs, and no right to reserve them."""
    bindings = Resource(CLUSTER_ROLES.group, "v1", "rolebindings", "RoleBinding")
    async with (
        doctor_installation.without(RUNTIME_CLASSES, None, "nvidia"),
        doctor_installation.without(bindings, RESERVATION_APP, RESERVATION_APP),
    ):
        yield


_Breakage: TypeAlias = Callable[[DoctorInstallation], AbstractAsyncContextManager[None]]

# how it is broken -> state, and a part of what is said, of all that is wrong, by check
BROKEN: Final[dict[str, tuple[_Breakage, dict[str, tuple[str, str]]]]] = {
    "no webhook configuration": (
        no_configuration,
        {
            "mutating webhooks": ("fault", "the MutatingWebhookConfiguration kai-trainer does not"),
            "TrainJob dry run": ("fault", "is created without the mark of admission, a"),
            "gang pod dry run": ("fault", "the pod gets no PodGroup"),
        },
    ),
    "no validating configuration": (
        no_trainjob_review,
        {
            "validating webhooks": ("fault", "the ValidatingWebhookConfiguration kai-trainer does"),
            "invalid TrainJob dry run": ("fault", "a TrainJob with an invalid queue is accepted"),
        },
    ),
    "our webhook refuses dry runs": (
        no_dry_runs,
        {
            "TrainJob dry run": ("fault", "the webhook jobset-create.trainer-kai.dev refuses it"),
            "permissions of webhook": ("fault", "may not get trainjobs.trainer.kubeflow.org"),
        },
    ),
    "a rule of a role is missing": (
        no_right_to_bind,
        {"permissions of scheduler": ("fault", "may not create pods/binding")},
    ),
    "a definition drops a field": (
        a_field_dropped,
        {"kind podgroups": ("fault", "the API server drops spec.preemptionDelay")},
    ),
    "queues in a circle": (
        queue_cycle,
        {"queues": ("fault", "is its own ancestor")},
    ),
    "a parent is missing": (
        a_queue_without_parent,
        {"queues": ("fault", "Queue orphan has the parent queue missing, which does not exist")},
    ),
    "children above their parent": (
        children_above_their_parent,
        {
            "queues": (
                "warning",
                "queue parent: spec.resources.gpu.quota: the child queues have quotas of 12 GPU",
            )
        },
    ),
    "queues that say nothing of who may use them": (
        no_queue_annotated,
        {"queue access": ("warning", "not annotated: default-queue (no namespace)")},
    ),
    "no default queue": (
        no_default_queue,
        {
            "default queue": ("fault", "Queue default-queue does not exist"),
            # its parent has none below it then, and takes pods
            "queue access": ("warning", "not annotated: default-parent-queue (no namespace)"),
        },
    ),
    "a policy is missing": (
        no_policy,
        {"policies": ("fault", "ValidatingAdmissionPolicy trainer-kai-podgroups does not")},
    ),
    "a policy is bound to nothing": (
        no_binding,
        {"policies": ("fault", "ValidatingAdmissionPolicyBinding trainer-kai-jobsets does")},
    ),
    "a policy refuses nothing": (
        a_policy_that_only_warns,
        {"policies": ("fault", "trainer-kai-trainjobs is bound without the action Deny")},
    ),
    "nobody leads": (
        no_leader,
        {
            "lease of podgrouper": (
                "fault",
                "has not renewed Lease trainer-kai/trainer-kai-podgrouper",
            )
        },
    ),
    "the webhook is away": (
        webhook_away,
        {
            "TrainJob dry run": ("fault", "jobset-create.trainer-kai.dev does not respond"),
            "gang pod dry run": ("fault", "the pod gets no PodGroup"),
        },
    ),
    "the certificate is over": (
        expired,
        {
            "CA bundle": ("fault", "does not match the certificate in trainer-kai/"),
            "certificate": ("fault", "it is valid from"),
            "TrainJob dry run": ("fault", "jobset-create.trainer-kai.dev does not respond"),
            "gang pod dry run": ("fault", "the pod gets no PodGroup"),
        },
    ),
    "one of two definitions is patched": (
        half_patched,
        {"runtime queue field": ("fault", "clustertrainingruntimes.trainer.kubeflow.org has no")},
    ),
    "Trainer was upgraded, and the patch is gone": (
        upgraded,
        {"runtime queue field": ("fault", "is gone, but upgraded used it")},
    ),
    "a priority class is missing": (
        no_classes,
        {"priority classes": ("warning", "train does not exist")},
    ),
    "GPUs cannot be shared": (
        no_gpu_sharing,
        {
            "GPU sharing": ("warning", "RuntimeClass nvidia does not exist: the API server denies"),
            "permissions of agent": ("fault", "may not get pods, patch pods"),
        },
    ),
}
