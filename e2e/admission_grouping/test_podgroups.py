"""The life of a PodGroup: it follows its JobSet, survives changes, and is deleted with it."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import FAIL_SECONDS
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission, condition, pod_annotations
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.dry_run import make_unmanaged_trainjob
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import (
    PODGROUP,
    QUEUE,
    SUBGROUP,
    bind_by_podgroups,
    groups_in,
    podgroup_summary,
    pods_in,
)
from e2e.fixtures.processes import NAMESPACE, SCHEDULER

_APPLY = "application/apply-patch+yaml"
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_MADE: Final = (JOBSETS, PODS, PODGROUPS)  # for a TrainJob


async def test_the_queue_follows_at_resume(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """While it is suspended the label may change; the same group goes on in the new queue."""
    job = Submission("job", "torch-distributed", own_namespace, 2, labels={QUEUE: "team-a"})
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "both pods are in the group")
        (before,) = seen.objects(PODGROUPS)
        await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": True}})
        await seen.until(lambda _: not seen.objects(PODS), "the pods are gone")
        await _merge(
            webhook_installation.cluster, own_namespace, {"metadata": {"labels": {QUEUE: "team-b"}}}
        )
        await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": False}})
        await seen.until(lambda state: _are_assigned(state, 2), "both pods are back")
        await seen.until(lambda state: _queues(state) == ["team-b"], "the group moved")

    (after,) = seen.objects(PODGROUPS)
    assert before["spec"]["queue"] == "team-a"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert {pod["metadata"]["labels"][QUEUE] for pod in seen.objects(PODS)} == {"team-b"}


async def test_what_others_wrote_survives(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A reservation, an assigned topology and a back-off stay when the queue of a group changes."""
    job = Submission("job", "torch-distributed", own_namespace, 2, labels={QUEUE: "team-a"})
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "both pods are in the group")
        theirs = {
            "metadata": {"annotations": {"trainer-kai.dev/reserved": "{}"}},
            "spec": {"schedulingBackoff": 1, "topologyConstraint": {"topology": "rooms"}},
        }
        await _apply_as_scheduler(webhook_installation.cluster, seen.objects(PODGROUPS)[0], theirs)
        await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": True}})
        await seen.until(lambda _: not seen.objects(PODS), "the pods are gone")
        await _merge(
            webhook_installation.cluster, own_namespace, {"metadata": {"labels": {QUEUE: "team-b"}}}
        )
        await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": False}})
        await seen.until(lambda state: _queues(state) == ["team-b"], "the group moved")

    (group,) = seen.objects(PODGROUPS)
    assert group["metadata"]["annotations"]["trainer-kai.dev/reserved"] == "{}"
    assert group["spec"]["schedulingBackoff"] == 1
    assert group["spec"]["topologyConstraint"] == {"topology": "rooms"}


