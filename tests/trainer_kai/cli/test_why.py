"""What is told of a TrainJob: its units, how far they are, and what of it may not be read."""

from typing import Final

import pytest

from scheduler.core.model import Verdict
from tests.support.jobsets import UID
from tests.trainer_kai.cli.scenes import ROOM, Scene, without_room
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES, TRAINJOBS
from trainer_kai.cli.answer import State
from trainer_kai.cli.parts import Heads
from trainer_kai.cli.telling import as_json, as_text
from trainer_kai.cli.titles import VERDICTS, Title
from trainer_kai.errors import ConfigError
from trainer_kai.kube.errors import Forbidden

GROUP: Final = f"pg-job-{UID}"


async def test_a_scheduler_in_another_namespace_is_believed() -> None:
    """Where there is no Lease of ours, and somebody has said why."""
    scene = Scene()
    without_room(scene)
    scene.shelf.take(LEASES, Key("trainer-kai", "trainer-kai-scheduler"))

    told = await scene.why()

    assert [unit.reason.title for unit in told.units if unit.reason] == ["NoCapacity"]


TUNE: Final = "torchtune-llama3.2-1b"


async def test_stages_as_people_read_them() -> None:
    """Each unit has a row as in a plan; who waits has his reason below."""
    scene = Scene(TUNE)
    scene.running("dataset-initializer", group="dataset-initializer")
    scene.pods("model-initializer", group="model-initializer")
    scene.said(*ROOM, group="model-initializer")

    text = as_text(await scene.why(), 100)

    short = [" ".join(line.split()) for line in text.splitlines()]
    assert short == [
        f"TrainJob default/job waits runtime ClusterTrainingRuntime {TUNE} queue team-a",
        "",
        "TrainJob → JobSet → 3 units → 2 pods: 1 runs, 1 waits",
        "",
        "STAGE GROUP AFTER MEMBERS STATE PODS",
        "1/2 pg-job-11111111…-dataset-initializer - 1 dataset-initializer runs 1 runs",
        "1/2 pg-job-11111111…-model-initializer - 1 model-initializer waits 1 waits",
        "NoCapacity (for 2m): 0 of 4 pods have room. It can.",
        "2/2 pg-job-11111111…-node dataset-initializer, model-initializer Complete 4 node waits -",
        (
            "WaitingForStage: dataset-initializer is not Complete: 0 of 1 of its Jobs are; "
            "model-initializer is"
        ),
        "not Complete: 0 of 1 of its Jobs are. Its pods are made afterwards",
    ]


async def test_who_goes_on_stage_by_stage_does_not_wait() -> None:
    """All is as it should be: a script that looks at the exit code goes on as well."""
    scene = Scene(TUNE)
    scene.running("dataset-initializer", group="dataset-initializer")
    scene.running("model-initializer", group="model-initializer")

    told = await scene.why()

    assert [unit.state for unit in told.units] == [State.RUNS, State.RUNS, State.WAITS]
    assert (told.state, told.waits) == (State.RUNS, False)


async def test_a_label_that_does_not_count_yet_is_told() -> None:
    """Whoever is told of a queue that is missing names another one, and nothing happens."""
    scene = Scene()
    scene.pods("node", 4)
    before = await scene.why()
    scene.trainjob["metadata"]["labels"] = {"kai.scheduler/queue": "team-b"}
    scene.shelf.put(TRAINJOBS, scene.trainjob)

    after = await scene.why()

    scene.trainjob["spec"]["suspend"] = True
    scene.shelf.put(TRAINJOBS, scene.trainjob)
    suspended = await scene.why()
    over = {"type": "Complete", "status": "True", "reason": "Why", "message": "so"}
    scene.trainjob["status"] = {"conditions": [over]}
    scene.shelf.put(TRAINJOBS, scene.trainjob)
    done = await scene.why("job-node-0-1")

    note = "its label names queue team-b now; that counts once it is"
    assert (before.notes, after.queue) == ((), "team-a")
    assert after.notes == (f"{note} suspended and resumed",)
    assert suspended.notes == (f"{note} resumed",)
    assert not any(it.startswith(note) for it in done.notes)


async def test_a_stage_that_is_over_waits_for_nothing() -> None:
    """Its pods may be gone, and those of the next one run."""
    scene = Scene(TUNE)
    scene.counted(dataset_initializer=1, model_initializer=1)
    scene.running("node", 4, group="node")

    told = await scene.why()

    assert [unit.state for unit in told.units] == [State.COMPLETE, State.COMPLETE, State.RUNS]
    assert not told.waits


