"""A JobSet of a tenant that expects more pods than any cluster has."""

from typing import Final

from e2e.cluster.resources import JOBSETS, PODS, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import QUEUE
from e2e.hostile.conftest import TENANT, VICTIMS, HostileTenant

_ADMITTED: Final = "trainer-kai.dev/admitted"
_JOBS: Final = 64  # the most that the webhook admits
_PODS: Final = 100_000


async def test_six_million_pods_to_come_cost_others_nothing(
    hostile_tenant: HostileTenant,
) -> None:
    """It has at most a PodGroup a stage, and the teams' TrainJobs start and run."""
    await hostile_tenant.api.request("POST", JOBSETS.path(TENANT), _jobset(_JOBS, _PODS))
    await hostile_tenant.timeline.until(_has_pod, "the JobSet has its first pod")
    await hostile_tenant.claim_quota(*VICTIMS)
    await hostile_tenant.check_unharmed(*VICTIMS)
    mine = [
        it
        for it in hostile_tenant.timeline.objects(PODGROUPS)
        if it["metadata"]["namespace"] == TENANT
    ]
    assert len(mine) <= _JOBS


def _has_pod(state: State) -> bool:
    return any(key.resource == PODS and key.namespace == TENANT for key in state)


def _jobset(jobs: int, pods: int) -> Obj:
    """Return a JobSet of one pod, after which very many come, job by job."""
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {
            "namespace": TENANT,
            "name": "many",
            "labels": {QUEUE: TENANT},
            "annotations": {_ADMITTED: "v1"},
        },
        "spec": {
            "replicatedJobs": [
                _job(0, 1, ""),
                *(_job(n, pods, f"j{n - 1}") for n in range(1, jobs)),
            ]
        },
    }


def _job(number: int, pods: int, after: str) -> Obj:
    container = {"name": "c", "image": "none"}
    template = {
        "spec": {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "Never",
            "containers": [container],
        }
    }
    job: Obj = {
        "name": f"j{number}",
        "replicas": 1,
        "template": {"spec": {"parallelism": pods, "completions": pods, "template": template}},
    }
    if after:
        job["dependsOn"] = [{"name": after, "status": "Complete"}]
    return job
