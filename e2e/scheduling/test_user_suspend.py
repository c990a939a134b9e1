"""What a user writes on a TrainJob while it is evicted: the user's wish counts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import TRAINJOBS, Obj
from e2e.cluster.timeline import Timeline
from e2e.fixtures.installation import Installation
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    complete,
    has_no_annotation,
    has_no_running_pods,
    is_suspended,
    kubelets_paused,
    let_finish,
    on_nodes,
    submit,
    suspensions,
)

_RECORD = "trainer-kai.dev/evicted-by"
_USER = "argocd-controller"


@asynccontextmanager
async def evicted(
    cluster: Cluster,
    namespace: str,
    seen: Timeline,
    victim: str = "victim",
    owner: str = "owner",
) -> AsyncIterator[Obj]:
    """Have a borrower make room for an owner; until it ends it is asked to, and has not left."""
    manifest = await submit(cluster, namespace, Job(victim, "borrower", 8), _USER)
    await seen.until(on_nodes(victim, 8), "the borrower runs")
    with kubelets_paused(cluster):
        await submit(cluster, namespace, Job(owner, "owner", 8, "2s"))
        await seen.until(is_suspended(victim), "it is to make room")
        yield manifest


def with_suspend(manifest: Obj, *, value: bool) -> Obj:
    """Return a manifest that says whether it is suspended."""
    return {**manifest, "spec": {**manifest["spec"], "suspend": value}}


async def annotations(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Return the annotations of the one who made room."""
    job = await cluster.api.get(TRAINJOBS, namespace, "victim")
    found: dict[str, Any] = job["metadata"].get("annotations", {})
    return found


async def test_a_suspend_by_the_user_stays(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Its user applies that meanwhile: nothing of ours is left, and it goes on when told to."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        async with evicted(cluster, two_teams_namespace, seen) as manifest:
            await cluster.api.apply(with_suspend(manifest, value=True), _USER)
        await seen.until(complete("owner"), "the owner is done", 60)
        await seen.until(has_no_annotation("victim", _RECORD), "we have let go of it")
        assert is_suspended("victim")(seen.state)
        await cluster.api.apply(with_suspend(manifest, value=False), _USER)
        await let_finish(cluster, seen, "victim", 8)


async def test_without_the_record_it_stays_suspended(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """It is a wish as well, and we do not ask for it back."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        async with evicted(cluster, two_teams_namespace, seen):
            fields = {"metadata": {"annotations": {_RECORD: None}}}
            await cluster.api.merge(TRAINJOBS, two_teams_namespace, "victim", fields)
        await seen.until(complete("owner"), "the owner is done", 60)
        assert is_suspended("victim")(seen.state)
        await cluster.api.merge(
            TRAINJOBS, two_teams_namespace, "victim", {"spec": {"suspend": False}}
        )
        await let_finish(cluster, seen, "victim", 8)


async def test_a_trainjob_applied_again_comes_back(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Again and again, as those do that keep a cluster like a repository."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        async with evicted(cluster, two_teams_namespace, seen) as manifest:
            for _ in range(3):
                await cluster.api.apply(manifest, _USER)
        await seen.until(complete("owner"), "the owner is done", 60)
        await let_finish(cluster, seen, "victim", 8)
        history = seen.history()

    assert suspensions(history, "victim") == 1
    assert _RECORD not in await annotations(cluster, two_teams_namespace)


async def test_a_resume_by_the_user_waits_unsuspended(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Somebody sets it back at once: its new pods wait until the owner is done."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        async with evicted(cluster, two_teams_namespace, seen) as manifest:
            await cluster.api.apply(with_suspend(manifest, value=False), _USER)
        await seen.until(complete("owner"), "the owner is done", 60)
        await let_finish(cluster, seen, "victim", 8)

        await seen.until(has_no_annotation("victim", _RECORD), "we have let go of it")


async def test_a_trainjob_deleted_meanwhile_is_gone(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """And so may be whoever it made room for: the borrower then has it back."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        async with evicted(cluster, two_teams_namespace, seen):
            await cluster.api.delete(
                TRAINJOBS, two_teams_namespace, "victim", propagationPolicy="Foreground"
            )
        await seen.until(complete("owner"), "the owner is done", 60)
        async with evicted(cluster, two_teams_namespace, seen, "second", "brief"):
            await cluster.api.delete(
                TRAINJOBS, two_teams_namespace, "brief", propagationPolicy="Background"
            )
            await seen.until(has_no_running_pods("second"), "its pods are being deleted")
        await let_finish(cluster, seen, "second", 8)  # it has its room back
