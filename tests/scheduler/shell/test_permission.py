"""Who may use which queue is asked beside the plans; no unit starts because no answer came."""

import json
from pathlib import Path

import pytest

from scheduler.shell.picture import picture
from scheduler.state.permits import Permit
from tests.scheduler.shell.conftest import House
from tests.support.clusters import gang, group, made, node, pod, queue
from tests.support.fakecluster import FakeCluster
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.cli.main import main
from trainer_kai.settings import Unannotated

PAIR = Key("ns", "q")
ASKED = "post subjectaccessreviews "
QUESTION = {
    "resourceAttributes": {
        "verb": "use",
        "group": "scheduling.run.ai",
        "resource": "queues",
        "name": "q",
        "namespace": "ns",
    },
    "user": "",
    "groups": ["system:serviceaccounts:ns"],
}


def house_with(unannotated: Unannotated = "closed", **may_use: bool) -> House:
    """Return a scheduler of one node, two queues without annotation, and what may be used."""
    api = FakeCluster()
    api.may_use.update(may_use)
    api.put(queue(), queue("other"), node("a"), made("Namespace", "ns"))
    return House(api, unannotated)


def annotated(access: str, name: str = "q", **spec: object) -> dict[str, object]:
    """Return a queue that says who may use it."""
    return queue(name, meta={"annotations": {ACCESS: access}}, **spec)


def verdict(house: House, name: str = "g") -> str:
    """Return what a group was told last."""
    found = house.api.get("PodGroup", name).get("status", {}).get("schedulingConditions")
    return found[-1]["reasons"][-1]["reason"] if found else ""


def silent(what: str) -> int | None:
    """Refuse to say who may do what."""
    return 403 if what == ASKED else None


def warned(house: House) -> list[str]:
    """Return which objects were told that their queue is open."""
    return sorted(of for of, reason in house.events() if reason == "QueueOpen")


async def test_it_is_asked_whether_the_namespace_may() -> None:
    """Once for all of a namespace and a queue, and as the group that all its accounts are in."""
    house = house_with(q=True)
    house.api.put(*gang("g", 2), *gang("h", 2), pod("p"))
    async with house.leading():
        await house.passes(30)

    assert house.api.questions == [QUESTION]
    assert len(house.api.where()) == 5


async def test_of_a_queue_that_is_open_nothing_is_asked() -> None:
    """It says so itself: no question, no Event."""
    house = house_with()
    house.api.put(annotated("open"), *gang("g", 2))
    async with house.leading():
        await house.passes(61)
        assert house.api.questions == []
        assert warned(house) == []
    assert len(house.api.where()) == 2


async def test_who_may_not_never_starts_and_is_told_why() -> None:
    """Those who may use theirs go on."""
    house = house_with(other=True)
    house.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"), pod("p"))
    async with house.leading():
        await house.passes(5)

        assert house.api.where() == {"h0": "a"}
        assert verdict(house) == "ForbiddenQueue"
        (told,) = house.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert told["message"].startswith(
            "namespace ns may not use queue q, which is closed (queue_access.unannotated is "
            "closed, and it has no annotation). It can start when "
        )
        assert warned(house) == []


async def test_who_waits_for_the_first_answer_is_told_nothing() -> None:
    """It takes as long as a request, and no verdict stands for so short a time."""
    house = house_with(q=True)
    house.api.put(*gang("g", 2))
    house.api.delay_s = lambda what: 0.2 if what == ASKED else 0
    async with house.leading():
        assert house.api.where() == {}
        await house.passes(1)
        assert len(house.api.where()) == 2
    assert not [it for it in house.api.said() if "podgroups/status" in it and verdict(house)]


