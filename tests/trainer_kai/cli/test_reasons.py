"""Why a TrainJob waits: one reason, with numbers, and what would change it."""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.support.jobsets import UID
from tests.trainer_kai.cli.scenes import ROOM, Scene, without_room
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBSETS, LEASES, PODGROUPS, QUEUES
from trainer_kai.cli.answer import State

Change: TypeAlias = Callable[[Scene], None]
Told: TypeAlias = tuple[str, ...]

GROUP: Final = f"pg-job-{UID}"
NODE: Final = {"nodeName": "node-1"}
PAUSED = "scheduler paused: another scheduler holds Lease kai-scheduler/kai-scheduler (holder x)"
RESUMED = "It goes on by itself, unless its user has suspended it, too"
_RECORD = "trainer-kai.dev/evicted-by"


def by_another(scene: Scene) -> None:
    """Have pods that wait for KAI."""
    scene.pods("node", 4)
    scene.said(("OverLimit", "team-a is over"), message="x")


def paused(scene: Scene) -> None:
    """Have our scheduler paused after it found no room."""
    without_room(scene)
    (older,) = scene.groups[""]["status"]["schedulingConditions"]
    said = {"reason": "SchedulerPaused", "message": PAUSED}
    scene.groups[""]["status"] = {
        "schedulingConditions": [older, {**said, "type": "SchedulerPaused", "reasons": [said]}]
    }
    scene.change()


def pulling(scene: Scene) -> None:
    """Have all pods on nodes, one of which cannot get its image."""
    image = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    scene.running("node", 3)
    scene.pods("node", spec=NODE, status={"containerStatuses": [image]})


def started_again(scene: Scene) -> None:
    """Have pods of an attempt that is over beside those of the next one."""
    scene.running("node", 4)
    scene.pods("node", 4, labels={"jobset.sigs.k8s.io/restart-attempt": "1"})
    scene.said(*ROOM)


def evicted(scene: Scene) -> None:
    """Have it suspended by us, as its group says."""
    told = {"trainJob": "uid-job", "podGroup": "uid-pg", "why": "pods are lost"}
    scene.groups[""]["metadata"]["uid"] = "uid-pg"
    scene.groups[""]["metadata"]["annotations"] |= {_RECORD: json.dumps(told)}
    scene.change(suspend=True)


def forged(scene: Scene) -> None:
    """Have it suspended by its user, with the annotation that we write."""
    scene.trainjob["metadata"]["annotations"] = {_RECORD: '{"why": "pods are lost"}'}
    scene.change(suspend=True)


def not_resumed(scene: Scene) -> None:
    """Have its JobSet suspended, as nobody wishes any more."""
    scene.jobset["spec"]["suspend"] = True
    scene.change(suspend=False)


def of_kueue(scene: Scene) -> None:
    """Have it suspended by Kueue."""
    scene.trainjob["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lab"}
    scene.change(suspend=True)


def without_jobset(scene: Scene) -> None:
    """Have nothing but the TrainJob."""
    scene.shelf.take(JOBSETS, Key("default", "job"))
    for group in scene.groups.values():
        scene.shelf.take(PODGROUPS, Key("default", group["metadata"]["name"]))


def without_groups(scene: Scene) -> None:
    """Have pods and no groups."""
    scene.shelf.take(PODGROUPS, Key("default", GROUP))
    scene.pods("node", 4)


def webhook_down(scene: Scene) -> None:
    """Have Trainer say that the webhook does not answer."""
    without_jobset(scene)
    said = 'failed calling webhook "jobset-create.trainer-kai.dev"'
    scene.event("TrainJob job", "TrainJobResourcesCreationFailed", said)


def broken(scene: Scene) -> None:
    """Have three that run, and a fourth that does not find its room again."""
    scene.running("node", 3)
    scene.pods("node")


def promised(scene: Scene) -> None:
    """Have pods wait for a node that others leave."""
    scene.pods("node", 4, status={"nominatedNodeName": "node-7"})


