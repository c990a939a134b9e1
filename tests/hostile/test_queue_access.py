"""H6: a namespace without a grant cannot spend the quota of a closed queue.

A tenant writes labels, TrainJobs and pods of its namespace, and so names any queue. A queue that is
closed restricts its users: no pod of the tenant starts or counts there, and its owner's do.
"""

from typing import Any, Final, TypeAlias

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, VICTIMS, cluster, node, pod, pod_group, queue
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import FakeCluster
from tests.support.state.objects import group as bare_group
from tests.support.state.objects import node as bare_node
from tests.support.state.objects import pod as bare_pod
from tests.support.state.objects import queue as bare_queue
from tests.webhook.objects import QUEUE
from tests.webhook.trainjob_reviews import FakeLookups, ask, reviewing_webhook
from tests.webhook.trainjobs import submitted
from trainer_kai.api.names import ACCESS

Obj: TypeAlias = dict[str, Any]

_RED: Final = VICTIMS[0]
_CLOSED: Final = {"annotations": {ACCESS: "closed"}}
_NOW_S: Final = 1_767_600_060  # 2026-01-05T08:01:00Z
_COMMAND: Final = f"trainer-kai queue allow {_RED} -n"


async def test_a_label_starts_no_pod_in_a_closed_queue() -> None:
    """With the defaults, also where the annotation stands on the queue's parent."""
    api = FakeCluster()
    api.may_use["owned"] = True
    api.put(bare_node("a", gpu=8), bare_queue("top", meta=_CLOSED))
    api.put(bare_queue(_RED, parentQueue="top"), bare_queue("owned", meta=_CLOSED))
    api.put(bare_group("foreign", minMember=2, queue=_RED))
    api.put(*(bare_pod(f"f{i}", "foreign") for i in range(2)))
    api.put(bare_pod("alone", labels={QUEUE: _RED}))
    api.put(bare_group("own", minMember=1, queue="owned"), bare_pod("o", "own"))
    scheduler = SchedulerHarness(api, "open")
    async with scheduler.leading():
        await scheduler.advance(30)

        assert api.node_of_pods() == {"o": "a"}
        (report,) = api.get("PodGroup", "foreign")["status"]["schedulingConditions"]
        assert report["reasons"][-1]["reason"] == "ForbiddenQueue"
        assert f"annotation {ACCESS} of queue top" in report["message"]
        assert report["message"].endswith(f"{_COMMAND} ns")


async def test_a_label_of_a_closed_queue_is_refused() -> None:
    """With the defaults: the refusal names the field, the queue, and the command that grants it."""
    there = FakeLookups()
    there.allowed = there.granted = {"own"}
    async with reviewing_webhook(there) as (asked, _):
        asked.cache.queues.put(_RED, "", "closed")
        asked.cache.queues.put("own", "", "closed")

        output = await ask(asked, submitted({QUEUE: _RED}))
        assert (output.code, output.warnings) == (403, [])
        assert output.message.startswith(f"metadata.labels[{QUEUE}]: user 'ann' and namespace")
        assert output.message.endswith(f"{_COMMAND} team --user ann")
        assert (await ask(asked, submitted({QUEUE: "own"}))).code == 0


def test_the_owner_of_a_closed_queue_has_its_quota(simulate: SimulateFixture) -> None:
    """Although a hundred PodGroups of the tenant that name it are older."""
    found = simulate(
        [
            *(_closed(it) for it in cluster()),
            *(_review(namespace, allowed=namespace == _RED) for namespace in (TENANT, _RED)),
            *(_named_red(pod_group(TENANT, f"g{i}", queue=_RED), 1) for i in range(100)),
            *(_named_red(pod(TENANT, f"p{i}", 1, f"g{i}"), 1) for i in range(100)),
            _named_red(pod_group(_RED, "job", 8), 2),
            *(_named_red(pod(_RED, f"p{i}", 1, "job"), 2) for i in range(8)),
        ]
    )

    assert found.binds.keys() == {f"{_RED}/p{i}" for i in range(8)}
    report = found.waiting[f"{TENANT}/g0"]
    assert report["reason"] == "ForbiddenQueue"
    assert report["message"].endswith(f"{_COMMAND} {TENANT}")


@pytest.mark.parametrize(
    ("label", "reason", "why"),
    [(_RED, "ForbiddenQueue", "may not use queue red"), ("none", "QueueMissing", "queue none")],
)
def test_no_label_waits_for_its_group_to_be_gone(
    simulate: SimulateFixture, label: str, reason: str, why: str
) -> None:
    """Pods start by a PodGroup of the tenant's queue, which goes with its TrainJob; they stay.

    They would be charged to the queue of their label, or could not be evicted for having none.
    """
    others = [pod(TENANT, f"p{i}", 1, "own") for i in range(4)]
    for it in others:
        it["metadata"]["labels"] = {QUEUE: label}
    found = simulate(
        [
            *(_closed(it) for it in cluster()),
            *(_review(namespace, allowed=namespace == _RED) for namespace in (TENANT, _RED)),
            _review(TENANT, allowed=True, queue=TENANT),
            pod_group(TENANT, "own", 1),
            pod(TENANT, "first", 1, "own", node="n0"),
            *others,
        ]
    )

    assert not found.binds
    assert not found.evictions
    report = found.waiting[f"{TENANT}/own"]
    assert report["reason"] == reason
    assert report["message"].startswith(
        f"Pod p0 has the label {QUEUE}: {label}, but its PodGroup is in queue {TENANT}. "
    )
    assert why in report["message"]


def test_pods_that_end_fill_no_queue_that_they_may_not_use(simulate: SimulateFixture) -> None:
    """A TrainJob that ran elsewhere is relabelled while its pods take an hour to end."""
    found = simulate(
        [
            node("n0"),
            node("n1"),
            _closed(queue(_RED, 8, limit=8)),
            *(_review(namespace, allowed=namespace == _RED) for namespace in (TENANT, _RED)),
            pod_group(TENANT, "ran-elsewhere", 8, queue=_RED),
            *(_ending(pod(TENANT, f"old{i}", 1, "ran-elsewhere", node="n0")) for i in range(8)),
            pod_group(_RED, "job", 8),
            *(pod(_RED, f"p{i}", 1, "job") for i in range(8)),
        ],
        now=_NOW_S,
    )

    assert found.binds == {f"{_RED}/p{i}": "n1" for i in range(8)}
    assert not found.waiting


def _ending(it: Obj) -> Obj:
    """Return a pod that was deleted, and has most of an hour left."""
    due = {"deletionTimestamp": "2026-01-05T09:00:00Z", "deletionGracePeriodSeconds": 3600}
    return {**it, "metadata": {**it["metadata"], **due}}


def _closed(it: Obj) -> Obj:
    return {**it, "metadata": {**it["metadata"], **_CLOSED}} if it["kind"] == "Queue" else it


def _named_red(it: Obj, minute: int) -> Obj:
    """Return an object with its queue label, made at a minute."""
    made = {"creationTimestamp": f"2026-01-05T09:{minute:02}:00Z", "labels": {QUEUE: _RED}}
    return {**it, "metadata": {**it["metadata"], **made}}


def _review(namespace: str, *, allowed: bool, queue: str = _RED) -> Obj:
    what = {"verb": "use", "group": "scheduling.run.ai", "resource": "queues"}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "groups": [f"system:serviceaccounts:{namespace}"],
            "resourceAttributes": {**what, "name": queue, "namespace": namespace},
        },
        "status": {"allowed": allowed},
    }
