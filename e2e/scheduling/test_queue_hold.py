"""Queues that are held and released on the real chain, listed; and what a TrainJob may change."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import TRAINJOBS, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import groups_in
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    is_suspended,
    on_nodes,
    submit,
    suspensions,
)


async def test_a_held_queue_starts_nothing_until_it_is_released(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """What runs stays; a drain evicts it, and all start after the release."""
    cluster, ns = two_teams_installation.cluster, two_teams_namespace
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=ns) as seen:
        await submit(cluster, ns, Job("runs", "owner", 2))
        await seen.until(on_nodes("runs", 2), "it runs")
        await trainer_kai(cluster, "queue", "hold", "owner")
        await submit(cluster, ns, Job("waits", "owner", 2))
        await seen.until(waits_for("waits", "QueueHeld"), "it waits for the release")
        rows = await listed(cluster, ns)
        assert {name: it["state"] for name, it in rows.items()} == {
            "runs": "runs",
            "waits": "waits",
        }
        assert rows["waits"]["reason"]["title"] == "QueueHeld"
        assert (rows["runs"]["gpus"], len(rows["runs"]["nodes"])) == (2, 1)

        await cluster.api.merge(
            TRAINJOBS, ns, "waits", {"metadata": {"labels": {"priorityClassName": "build"}}}
        )
        await seen.until(has_class("waits", "build"), "its new priority counts while it waits")

        await trainer_kai(cluster, "queue", "hold", "owner", "--drain")
        await seen.until(on_nodes("runs", 0), "what ran is evicted", 60)
        assert suspensions(seen.history(), "runs") == 1
        await trainer_kai(cluster, "queue", "release", "owner")
        await seen.until(on_nodes("waits", 2), "what waited starts", 60)
        await seen.until(on_nodes("runs", 2), "what was evicted starts again", 60)
        assert not is_suspended("runs")(seen.state)


def waits_for(name: str, reason: str) -> Callable[[State], bool]:
    def look(state: State) -> bool:
        groups = groups_of(state, name)
        conditions = [it.get("status", {}).get("schedulingConditions") or [] for it in groups]
        return any(one["reasons"][-1]["reason"] == reason for them in conditions for one in them)

    return look


def has_class(name: str, priority_class: str) -> Callable[[State], bool]:
    def look(state: State) -> bool:
        classes = {it["spec"].get("priorityClassName") for it in groups_of(state, name)}
        return classes == {priority_class}

    return look


def groups_of(state: State, name: str) -> list[Obj]:
    return [it for it in groups_in(state) if it["metadata"]["name"].startswith(f"pg-{name}-")]


async def listed(cluster: Cluster, namespace: str) -> dict[str, Any]:
    document = json.loads(await trainer_kai(cluster, "list", "-n", namespace, "-o", "json"))
    return {it["name"]: it for it in document["workloads"]}


async def trainer_kai(cluster: Cluster, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainer_kai.cli", *arguments),
        *("--kubeconfig", str(cluster.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()