def elsewhere(scene: Scene) -> None:
    """Have pods that ask another scheduler."""
    told = {"type": "PodScheduled", "status": "False", "message": "0/8 nodes are available"}
    spec = {"schedulerName": "default-scheduler"}
    scene.pods("node", 4, spec=spec, status={"conditions": [told]}, grouped=False)


def marked(scene: Scene) -> None:
    """Have what the scheduler says on pods alone, for somebody who may not read groups."""
    text = "NoCapacity: 0 of 4 pods have room"
    told = {"type": "PodScheduled", "status": "False", "message": text}
    scene.pods("node", 4, status={"conditions": [told]})
    scene.shelf.forbidden = {"podgroups"}


def lost_queue(scene: Scene) -> None:
    """Have the queue away, before anybody has said so."""
    scene.pods("node", 4)
    scene.shelf.take(QUEUES, Key("", "team-a"))


def silent(age_s: int, holder: str = "kai-0_x") -> Change:
    """Return a change: nobody leads for so long."""

    def change(scene: Scene) -> None:
        without_room(scene)
        scene.lease(age_s, holder)

    return change


def never_led(scene: Scene) -> None:
    """Have no Lease."""
    scene.pods("node", 4)
    scene.shelf.take(LEASES, Key("trainer-kai", "trainer-kai-scheduler"))


WAITS: Final = State.WAITS
RUNS: Final = State.RUNS

