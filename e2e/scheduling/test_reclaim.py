"""Over-quota pods are reclaimed: the owner gets its room, the victim comes back unharmed."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

import pytest

from e2e.cluster.resources import PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    bare_pod,
    complete,
    events_of,
    failures,
    has_failed,
    has_node,
    let_finish,
    make_queue,
    on_nodes,
    pods_created,
    resumptions,
    submit,
    suspensions,
)
from e2e.size import size

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_TIMES: Final = size(2, 5)
_SECOND_S: Final = 1.0  # in which two objects are equally old
KUEUE: Final = "kueue.x-k8s.io/queue-name"


@pytest.mark.sized
async def test_a_trainjob_reclaimed_again_and_again_completes(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """All eight pods leave at once each time, and not one of them counts as failed."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("victim", "borrower", 8))
        for i in range(_TIMES):
            await seen.until(on_nodes("victim", 8), f"the borrower runs, reclaimed {i} times")
            await submit(cluster, two_teams_namespace, Job(f"owner-{i}", "owner", 8, "1s"))
            await seen.until(complete(f"owner-{i}"), "whoever owns the GPUs has run", 60)
        await let_finish(cluster, seen, "victim", 8)
        history = seen.history()

        assert failures(seen.state, "victim") == (0, 0)
        assert (suspensions(history, "victim"), resumptions(history, "victim")) == (_TIMES, _TIMES)
        assert pods_created(history, "victim") == (_TIMES + 1) * 8
        job = await cluster.api.get(TRAINJOBS, two_teams_namespace, "victim")
        assert "trainer-kai.dev/evicted-by" not in job["metadata"].get("annotations", {})
        assert "suspend" not in {
            name
            for it in job["metadata"]["managedFields"]
            if it["manager"] == "trainer-kai-eviction"
            for name in it["fieldsV1"].get("f:spec", {})
        }
        events = await events_of(cluster, two_teams_namespace, "victim")
        assert "queue borrower was over its fair share" in events["Evicted"]
        events = await events_of(cluster, two_teams_namespace, "owner-0")
        assert "victim" in events["Evicting"]
        groups = await cluster.api.request("GET", PODGROUPS.path(two_teams_namespace))
        (last,) = [
            json.loads(group["metadata"]["annotations"]["trainer-kai.dev/last-eviction"])
            for group in groups["items"]
            if "victim" in group["metadata"]["name"]
        ]
        assert (last["action"], last["queue"], last["forQueue"]) == ("reclaim", "borrower", "owner")
        assert (last["for"], last["gpus"], last["evictions"]) == (
            f"{two_teams_namespace}/owner-{_TIMES - 1}",
            8,
            _TIMES,
        )


