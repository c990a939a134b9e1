"""Pods of kinds without an adapter: one PodGroup for their last owner, one write for each pod."""

from typing import Any

import pytest

from tests.trainer_kai.podgrouper.running_podgrouper import (
    FakeApiServer,
    batch_job,
    grouping,
    owned,
    owned_pod,
    reference,
)
from trainer_kai.podgrouper import other_kinds, owner_reader

DEPLOYMENT = owned("apps.Deployment", "web", labels={"kai.scheduler/queue": "team-a"})
REPLICA_SET = owned("apps.ReplicaSet", "web-1", DEPLOYMENT)
GROUP = "pg-web-uid-web"
WORKFLOW = owned("argoproj.io.Workflow", "flow", labels={"kai.scheduler/queue": "team-b"})


def cluster_of(*objects: Any) -> FakeApiServer:
    cluster = FakeApiServer()
    cluster.served = [
        ("example.com", "foos", "Foo"),
        ("argoproj.io", "workflows", "Workflow"),
    ]
    for it in objects:
        cluster.lists.setdefault(f"{it['kind'].lower()}s", []).append(it)
    return cluster


def groups_of(cluster: FakeApiServer) -> dict[str, Any]:
    return {body["metadata"]["name"]: body for _, body in cluster.writes_of("podgroups")}


def assigned(cluster: FakeApiServer) -> dict[str, str]:
    return {
        request.path.rpartition("/")[2]: body["metadata"]["annotations"]["pod-group-name"]
        for request, body in cluster.writes_of("pods")
    }


async def grouped(cluster: FakeApiServer, pods: int) -> None:
    async with grouping(cluster):
        await cluster.until("pods", pods)
        await cluster.until_seen()


async def test_the_pods_of_a_deployment_are_one_podgroup() -> None:
    """Of both of its ReplicaSets; its pods are watched by their scheduler."""
    newer = owned("apps.ReplicaSet", "web-2", DEPLOYMENT)
    pods = [owned_pod("a", REPLICA_SET), owned_pod("b", newer), owned_pod("bare")]
    cluster = cluster_of(DEPLOYMENT, REPLICA_SET, newer, *pods)
    await grouped(cluster, 2)

    assert assigned(cluster) == {"a": GROUP, "b": GROUP}
    [(_, group)] = cluster.writes_of("podgroups")
    assert group["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web"}
    ]
    spec = {"queue": "team-a", "priorityClassName": "inference", "minMember": 1}
    assert group["spec"] == spec
    [(_, event)] = cluster.writes_of("events")
    assert event["involvedObject"]["name"] == "web"
    assert event["message"] == f"Created PodGroup {GROUP} in queue team-a"


async def test_256_first_pods_at_once_cost_one_write_each_and_one_for_the_podgroup() -> None:
    """Also where each has an owner of its own below the common one."""
    foo = owned("example.com.Foo", "foo")
    jobs = [owned("apps.ReplicaSet", f"part-{n}", foo) for n in range(256)]
    cluster = cluster_of(foo, *jobs)
    async with grouping(cluster):
        await cluster.until_seen()
        for n, job in enumerate(jobs):
            cluster.send_event("pods", "ADDED", owned_pod(f"p-{n}", job))
        await cluster.until("pods", 256)
        await cluster.until_seen()

    assert len(cluster.writes_of("podgroups")) == 1
    assert len(cluster.writes_of("pods")) == 256
    reads = [count for path, count in cluster.reads.items() if path.endswith("/foos/foo")]
    assert sum(reads) <= 8  # by the workers that began together


async def test_equal_names_in_two_namespaces_are_two_podgroups() -> None:
    there = owned("apps.StatefulSet", "db", namespace="there", uid="uid-there")
    here = owned("apps.StatefulSet", "db")
    pods = [owned_pod("p", here), owned_pod("p", there, namespace="there", uid="uid-p-there")]
    cluster = cluster_of(here, there, *pods)
    await grouped(cluster, 2)

    written = {
        (it["metadata"]["namespace"], it["metadata"]["name"]) for it in groups_of(cluster).values()
    }
    assert written == {("default", "pg-db-uid-db"), ("there", "pg-db-uid-there")}


async def test_an_owner_made_anew_has_a_new_podgroup() -> None:
    """What still names the old one is grouped alone."""
    old = owned("example.com.Foo", "foo", uid="old")
    cluster = cluster_of(old, owned_pod("a", old))
    async with grouping(cluster):
        await cluster.until("pods", 1)
        new = owned("example.com.Foo", "foo", uid="new")
        cluster.lists["foos"] = [new]
        cluster.send_event("pods", "DELETED", owned_pod("a", old))
        cluster.send_event("pods", "ADDED", owned_pod("b", new))
        await cluster.until("pods", 2)

    assert assigned(cluster) == {"a": "pg-foo-old", "b": "pg-foo-new"}