@pytest.mark.parametrize("forbidden", [set[str](), {"jobsets"}])
async def test_who_comes_later_is_not_waited_for(forbidden: set[str]) -> None:
    """The launcher of DeepSpeed, whether the JobSet may be read or only the group."""
    scene = Scene("deepspeed-distributed")
    scene.shelf.forbidden = forbidden
    scene.running("node", 3)
    early = await scene.why()
    scene.pods("launcher", spec={"nodeName": ""})
    late = await scene.why()

    assert [(it.state, it.note) for it in early.units] == [
        (State.RUNS, "launcher comes when the others are Ready")
    ]
    assert [it.state for it in late.units] == [State.WAITS]
    assert early.unknown == ()


async def test_stages_are_known_from_groups_alone() -> None:
    """Most users may not read JobSets."""
    scene = Scene(TUNE)
    scene.shelf.forbidden = {"jobsets", "leases"}
    scene.running("dataset-initializer", group="dataset-initializer")
    over = {"nodeName": "node-1"}
    scene.pods(
        "model-initializer", 1, "model-initializer", spec=over, status={"phase": "Succeeded"}
    )

    told = await scene.why()

    assert [(it.part.stage, it.state) for it in told.units] == [
        ("1/2", State.RUNS),
        ("1/2", State.COMPLETE),
        ("2/2", State.WAITS),
    ]
    assert told.units[2].reason is not None
    assert told.units[2].reason.sentence == (
        "dataset-initializer is not Complete: 0 of 1 of its pods are. Its pods are made afterwards"
    )


async def test_an_external_scheduler_has_groups_of_its_own() -> None:
    """One for each stage; our Lease says nothing about it."""
    scene = Scene("deepspeed-distributed", "external")
    scene.pods("node", 3, "node")
    scene.said(("OverLimit", "team-a has all it may have"), group="node")
    scene.lease(3600)

    told = await scene.why()

    titles = [unit.reason.title for unit in told.units if unit.reason]
    assert titles == ["OverLimit", "WaitingForStage"]


async def test_a_pod_is_answered_for_by_its_unit() -> None:
    """Of the other units nothing is told, nor does it matter that they wait."""
    scene = Scene(TUNE)
    scene.running("dataset-initializer", group="dataset-initializer")

    told = await scene.why("job-dataset-initializer-0-1")

    assert [unit.part.names for unit in told.units] == [{"dataset-initializer"}]
    assert (told.waits, told.kind, told.key.name) == (False, "TrainJob", "job")


async def test_a_pod_of_no_jobset_is_asked_about_itself() -> None:
    """Its group says why."""
    scene = Scene()
    scene.pods("node", labels={"jobset.sigs.k8s.io/jobset-name": ""})
    scene.said(*ROOM)

    told = await scene.why("job-node-0-1")

    assert [unit.reason.title for unit in told.units if unit.reason] == ["NoCapacity"]
    assert told.kind == "Pod"


@pytest.mark.parametrize("name", ["Complete", "Failed"])
async def test_of_what_is_over_nothing_more_is_asked(name: str) -> None:
    """One request, and nothing waits; of a pod that is left one more."""
    scene = Scene()
    scene.pods("node")
    over = {"type": name, "status": "True", "reason": "Why", "message": "so"}
    scene.trainjob["status"] = {"conditions": [over]}
    scene.shelf.put(TRAINJOBS, scene.trainjob)

    told = await scene.why()

    assert (told.state.value, told.waits) == (name.lower(), False)
    assert len(scene.shelf.asked) == 1
    assert await scene.why("job-node-0-1") == told
    assert len(scene.shelf.asked) == 3


async def test_few_questions_are_asked() -> None:
    """TrainJob, JobSet, groups, pods; and of what waits the Lease."""
    scene = Scene()
    scene.running("node", 4)
    await scene.why()
    assert len(scene.shelf.asked) == 4

    scene = Scene()
    without_room(scene)
    await scene.why()
    assert len(scene.shelf.asked) == 5


