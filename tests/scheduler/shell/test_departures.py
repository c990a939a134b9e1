"""Who makes room for somebody: sent off after the room is promised, all of them or nobody."""

from typing import Any

from tests.scheduler.shell.conftest import House
from tests.support.clusters import group, made, node, pod, queue
from trainer_kai.api.meta import Key

_SHARE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def owed(name: str, gpus: int) -> dict[str, Any]:
    """Return a queue that owns so many GPUs."""
    gpu = {"quota": gpus, "limit": -1, "overQuotaWeight": 1}
    return queue(name, resources={"cpu": _SHARE, "memory": _SHARE, "gpu": gpu})


def gang_in(queue_name: str, name: str, count: int, *, at: str = "") -> list[dict[str, Any]]:
    """Return a gang of pods with one GPU each, on a node or waiting."""
    pods = [pod(f"{name}{i}", name, node=at) for i in range(count)]
    return [group(name, minMember=count, queue=queue_name), *pods]


def trainjob(name: str, at: str) -> list[dict[str, Any]]:
    """Return a TrainJob that runs two pods on a node, and what Trainer and we made of it."""
    jobs = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": name}
    sets = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name}
    own = {"uid": name, "ownerReferences": [{**jobs, "uid": name, "controller": True}]}
    job = {"kind": "Job", "apiVersion": "batch/v1", "name": f"{name}-n-0", "uid": f"{name}-n-0"}
    owners = {"uid": f"pg-{name}", "ownerReferences": [{**sets, "uid": name, "controller": True}]}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "n", "jobset.sigs.k8s.io/job-index": "0"}
    members = {"ownerReferences": [{**job, "controller": True}]}
    return [
        made("TrainJob", name, {"uid": name}, spec={"runtimeRef": {"name": "r"}}),
        made("JobSet", name, own, spec={}),
        group(f"pg-{name}", minMember=2, queue="borrower", meta=owners),
        *(pod(f"{name}{i}", f"pg-{name}", node=at, labels=labels, meta=members) for i in range(2)),
    ]


