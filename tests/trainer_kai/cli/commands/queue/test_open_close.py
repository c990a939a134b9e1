"""`trainer-kai queue close`, `open` and `create`: annotations of queues, and grants before them."""

from typing import Any, Final

import pytest

from tests.support.workloads.simulate_objects import group, pod
from tests.trainer_kai.cli.commands.queue.writable_store import WritableStore
from trainer_kai.api.names import GPU
from trainer_kai.api.resources import (
    JOBSETS,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    ROLE_BINDINGS,
    TRAINJOBS,
)
from trainer_kai.cli.commands.queue.allow_open_close import plan_close, plan_open
from trainer_kai.cli.commands.queue.create import BesideGpus, NewQueue, plan_create
from trainer_kai.cli.commands.queue.namespace_queues import SiteSettings
from trainer_kai.errors import ConfigError
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

ACCESS: Final = "trainer-kai.dev/access"
QUEUE: Final = "kai.scheduler/queue"
SITE: Final = SiteSettings("kai-scheduler", "default-queue")
NEW: Final = NewQueue("team-c", "research", 8, -1, 1, QueueAccessMode.CLOSED)


@pytest.fixture
def store() -> WritableStore:
    """Return a cluster with a tree of queues, of which one says that it is open."""
    made = WritableStore()
    for name, parent, access in (
        ("research", "", ""),
        ("team-a", "research", ""),
        ("team-b", "research", "open"),
        ("default-queue", "", ""),
    ):
        made.queue(name, parent, access)
    for name in ("red", "blue", "grey"):
        made.namespace(name)
    return made


