"""Queue access is reviewed beside the plans; no PodGroup starts because an answer is missing."""

import json
from pathlib import Path

import pytest

from scheduler.shell.main import dump_cluster
from scheduler.state.inputs import Permit
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import FakeCluster
from tests.support.state.objects import gang, group, make_object, node, pod, queue
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.cli.main import main
from trainer_kai.service.settings import UnannotatedAccess

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


def harness_with(unannotated: UnannotatedAccess = "closed", **may_use: bool) -> SchedulerHarness:
    """Return a scheduler of one node, two queues without annotation, and what may be used."""
    api = FakeCluster()
    api.may_use.update(may_use)
    api.put(queue(), queue("other"), node("a"), make_object("Namespace", "ns"))
    return SchedulerHarness(api, unannotated)


def annotated(access: str, name: str = "q", **spec: object) -> dict[str, object]:
    return queue(name, meta={"annotations": {ACCESS: access}}, **spec)


def waiting_reason(harness: SchedulerHarness, name: str = "g") -> str:
    found = harness.api.get("PodGroup", name).get("status", {}).get("schedulingConditions")
    return found[-1]["reasons"][-1]["reason"] if found else ""


def refuse_reviews(what: str) -> int | None:
    """Refuse access reviews."""
    return 403 if what == ASKED else None


def warned(harness: SchedulerHarness) -> list[str]:
    return sorted(of for of, reason in harness.events() if reason == "QueueOpen")


async def test_it_is_asked_whether_the_namespace_may() -> None:
    """Once for all of a namespace and a queue, and as the group that all its accounts are in."""
    harness = harness_with(q=True)
    harness.api.put(*gang("g", 2), *gang("h", 2), pod("p"))
    async with harness.leading():
        await harness.advance(30)

    assert harness.api.access_reviews == [QUESTION]
    assert len(harness.api.node_of_pods()) == 5


