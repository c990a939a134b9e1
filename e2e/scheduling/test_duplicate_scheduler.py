"""Another scheduler of our name: ours pauses, reports it to waiting TrainJobs, and resumes."""

import asyncio
from typing import Final

from e2e.cluster.patience import until
from e2e.cluster.resources import NAMESPACES, NODES, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import groups_in, pods_in
from e2e.fixtures.trainjobs import Job, on_nodes, submit
from e2e.scheduling.test_refused_pods import has_message, has_no_message, reason

_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
_KAI: Final = "kai-scheduler"
_NAME: Final = "kai-scheduler-default"


def _kai_deployment(node: str) -> Obj:
    """Return KAI's scheduler with one replica, which holds no Lease; its pod is on a node."""
    labels = {"app": "scheduler"}
    container = {"name": "scheduler", "image": "none"}
    pod = {"nodeName": node, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    kind = {"apiVersion": _DEPLOYMENTS.api_version, "kind": _DEPLOYMENTS.kind}
    return {**kind, "metadata": {"name": _NAME}, "spec": spec}


def _waits(state: State) -> bool:
    pods = pods_in(state)
    return len(pods) == 2 and not any(it["spec"].get("nodeName") for it in pods)


async def test_ours_is_paused_while_a_kai_of_its_name_is_ready(
    own_installation: Installation,
) -> None:
    """Nothing is bound, and `why` names the other one; ours goes on when that is gone."""
    api, own_namespace = own_installation.cluster.api, "room"
    space = {"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": _KAI}}
    await api.create(space)
    nodes, _ = await api.list(NODES)
    await api.request(
        "POST", _DEPLOYMENTS.path(_KAI), _kai_deployment(nodes[0]["metadata"]["name"])
    )
    async with own_installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace=own_namespace
    ) as seen:
        await _until_paused(own_installation)
        await submit(own_installation.cluster, own_namespace, Job("job", "default-queue", 2))
        is_explained = has_message(
            "SchedulerPaused: scheduler paused: another scheduler is ready as", _NAME
        )
        await seen.until(is_explained, "the reason of the PodGroup is SchedulerPaused")
        assert _waits(seen.state)
        asked = await reason(own_installation.cluster, own_namespace)
        versions = [it["metadata"]["resourceVersion"] for it in groups_in(seen.state)]
        await asyncio.sleep(5)
        assert versions == [it["metadata"]["resourceVersion"] for it in groups_in(seen.state)]

        await api.merge(_DEPLOYMENTS, _KAI, _NAME, {"spec": {"replicas": 0}})
        await seen.until(on_nodes("job", 2), "it starts")
        await seen.until(has_no_message, "the PodGroup has no reason any more")

    assert "SchedulerPaused" in asked
    assert f"another scheduler is ready as Deployment {_KAI}/{_NAME}" in asked


async def _until_paused(installation: Installation) -> None:
    await until(
        lambda: any("duplicate scheduler found" in it for it in installation.scheduler.lines()),
        "our scheduler finds the other",
    )
