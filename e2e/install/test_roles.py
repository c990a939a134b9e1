"""Who may do what by default: our processes what they need, people nothing that claims GPUs."""

import asyncio
from typing import Final

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience, until
from e2e.cluster.resources import Obj
from e2e.fixtures.install import apply
from trainer_kai.api.names import RESERVATION_APP

OWN_PROCESSES: Final = "trainer-kai"

# who, verb, group/resource/name, and where it is meant in one namespace
MAY: Final = [
    "webhook watch trainer.kubeflow.org/trainjobs",
    "webhook get trainer.kubeflow.org/trainjobs in default",
    "webhook list trainer.kubeflow.org/clustertrainingruntimes",
    "webhook watch trainer.kubeflow.org/trainingruntimes",
    "webhook watch /namespaces",
    "webhook list trainer.kubeflow.org/trainingruntimes in default",
    "webhook watch scheduling.run.ai/queues",
    "webhook watch /nodes",
    "webhook list scheduling.k8s.io/priorityclasses",
    "webhook watch kai.scheduler/topologies",
    "webhook create authorization.k8s.io/subjectaccessreviews",
    "webhook patch admissionregistration.k8s.io/validatingwebhookconfigurations/kai-trainer",
    "webhook get /secrets/trainer-kai-webhook-tls in trainer-kai",
    "webhook update /secrets/trainer-kai-webhook-tls in trainer-kai",
    "webhook create /secrets in trainer-kai",
    "webhook get admissionregistration.k8s.io/mutatingwebhookconfigurations/kai-trainer",
    "webhook patch admissionregistration.k8s.io/mutatingwebhookconfigurations/kai-trainer",
    "webhook get admissionregistration.k8s.io/validatingwebhookconfigurations/kai-trainer",
    "webhook patch admissionregistration.k8s.io/validatingwebhookconfigurations/kai-trainer",
    "podgrouper watch jobset.x-k8s.io/jobsets",
    "podgrouper list batch/jobs",
    "podgrouper watch /pods",
    "podgrouper patch /pods in default",
    "podgrouper create scheduling.run.ai/podgroups in default",
    "podgrouper patch scheduling.run.ai/podgroups in default",
    "podgrouper watch scheduling.k8s.io/priorityclasses",
    "podgrouper create coordination.k8s.io/leases in trainer-kai",
    "podgrouper patch coordination.k8s.io/leases in trainer-kai",
    "podgrouper create /events in default",
    "podgrouper patch /events in default",
    "scheduler watch /pods",
    "scheduler list /nodes",
    "scheduler watch scheduling.run.ai/queues",
    "scheduler create /pods/binding in default",
    "scheduler delete /pods in default",
    "scheduler list batch/jobs in default",
    "scheduler watch batch/jobs",
    "scheduler patch batch/jobs in default",
    "scheduler patch jobset.x-k8s.io/jobsets in default",
    "scheduler delete batch/jobs in default",
    "scheduler patch /pods/status in default",
    "scheduler patch scheduling.run.ai/podgroups in default",
    "scheduler patch scheduling.run.ai/podgroups/status in default",
    "scheduler patch scheduling.run.ai/queues/status",
    "scheduler patch trainer.kubeflow.org/trainjobs in default",
    "scheduler get coordination.k8s.io/leases/kai-scheduler in kai-scheduler",
    "scheduler get coordination.k8s.io/leases/kai-scheduler-default in kai-scheduler",
    "scheduler get apps/deployments/kai-scheduler-default in kai-scheduler",
    "scheduler get coordination.k8s.io/leases in trainer-kai",
    "scheduler create coordination.k8s.io/leases in trainer-kai",
    "scheduler patch coordination.k8s.io/leases in trainer-kai",
    "scheduler create /events in default",
    "scheduler create authorization.k8s.io/subjectaccessreviews",
    "scheduler create /pods in kai-resource-reservation",
    "scheduler delete /pods in kai-resource-reservation",
    "scheduler get /pods in trainer-kai",
    "scheduler create /configmaps in default",
    "scheduler patch /configmaps in default",
    "scheduler delete /configmaps in default",
    "agent get /pods in kai-resource-reservation",
    "agent patch /pods in kai-resource-reservation",
]
MAY_NOT: Final = [
    "webhook patch trainer.kubeflow.org/trainjobs in default",
    "webhook get /secrets/other in trainer-kai",
    "webhook get /secrets/trainer-kai-webhook-tls in default",
    "webhook list /secrets in trainer-kai",
    "webhook create /secrets in default",
    "webhook patch admissionregistration.k8s.io/mutatingwebhookconfigurations/other",
    "webhook patch admissionregistration.k8s.io/validatingwebhookconfigurations/other",
    "webhook create admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "webhook patch admissionregistration.k8s.io/validatingwebhookconfigurations/other",
    "webhook patch scheduling.run.ai/queues",
    "webhook list /pods",
    "webhook patch /nodes",
    "webhook get jobset.x-k8s.io/jobsets in default",
    "podgrouper patch jobset.x-k8s.io/jobsets in default",
    "podgrouper patch batch/jobs in default",
    "podgrouper delete /pods in default",
    "podgrouper create /pods/binding in default",
    "podgrouper patch scheduling.run.ai/queues",
    "podgrouper patch coordination.k8s.io/leases in kube-system",
    "podgrouper get /secrets in trainer-kai",
    "scheduler create /pods in default",
    "scheduler patch /pods in default",
    "scheduler delete scheduling.run.ai/podgroups in default",
    "scheduler create scheduling.run.ai/podgroups in default",
    "scheduler patch scheduling.run.ai/queues",
    "scheduler delete trainer.kubeflow.org/trainjobs in default",
    "scheduler patch trainer.kubeflow.org/trainjobs/status in default",
    "scheduler patch jobset.x-k8s.io/jobsets/status in default",
    "scheduler patch batch/jobs/status in default",
    "scheduler delete jobset.x-k8s.io/jobsets in default",
    "scheduler deletecollection batch/jobs in default",
    "scheduler patch /nodes",
    "scheduler list coordination.k8s.io/leases",
    "scheduler list coordination.k8s.io/leases/kai-scheduler",
    "scheduler get coordination.k8s.io/leases/team-a in kai-scheduler",
    "scheduler list apps/deployments",
    "scheduler get apps/deployments/kai-operator in kai-scheduler",
    "scheduler patch apps/deployments/kai-scheduler-default in kai-scheduler",
    "scheduler patch coordination.k8s.io/leases/kai-scheduler in kube-system",
    "scheduler get /secrets in trainer-kai",
    "scheduler create /pods in trainer-kai",
    "scheduler patch /pods in kai-resource-reservation",
    "scheduler get /pods in default",
    "scheduler get /configmaps in default",
    "scheduler list /configmaps in default",
    "scheduler deletecollection /configmaps in default",
    "agent list /pods in kai-resource-reservation",
    "agent create /pods in kai-resource-reservation",
    "agent delete /pods in kai-resource-reservation",
    "agent patch /pods in default",
    "agent patch /pods/status in kai-resource-reservation",
    "agent get /secrets in kai-resource-reservation",
]