async def test_plans_do_not_wait_for_answers() -> None:
    """Others start while one is asked for."""
    house = house_with(q=True, other=True)
    house.api.put(group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with house.leading():
        house.api.delay_s = lambda what: 4 if what == ASKED else 0
        house.api.put(*gang("g", 2))
        house.api.put(group("i", minMember=1, queue="other"), pod("i0", "i"))
        await house.passes(0.2)
        assert house.api.where() == {"h0": "a", "i0": "a"}
        await house.passes(10)
        assert len(house.api.where()) == 4


async def test_a_right_that_is_given_is_seen_within_a_minute() -> None:
    """And the old reason is told no longer, whatever is in the way now."""
    house = house_with()
    house.api.put(*gang("g", 9))
    async with house.leading():
        await house.passes(5)
        assert verdict(house) == "ForbiddenQueue"
        house.api.may_use["q"] = True
        await house.passes(60)
        assert verdict(house) == "NoCapacity"
        message = house.api.get("PodGroup", "g")["status"]["schedulingConditions"][-1]["message"]
        assert "may not use" not in message
        house.api.put(node("b"))
        await house.passes(1)
        assert len(house.api.where()) == 9


async def test_a_right_that_is_taken_ends_nothing_that_runs() -> None:
    """It may be repaired, and does not grow; nothing else begins."""
    house = house_with(q=True)
    house.api.put(*gang("g", 2))
    async with house.leading():
        assert len(house.api.where()) == 2
        house.api.may_use["q"] = False
        await house.passes(61)
        house.api.put(*gang("h", 1), pod("more", "g"))
        await house.passes(2)
        house.api.delete("Pod", "g0")
        house.api.put(pod("g0", "g", meta={"uid": "g0-again"}))
        house.api.put(pod("g2", "g"))
        await house.passes(2)

        assert len([it for it in house.api.where() if it.startswith(("g", "more"))]) == 2
        assert "h0" not in house.api.where()
        assert not [it for it in house.api.said() if it.startswith("delete")]


async def test_the_last_answer_holds_while_there_is_none() -> None:
    """Who might begin yesterday may begin today."""
    house = house_with(q=True)
    house.api.put(*gang("g", 2))
    async with house.leading():
        house.api.refuse = silent
        await house.passes(200)
        house.api.put(*gang("h", 2))
        await house.passes(1)
        assert len(house.api.where()) == 4


async def test_who_led_before_has_asked_already() -> None:
    """What it knew holds until it is asked anew, which is at once."""
    house = house_with(q=True)
    house.api.put(*gang("g", 2))
    async with house.leading():
        pass
    house.api.refuse = silent
    house.api.put(*gang("h", 2))
    async with house.again_in_this_process().leading():
        assert len(house.api.where()) == 4
        house.api.refuse = lambda _: None
        house.api.may_use["q"] = False
        await house.passes(30)
        assert house.live.cluster.permits == {PAIR: Permit.REFUSED}


async def test_who_can_ask_nobody_waits_and_is_told_so() -> None:
    """Until there is an answer; whoever runs already is left alone."""
    house = house_with(q=True)
    house.api.refuse = silent
    house.api.put(*gang("g", 2), group("r", minMember=1), pod("r0", "r", node="a"))
    async with house.leading():
        await house.passes(300)
        assert house.api.where() == {"r0": "a"}
        assert verdict(house) == "ForbiddenQueue"
        (told,) = house.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert "could not be asked yet" in told["message"]
        house.api.refuse = lambda _: None
        await house.passes(20)
        assert len(house.api.where()) == 3


async def test_who_is_gone_is_forgotten() -> None:
    """A minute after the last one that used a queue."""
    house = house_with(q=True)
    house.api.put(pod("p"))
    async with house.leading():
        assert house.live.cluster.permits == {PAIR: Permit.GRANTED}
        house.api.delete("Pod", "p")
        await house.passes(125)
        assert house.live.cluster.permits == {}
        asked = len(house.api.questions)
        await house.passes(300)
        assert len(house.api.questions) == asked
        house.api.put(pod("p"))
        await house.passes(1)
        assert (len(house.api.questions), house.api.where()) == (asked + 1, {"p": "a"})


def of_a_trainjob(house: House) -> None:
    """Make a group that belongs to a TrainJob."""
    sets = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "u"}
    jobs = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "j"}
    owners = {"ownerReferences": [{**sets, "controller": True}]}
    own = {"uid": "u", "ownerReferences": [{**jobs, "uid": "t", "controller": True}]}
    job = {"kind": "Job", "apiVersion": "batch/v1", "name": "j-n-0", "uid": "v", "controller": True}
    house.api.put(
        made("TrainJob", "j", {"uid": "t"}, spec={}),
        made("JobSet", "j", own, spec={}),
        group("g", minMember=1, meta=owners),
        pod("g0", "g", meta={"ownerReferences": [job]}),
    )