def borrowed(house: House, count: int = 2) -> None:
    """Let one queue have what another one owns and asks for."""
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=4))
    for i in range(4 // count):
        house.api.put(*gang_in("borrower", f"b{i}", count, at="a"))


async def test_the_room_is_promised_before_anybody_goes(house: House) -> None:
    """Then those who go are marked and deleted, each as the one it is, and nobody else."""
    borrowed(house)
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        pass
    said = house.api.said()

    promises = [said.index(f"patch pods/status l{i}") for i in range(2)]
    deletions = [said.index(f"delete pods b1{i}") for i in range(2)]
    assert max(promises) < min(deletions)
    assert not [it for it in said if "b00" in it or "b01" in it]
    (mark,) = house.api.body("patch pods/status b10")["status"]["conditions"]
    assert (mark["type"], mark["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert house.api.body("delete pods b10")["preconditions"] == {"uid": "b10"}
    assert {("PodGroup b1", "Evict"), ("PodGroup l", "Evicting")} <= {*house.events()}


async def test_nobody_else_goes_while_they_are_going(house: House) -> None:
    """They are taken for gone by every plan until they are; then the room is taken."""
    borrowed(house)
    house.api.put(*gang_in("lender", "l", 2))
    house.api.keeps_pods = True
    async with house.leading():
        for _ in range(3):
            house.cycle.again()
            await house.passes(5)
        deleted = [it for it in house.api.said() if it.startswith("delete")]
        assert sorted(deleted) == ["delete pods b10", "delete pods b11"]
        for name in ("b10", "b11"):
            house.api.delete("Pod", name)
        await house.passes(0.1)

        assert house.api.where() == {"b00": "a", "b01": "a", "l0": "a", "l1": "a"}


async def test_nobody_else_goes_before_it_is_seen(house: House) -> None:
    """No watch has told of anything yet, and every plan knows; nor is anybody asked twice."""
    asked: list[str] = []
    house.api.refuse = asked.append
    borrowed(house)
    house.api.put(*gang_in("lender", "l", 2))
    house.api.keeps_news = True
    async with house.leading():
        for _ in range(3):
            house.cycle.again()
            await house.passes(1)
        marked = [it for it in asked if it.startswith("patch pods/status b")]
        house.api.keeps_news = False
        house.api.deliver()

    assert sorted(marked) == ["patch pods/status b10", "patch pods/status b11"]


async def test_nobody_goes_for_whom_nothing_can_be_promised(house: House) -> None:
    """The claimant was changed meanwhile: it is planned again first."""
    borrowed(house)
    refusals = [409]
    house.api.refuse = lambda what: (
        refusals.pop() if what == "patch pods/status l0" and refusals else None
    )
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(1)
    said = house.api.said()

    assert not refusals
    assert said.index("patch pods/status l0") < said.index("delete pods b10")


async def test_a_pod_that_had_to_go_leaves_no_place_for_its_successor(house: House) -> None:
    """Its group goes on without it, and somebody makes it anew: the room is another's by now."""
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=4))
    house.api.put(*gang_in("borrower", "b", 4, at="a"))
    house.api.put(group("b", minMember=2, queue="borrower"))
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        house.api.put(pod("b4", "b"), pod("b5", "b"))
        await house.passes(1)

    assert not _holds(house)
    assert house.api.where() == {"b0": "a", "b1": "a", "l0": "a", "l1": "a"}


def _holds(house: House) -> bool:
    """Say whether a place was ever written for the borrower."""
    bodies = [it.body for it in house.api.wrote if it.what == "patch podgroups b"]
    return any("trainer-kai.dev/reserved" in it["metadata"]["annotations"] for it in bodies)


async def test_nobody_goes_unless_all_can(house: House) -> None:
    """One of two cannot be deleted now; what is promised is decided anew."""
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=2), node("b", gpu=2))
    house.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    house.api.put(*gang_in("lender", "l", 4))
    dry = [422, 422]  # with a copy of the record, and without
    house.api.refuse = lambda what: dry.pop() if what == "try patch trainjobs y" and dry else None
    async with house.leading():
        await house.passes(5)
        assert not dry
        assert not [it for it in house.api.said() if it == "patch trainjobs x"]
        await house.passes(60)  # it may be asked again

    assert {"patch trainjobs x", "patch trainjobs y"} <= {*house.api.said()}


async def test_only_so_much_is_taken_at_a_time(house: House) -> None:
    """Whoever asks while there is some left gets all it needs; the next one waits for a while."""
    for i in range(20):
        house.api.put(node(f"n{i:02}", gpu=8), *gang_in("borrower", f"b{i:02}", 8, at=f"n{i:02}"))
    house.api.put(owed("lender", 160), owed("borrower", 0))
    for i in range(20):
        house.api.put(*gang_in("lender", f"l{i:02}", 8))
    async with house.leading():
        await house.passes(50)
        first = gone(house)
        await house.passes(15)
        second = gone(house)

    assert (len(first), len(second)) == (8, 16)  # of 8 GPUs each, and 64 a minute


def gone(house: House) -> set[str]:
    """Return the gangs that lost pods."""
    return {it.split()[-1][:3] for it in house.api.said() if it.startswith("delete pods")}


async def test_a_trainjob_whose_jobset_goes_on_is_let_alone(house: House) -> None:
    """Its user has suspended it, and nothing follows: no claim waits for its room."""
    objects = trainjob("t", "a")
    objects[0]["spec"]["suspend"] = True
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2))
    house.api.put(*objects, *gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(1)
        refused = dict(house.live.cluster.refused)

    assert "its JobSet is not" in refused[Key("ns", "t")]
    assert ("PodGroup pg-t", "Evict") not in house.events()
