"""`trainer-kai queue set`, `hold` and `release`: what they write, and what they say about it."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import group, queue
from tests.trainer_kai.cli.commands.queue.writable_store import WritableStore
from trainer_kai.api.names import GPU
from trainer_kai.api.resources import NODES, PODGROUPS, QUEUES
from trainer_kai.cli.commands.queue.hold_release import plan_hold, plan_release
from trainer_kai.cli.commands.queue.set_shares import QueueChange, plan_set
from trainer_kai.errors import ConfigError

POLICY: Final = "trainer-kai.dev/stop-policy"


@pytest.fixture
def store() -> WritableStore:
    """Return a cluster of 32 GPUs, and a queue with a quota of 16 that uses 20."""
    made = WritableStore()
    made.queue("research")
    status = {"allocated": {GPU: "20"}}
    made.put(QUEUES, {**queue("team-a", 16, parent="research"), "status": status})
    made.queue("team-b", "research")
    amounts = {GPU: "32", "cpu": "320", "memory": "3200G"}
    made.put(NODES, {"metadata": {"name": "n"}, "status": {"allocatable": amounts}})
    for name, gpus, created in (("old", 8, "1"), ("new", 8, "3"), ("newest", 4, "4")):
        fields = group(name)
        meta = {"namespace": "ns", "creationTimestamp": f"2026-01-0{created}T00:00:00Z"}
        fields["metadata"] |= meta
        fields["status"] = {"resourcesStatus": {"allocated": {GPU: str(gpus)}}}
        made.put(PODGROUPS, fields)
    return made


def policy_of(store: WritableStore, name: str) -> str | None:
    notes: dict[str, str] = store.get(QUEUES, name)["metadata"].get("annotations", {})
    return notes.get(POLICY)


async def test_a_lower_quota_names_what_can_be_reclaimed(store: WritableStore) -> None:
    """The newest first, as many as are over the new quota."""
    plan = await plan_set(store.reader, QueueChange("team-a", gpu_quota=10))
    await store.done(plan)

    assert plan.outcome == (
        (
            "queue team-a uses 20 GPU: 6 GPU of it were within its quota, and can now be reclaimed "
            "by queues below their fair share: ns/newest (4 GPU), ns/new (8 GPU)"
        ),
    )
    assert store.get(QUEUES, "team-a")["spec"]["resources"]["gpu"] == {
        "quota": 10,
        "limit": -1,
        "overQuotaWeight": 1,
    }


async def test_a_quota_above_the_cluster_and_a_limit_below_the_use(store: WritableStore) -> None:
    """Both are possible, and said."""
    plan = await plan_set(store.reader, QueueChange("team-a", gpu_quota=40, gpu_limit=8))

    assert [it.partition(":")[0] for it in plan.notes] == [
        "the quota of 40 GPU is more than all nodes have (32 GPU)",
        "the quota of 40 GPU is above the limit of 8 GPU",
    ]
    later = await plan_set(store.reader, QueueChange("team-a", gpu_limit=16))
    assert later.notes == ()
    assert plan.outcome == (
        (
            "queue team-a uses 20 GPU: what runs stays, and nothing starts until it uses less than "
            "its limit of 8 GPU"
        ),
    )


async def test_quotas_of_cpu_and_memory_follow(store: WritableStore) -> None:
    """Unless they are unlimited, as those of team-a."""
    fields: dict[str, Any] = queue("team-c", 4)
    fields["spec"]["resources"]["cpu"] = {"quota": 40000, "limit": -1}
    store.put(QUEUES, fields)
    await store.done(await plan_set(store.reader, QueueChange("team-c", gpu_quota=8)))

    resources = store.get(QUEUES, "team-c")["spec"]["resources"]
    assert resources["cpu"] == {"quota": 80000, "limit": -1}
    assert resources["memory"]["quota"] == -1


async def test_priority_and_parent(store: WritableStore) -> None:
    """An empty parent is removed; other fields stay."""
    change = QueueChange("team-b", weight=2, priority=200, parent="")
    plan = await plan_set(store.reader, change)
    await store.done(plan)

    spec = store.get(QUEUES, "team-b")["spec"]
    assert (spec["priority"], spec.get("parentQueue")) == (200, None)
    assert spec["resources"]["gpu"]["overQuotaWeight"] == 2
    assert plan.writes[0].text == "weight is 2, priority is 200, parent is removed"


# a change -> the field, and the fault
REFUSED: list[Case[QueueChange, str]] = [
    Case("nothing", QueueChange("team-a"), "queue team-a: nothing to change: set --gpu-quota"),
    Case("no such queue", QueueChange("x", weight=1), "queue x: does not exist"),
    Case("no such parent", QueueChange("team-a", parent="x"), "queue x: does not exist"),
    Case(
        "below itself",
        QueueChange("research", parent="team-a"),
        "--parent: queue research would be its own ancestor: research → team-a → research",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
async def test_what_cannot_be_set(case: Case[QueueChange, str], store: WritableStore) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError) as refused:
        await plan_set(store.reader, case.given)

    assert str(refused.value).startswith(case.want)
    assert store.wrote == []


async def test_hold_and_release(store: WritableStore) -> None:
    """The annotation is written and removed; the queues below are named."""
    held = await plan_hold(store.reader, "research", drains=False)
    await store.done(held)

    assert policy_of(store, "research") == "Hold"
    assert held.outcome == (
        (
            "nothing starts in queues research, team-a, team-b; what runs there (3 PodGroups) "
            "stays (--drain evicts it as well). `trainer-kai queue release research` releases it"
        ),
    )
    released = await plan_release(store.reader, "research")
    await store.done(released)
    assert policy_of(store, "research") is None
    assert released.outcome == ("queue research is released",)


async def test_a_drain_is_a_stricter_hold(store: WritableStore) -> None:
    """A second time nothing is written."""
    await store.done(await plan_hold(store.reader, "team-a", drains=True))

    assert policy_of(store, "team-a") == "HoldAndDrain"
    again = await plan_hold(store.reader, "team-a", drains=True)
    assert again.writes[0].change is None


async def test_a_queue_below_a_held_one_stays_held(store: WritableStore) -> None:
    """The note names the queue to release."""
    await store.done(await plan_hold(store.reader, "research", drains=False))
    plan = await plan_release(store.reader, "team-a")

    assert plan.notes == (
        (
            "queue team-a is still held by annotation trainer-kai.dev/stop-policy: Hold of queue "
            "research; `trainer-kai queue release research` releases that"
        ),
    )