async def test_drift_is_put_right_and_a_deleted_group_comes_back(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Who edits our fields, or deletes a group, changes nothing for long."""
    job = Submission("job", "deepspeed-distributed", own_namespace, 3)
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "the first pods are in the group")
        (group,) = seen.objects(PODGROUPS)
        name = group["metadata"]["name"]
        edit = {"spec": {"minSubGroup": 1, "queue": "mine"}}
        await webhook_installation.cluster.api.merge(PODGROUPS, own_namespace, name, edit)
        await seen.settle()  # else it is as it was because the edit has not been seen yet
        await seen.until(
            lambda _: seen.objects(PODGROUPS)[0]["spec"] == group["spec"], "it is as it was"
        )
        await webhook_installation.cluster.api.delete(PODGROUPS, own_namespace, name)
        await seen.until(
            lambda state: _uid_of_group(state) != group["metadata"]["uid"], "it is new"
        )
        await seen.until(lambda state: len(groups_in(state)) == 1, "it is back")

    assert seen.objects(PODGROUPS)[0]["spec"] == group["spec"]


async def test_a_restart_keeps_the_group(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A JobSet that starts again brings new pods into the same group, while old ones are going."""
    runtime = await _runtime(
        webhook_installation.cluster, own_namespace, {"failurePolicy": {"maxRestarts": 2}}
    )
    job = Submission(
        "job", runtime, own_namespace, 2, kind="TrainingRuntime", patches=_failing("2s")
    )
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await bind_by_podgroups(
            webhook_installation.cluster, seen, lambda state: _newest(state) == "1", 60
        )
        await seen.until(lambda state: _attempts(state) == {"1"}, "only new pods are left", 60)

    (group,) = seen.objects(PODGROUPS)
    names = {pod["metadata"]["annotations"][PODGROUP] for pod in seen.objects(PODS)}
    assert names == {group["metadata"]["name"]}
    assert len({m.obj["metadata"]["uid"] for m in seen.moments if m.key.resource == PODGROUPS}) == 1
    assert podgroup_summary(group) == "2 node"


async def test_a_namesake_is_another(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A TrainJob that is deleted and made again, at once or later, shares no group with others.

    How many pods the one made at once has is not asked: the Job controller counts what it expects
    by the name of a Job, and after such a change it can wait five minutes before it makes any.
    """
    job = Submission("job", "torch-distributed", own_namespace, 2)
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "both pods are in the group")
        old = seen.objects(JOBSETS)[0]["metadata"]["uid"]
        await webhook_installation.cluster.api.delete(TRAINJOBS, own_namespace, "job")
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _is_all_of_another(state, old), "the new one is there")
        await webhook_installation.cluster.api.delete(TRAINJOBS, own_namespace, "job")
        await seen.until(_has_no_workload, "Jobs and pods are gone")
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "and so is the third")

    for moment in seen.moments:
        if moment.key.resource == PODS:
            meta = moment.obj["metadata"]
            assert meta["annotations"][PODGROUP].endswith(_manager_of(moment.obj))


async def test_a_part_without_replicas_is_left_out(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Replicas 0 and numNodes 0 make no group, and nothing waits for them."""
    empty = Submission("empty", "torch-distributed", own_namespace, 0)
    async with _uids(webhook_installation.cluster, own_namespace) as seen:
        await webhook_installation.cluster.api.create(empty.trainjob())
        made = Submission("job", "torch-distributed", own_namespace, 2)
        owner = await make_unmanaged_trainjob(webhook_installation.cluster, made)
        await webhook_installation.cluster.api.create(_unusual_jobset(own_namespace, owner))
        await seen.until(lambda state: _has_pods(state, 2), "both pods of the JobSet exist")
        await seen.until(lambda state: len(groups_in(state)) == 1, "its group exists")
        await seen.until(lambda state: _is_done(state, "empty"), "no nodes are done at once")

    (jobset,) = [obj for obj in seen.objects(JOBSETS) if obj["metadata"]["name"] == "job"]
    assert [job["replicas"] for job in jobset["spec"]["replicatedJobs"]] == [1, 0]
    assert [podgroup_summary(group) for group in seen.objects(PODGROUPS)] == ["2 node"]


async def test_deletion_needs_nobody_of_us(
    damaged_webhook_installation: WebhookInstallation,
) -> None:
    """With all our processes dead a TrainJob is deleted as without us, in all three ways."""
    api = damaged_webhook_installation.cluster.api
    ways = ("Foreground", "Background", "Orphan")
    async with AsyncExitStack() as stack:
        rooms = {}
        for how in ways:
            await make_namespace(damaged_webhook_installation.cluster, how.lower())
            seen = _uids(damaged_webhook_installation.cluster, how.lower())
            rooms[how] = await stack.enter_async_context(seen)
            job = Submission("job", "deepspeed-distributed", how.lower(), 3)
            await api.create(job.trainjob())
        for seen in rooms.values():
            await seen.until(lambda state: _are_assigned(state, 2), "two pods are in a group")
        await damaged_webhook_installation.webhook.kill()
        await damaged_webhook_installation.podgrouper.kill()
        for how in ways:
            path = TRAINJOBS.path(how.lower(), "job")
            await api.request("DELETE", path, {"propagationPolicy": how})
        for how, seen in rooms.items():
            is_over = _has_no_trainjob if how == "Orphan" else _is_empty
            await seen.until(is_over, f"it is gone, {how}")

    kept = {how: [len(seen.objects(it)) for it in _MADE] for how, seen in rooms.items()}
    assert kept == {"Foreground": [0, 0, 0], "Background": [0, 0, 0], "Orphan": [1, 2, 1]}
    await damaged_webhook_installation.webhook.start()
    await damaged_webhook_installation.podgrouper.start()


async def test_pods_made_without_admission_are_assigned(
    damaged_webhook_installation: WebhookInstallation,
) -> None:
    """While the webhook is dead pods are made all the same; the podgrouper assigns ours.

    Forged ones are not, though they carry all our labels: without an owner, with a Job of somebody
    else, or with the very Job, which does not take them for its own.
    """
    cluster, own_namespace = damaged_webhook_installation.cluster, next_name()
    await make_namespace(cluster, own_namespace)
    job = Submission("job", "deepspeed-distributed", own_namespace, 3)
    async with _uids(cluster, own_namespace) as seen:
        await cluster.api.create(job.trainjob())
        await seen.until(lambda state: _are_assigned(state, 2), "the first pods are in the group")
        await damaged_webhook_installation.webhook.kill()
        real = seen.objects(PODS)[0]
        idle = _controller(await cluster.api.create(_idle_job(own_namespace)))
        for owners in ([], [idle], real["metadata"]["ownerReferences"]):
            await cluster.api.create(_forged(real, own_namespace, owners))
        await bind_by_podgroups(
            cluster, seen, lambda state: any(map(_is_launcher, _assigned(state)))
        )
    _check_never_assigned(seen)
    (group,) = seen.objects(PODGROUPS)
    launcher = next(filter(_is_launcher, seen.objects(PODS)))
    assert launcher["metadata"]["labels"][SUBGROUP] == "launcher-replica-0"
    assert launcher["metadata"]["annotations"][PODGROUP] == group["metadata"]["name"]
    await damaged_webhook_installation.webhook.start()


def _uids(cluster: Cluster, namespace: str) -> Timeline:
    return cluster.timeline(TRAINJOBS, JOBSETS, JOBS, PODGROUPS, PODS, namespace=namespace)


def _has_no_trainjob(state: State) -> bool:
    return not any(key.resource == TRAINJOBS for key in state)


def _has_no_workload(state: State) -> bool:
    return not any(key.resource in {JOBSETS, JOBS, PODS} for key in state)


def _is_empty(state: State) -> bool:
    return _has_no_trainjob(state) and not any(key.resource in _MADE for key in state)


def _are_assigned(state: State, count: int) -> bool:
    """Say whether there are so many pods, each with a place in a group that exists."""
    pods = [pod for pod in pods_in(state) if not pod["metadata"].get("deletionTimestamp")]
    known = {group["metadata"]["name"] for group in groups_in(state)}
    return len(pods) == count and all(
        pod["metadata"].get("annotations", {}).get(PODGROUP) in known
        and SUBGROUP in pod["metadata"]["labels"]
        for pod in pods
    )


def _assigned(state: State) -> list[Obj]:
    return [pod for pod in pods_in(state) if PODGROUP in pod["metadata"].get("annotations", {})]


def _is_launcher(pod: Obj) -> bool:
    return "launcher" in pod["metadata"]["name"]


def _check_never_assigned(seen: Timeline) -> None:
    forged = [m.obj["metadata"] for m in seen.moments if m.key.name.startswith("forged-")]
    assert len({meta["name"] for meta in forged}) == 3
    assert not any(PODGROUP in meta.get("annotations", {}) for meta in forged)
    assert not any(SUBGROUP in meta["labels"] for meta in forged)


def _has_pods(state: State, count: int) -> bool:
    return len(pods_in(state)) == count


def _queues(state: State) -> list[str]:
    return [group["spec"]["queue"] for group in groups_in(state)]


def _uid_of_group(state: State) -> str:
    return next((group["metadata"]["uid"] for group in groups_in(state)), "")


def _is_all_of_another(state: State, old: str) -> bool:
    """Say whether there is one JobSet, not the old one, with a group, and every pod is of it."""
    uids = [obj["metadata"]["uid"] for key, obj in state.items() if key.resource == JOBSETS]
    return (
        len(uids) == 1
        and uids != [old]
        and any(group["metadata"]["name"].endswith(uids[0]) for group in groups_in(state))
        and all(_manager_of(pod) == uids[0] for pod in pods_in(state))
    )


def _manager_of(pod: Obj) -> str:
    uid: str = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"]
    return uid


def _attempts(state: State) -> set[str]:
    return {pod["metadata"]["labels"][_ATTEMPT] for pod in pods_in(state)}


def _newest(state: State) -> str:
    return max(_attempts(state), default="")


def _is_done(state: State, name: str) -> bool:
    return any(
        key.resource == TRAINJOBS and key.name == name and condition(obj, "Complete")
        for key, obj in state.items()
    )


async def _merge(cluster: Cluster, namespace: str, fields: Mapping[str, Any]) -> None:
    await cluster.api.merge(TRAINJOBS, namespace, "job", dict(fields))


async def _apply_as_scheduler(cluster: Cluster, obj: Obj, fields: Mapping[str, Any]) -> None:
    """Write fields under a field manager that owns them from then on."""
    meta = obj["metadata"]
    body = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        **fields,
        "metadata": {"name": meta["name"], **fields.get("metadata", {})},
    }
    path = PODGROUPS.path(meta["namespace"], meta["name"])
    query = {"fieldManager": "somebody-else"}
    token = await cluster.api.service_account_token(NAMESPACE, SCHEDULER.account)
    async with cluster.connect(token=token) as api:
        await api.request("PATCH", path, body, query=query, content_type=_APPLY)


async def _runtime(cluster: Cluster, namespace: str, spec: Mapping[str, Any]) -> str:
    """Make a runtime of the namespace's own."""
    node = {"name": "node", "template": _template("node", step="trainer")}
    template = {"spec": {**spec, "replicatedJobs": [node]}}
    await cluster.api.create(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"namespace": namespace, "name": "own"},
            "spec": {"mlPolicy": {"numNodes": 1}, "template": template},
        }
    )
    return "own"


