"""Others change what we have seen, and people ask what would be: both without harm."""

import asyncio
import json
from typing import Final

import aiohttp
import pytest
import yaml

from e2e.admission_grouping.second_webhook import LABEL, SIDECAR, second_webhook
from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS, run_kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, SUBGROUP, groups_in
from e2e.fixtures.processes import ProductProcess

_FOLLOWS: Final = "trainer-kai.dev/follows-trainjob"
_ADMITTED: Final = "trainer-kai.dev/admitted"
_LABELS: Final = {QUEUE: "team-b"}
# The accounts of the controllers of the chain, which write in each namespace by themselves.
_CHAIN: Final = ("trainer", "jobset", "system:kube-controller-manager")


async def test_who_is_changed_after_us_is_seen_again(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Ours is asked a second time: what the TrainJob says is back, and what was added stays."""
    cluster, job = (
        webhook_installation.cluster,
        Submission("job", "torch-distributed", own_namespace, 2, labels=_LABELS),
    )
    async with (
        second_webhook(cluster, own_namespace, "team-a") as asked,
        cluster.timeline(JOBSETS, JOBS, PODS, PODGROUPS, namespace=own_namespace) as seen,
    ):
        before = await _reviews(webhook_installation.webhook)
        await cluster.api.create(job.trainjob())
        await seen.until(
            lambda state: len(groups_in(state)) == 1 and len(seen.objects(PODS)) == 2, "all is made"
        )
        after = await _reviews(webhook_installation.webhook)

    (jobset,), (group,) = seen.objects(JOBSETS), seen.objects(PODGROUPS)
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert jobset["metadata"]["labels"] == _LABELS
    assert {*jobset["metadata"]["annotations"]} == {_ADMITTED, _FOLLOWS}
    assert group["spec"]["queue"] == "team-b"
    for pod in (template, *seen.objects(PODS)):
        assert [it["name"] for it in pod["spec"]["containers"]] == ["node", SIDECAR]
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert pod["metadata"]["labels"].items() >= {LABEL: "yes", **_LABELS}.items()
    for pod in seen.objects(PODS):
        assert pod["metadata"]["annotations"][PODGROUP] == group["metadata"]["name"]
        assert pod["metadata"]["labels"][SUBGROUP] == "node-replica-0"
    assert (asked["JobSet"], asked["Pod"]) == (1, 2)
    counts = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in ("JobSet", "Pod")}
    assert counts["Pod"] == 4
    assert counts["JobSet"] >= 2  # Trainer may have applied it once more


async def _reviews(webhook: ProductProcess) -> dict[str, int]:
    """Return how many creations were reviewed so far, by kind; nothing else is under way."""
    await asyncio.sleep(1.1)  # the text of the metrics is kept for a second
    url = webhook.ready_url.replace("/readyz", "/metrics")
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = (await answer.text()).splitlines()
    found: dict[str, int] = {}
    for kind in ("JobSet", "Pod"):
        marks = f'trainer_kai_admission_reviews_total{{kind="{kind.lower()}"'
        found[kind] = sum(int(float(it.split()[-1])) for it in lines if it.startswith(marks))
    return found


async def test_diff_and_dry_run_show_what_would_be(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """By kubectl, of a TrainJob and of its JobSet; and nothing is written by anybody."""
    cluster = webhook_installation.cluster
    job = Submission("job", "torch-distributed", own_namespace, 2, labels=_LABELS).trainjob()
    job["spec"]["suspend"] = True
    owner = await cluster.api.create(job)
    async with cluster.timeline(TRAINJOBS, JOBSETS, PODGROUPS, namespace=own_namespace) as seen:
        await seen.until(lambda _: len(seen.objects(JOBSETS)) == 1, "the TrainJob is taken up")
    mark = await cluster.audit.mark()
    other = {**job, "metadata": {**job["metadata"], "labels": {QUEUE: "team-a"}}}
    fresh = {**job, "metadata": {**job["metadata"], "name": "fresh"}}

    changed = await _diff(cluster, other)
    created = await _diff(cluster, fresh)
    of_jobset = await _diff(cluster, _jobset(own_namespace, owner))
    dry = await _kubectl(
        cluster, "apply", "--server-side", "--dry-run=server", "-o=json", given=fresh
    )

    assert f"-    {QUEUE}: team-b" in changed
    assert f"+    {QUEUE}: team-a" in changed
    assert "+kind: TrainJob" in created
    assert f"+    {QUEUE}: team-b" in of_jobset
    assert "schedulerName: kai-scheduler" in of_jobset
    assert f"+    {_ADMITTED}: v1" in of_jobset
    assert json.loads(dry)["metadata"]["labels"] == _LABELS
    writes = [it for it in await cluster.audit.writes(mark) if it.namespace == own_namespace]
    assert [it for it in writes if it.user not in _CHAIN] == []
    for resource, name in ((TRAINJOBS, "fresh"), (JOBSETS, "dry")):
        with pytest.raises(ApiError, match="404"):
            await cluster.api.get(resource, own_namespace, name)


def _jobset(namespace: str, owner: Obj) -> Obj:
    """Return a JobSet of a TrainJob."""
    reference = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": "TrainJob",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    pods = {"containers": [{"name": "node", "image": "none"}], "restartPolicy": "Never"}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pods}}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": "JobSet",
        "metadata": {"namespace": namespace, "name": "dry", "ownerReferences": [reference]},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


async def _diff(cluster: Cluster, obj: Obj) -> str:
    return await _kubectl(cluster, "diff", "--server-side", "--force-conflicts", given=obj)


async def _kubectl(cluster: Cluster, verb: str, *more: str, given: Obj) -> str:
    """Give kubectl an object; 1 is how a diff says that there is one."""
    config = ("--kubeconfig", str(cluster.kubeconfig))
    ran = await run_kubectl(*config, verb, *more, "-f=-", given=yaml.safe_dump(given))
    assert ran.status <= (verb == "diff"), ran.err
    return ran.out