async def test_a_program_gets_plain_values() -> None:
    """All that people are told, and no name cut short."""
    scene = Scene()
    without_room(scene)
    scene.shelf.forbidden = {"leases"}

    assert as_json(await scene.why()) == {
        "schema": "trainer-kai/why/v1",
        "kind": "TrainJob",
        "namespace": "default",
        "name": "job",
        "runtime": "ClusterTrainingRuntime torch-distributed",
        "queue": "team-a",
        "state": "waits",
        "waits": True,
        "reason": None,
        "units": [
            {
                "stage": "1/1",
                "podGroup": GROUP,
                "after": None,
                "members": "4 node",
                "state": "waits",
                "reason": {
                    "title": "NoCapacity",
                    "message": ROOM[1][1],
                    "since": "2025-12-31T23:58:00+00:00",
                },
                "note": None,
                "needs": 4,
                "pods": dict.fromkeys(Heads._fields, 0) | {"waiting": 4},
            }
        ],
        "notes": [],
        "unknown": [],
    }


async def test_what_may_not_be_read_is_told_in_one_line() -> None:
    """It is no error."""
    scene = Scene()
    scene.pods("node", 4)
    scene.shelf.forbidden = {"jobsets", "leases", "podgroups", "trainjobs"}

    *_, last = as_text(await scene.why(), 100).splitlines()

    unknown = "jobsets, leases, podgroups, trainjobs"
    assert last == f"not known, for it may not be read by you: {unknown}"


async def test_nothing_is_concluded_from_what_may_not_be_read() -> None:
    """A JobSet may be there all the same."""
    scene = Scene()
    scene.shelf.forbidden = {"jobsets", "podgroups"}

    told = await scene.why()

    assert told.reason is not None
    assert (told.reason.title, told.unknown) == ("PodsMissing", ("jobsets", "podgroups"))


async def test_who_may_read_nothing_is_told_so() -> None:
    """There is no answer then."""
    scene = Scene()
    scene.shelf.forbidden = {"jobsets", "podgroups", "pods", "trainjobs"}

    with pytest.raises(Forbidden):
        await scene.why()


@pytest.mark.parametrize("pod", ["", "nobody"])
async def test_what_is_not_there_is_told_by_name(pod: str) -> None:
    """With its kind, and where it was looked for."""
    scene = Scene()
    scene.shelf.take(TRAINJOBS, Key("default", "job"))

    with pytest.raises(ConfigError, match=r"^(trainjob/job|pod/nobody): is not in namespace def"):
        await scene.why(pod)


def test_the_verdicts_are_those_of_the_scheduler() -> None:
    """They are spelt twice, and mean the same."""
    assert {verdict.title for verdict in Verdict} == VERDICTS
    shared = {Title.PODS_MISSING, Title.QUEUE_MISSING}
    shared |= {Title.WAITING_FOR_STAGE, Title.WAITING_FOR_VICTIMS}
    assert {title for title in Title if title in VERDICTS} == shared


_EVICTED = "kai.scheduler/last-eviction-timestamp"
_STARTED = "kai.scheduler/last-start-timestamp"
_THEN, _LATER = "2025-12-31T23:00:00+00:00", "2025-12-31T23:30:00+00:00"


@pytest.mark.parametrize("is_known", [True, False], ids=["by an event", "that is gone"])
async def test_who_waits_since_it_was_evicted_is_told_so(*, is_known: bool) -> None:
    """When, and for whom as long as there is an event that says so; not after another start."""
    scene = Scene()
    scene.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN}
    scene.said(*ROOM)
    scene.pods("node", 4)
    if is_known:
        scene.event(f"PodGroup {GROUP}", "Evict", "default/b gets its room")

    told = await scene.why()

    more = ": default/b gets its room" if is_known else ""
    assert told.notes == (f"it was evicted at {_THEN}{more}",)
    scene.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN, _STARTED: _LATER}
    scene.said(*ROOM)
    assert (await scene.why()).notes == ()


async def test_who_runs_again_is_not_told_that_it_was_evicted() -> None:
    """It has what it wants."""
    scene = Scene()
    scene.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN}
    scene.said(*ROOM)
    scene.running("node", 4)

    assert (await scene.why()).notes == ()


@pytest.mark.parametrize(("verdict", "promised"), [("NoCapacity", 0), ("WaitingForVictims", 4)])
async def test_a_promise_that_was_taken_back_is_none(verdict: str, promised: int) -> None:
    """It stays on the pods until they get another; the verdict says whether it still counts."""
    scene = Scene()
    scene.pods("node", 4, status={"nominatedNodeName": "node-a"})
    scene.said((verdict, "so it is"))

    (unit,) = (await scene.why()).units

    assert (unit.heads.promised, unit.heads.waiting) == (promised, 4 - promised)
