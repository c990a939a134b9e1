"""`trainer-kai run all` on the real chain: one process does what three do."""

from pathlib import Path
from typing import Final

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, LEASES, PODS, TRAINJOBS, Resource
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.install import PODGROUPS, install
from e2e.fixtures.podgroups import finishing_pods, is_complete
from e2e.fixtures.processes import ALL, NAMESPACE, PODGROUPER, SCHEDULER, WEBHOOK, running
from e2e.fixtures.processes import webhook_port as port_of

_RBAC: Final = "rbac.authorization.k8s.io"
_OF_CLUSTER: Final = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_OF_NAMESPACE: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")


async def test_all_in_one_process_carry_a_trainjob_to_its_end(tmp_path: Path) -> None:
    """Its launcher comes later; the roles of the three are enough, and each has its Lease."""
    own_namespace = next_name()
    async with running_cluster(Options(name="test-run")) as cluster:
        await cluster.add_nodes(2)
        await install(cluster, port=port_of(cluster))
        await _join_roles(cluster)
        await make_namespace(cluster, own_namespace)
        installed = await cluster.api.get(CLUSTER_RUNTIMES, None, "deepspeed-distributed")
        job = Submission(
            "job", "deepspeed-distributed", own_namespace, 3, 1, finishing_pods(installed)
        )
        async with (
            running(cluster, ALL, tmp_path),
            cluster.timeline(TRAINJOBS, PODGROUPS, PODS, namespace=own_namespace) as seen,
        ):
            await cluster.api.create(job.trainjob())
            await seen.until(is_complete, "the TrainJob is Complete", 60)
            leases, _ = await cluster.api.list(LEASES, NAMESPACE)

    names = {lease["metadata"]["name"] for lease in leases}
    assert names == {"trainer-kai-podgrouper", "trainer-kai-scheduler"}


async def _join_roles(cluster: Cluster) -> None:
    """Let the one account do what the three may."""
    account = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ALL.account}
    for part in (WEBHOOK, PODGROUPER):
        for resource, kind in ((_OF_CLUSTER, "ClusterRole"), (_OF_NAMESPACE, "Role")):
            namespace = NAMESPACE if resource.namespaced else None
            metadata = {"name": f"all-{part.name}"}
            binding = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": metadata | ({"namespace": namespace} if namespace else {}),
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": part.account},
                "subjects": [account],
            }
            await cluster.api.request("POST", resource.path(namespace), binding)
    assert ALL.account == SCHEDULER.account