async def test_a_forbidden_kind_is_said_once_and_stops_nothing() -> None:
    """Its pods are grouped by the last readable owner, or alone as in KAI."""
    foos = [owned("example.com.Foo", name) for name in ("x", "y")]
    sets = [owned("apps.StatefulSet", f"of-{it['metadata']['name']}", it) for it in foos]
    pods = [owned_pod("a", sets[0]), owned_pod("b", sets[1]), owned_pod("c", foos[0])]
    cluster = cluster_of(*foos, *sets, *pods, DEPLOYMENT, owned_pod("d", DEPLOYMENT))
    cluster.forbidden = {"foos"}
    await grouped(cluster, 4)

    assert assigned(cluster) == {
        "a": "pg-of-x-uid-of-x",
        "b": "pg-of-y-uid-of-y",
        "c": "pg-c-uid-c",
        "d": GROUP,
    }
    assert groups_of(cluster)["pg-c-uid-c"]["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    unread = [it for _, it in cluster.writes_of("events") if it["reason"] == "OwnerNotRead"]
    assert len(unread) == 1
    assert "give the ServiceAccount of the podgrouper the verb get" in unread[0]["message"]


async def test_a_queue_changes_while_no_pod_is_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an event of a pod: owners are asked again while one waits."""
    monkeypatch.setattr(owner_reader, "_KNOWN_S", 0.0)
    monkeypatch.setattr(other_kinds, "_AGAIN_S", 0.05)
    cluster = cluster_of(DEPLOYMENT, owned_pod("a", DEPLOYMENT))
    async with grouping(cluster):
        await cluster.until("podgroups", 1)
        moved = owned("apps.Deployment", "web", labels={"kai.scheduler/queue": "team-b"})
        cluster.lists["deployments"] = [moved]
        await cluster.until("podgroups", 2)
        by_us = {"pod-group-name": GROUP}
        bound = owned_pod("a", DEPLOYMENT, annotations=by_us, resourceVersion="7")
        bound["spec"]["nodeName"] = "n"
        cluster.send_event("pods", "MODIFIED", bound)
        await cluster.until_seen()
        cluster.lists["deployments"] = [DEPLOYMENT]
        cluster.send_event("pods", "ADDED", owned_pod("b", DEPLOYMENT))
        await cluster.until("pods", 2)
        await cluster.until("events", 2)
        await cluster.until_seen()

    queues = [body["spec"]["queue"] for _, body in cluster.writes_of("podgroups")]
    assert queues == ["team-a", "team-b"]
    [(_, event)] = [it for it in cluster.writes_of("events") if it[1]["type"] == "Warning"]
    assert event["reason"] == "NotWhileRunning"
    assert event["message"] == (
        "metadata.labels[kai.scheduler/queue]: queue remains 'team-b' while pods of the PodGroup "
        "run. To use 'team-a', let no pod of it run for a moment, for instance with 0 replicas"
    )


SKIP = {"kai.scheduler/skip-podgrouper": "true"}


@pytest.mark.parametrize("where", ["the pod", "its owner", "the owner of that"])
async def test_what_skips_the_podgrouper_is_left_alone(where: str) -> None:
    def annotations(who: str) -> dict[str, Any]:
        return {"annotations": SKIP} if who == where else {}

    top = owned("apps.Deployment", "top", **annotations("the owner of that"))
    middle = owned("apps.ReplicaSet", "middle", top, **annotations("its owner"))
    pod = owned_pod("a", middle, **annotations("the pod"))
    cluster = cluster_of(top, middle, pod, DEPLOYMENT, owned_pod("b", DEPLOYMENT))
    await grouped(cluster, 1)
    assert assigned(cluster) == {"b": GROUP}


async def test_annotations_by_hand() -> None:
    """Kept without an owner, and on a node; else replaced."""
    by_hand = {"pod-group-name": "mine"}
    bound = owned_pod("bound", REPLICA_SET, annotations=by_hand)
    bound["spec"]["nodeName"] = "n"
    pods = [
        owned_pod("bare", annotations=by_hand),
        owned_pod("a", REPLICA_SET, annotations=by_hand),
    ]
    cluster = cluster_of(DEPLOYMENT, REPLICA_SET, bound, *pods)
    await grouped(cluster, 1)
    assert assigned(cluster) == {"a": GROUP}


async def test_pods_of_a_pod_join_its_podgroup() -> None:
    """That which it has by hand, too."""
    driver, spare = owned_pod("driver"), owned_pod("spare", annotations={"pod-group-name": "mine"})
    cluster = cluster_of(driver, spare, owned_pod("a", driver), owned_pod("b", spare))
    await grouped(cluster, 2)
    assert assigned(cluster) == {"a": "pg-driver-uid-driver", "b": "mine"}
    assert set(groups_of(cluster)) == {"pg-driver-uid-driver"}


async def test_a_wrapper_is_skipped_and_its_labels_count() -> None:
    """For the pods that it creates itself, too: each is a PodGroup."""
    step = owned("apps.StatefulSet", "step", WORKFLOW)
    cluster = cluster_of(WORKFLOW, step, owned_pod("a", step), owned_pod("b", WORKFLOW))
    await grouped(cluster, 2)
    assert assigned(cluster) == {"a": "pg-step-uid-step", "b": "pg-b-uid-b"}
    assert {it["spec"]["queue"] for it in groups_of(cluster).values()} == {"team-b"}


async def test_jobs_that_admission_did_not_see_are_grouped_by_the_same_rule() -> None:
    """A pod that the Job does not count is none of its pods."""
    job = batch_job("old", annotations={"kai.scheduler/batch-min-member": "3"})
    job |= {"apiVersion": "batch/v1", "kind": "Job"}
    labels = {
        "batch.kubernetes.io/job-name": "old",
        "batch.kubernetes.io/controller-uid": "uid-old",
    }
    finalizers = ["batch.kubernetes.io/job-tracking"]
    pods = [owned_pod("a", job, labels=labels, finalizers=finalizers), owned_pod("forged", job)]
    cluster = cluster_of(job, *pods)
    await grouped(cluster, 2)
    assert assigned(cluster) == {"a": "pg-old-uid-old", "forged": "pg-forged-uid-forged"}
    assert groups_of(cluster)["pg-old-uid-old"]["spec"]["minMember"] == 3


async def test_a_second_podgrouper_writes_nothing() -> None:
    """What is there is read from the cluster; a PodGroup that is gone is made again."""
    cluster = cluster_of(DEPLOYMENT, REPLICA_SET, owned_pod("a", REPLICA_SET))
    await grouped(cluster, 1)
    [(_, group)] = cluster.writes_of("podgroups")
    group["metadata"] |= {"uid": "g", "resourceVersion": "9"}
    again = cluster_of(DEPLOYMENT, REPLICA_SET)
    again.lists["pods"] = [owned_pod("a", REPLICA_SET, annotations={"pod-group-name": GROUP})]
    again.lists["podgroups"] = [group]
    async with grouping(again):
        await again.until_seen()
        assert again.writes == []
        again.send_event("podgroups", "DELETED", group)
        await again.until("podgroups", 1)
    assert assigned(again) == {}


@pytest.mark.parametrize("how", ["gone", "being deleted"])
async def test_a_podgroup_is_not_made_again_for_an_owner_that_is(how: str) -> None:
    """The pods of a Deployment outlive it by a moment, and its PodGroup goes with it."""
    cluster = cluster_of(DEPLOYMENT, REPLICA_SET, owned_pod("a", REPLICA_SET))
    async with grouping(cluster):
        await cluster.until("pods", 1)
        [(_, group)] = cluster.writes_of("podgroups")
        group["metadata"] |= {"uid": "g", "resourceVersion": "9"}
        by_us = {"pod-group-name": GROUP}
        assigned_pod = owned_pod("a", REPLICA_SET, annotations=by_us, resourceVersion="7")
        cluster.send_event("podgroups", "ADDED", group)
        cluster.send_event("pods", "MODIFIED", assigned_pod)
        await cluster.until_seen()
        ending = owned("apps.Deployment", "web", deletionTimestamp="2026-01-01T00:00:00Z")
        cluster.lists["deployments"] = [ending] if how == "being deleted" else []
        cluster.send_event("podgroups", "DELETED", group)
        await cluster.until_seen()
        assigned_pod["metadata"] |= {"resourceVersion": "8", "labels": {"new": ""}}
        cluster.send_event("pods", "MODIFIED", assigned_pod)
        await cluster.until_seen()
    assert [len(cluster.writes_of(it)) for it in ("podgroups", "pods")] == [1, 1]


async def test_a_pod_that_its_job_gives_up_keeps_its_podgroup() -> None:
    """When a Job is deleted its pods lose the finalizer first."""
    labels = {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/controller-uid": "uid-j"}
    by_webhook = {"pod-group-name": "pg-j-uid-j"}
    pod = owned_pod("a", owned("batch.Job", "j"), labels=labels, annotations=by_webhook)
    cluster = cluster_of(DEPLOYMENT, pod, owned_pod("b", DEPLOYMENT))
    await grouped(cluster, 1)
    assert assigned(cluster) == {"b": GROUP}


async def test_a_pod_with_several_owners_is_grouped_alone() -> None:
    pod = owned_pod("a")
    pod["metadata"]["ownerReferences"] = [
        reference(it, controller=False) for it in (DEPLOYMENT, REPLICA_SET)
    ]
    cluster = cluster_of(DEPLOYMENT, REPLICA_SET, pod)
    await grouped(cluster, 1)
    assert assigned(cluster) == {"a": "pg-a-uid-a"}
    [(_, event)] = cluster.writes_of("events")
    assert event["message"] == (
        "The PodGroup is that of the pod alone, because the pod has several owners, and none of "
        "them is its controller"
    )