async def test_warned_and_started() -> None:
    """A TrainJob, once for its namespace and queue, however much starts there later."""
    house = house_with("open", other=True)
    of_a_trainjob(house)
    house.api.put(group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with house.leading():
        assert len(house.api.where()) == 2
        house.api.put(pod("p"), *gang("e", 1))
        for _ in range(3):
            house.cycle.again()
            await house.passes(61)
        assert len(house.api.where()) == 4
        assert house.live.cluster.permits == {}

    assert warned(house) == ["TrainJob j"]
    (event,) = house.api.events
    assert event["type"] == "Warning"
    assert event["message"] == (
        "queue q takes pods of every namespace, so of ns: neither it nor a queue above it has the "
        "annotation trainer-kai.dev/access. To close it to namespaces that do not use it now: "
        "trainer-kai queue close q --from-usage"
    )


async def test_each_queue_is_warned_of() -> None:
    """A PodGroup without a TrainJob, and a pod of its own."""
    house = house_with("open")
    house.api.put(*gang("g", 2))
    async with house.leading():
        house.api.put(pod("p", labels={"kai.scheduler/queue": "other"}))
        await house.passes(1)
    assert warned(house) == ["Pod p", "PodGroup g"]


async def test_a_warning_may_come_late() -> None:
    """No unit waits for an answer of an open queue."""
    house = house_with("open")
    house.api.delay_s = lambda what: 2 if what == ASKED else 0
    house.api.put(*gang("g", 2))
    async with house.leading():
        assert (len(house.api.where()), warned(house)) == (2, [])
        await house.passes(3)
        assert warned(house) == ["PodGroup g"]


async def test_a_warning_comes_when_it_can_be_asked() -> None:
    """Of what started first meanwhile."""
    house = house_with("open")
    house.api.refuse = silent
    house.api.put(*gang("g", 2))
    async with house.leading():
        house.api.put(pod("p"))
        await house.passes(61)
        assert (len(house.api.where()), warned(house)) == (3, [])
        house.api.refuse = lambda _: None
        await house.passes(20)
        assert warned(house) == ["PodGroup g"]


async def test_a_namespace_that_was_made_anew_is_warned_anew() -> None:
    """Of one that is gone nothing is kept for long."""
    house = house_with("open")
    house.api.put(pod("p"))
    async with house.leading():
        await house.passes(1)
        assert warned(house) == ["Pod p"]
        house.api.delete("Pod", "p")
        house.api.delete("Namespace", "ns")
        await house.passes(125)
        house.api.put(made("Namespace", "ns"), pod("again"))
        await house.passes(1)
        assert warned(house) == ["Pod again", "Pod p"]


async def test_a_queue_that_is_closed_is_closed_at_once() -> None:
    """What waits is told by whom; what runs goes on, and a grant from before counts."""
    house = house_with("open", other=True)
    house.api.put(group("r", minMember=1), pod("r0", "r"))
    async with house.leading():
        house.api.put(annotated("closed"), annotated("closed", "other"))
        house.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"))
        await house.passes(1)
        assert house.api.where() == {"r0": "a", "h0": "a"}
        assert verdict(house) == "ForbiddenQueue"
        house.api.put(annotated("open"))
        await house.passes(1)
        assert len(house.api.where()) == 4
        assert house.api.said().count(ASKED) <= 4


async def test_a_grant_from_just_before_a_queue_is_closed_counts() -> None:
    """A refusal from before is not the last word: it is asked anew at once."""
    house = house_with("open")
    house.api.put(pod("p"))
    async with house.leading():
        await house.passes(1)
        house.api.may_use["q"] = True
        house.api.put(annotated("closed"), *gang("g", 2))
        await house.passes(1)
        assert len(house.api.where()) == 3


async def test_a_parent_closes_what_is_below_it() -> None:
    """Also one that a queue gets while units wait."""
    house = house_with("open")
    house.api.put(annotated("closed", "top"))
    house.api.put(group("g", minMember=9), *(pod(f"g{i}", "g") for i in range(9)))
    async with house.leading():
        await house.passes(2)
        assert verdict(house) == "NoCapacity"
        house.api.put(queue("q", parentQueue="top"))
        await house.passes(2)
        assert verdict(house) == "ForbiddenQueue"
        house.api.may_use["q"] = True
        house.api.put(node("b"))
        await house.passes(15)
        assert len(house.api.where()) == 9


@pytest.mark.parametrize("unannotated", ["open", "closed"])
async def test_what_is_said_of_a_failure_is_said_once(
    unannotated: Unannotated, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it is tried, and of however many."""
    house = house_with(unannotated)
    house.api.refuse = silent
    house.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with house.leading():
        await house.passes(300)
    text = "".join(capsys.readouterr())
    assert text.count("permission not asked") == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_simulate_reads_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, answers: bool
) -> None:
    """Who may not here may not there; what nobody knows is told as that."""
    house = house_with(other=True)
    house.api.refuse = (lambda _: None) if answers else silent
    house.api.put(*gang("g", 1), group("h", minMember=1, queue="other"), pod("h0", "h"))
    house.api.keeps_news = True
    async with house.leading():
        await house.passes(1)
        text = b"".join([piece async for piece in picture(house.live.cluster)])
    (tmp_path / "snapshot.json").write_bytes(text)
    capsys.readouterr()
    assert main(["simulate", "-f", str(tmp_path / "snapshot.json"), "-o", "json"]) == 0
    read = capsys.readouterr()

    (cycle,) = json.loads(read.out)["cycles"]
    told = {it["podGroup"]: (it["reason"], it["message"]) for it in cycle["unschedulable"]}
    assert told.keys() == ({"g"} if answers else {"g", "h"})
    assert {reason for reason, _ in told.values()} == {"ForbiddenQueue"}
    assert ("could not be asked" in told["g"][1]) is not answers
    assert read.err == ""