async def test_a_forgotten_queue_label_does_not_beat_a_quota(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Without a label a TrainJob may use the whole cluster, until a team wants what it owns."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("forgotten", "", 8))
        await seen.until(on_nodes("forgotten", 8), "it uses all GPUs")
        await submit(cluster, two_teams_namespace, Job("notebook", "", 1, priority="inference"))
        for words in (
            "Queue default-queue has a quota of 0 GPU",
            "(label kai.scheduler/preemptibility: preemptible)",
            "it names another queue with enough quota",
        ):
            await seen.until(_message("notebook", words), "it needs a quota, or another label")
        await submit(cluster, two_teams_namespace, Job("mine", "owner", 8, "1s"))
        await seen.until(complete("mine"), "the team has what it owns", 60)
        await seen.until(on_nodes("forgotten", 8), "the GPUs are lent again", 60)
        events = await events_of(cluster, two_teams_namespace, "forgotten")

    assert "queue default-queue was over its fair share" in events["Evicted"]


async def test_deleted_pods_fail_the_trainjob_instead(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """What anybody else does who takes room back: deleted pods count against the TrainJob."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        await submit(cluster, two_teams_namespace, Job("victim", "borrower", 8))
        await seen.until(on_nodes("victim", 8), "it runs")
        await cluster.api.kill_pods(two_teams_namespace)
        await seen.until(has_failed("victim"), "it has failed for good", 60)


async def test_two_teams_lend_and_give_back(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Only who came last goes; when the other team is done it goes on, and all are Complete."""
    cluster = two_teams_installation.cluster
    for team in ("left", "right"):
        await make_queue(cluster, team, 4, two_teams_namespace)
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        for name in ("first", "second"):
            await submit(cluster, two_teams_namespace, Job(name, "left", 4))
            await seen.until(on_nodes(name, 4), f"{name} runs")
            await asyncio.sleep(_SECOND_S)
        await submit(cluster, two_teams_namespace, Job("guest", "right", 4))
        await seen.until(on_nodes("guest", 4), "the other team has what it owns")
        await seen.until(on_nodes("second", 0), "whoever came last made room")
        for name in ("guest", "first", "second"):
            await let_finish(cluster, seen, name, 4)
        history = seen.history()

    times = {name: suspensions(history, name) for name in ("first", "second", "guest")}
    assert times == {"first": 0, "second": 1, "guest": 0}


async def test_higher_priority_preempts_in_its_own_queue(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """By priority, and of those with less of it whoever came last."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        for name in ("old", "new"):
            await submit(cluster, two_teams_namespace, Job(name, "owner", 4, priority="train"))
            await seen.until(on_nodes(name, 4), f"{name} runs")
            await asyncio.sleep(_SECOND_S)
        await submit(cluster, two_teams_namespace, Job("urgent", "owner", 4, priority="inference"))
        for name in ("urgent", "old", "new"):
            await let_finish(cluster, seen, name, 4)
        history = seen.history()
        events = await events_of(cluster, two_teams_namespace, "new")

    assert [suspensions(history, name) for name in ("old", "new", "urgent")] == [0, 1, 0]
    assert "its priority is 125, that of " in events["Evicted"]


async def test_what_kueue_keeps_is_let_alone_and_a_budget_is_passed(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """A condition says why the claim waits; both go then, and the pod's names the budget."""
    cluster = two_teams_installation.cluster
    kept = bare_pod(two_teams_namespace, "lodger", "borrower", 4)
    kept["metadata"]["labels"]["app"] = "lodger"
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=two_teams_namespace) as seen:
        await cluster.api.request(
            "POST", BUDGETS.path(two_teams_namespace), _budget(two_teams_namespace)
        )
        await cluster.api.create(kept)
        await seen.until(has_node("lodger"), "a pod borrows")
        kueues = Job("kueues", "borrower", 4, "600s", labels={KUEUE: "theirs"})
        await submit(cluster, two_teams_namespace, kueues)
        await seen.until(on_nodes("kueues", 4), "both borrow")
        await submit(cluster, two_teams_namespace, Job("claim", "owner", 8, "1s"))
        await seen.until(
            _message("claim", "because Kueue suspends and resumes the TrainJob"), "it says why"
        )
        fields = {"metadata": {"labels": {KUEUE: None}}}
        await cluster.api.merge(TRAINJOBS, two_teams_namespace, "kueues", fields)
        await seen.until(complete("claim"), "the claim is met", 60)
        history = seen.history()

    marked = [it.obj for it in history if it.key.name == "lodger" and _evicted(it.obj)]
    events = f"PodDisruptionBudget {two_teams_namespace}/lodgers allows only 0"
    assert events in _evicted(marked[0])[0]["message"]


async def test_pods_of_others_are_marked_and_deleted(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """A pod on its own has nobody to suspend it; it is told why, and a bare claimant is served."""
    cluster = two_teams_installation.cluster
    async with cluster.timeline(PODS, namespace=two_teams_namespace) as seen:
        await cluster.api.create(bare_pod(two_teams_namespace, "lodger", "borrower", 8))
        await seen.until(has_node("lodger"), "it runs")
        await cluster.api.create(bare_pod(two_teams_namespace, "landlord", "owner", 8))
        await seen.until(has_node("landlord"), "its room is another's")
        history = seen.history()

    marked = [it.obj for it in history if it.key.name == "lodger" and _evicted(it.obj)]
    assert [it["reason"] for it in _evicted(marked[0])] == ["PreemptionByScheduler"]


def _evicted(pod: Obj) -> list[Obj]:
    conditions = pod["status"].get("conditions", ())
    return [it for it in conditions if it["type"] == "DisruptionTarget"]


def _message(name: str, words: str) -> Callable[[State], bool]:
    """Return a test whether the group of a TrainJob is told this."""

    def look(state: State) -> bool:
        groups = [it for key, it in state.items() if key.resource == PODGROUPS]
        mine = [it for it in groups if it["metadata"]["name"].startswith(f"pg-{name}-")]
        output = [it["message"] for group in mine for it in _conditions(group)]
        return any(words in message for message in output)

    return look


def _conditions(group: Obj) -> list[Obj]:
    found: list[Obj] = group.get("status", {}).get("schedulingConditions") or []
    return found


def _budget(namespace: str) -> Obj:
    """Return a budget by which a pod may not go."""
    selector = {"matchLabels": {"app": "lodger"}}
    return {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": "lodgers", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": selector},
    }