def _template(name: str, step: str = "") -> Obj:
    pod = {"spec": {"containers": [{"name": name, "image": "example.com/none"}]}}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    return {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": pod}}


def _failing(after: str) -> Mapping[str, Obj]:
    return pod_annotations({"node": {FAIL_SECONDS: after}})


def _idle_job(namespace: str) -> Obj:
    """Return a Job that has nothing to do with anybody, and makes no pods."""
    pod = {"spec": {"restartPolicy": "Never", **_template("c")["spec"]["template"]["spec"]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": "idle"},
        "spec": {"suspend": True, "template": pod},
    }


def _controller(job: Obj) -> Obj:
    meta = job["metadata"]
    own = {"name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"apiVersion": "batch/v1", "kind": "Job", **own}


def _unusual_jobset(namespace: str, trainjob: Obj) -> Obj:
    """Return a JobSet of a TrainJob, with a part that Trainer would never build."""
    jobs = []
    for name, replicas in (("node", 1), ("none", 0)):
        job = _template(name)
        job["spec"] |= {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
        jobs.append({"name": name, "replicas": replicas, "template": job})
    owner = {it: trainjob[it] for it in ("apiVersion", "kind")}
    owner |= {it: trainjob["metadata"][it] for it in ("name", "uid")}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "namespace": namespace,
            "name": "job",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"replicatedJobs": jobs},
    }


def _forged(template: Obj, namespace: str, owners: list[Obj]) -> Obj:
    """Return a pod with all the labels of a real one."""
    labels = {
        key: text
        for key, text in template["metadata"]["labels"].items()
        if key != SUBGROUP and "batch.kubernetes.io" not in key
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "generateName": "forged-",
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {"containers": [{"name": "c", "image": "example.com/none"}]},
    }