async def test_of_a_queue_that_is_open_nothing_is_asked() -> None:
    """It says so itself: no question, no Event."""
    harness = harness_with()
    harness.api.put(annotated("open"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(61)
        assert harness.api.access_reviews == []
        assert warned(harness) == []
    assert len(harness.api.node_of_pods()) == 2


async def test_a_forbidden_queue_starts_nothing_and_says_why() -> None:
    """PodGroups that may use their queue start."""
    harness = harness_with(other=True)
    harness.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"), pod("p"))
    async with harness.leading():
        await harness.advance(5)

        assert harness.api.node_of_pods() == {"h0": "a"}
        assert waiting_reason(harness) == "ForbiddenQueue"
        (condition,) = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert condition["message"].startswith(
            "Namespace ns may not use queue q, which is closed (the setting "
            "queue_access.unannotated is closed, and the queue has no annotation). It can start "
            "when "
        )
        assert warned(harness) == []


async def test_nothing_is_reported_while_the_first_answer_is_awaited() -> None:
    """It takes as long as a request, and no reason is reported after so short a time."""
    harness = harness_with(q=True)
    harness.api.put(*gang("g", 2))
    harness.api.delay_s = lambda what: 0.2 if what == ASKED else 0
    async with harness.leading():
        assert harness.api.node_of_pods() == {}
        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 2
    assert not [
        it for it in harness.api.written() if "podgroups/status" in it and waiting_reason(harness)
    ]


async def test_plans_do_not_wait_for_answers() -> None:
    """Others start while one is asked for."""
    harness = harness_with(q=True, other=True)
    harness.api.put(group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with harness.leading():
        harness.api.delay_s = lambda what: 4 if what == ASKED else 0
        harness.api.put(*gang("g", 2))
        harness.api.put(group("i", minMember=1, queue="other"), pod("i0", "i"))
        await harness.advance(0.2)
        assert harness.api.node_of_pods() == {"h0": "a", "i0": "a"}
        await harness.advance(10)
        assert len(harness.api.node_of_pods()) == 4


async def test_a_right_that_is_given_is_seen_within_a_minute() -> None:
    """And the old reason is not reported any more, whatever is in the way now."""
    harness = harness_with()
    harness.api.put(*gang("g", 9))
    async with harness.leading():
        await harness.advance(5)
        assert waiting_reason(harness) == "ForbiddenQueue"
        harness.api.may_use["q"] = True
        await harness.advance(60)
        assert waiting_reason(harness) == "NoCapacity"
        message = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"][-1]["message"]
        assert "may not use" not in message
        harness.api.put(node("b"))
        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 9


async def test_a_right_that_is_taken_ends_nothing_that_runs() -> None:
    """It may be repaired, and does not grow; nothing else begins."""
    harness = harness_with(q=True)
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        assert len(harness.api.node_of_pods()) == 2
        harness.api.may_use["q"] = False
        await harness.advance(61)
        harness.api.put(*gang("h", 1), pod("more", "g"))
        await harness.advance(2)
        harness.api.delete("Pod", "g0")
        harness.api.put(pod("g0", "g", meta={"uid": "g0-again"}))
        harness.api.put(pod("g2", "g"))
        await harness.advance(2)

        assert len([it for it in harness.api.node_of_pods() if it.startswith(("g", "more"))]) == 2
        assert "h0" not in harness.api.node_of_pods()
        assert not [it for it in harness.api.written() if it.startswith("delete")]


async def test_the_last_answer_holds_while_there_is_none() -> None:
    """A PodGroup that might begin before may begin now."""
    harness = harness_with(q=True)
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        harness.api.refuse_with = refuse_reviews
        await harness.advance(200)
        harness.api.put(*gang("h", 2))
        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 4


async def test_answers_of_the_leader_before_count() -> None:
    """What it knew holds until it is asked anew, which is at once."""
    harness = harness_with(q=True)
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        pass
    harness.api.refuse_with = refuse_reviews
    harness.api.put(*gang("h", 2))
    async with harness.lead_again().leading():
        assert len(harness.api.node_of_pods()) == 4
        harness.api.refuse_with = lambda _: None
        harness.api.may_use["q"] = False
        await harness.advance(30)
        assert harness.cache.cluster.permits == {PAIR: Permit.REFUSED}


async def test_without_any_answer_podgroups_wait_and_the_reason_is_reported() -> None:
    """Until there is an answer; a PodGroup that runs is left alone."""
    harness = harness_with(q=True)
    harness.api.refuse_with = refuse_reviews
    harness.api.put(*gang("g", 2), group("r", minMember=1), pod("r0", "r", node="a"))
    async with harness.leading():
        await harness.advance(300)
        assert harness.api.node_of_pods() == {"r0": "a"}
        assert waiting_reason(harness) == "ForbiddenQueue"
        (condition,) = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert "has no answer yet" in condition["message"]
        harness.api.refuse_with = lambda _: None
        await harness.advance(20)
        assert len(harness.api.node_of_pods()) == 3


async def test_an_unused_pair_is_forgotten() -> None:
    """A minute after the last one that used a queue."""
    harness = harness_with(q=True)
    harness.api.put(pod("p"))
    async with harness.leading():
        assert harness.cache.cluster.permits == {PAIR: Permit.GRANTED}
        harness.api.delete("Pod", "p")
        await harness.advance(125)
        assert harness.cache.cluster.permits == {}
        asked = len(harness.api.access_reviews)
        await harness.advance(300)
        assert len(harness.api.access_reviews) == asked
        harness.api.put(pod("p"))
        await harness.advance(1)
        assert (len(harness.api.access_reviews), harness.api.node_of_pods()) == (
            asked + 1,
            {"p": "a"},
        )


def create_trainjob_group(harness: SchedulerHarness) -> None:
    sets = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "u"}
    jobs = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "j"}
    owners = {"ownerReferences": [{**sets, "controller": True}]}
    own = {"uid": "u", "ownerReferences": [{**jobs, "uid": "t", "controller": True}]}
    job = {"kind": "Job", "apiVersion": "batch/v1", "name": "j-n-0", "uid": "v", "controller": True}
    harness.api.put(
        make_object("TrainJob", "j", {"uid": "t"}, spec={}),
        make_object("JobSet", "j", own, spec={}),
        group("g", minMember=1, meta=owners),
        pod("g0", "g", meta={"ownerReferences": [job]}),
    )


async def test_warned_and_started() -> None:
    """A TrainJob, once for its namespace and queue, however much starts there later."""
    harness = harness_with("open", other=True)
    create_trainjob_group(harness)
    harness.api.put(group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with harness.leading():
        assert len(harness.api.node_of_pods()) == 2
        harness.api.put(pod("p"), *gang("e", 1))
        for _ in range(3):
            harness.cycle.replan()
            await harness.advance(61)
        assert len(harness.api.node_of_pods()) == 4
        assert harness.cache.cluster.permits == {}

    assert warned(harness) == ["TrainJob j"]
    (event,) = harness.api.events
    assert event["type"] == "Warning"
    assert event["message"] == (
        "Queue q admits pods of every namespace, including ns: the queue and its parents do not "
        "have the annotation trainer-kai.dev/access. To close the queue to namespaces that do not "
        "use it now: trainer-kai queue close q --from-usage"
    )


async def test_each_queue_is_warned_of() -> None:
    """A PodGroup without a TrainJob, and a pod of its own."""
    harness = harness_with("open")
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        harness.api.put(pod("p", labels={"kai.scheduler/queue": "other"}))
        await harness.advance(1)
    assert warned(harness) == ["Pod p", "PodGroup g"]


async def test_a_warning_may_come_late() -> None:
    """No PodGroup waits for an answer about an open queue."""
    harness = harness_with("open")
    harness.api.delay_s = lambda what: 2 if what == ASKED else 0
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        assert (len(harness.api.node_of_pods()), warned(harness)) == (2, [])
        await harness.advance(3)
        assert warned(harness) == ["PodGroup g"]


async def test_a_warning_comes_when_it_can_be_asked() -> None:
    """Of what started first meanwhile."""
    harness = harness_with("open")
    harness.api.refuse_with = refuse_reviews
    harness.api.put(*gang("g", 2))
    async with harness.leading():
        harness.api.put(pod("p"))
        await harness.advance(61)
        assert (len(harness.api.node_of_pods()), warned(harness)) == (3, [])
        harness.api.refuse_with = lambda _: None
        await harness.advance(20)
        assert warned(harness) == ["PodGroup g"]


async def test_a_namespace_that_was_made_anew_is_warned_anew() -> None:
    """Of one that is gone nothing is kept for long."""
    harness = harness_with("open")
    harness.api.put(pod("p"))
    async with harness.leading():
        await harness.advance(1)
        assert warned(harness) == ["Pod p"]
        harness.api.delete("Pod", "p")
        harness.api.delete("Namespace", "ns")
        await harness.advance(125)
        harness.api.put(make_object("Namespace", "ns"), pod("again"))
        await harness.advance(1)
        assert warned(harness) == ["Pod again", "Pod p"]


async def test_a_queue_that_is_closed_is_closed_at_once() -> None:
    """Waiting PodGroups report which queue; what runs goes on, and a grant from before counts."""
    harness = harness_with("open", other=True)
    harness.api.put(group("r", minMember=1), pod("r0", "r"))
    async with harness.leading():
        harness.api.put(annotated("closed"), annotated("closed", "other"))
        harness.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"))
        await harness.advance(1)
        assert harness.api.node_of_pods() == {"r0": "a", "h0": "a"}
        assert waiting_reason(harness) == "ForbiddenQueue"
        harness.api.put(annotated("open"))
        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 4
        assert harness.api.written().count(ASKED) <= 4


async def test_a_grant_from_just_before_a_queue_is_closed_counts() -> None:
    """A refusal from before is not the last word: it is asked anew at once."""
    harness = harness_with("open")
    harness.api.put(pod("p"))
    async with harness.leading():
        await harness.advance(1)
        harness.api.may_use["q"] = True
        harness.api.put(annotated("closed"), *gang("g", 2))
        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 3


async def test_a_parent_closes_what_is_below_it() -> None:
    """Also one that a queue gets while PodGroups wait."""
    harness = harness_with("open")
    harness.api.put(annotated("closed", "top"))
    harness.api.put(group("g", minMember=9), *(pod(f"g{i}", "g") for i in range(9)))
    async with harness.leading():
        await harness.advance(2)
        assert waiting_reason(harness) == "NoCapacity"
        harness.api.put(queue("q", parentQueue="top"))
        await harness.advance(2)
        assert waiting_reason(harness) == "ForbiddenQueue"
        harness.api.may_use["q"] = True
        harness.api.put(node("b"))
        await harness.advance(15)
        assert len(harness.api.node_of_pods()) == 9


@pytest.mark.parametrize("unannotated", ["open", "closed"])
async def test_a_failure_is_logged_once(
    unannotated: UnannotatedAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it is tried, and of however many."""
    harness = harness_with(unannotated)
    harness.api.refuse_with = refuse_reviews
    harness.api.put(*gang("g", 2), group("h", minMember=1, queue="other"), pod("h0", "h"))
    async with harness.leading():
        await harness.advance(300)
    text = "".join(capsys.readouterr())
    assert text.count("access review failed") == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_simulate_reads_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, answers: bool
) -> None:
    """A namespace refused here is refused there; an unknown answer is reported as unknown."""
    harness = harness_with(other=True)
    harness.api.refuse_with = (lambda _: None) if answers else refuse_reviews
    harness.api.put(*gang("g", 1), group("h", minMember=1, queue="other"), pod("h0", "h"))
    harness.api.holds_back_events = True
    async with harness.leading():
        await harness.advance(1)
        text = b"".join([piece async for piece in dump_cluster(harness.cache.cluster)])
    (tmp_path / "snapshot.json").write_bytes(text)
    capsys.readouterr()
    assert main(["simulate", "-f", str(tmp_path / "snapshot.json"), "-o", "json"]) == 0
    read = capsys.readouterr()

    (cycle,) = json.loads(read.out)["cycles"]
    condition = {it["podGroup"]: (it["reason"], it["message"]) for it in cycle["unschedulable"]}
    assert condition.keys() == ({"g"} if answers else {"g", "h"})
    assert {reason for reason, _ in condition.values()} == {"ForbiddenQueue"}
    assert ("has no answer yet" in condition["g"][1]) is not answers
    assert read.err == ""
