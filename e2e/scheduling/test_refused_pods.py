"""Pods that a quota or a policy of the cluster refuses: it is told why, and as long as it is so."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import NAMESPACES, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import groups_in, pods_in
from e2e.fixtures.trainjobs import Job, bare_pod, complete, on_nodes, submit
from e2e.scheduling.test_why import sentences_of

_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_QUOTA_SEEN_S: Final = 20.0
_SLOW_S: Final = 60.0  # a Job that was refused tries again later and later


def has_message(*words: str) -> Callable[[State], bool]:
    """Return a test whether the group is told why it waits, in these words."""
    return lambda state: all(word in _message(state) for word in words)


def has_no_message(state: State) -> bool:
    """Say whether nothing is told of the group."""
    return not _message(state)


def _message(state: State) -> str:
    """Return what the group is told; "" if that is nothing."""
    groups = (it.get("status", {}).get("schedulingConditions", ()) for it in groups_in(state))
    return " ".join(
        f"{it['reasons'][-1]['reason']}: {it['message']}" for one in groups for it in one
    )


async def _limit(cluster: Cluster, namespace: str, pods: int) -> None:
    spec: Obj = {"spec": {"hard": {"pods": str(pods)}}}
    await cluster.api.merge(_QUOTAS, namespace, "few", spec)


async def reason(cluster: Cluster, namespace: str) -> str:
    """Return what a user is told who asks."""
    output = await sentences_of("why", "job", "-n", namespace, kubeconfig=cluster.kubeconfig)
    return " ".join(output.out.split())  # without the breaks of lines


def _failed() -> Obj:
    """Return the status of a pod that has just failed: its Job then waits for ten seconds."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    container = {"name": "node", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    state = {"terminated": {"exitCode": 1, "finishedAt": now}}
    return {"phase": "Failed", "containerStatuses": [{**container, "state": state}]}


async def test_a_pod_quota_is_reported_until_the_pods_exist(
    installation: Installation, own_namespace: str
) -> None:
    """And when one is lost later, the quota of then is not told as the reason."""
    api = installation.cluster.api
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    quota |= {"apiVersion": _QUOTAS.api_version, "kind": _QUOTAS.kind}
    await api.request("POST", _QUOTAS.path(own_namespace), quota)
    async with installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace=own_namespace
    ) as seen:
        await submit(installation.cluster, own_namespace, Job("job", "default-queue", 4))
        is_explained = has_message(
            "PodsMissing: ", "2 of 4 exist", "cannot create its pods", "exceeded quota"
        )
        await seen.until(is_explained, "the quota is told")
        asked = await reason(installation.cluster, own_namespace)
        assert not any(pod["spec"].get("nodeName") for pod in pods_in(seen.state))

        await _limit(installation.cluster, own_namespace, 4)
        await seen.until(on_nodes("job", 4), "all of it runs", _SLOW_S)
        await seen.until(has_no_message, "it is told no more")
        lost = pods_in(seen.state)[0]["metadata"]["name"]
        await api.merge(PODS, own_namespace, lost, {"status": _failed()}, "status")
        await seen.until(on_nodes("job", 3), "one has failed, and its Job waits for a while")
        later = await reason(installation.cluster, own_namespace)

    assert "PodsMissing" in asked
    assert "2 of 4 exist" in asked
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in asked
    assert "exceeded quota" not in later


async def _until_refused(cluster: Cluster, namespace: str) -> None:
    """Wait until the policy holds: whoever refuses pods hears of labels by a watch."""
    pod = bare_pod(namespace, "asked-for", "default-queue", 1)
    async with patience(_QUOTA_SEEN_S):
        while True:
            try:
                await cluster.api.create(pod, dryRun="All")
            except ApiError as error:
                if "violates PodSecurity" not in str(error):
                    raise
                return
            await asyncio.sleep(0.05)


async def test_a_policy_that_refuses_all_pods_is_reported(
    installation: Installation, own_namespace: str
) -> None:
    """There is not one pod then, and nothing to plan for."""
    api = installation.cluster.api
    await api.merge(
        NAMESPACES, None, own_namespace, {"metadata": {"labels": {_ENFORCE: "restricted"}}}
    )
    await _until_refused(installation.cluster, own_namespace)
    async with installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace=own_namespace
    ) as seen:
        await submit(installation.cluster, own_namespace, Job("job", "default-queue", 2, "1s"))
        is_explained = has_message(
            "PodsMissing: ", "0 of 2 exist", 'violates PodSecurity "restricted:latest"'
        )
        await seen.until(is_explained, "the policy is told")
        asked = await reason(installation.cluster, own_namespace)
        labels = {"metadata": {"labels": {_ENFORCE: "privileged"}}}
        await api.merge(NAMESPACES, None, own_namespace, labels)
        await seen.until(complete("job"), "it is Complete", _SLOW_S)

    assert (
        'Job job-node-0 cannot create its pods: violates PodSecurity "restricted:latest"' in asked
    )
    assert has_no_message(seen.state)