# what is so -> the state, and what is said of the whole and of its unit
CASES: Final[list[Case[Change, Told]]] = [
    Case(
        "the scheduler's verdict is told, not KAI's reason beside it",
        without_room,
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "what another scheduler says is told as it is",
        by_another,
        (WAITS, "OverLimit: x"),
    ),
    Case("our scheduler is paused", paused, (WAITS, f"SchedulerPaused: {PAUSED}")),
    Case("whoever runs does not wait", lambda it: it.running("node", 4), (RUNS,)),
    Case(
        "pods of an earlier attempt do not count",
        started_again,
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a pod on its node says what keeps it",
        pulling,
        (WAITS, "Starting: 1 pod on node-1 does not run yet: ImagePullBackOff: no such image"),
    ),
    Case(
        "pods that are about to be made say nothing",
        lambda it: it.running("node", 3),
        (WAITS, "PodsMissing: pods are missing: 3 of 4 exist. Their Jobs make the others"),
    ),
    Case(
        "nobody has suspended it but a user",
        lambda it: it.change(suspend=True),
        (
            State.SUSPENDED,
            "Suspended: somebody has suspended it. It goes on when spec.suspend is false",
        ),
    ),
    Case(
        "Trainer did not resume it yet",
        not_resumed,
        (
            State.SUSPENDED,
            (
                "Suspended: its JobSet is suspended, though spec.suspend of job is false. "
                "It goes on when Trainer resumes it; if that fails an event of the job says why"
            ),
        ),
    ),
    Case(
        "it was evicted",
        evicted,
        (State.SUSPENDED, f"Suspended: it was taken off its nodes: pods are lost. {RESUMED}"),
    ),
    Case(
        "only it says itself that it was evicted",
        forged,
        (
            State.SUSPENDED,
            (
                f"Suspended: no PodGroup of it says that it was evicted: its annotation {_RECORD} "
                "is not the scheduler's, or out of date. It goes on when spec.suspend is false"
            ),
        ),
    ),
    Case(
        "Kueue holds it",
        of_kueue,
        (
            State.SUSPENDED,
            "Suspended: Kueue has not admitted it (queue lab). It goes on when Kueue does",
        ),
    ),
    Case(
        "the webhook is down",
        webhook_down,
        (
            WAITS,
            (
                'JobSetMissing: failed calling webhook "jobset-create.trainer-kai.dev". The '
                "webhook of trainer-kai has to answer. Trainer tries again by itself, ever more "
                "rarely; any change of the TrainJob, an annotation too, makes it try at once"
            ),
        ),
    ),
    Case(
        "Trainer is down",
        without_jobset,
        (
            WAITS,
            "JobSetMissing: Trainer has not made its JobSet, and has not said why: it may not run",
        ),
    ),
    Case(
        "it is left to somebody else",
        lambda it: it.change(managedBy="example.com/other"),
        (
            WAITS,
            (
                "LeftToOthers: spec.managedBy leaves it to example.com/other: whoever that is "
                "knows how far it is"
            ),
            "PodsMissing: pods are missing: 0 of 4 exist. Their Jobs make the others",
        ),
    ),
    Case(
        "the podgrouper is down",
        without_groups,
        (
            WAITS,
            (
                f"GroupMissing: its pods are in the PodGroup {GROUP}, which does not exist. It "
                "goes on when the podgrouper, or whoever groups them, makes it"
            ),
        ),
    ),
    Case(
        "pods ask another scheduler",
        elsewhere,
        (
            WAITS,
            "LeftToOthers: 4 pods wait for default-scheduler, not for us: 0/8 nodes are available",
        ),
    ),
    Case(
        "pods are gated",
        lambda it: it.pods("node", 4, spec={"schedulingGates": [{"name": "example.com/later"}]}),
        (
            WAITS,
            "Gated: 4 pods are gated. It goes on when these gates are gone: example.com/later",
        ),
    ),
    Case(
        "pods have the promise of a node",
        promised,
        (
            WAITS,
            "WaitingForVictims: 4 pods have the promise of node-7, and can start when others left",
        ),
    ),
    Case(
        "the queue is not there, and nobody has said so yet",
        lost_queue,
        (
            WAITS,
            (
                "QueueMissing: queue team-a does not exist. It goes on when that is made, or when "
                "it is suspended and resumed with another"
            ),
        ),
    ),
    Case(
        "a leader that was silent a moment is one",
        silent(100),
        (WAITS, "NoCapacity: 0 of 4 pods have room. It can."),
    ),
    Case(
        "a leader that is silent for long is none, and what it said is old",
        silent(3600),
        (
            WAITS,
            (
                "NobodySchedules: no scheduler runs: kai-0 has not renewed the Lease trainer-kai/"
                "trainer-kai-scheduler since 2025-12-31T23:00:00.000000Z. It goes on when the "
                "scheduler runs. The last that was said of it: NoCapacity: 0 of 4 pods have room. "
                "It can."
            ),
        ),
    ),
    Case(
        "a scheduler that ended in order holds its Lease no more",
        silent(5, ""),
        (
            WAITS,
            (
                "NobodySchedules: no scheduler runs: nobody holds the Lease trainer-kai/trainer-"
                "kai-scheduler since 2025-12-31T23:59:55.000000Z. It goes on when the scheduler "
                "runs. The last that was said of it: NoCapacity: 0 of 4 pods have room. It can."
            ),
        ),
    ),
    Case(
        "there never was a scheduler",
        never_led,
        (
            WAITS,
            (
                "NobodySchedules: no scheduler has ever run, or not in its namespace: there is no "
                "Lease trainer-kai/trainer-kai-scheduler. It goes on when the scheduler runs"
            ),
        ),
    ),
    Case(
        "a unit has begun and lost a pod",
        broken,
        (
            WAITS,
            (
                "Incomplete: 3 pods run, and 1 more needs room. If there is none in time it is "
                "taken off its nodes whole, and starts anew"
            ),
        ),
    ),
    Case(
        "nobody has said anything yet",
        lambda it: it.pods("node", 4),
        (
            WAITS,
            (
                "NothingSaid: 4 pods wait: nobody has said why yet. If that stays so, the "
                "scheduler may not run"
            ),
        ),
    ),
    Case(
        "pods say it where groups may not be read",
        marked,
        (WAITS, "NoCapacity: 0 of 4 pods have room"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_the_reason(case: Case[Change, Told]) -> None:
    """There is one, it has its numbers, and it says what would change it."""
    scene = Scene()
    case.given(scene)

    told = await scene.why()

    reasons = [it for it in (told.reason, *(unit.reason for unit in told.units)) if it]
    assert (told.state, *(f"{it.title}: {it.sentence}" for it in reasons)) == case.want