@pytest.mark.parametrize("sentence", MAY)
async def test_a_process_may(sentence: str, installed_cluster: Cluster) -> None:
    """What it does, it may do."""
    assert await _is_so(installed_cluster, sentence)


@pytest.mark.parametrize("sentence", MAY_NOT)
async def test_a_process_may_not(sentence: str, installed_cluster: Cluster) -> None:
    """Nothing else, not even what is close to it."""
    assert not await _is_so(installed_cluster, sentence)


async def test_who_edits_a_namespace_sees_its_groups_and_writes_none(
    installed_cluster: Cluster, namespace: str
) -> None:
    """Whoever could write PodGroups or Queues could take GPUs from others."""
    await apply(installed_cluster, _binding("edit", "ann", namespace))
    async with patience(20):  # the aggregated role is written by a controller
        while not await _may(
            installed_cluster, "ann", "watch", "scheduling.run.ai/podgroups", namespace
        ):
            await asyncio.sleep(0.1)
    for verb in ("create", "update", "patch", "delete"):
        for what in ("podgroups", "queues"):
            assert not await _may(
                installed_cluster, "ann", verb, f"scheduling.run.ai/{what}", namespace
            )


async def test_only_who_is_bound_to_it_writes_queues(
    installed_cluster: Cluster, namespace: str
) -> None:
    """The role for it exists, and adds to no other."""
    assert not await _may(installed_cluster, "eve", "create", "scheduling.run.ai/queues", "")
    await apply(installed_cluster, _binding("trainer-kai-queue-admin", "eve"))

    await until(
        lambda: _may(installed_cluster, "eve", "create", "scheduling.run.ai/queues", ""),
        "eve may create queues",
    )
    assert not await _may(
        installed_cluster, "eve", "create", "scheduling.run.ai/podgroups", namespace
    )


async def _is_so(cluster: Cluster, sentence: str) -> bool:
    output, _, namespace = sentence.partition(" in ")
    process, verb, what = output.split()
    account = f"{OWN_PROCESSES}:{OWN_PROCESSES}-{process}"
    if process == "agent":
        account = f"{RESERVATION_APP}:{RESERVATION_APP}"
    user = f"system:serviceaccount:{account}"
    return await _may(cluster, user, verb, what, namespace)


async def _may(cluster: Cluster, user: str, verb: str, what: str, namespace: str) -> bool:
    group, resource, *name = what.split("/")
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    if name and name[0] in ("binding", "status"):
        asked["subresource"] = name[0]
    elif name:
        asked["name"] = name[0]
    answer = await cluster.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:authenticated"],
                "resourceAttributes": asked,
            },
        },
    )
    allowed: bool = answer["status"]["allowed"]
    return allowed


def _binding(role: str, user: str, namespace: str = "") -> Obj:
    metadata = {"name": f"{role}-{user}", **({"namespace": namespace} if namespace else {})}
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