def at(namespace: str, fields: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {**fields, "metadata": {**fields["metadata"], "namespace": namespace, **meta}}


def work(name: str, queue: str = "") -> dict[str, Any]:
    """Return a TrainJob or JobSet that names a queue."""
    return {"metadata": {"name": name, "labels": {QUEUE: queue} if queue else {}}}


async def granted(store: WritableStore, queue: str) -> list[str]:
    """Close a queue with grants; return which namespaces got which."""
    await store.done(await plan_close(store.reader, queue, SITE))
    bindings = f"/{ROLE_BINDINGS.plural}"
    return sorted(
        it.split("/")[-2] for it in store.wrote if it.startswith("POST") and it.endswith(bindings)
    )


async def test_namespaces_that_use_a_queue_are_granted_before_it_is_closed(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their roles come first; a namespace without work in it gets nothing."""
    store.put(PODGROUPS, at("red", group("g", queue="team-a")))
    store.put(PODS, at("blue", pod("alone"), labels={QUEUE: "team-a"}))
    store.put(PODS, at("grey", pod("elsewhere"), labels={QUEUE: "team-b"}))

    assert await granted(store, "team-a") == ["blue", "red"]
    assert store.wrote[-1] == "PATCH /apis/scheduling.run.ai/v2/queues/team-a"
    assert store.get(QUEUES, "team-a")["metadata"]["annotations"] == {ACCESS: "closed"}
    name = "trainer-kai-use-team-a"
    assert capsys.readouterr().out.splitlines() == [
        *(
            line
            for namespace in ("blue", "red")
            for line in (
                f"created Role {namespace}/{name}: may use queue team-a",
                (
                    f"created RoleBinding {namespace}/{name}: may use queue team-a: group "
                    f"system:serviceaccounts:{namespace}"
                ),
            )
        ),
        f"changed Queue team-a: annotation {ACCESS} is closed",
        (
            "queue team-a is closed. Users that name it in a TrainJob, and other namespaces, need "
            "a grant: `trainer-kai queue allow team-a -n NAMESPACE --user USER`"
        ),
    ]


async def test_each_way_to_use_a_queue_counts(store: WritableStore) -> None:
    """A TrainJob by its label, its JobSet's, its namespace's or the default; a pod by its own."""
    for name, label in (("labelled", "default-queue"), ("other", "team-b")):
        store.namespace(name)
        store.put(TRAINJOBS, at(name, work("job", label)))
    store.namespace("by-runtime")
    store.put(TRAINJOBS, at("by-runtime", work("job")))
    store.put(JOBSETS, at("by-runtime", work("job", "default-queue")))
    store.namespace("moves", labels={QUEUE: "team-b"})
    store.put(TRAINJOBS, at("moves", work("job", "team-b")))
    store.put(JOBSETS, at("moves", work("job", "default-queue")))
    store.namespace("says-it", labels={QUEUE: "default-queue"})
    store.namespace("says-other", labels={QUEUE: "team-b"})
    for name in ("red", "says-it", "says-other"):
        store.put(TRAINJOBS, at(name, work("job")))
    store.put(PODS, at("blue", pod("alone")))
    store.put(PODGROUPS, at("grey", group("g", queue="team-b")))
    store.put(PODS, at("grey", pod("grouped", "g")))
    store.namespace("foreign")
    foreign = at("foreign", pod("p"))
    store.put(PODS, {**foreign, "spec": {"schedulerName": "default-scheduler"}})

    found = await granted(store, "default-queue")

    assert found == ["blue", "by-runtime", "labelled", "moves", "red", "says-it"]


async def test_below_a_queue_those_are_granted_that_inherit(store: WritableStore) -> None:
    """Each in its own queue, for that is what is asked of them; what says open stays open."""
    store.queue("deep", "team-a")
    store.put(PODGROUPS, at("red", group("g", queue="deep")))
    store.put(PODGROUPS, at("blue", group("g", queue="team-b")))
    store.put(PODGROUPS, at("grey", group("g", queue="default-queue")))

    assert await granted(store, "research") == ["red"]
    assert store.get(ROLE_BINDINGS, "trainer-kai-use-deep", "red")


async def test_a_namespace_that_goes_is_passed_over(store: WritableStore) -> None:
    """Nothing can be made in it, and that must not keep the queue open."""
    store.namespace("gone", deletionTimestamp="2026-01-01T00:00:00Z")
    store.put(PODGROUPS, at("gone", group("g", queue="team-a")))

    assert await granted(store, "team-a") == []
    assert store.get(QUEUES, "team-a")["metadata"]["annotations"] == {ACCESS: "closed"}


async def test_a_grant_that_is_refused_leaves_the_queue_open(store: WritableStore) -> None:
    """Closed without it, the namespace would wait."""
    store.put(PODGROUPS, at("red", group("g", queue="team-a")))
    store.refusals["rolebindings"] = "no"

    with pytest.raises(ConfigError, match="permission to create rolebindings"):
        await granted(store, "team-a")

    assert store.get(QUEUES, "team-a")["metadata"]["annotations"] == {}


async def test_without_grants_the_note_says_which_namespaces_wait(store: WritableStore) -> None:
    """The note has the command; a queue that is closed already is not written again."""
    plan = await plan_close(store.reader, "team-a", None)
    await store.done(plan)
    await store.done(await plan_close(store.reader, "team-a", None))

    assert len(store.wrote) == 1
    assert plan.notes == (
        (
            "namespaces that use queue team-a now without a grant can start nothing more in it; "
            "`trainer-kai queue close team-a --from-usage` grants them"
        ),
    )


async def test_a_queue_is_opened_again(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the annotation, so that one below a closed queue can be open."""
    await store.done(await plan_open(store.reader, "team-a"))
    await store.done(await plan_open(store.reader, "team-b"))

    assert capsys.readouterr().out.splitlines() == [
        f"changed Queue team-a: annotation {ACCESS} is open",
        "every namespace may use queue team-a",
        f"unchanged Queue team-b: annotation {ACCESS} is open",
        "every namespace may use queue team-b",
    ]
    with pytest.raises(ConfigError, match="queue none: does not exist"):
        await plan_open(store.reader, "none")


async def test_a_new_queue_is_closed(
    store: WritableStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has what nodes have beside its GPUs; the command that grants it is printed."""
    for name, cpu, gpu in (("n0", "96", "8"), ("n1", "64500m", "4"), ("cpus", "128", "0")):
        status = {"allocatable": {"cpu": cpu, "memory": "750G", GPU: gpu}}
        store.put(NODES, {"metadata": {"name": name}, "status": status})
    await store.done(await plan_create(store.reader, NEW))

    made = store.get(QUEUES, "team-c")
    free = {"limit": -1, "overQuotaWeight": 1}
    shares = {"gpu": 8, "cpu": 107_000, "memory": 1_000_000}
    assert made["metadata"]["annotations"] == {ACCESS: "closed"}
    assert made["spec"] == {
        "parentQueue": "research",
        "resources": {kind: {**free, "quota": quota} for kind, quota in shares.items()},
    }
    assert capsys.readouterr().out.splitlines() == [
        f"created Queue team-c: annotation {ACCESS} is closed",
        "its quota is 8 GPU, and what nodes have beside so many: 107 CPU and 1000 GB of memory",
        (
            "queue team-c is closed. Grant it to the workloads of a namespace and to a user: "
            "`trainer-kai queue allow team-c -n NAMESPACE --user USER` (or --group GROUP)"
        ),
    ]
    store.put(NODES, {"metadata": {"name": "n2"}, "status": {"allocatable": {"cpu": "9", GPU: 9}}})
    assert [it.change for it in (await plan_create(store.reader, NEW)).writes] == [None]

    open_one = NEW._replace(name="all", parent="", access=QueueAccessMode.OPEN)
    plan = await plan_create(store.reader, open_one)
    assert plan.outcome[1:] == ("every namespace may use queue all",)
    assert "parentQueue" not in open_one.body(BesideGpus(0, 0))["spec"]


# the GPU quota -> the quotas of CPU and memory where no node has GPUs, and what is said
WITHOUT_NODES: Final = (
    (0, 0, "no non-preemptible pod starts in it"),
    (8, -1, "they could not be computed: no node has GPUs"),
    (-1, -1, "its quota is unlimited: no other queue can reclaim from it"),
)


@pytest.mark.parametrize(("gpus", "quota", "said"), WITHOUT_NODES)
async def test_a_queue_has_other_quotas_than_gpus(
    store: WritableStore, gpus: int, quota: int, said: str
) -> None:
    """A queue without GPUs has none; one with unlimited quotas is said to be that."""
    plan = await plan_create(store.reader, NEW._replace(gpu_quota=gpus))

    body = plan.writes[0].change
    assert isinstance(body, dict)
    resources = body["spec"]["resources"]
    assert [resources[it]["quota"] for it in ("cpu", "memory")] == [quota, quota]
    assert said in plan.outcome[0]


async def test_a_queue_that_gets_one_below_it_takes_no_pods(store: WritableStore) -> None:
    """Pods that name it wait from then on, so a note says so; not for a parent with children."""
    below = await plan_create(store.reader, NEW._replace(parent="team-a"))
    beside = await plan_create(store.reader, NEW)

    (note,) = below.notes
    assert note.startswith("queue team-a has no child queue yet")
    assert beside.notes == ()


async def test_a_queue_with_podgroups_gets_none_below_it(store: WritableStore) -> None:
    """They would wait for good; the message names the first of them."""
    store.put(PODGROUPS, at("red", group("g", 1, queue="team-a")))
    with pytest.raises(ConfigError, match=r"queue team-a: has 1 PodGroups \(such as red/g\)"):
        await plan_create(store.reader, NEW._replace(parent="team-a"))


async def test_closing_a_queue_mentions_its_manifest(store: WritableStore) -> None:
    """An apply of one that says open would open it again."""
    noted, unnoted = [
        (await plan_close(store.reader, it, SITE)).notes for it in ("team-b", "team-a")
    ]
    assert "if a manifest of queue team-b sets the annotation" in noted[0]
    assert unnoted == ()


WRONG: Final = (
    (NEW._replace(name="team-a"), "queue team-a: already exists with other settings"),
    (NEW._replace(parent="none"), "queue none: does not exist"),
    (NEW._replace(name="Team_A"), "metadata.name: 'Team_A' must be 1 to 253"),
    (NEW._replace(name="x" * 64), "must be at most 63 letters"),
    (NEW._replace(parent="team-c"), "a queue cannot be its own parent"),
)


@pytest.mark.parametrize(("new", "message"), WRONG)
async def test_a_queue_that_could_not_be_used_is_not_made(
    store: WritableStore, new: NewQueue, message: str
) -> None:
    """The message says what would be right, and nothing is written."""
    with pytest.raises(ConfigError, match=message):
        await plan_create(store.reader, new)
