"""A tenant asks: `view` of one namespace, its TrainJobs, and what `queue allow --user` binds."""

import asyncio
import json
import sys
from typing import Final, NamedTuple

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import TRAINJOBS, Resource
from e2e.fixtures.installation import Installation
from e2e.fixtures.trainjobs import WATCHED, Job, on_nodes, submit

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
_TENANT: Final = "tessa"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


async def test_a_tenant_sees_what_concerns_it(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Before the grant each command says which role is missing; after it they answer."""
    cluster, ns = two_teams_installation.cluster, two_teams_namespace
    await _permit(cluster, ns)
    async with cluster.timeline(*WATCHED, namespace=ns) as seen:
        await submit(cluster, ns, Job("runs", "owner", 2))
        await seen.until(on_nodes("runs", 2), "it runs")

        refused = await asked(cluster, "queue", "list")
        assert refused.code == 2
        assert "trainer-kai-user" in refused.err
        allowed = await asked(
            cluster, "queue", "allow", "owner", "-n", ns, "--user", _TENANT, user=""
        )
        assert allowed.code == 0, allowed.err

        listed = await asked(cluster, "list", "-n", ns, "-o", "json")
        assert [it["name"] for it in json.loads(listed.out)["workloads"]] == ["runs"], listed.err
        why = await asked(cluster, "why", "runs", "-n", ns)
        assert (why.code, "runs" in why.out) == (0, True), why.err
        queues = await asked(cluster, "queue", "list")
        assert (queues.code, "owner" in queues.out) == (0, True), queues.err
        doctor = await asked(cluster, "doctor", "--as-user", "--try-in", ns, "-o", "json")
        states = {it["check"]: it["state"] for it in json.loads(doctor.out)["findings"]}
        # The tenant may create TrainJobs, and no JobSets.
        assert (doctor.code, states["invalid TrainJob dry run"]) == (0, "ok"), doctor.out
        assert "unknown" not in states.values(), doctor.out
        assert {"queues", "checks of administrators"} <= states.keys(), doctor.out


async def _permit(cluster: Cluster, namespace: str) -> None:
    """Let the tenant view the namespace, and create TrainJobs there, as Kubeflow does."""
    role = {"kind": "Role", "metadata": {"name": "trainjobs", "namespace": namespace}}
    verbs = ["get", "list", "create"]
    rules = [{"apiGroups": [TRAINJOBS.group], "resources": ["trainjobs"], "verbs": verbs}]
    version = {"apiVersion": _BINDINGS.api_version}
    await cluster.api.request("POST", _ROLES.path(namespace), {**version, **role, "rules": rules})
    for kind, name in (("ClusterRole", "view"), ("Role", "trainjobs")):
        binding = {
            **version,
            "kind": "RoleBinding",
            "metadata": {"name": f"tenant-{name}", "namespace": namespace},
            "roleRef": {"apiGroup": _BINDINGS.group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": _BINDINGS.group, "kind": "User", "name": _TENANT}],
        }
        await cluster.api.request("POST", _BINDINGS.path(namespace), binding)


async def asked(cluster: Cluster, *arguments: str, user: str = _TENANT) -> Answer:
    flags = ["--kubeconfig", str(cluster.kubeconfig), *(["--as", user] if user else [])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainer_kai.cli", *arguments, *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    code = process.returncode
    assert code is not None
    return Answer(code, output.decode(), errors.decode())
