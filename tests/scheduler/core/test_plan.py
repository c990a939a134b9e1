"""The one question: which PodGroup gets which nodes now, and why the others wait."""

from typing import Final, NamedTuple

import pytest

from scheduler.core.model.podgroup import (
    AffinityTerm,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SubGroupSet,
)
from scheduler.core.model.rejections import (
    ClusterEvent,
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterCause,
    PreFilterFailure,
    QueueBoundExceeded,
)
from scheduler.core.model.resources import UNBOUND, ResourceKind
from scheduler.core.model.result import Plan, PlanStats, PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity

POLICIES: Final = build_policies(PolicySelection())
GPU: Final = signature(gpu=1)
TWO: Final = signature(gpu=2)
CPU: Final = signature(cpu=4)
PREFILTER_FAILED: Final = PreFilterFailure(
    PreFilterCause.QUEUE_MISSING, ("red", ""), ClusterEvent.STAGE_PROGRESS
)

STAGE: Final = PreFilterFailure(PreFilterCause.EARLIER_STAGE)


class PodGroupCase(NamedTuple):
    """A gang of equal pods; None as minimum means all of them."""

    pods: int
    signature: SchedulingSignature = GPU
    minimum: int | None = None
    queue: str = ""
    priority: int = 50
    is_preemptible: bool = True
    running: int = 0
    expected: int = 0
    reserved_places: tuple[tuple[int, SchedulingSignature], ...] = ()
    prefilter_failure: PreFilterFailure | None = None
    has_running: bool = False


class Scene(NamedTuple):
    nodes: list[SnapshotNode]
    podgroups: list[PodGroupCase]
    queues: list[SnapshotQueue] = [SnapshotQueue("team", quota=UNBOUND)]  # noqa: RUF012 - nothing adds to it

    def snapshot(self) -> Snapshot:
        build = Builder(nodes=self.nodes, queues=self.queues)
        for it in self.podgroups:
            reserved_places = tuple(
                ReservedPlace(n, build.signature_row(one), ReservationCause.ANTICIPATED)
                for n, one in it.reserved_places
            )
            waiting = build.waiting_pods(it.pods, it.signature)
            minimum = it.pods if it.minimum is None else it.minimum
            row = build.signature_row(it.signature)
            podset = PodSet("a", minimum, waiting, it.running, 0, reserved_places, it.expected, row)
            build.podgroup(
                podset,
                queue=it.queue,
                priority=it.priority,
                is_preemptible=it.is_preemptible,
                prefilter_failure=it.prefilter_failure,
                is_kept=it.has_running,
            )
        return build.snapshot(pod_relations=no_pod_affinity(len(self.nodes)))


def described(got: Plan) -> list[str]:
    """Return decisions in their order: ~ waits, + is reserved, ! is a start; then rejections."""
    waiting = [f"{it.podgroup} {it.reason}" for it in got.rejections]
    return [*map(_one, got.allocations), *waiting]


def _one(it: PodGroupAllocation) -> str:
    tasks = [
        *(f"{node}" for _, node, _ in it.binds),
        *(f"~{node}" for _, node, _ in it.nominations),
        *(f"+{reserved.node}" * reserved.number for reserved in it.reservations),
    ]
    return f"{it.podgroup}: {' '.join(tasks)}{'!' if it.is_start else ''}"


EIGHT: Final = [SnapshotNode()]
SOON: Final = [SnapshotNode(gpu=2, releasing_gpu=1)]
FULL: Final = SnapshotNode(gpu=1, used_gpu=1)
TEAMS: Final = [SnapshotQueue("red"), SnapshotQueue("blue")]


def bound(**more: float) -> list[SnapshotQueue]:
    """Return a queue with bounds, and no bound on its quota unless it is said."""
    return [SnapshotQueue("team", **{"quota": UNBOUND, **more})]  # type: ignore[arg-type] # all are numbers


# a site -> what comes of it
PLANS: list[Case[Scene, list[str]]] = [
    Case("nothing waits", Scene(EIGHT, []), []),
    Case("a gang starts whole", Scene(EIGHT, [PodGroupCase(2)]), ["0: 0 0!"]),
    Case("or not at all", Scene(EIGHT, [PodGroupCase(9)]), ["0 NoCapacity"]),
    Case(
        "the next one may fit",
        Scene(EIGHT, [PodGroupCase(9), PodGroupCase(8)]),
        ["1: 0 0 0 0 0 0 0 0!", "0 NoCapacity"],
    ),
    Case(
        "no node can take it",
        Scene(EIGHT, [PodGroupCase(1, signature(gpu=9))]),
        ["0 NoNodeMatches"],
    ),
    Case(
        "in pieces",
        Scene([SnapshotNode(gpu=2, used_gpu=1)] * 2, [PodGroupCase(1, TWO)]),
        ["0 Fragmented"],
    ),
    Case("what runs and wants nothing is not told", Scene(EIGHT, [PodGroupCase(0, running=3)]), []),
    Case(
        "the larger priority first",
        Scene(EIGHT, [PodGroupCase(8), PodGroupCase(1, priority=60)]),
        ["1: 0!", "0 NoCapacity"],
    ),
    Case(
        "a PodGroup below its minimum before one that wants more",
        Scene(EIGHT, [PodGroupCase(3, minimum=1), PodGroupCase(2, minimum=1)]),
        ["0: 0!", "1: 0!", "0: 0", "1: 0", "0: 0"],
    ),
    Case(
        "a PodGroup that has something does not start",
        Scene(EIGHT, [PodGroupCase(1, minimum=2, running=1)]),
        ["0: 0"],
    ),
    Case(
        "a running PodGroup that wants more and finds nothing waits",
        Scene([SnapshotNode(gpu=1)], [PodGroupCase(2, minimum=1)]),
        ["0: 0!", "0 NoCapacity"],
    ),
    Case(
        "queues take turns",
        Scene(
            EIGHT,
            [
                PodGroupCase(1),
                PodGroupCase(1),
                PodGroupCase(1, queue="red"),
                PodGroupCase(1, queue="red"),
            ],
            TEAMS,
        ),
        ["2: 0!", "0: 0!", "3: 0!", "1: 0!"],
    ),
    Case("up to the limit", Scene(EIGHT, [PodGroupCase(2)], bound(limit=2)), ["0: 0 0!"]),
    Case("not past the limit", Scene(EIGHT, [PodGroupCase(2)], bound(limit=1)), ["0 ExceedsLimit"]),
    Case(
        "what was given counts",
        Scene(EIGHT, [PodGroupCase(1), PodGroupCase(1), PodGroupCase(1, CPU)], bound(limit=1)),
        ["0: 0!", "2: 0!", "1 ExceedsLimit"],
    ),
    Case(
        "what is not asked for is not looked at",
        Scene(EIGHT, [PodGroupCase(1, CPU)], bound(limit=1, allocated=3)),
        ["0: 0!"],
    ),
    Case(
        "a limit above",
        Scene(
            EIGHT, [PodGroupCase(2)], [SnapshotQueue("all", limit=1), SnapshotQueue("team", "all")]
        ),
        ["0 ExceedsLimit"],
    ),
    Case(
        "a non-preemptible PodGroup stays within the quota",
        Scene(
            EIGHT,
            [PodGroupCase(2, is_preemptible=False), PodGroupCase(1, is_preemptible=False)],
            bound(quota=1),
        ),
        ["1: 0!", "0 NonPreemptibleOverQuota"],
    ),
    Case(
        "a preemptible one may exceed it",
        Scene(EIGHT, [PodGroupCase(2)], bound(quota=1)),
        ["0: 0 0!"],
    ),
    Case(
        "only what is fixed counts against the quota",
        Scene(EIGHT, [PodGroupCase(1, is_preemptible=False)], bound(quota=1, allocated=3)),
        ["0: 0!"],
    ),
    Case(
        "preemptible usage leaves the quota to non-preemptible PodGroups",
        Scene(EIGHT, [PodGroupCase(1), PodGroupCase(1, is_preemptible=False)], bound(quota=1)),
        ["0: 0!", "1: 0!"],
    ),
    Case(
        "a limit is told before a quota",
        Scene(EIGHT, [PodGroupCase(2, is_preemptible=False)], bound(quota=1, limit=1)),
        ["0 ExceedsLimit"],
    ),
    Case("pods are missing", Scene(EIGHT, [PodGroupCase(1, minimum=2)]), ["0 PodsMissing"]),
    Case(
        "what is known before is told",
        Scene(EIGHT, [PodGroupCase(1, prefilter_failure=PREFILTER_FAILED)]),
        ["0 QueueMissing"],
    ),
    Case(
        "a stage is told",
        Scene(EIGHT, [PodGroupCase(1, prefilter_failure=STAGE)]),
        ["0 WaitingForStage"],
    ),
    Case(
        "pods that are missing are told before a stage",
        Scene(EIGHT, [PodGroupCase(1, minimum=2, prefilter_failure=STAGE)]),
        ["0 PodsMissing"],
    ),
    Case(
        "a missing queue is told before pods that are missing",
        Scene(EIGHT, [PodGroupCase(1, minimum=2, prefilter_failure=PREFILTER_FAILED)]),
        ["0 QueueMissing"],
    ),
    Case(
        "a failure of a PodGroup that wants nothing is not reported",
        Scene(EIGHT, [PodGroupCase(0, prefilter_failure=PREFILTER_FAILED)]),
        [],
    ),
    Case(
        "later pods are reserved",
        Scene(EIGHT, [PodGroupCase(1, minimum=3, expected=2)]),
        ["0: 0 +0+0!"],
    ),
    Case(
        "reservations count",
        Scene(EIGHT, [PodGroupCase(1, minimum=3, expected=2), PodGroupCase(1)], bound(limit=3)),
        ["0: 0 +0+0!", "1 ExceedsLimit"],
    ),
    Case(
        "what runs is completed",
        Scene(EIGHT, [PodGroupCase(0, minimum=2, running=1, expected=1, has_running=True)]),
        ["0: +0"],
    ),
    Case(
        "unless nothing of it is kept",
        Scene(EIGHT, [PodGroupCase(0, minimum=2, running=1, expected=1)]),
        [],
    ),
    Case(
        "what runs and is whole is left alone",
        Scene(EIGHT, [PodGroupCase(0, minimum=1, running=1, expected=1, has_running=True)]),
        [],
    ),
    Case(
        "what runs and cannot be completed is told",
        Scene([FULL], [PodGroupCase(0, minimum=2, running=1, expected=1, has_running=True)]),
        ["0 NoCapacity"],
    ),
    Case("what is being released is waited for", Scene(SOON, [PodGroupCase(2)]), ["0: ~0 ~0"]),
    Case(
        "a PodGroup that can start does, and more of it waits",
        Scene(SOON, [PodGroupCase(2, minimum=1)]),
        ["0: 0!", "0: ~0"],
    ),
    Case(
        "what is waited for is not given twice",
        Scene(SOON, [PodGroupCase(2), PodGroupCase(1)]),
        ["0: ~0 ~0", "1 NoCapacity"],
    ),
    Case(
        "a nominated pod counts against the limit",
        Scene([SnapshotNode(releasing_gpu=8)], [PodGroupCase(2), PodGroupCase(1)], bound(limit=2)),
        ["0: ~0 ~0", "1 ExceedsLimit"],
    ),
    Case(
        "a pod takes its reserved place",
        Scene([FULL], [PodGroupCase(1, reserved_places=((0, GPU),))]),
        ["0: 0!"],
    ),
    Case(
        "a pod on its reserved place has it already",
        Scene([FULL], [PodGroupCase(1, reserved_places=((0, GPU),))], bound(limit=1, allocated=1)),
        ["0: 0!"],
    ),
    Case(
        "a pod that is larger than its reserved place takes the difference",
        Scene(
            [SnapshotNode(gpu=2, used_gpu=1)],
            [PodGroupCase(1, TWO, reserved_places=((0, GPU),))],
            bound(limit=1, allocated=1),
        ),
        ["0 ExceedsLimit"],
    ),
    Case(
        "without free resources a released place is not got again",
        Scene(
            [FULL], [PodGroupCase(1), PodGroupCase(1, reserved_places=((0, GPU),)), PodGroupCase(1)]
        ),
        ["1: 0!", "0 NoCapacity", "2 NoCapacity"],
    ),
    Case(
        "reserved places that are given up may make room again",
        Scene(
            [SnapshotNode(gpu=2, used_gpu=2)],
            [PodGroupCase(1), PodGroupCase(1, reserved_places=((0, TWO),)), PodGroupCase(1)],
        ),
        ["1: 0!", "2: 0!", "0 NoCapacity"],
    ),
    Case(
        "a pod can be near others once they are there",
        Scene(
            [SnapshotNode(labels=(0,))],
            [
                PodGroupCase(1, signature(affinity=(AffinityTerm(0, 0),))),
                PodGroupCase(1, signature(matched_selectors=(0,))),
                PodGroupCase(1, signature(affinity=(AffinityTerm(0, 0),))),
            ],
        ),
        ["1: 0!", "2: 0!", "0: 0!"],
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_plans(case: Case[Scene, list[str]]) -> None:
    assert described(plan(case.given.snapshot(), POLICIES)) == case.want


def test_incomplete_podsets_are_reported() -> None:
    """PodSet by PodSet: how many pods exist, how many are needed."""
    build = Builder(nodes=EIGHT)
    first = PodSet("driver", 1, build.waiting_pods(1, GPU))
    second = PodSet("worker", 6, build.waiting_pods(2, GPU), running=1, succeeded=1, gated=1)
    build.podgroup(SubGroupSet("all", 2, (first, second)))
    (rejection,) = plan(build.snapshot(), POLICIES).rejections
    assert rejection.details == MissingPods((IncompletePodSet("worker", 5, 6, gated=1),))
    assert rejection.retry_on is ClusterEvent.RESOURCES_FREED
    assert not rejection.is_resolvable


def test_what_can_never_join_is_reported() -> None:
    """One of two sub-groups starts; of the other a pod waits that no other will join."""
    build = Builder(nodes=EIGHT)
    first, second = (
        PodSet("a", 1, build.waiting_pods(1, GPU)),
        PodSet("b", 2, build.waiting_pods(1, GPU)),
    )
    build.podgroup(SubGroupSet("all", 1, (first, second)))
    got = plan(build.snapshot(), POLICIES)
    assert described(got) == ["0: 0!", "0 PodsMissing"]
    assert got.rejections[0].details == MissingPods((IncompletePodSet("b", 1, 2),))


def test_nothing_is_reserved_for_what_is_not_needed() -> None:
    """A running PodGroup with its minimum is left alone, though a sub-group is not complete."""
    build = Builder(nodes=EIGHT)
    row = build.signature_row(GPU)
    first, second = PodSet("a", 1, running=1), PodSet("b", 1, expected=1, expected_signature=row)
    build.podgroup(SubGroupSet("all", 1, (first, second)), is_kept=True)
    build.podgroup(SubGroupSet("all", 2, (first, second)), is_kept=True)
    assert described(plan(build.snapshot(), POLICIES)) == ["1: +0"]


def test_a_group_starts_with_all_that_it_needs() -> None:
    """Sub-groups together, then the rest one by one."""
    build = Builder(nodes=[SnapshotNode(gpu=4), SnapshotNode(gpu=4)])
    first = PodSet("driver", 1, build.waiting_pods(1, CPU))
    second = PodSet("worker", 2, build.waiting_pods(4, TWO))
    build.podgroup(SubGroupSet("all", 2, (first, second)))
    got = plan(build.snapshot(), POLICIES)
    assert described(got) == ["0: 0 0 0!", "0: 1", "0: 1"]


def test_a_bound_is_reported_with_its_numbers() -> None:
    queues = [
        SnapshotQueue("all", limit=3, allocated=2, quota=1),
        SnapshotQueue("team", "all", allocated=1),
    ]
    (rejection,) = plan(Scene(EIGHT, [PodGroupCase(2)], queues).snapshot(), POLICIES).rejections
    assert rejection.details == QueueBoundExceeded(0, ResourceKind.GPU, 3000, 2000, 2000)
    assert rejection.retry_on is ClusterEvent.RESOURCES_FREED
    assert not rejection.is_resolvable


def test_a_prefilter_failure_is_reported_as_it_is() -> None:
    (rejection,) = plan(
        Scene(EIGHT, [PodGroupCase(1, prefilter_failure=PREFILTER_FAILED)]).snapshot(), POLICIES
    ).rejections
    assert rejection.details == PREFILTER_FAILED
    assert rejection.retry_on is ClusterEvent.STAGE_PROGRESS


def test_lack_of_room_is_reported_with_numbers() -> None:
    """How far it got; equal PodGroups have the same ones."""
    got = plan(
        Scene([SnapshotNode(gpu=2)], [PodGroupCase(3), PodGroupCase(3)]).snapshot(), POLICIES
    ).rejections
    details = got[0].details
    assert isinstance(details, FitErrors)
    assert (details.placed, details.needed) == (2, 3)
    assert got[0].retry_on == (ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED)
    assert got[0].is_resolvable
    assert got[1].details is details


def test_what_was_done_is_counted() -> None:
    """A PodGroup that grows is admitted twice."""
    got = plan(
        Scene([SnapshotNode(gpu=2)], [PodGroupCase(3, minimum=1), PodGroupCase(1)]).snapshot(),
        POLICIES,
    )
    assert described(got) == ["0: 0!", "1: 0!", "0 NoCapacity"]
    assert got.stats == PlanStats(admitted=2, rejected=1)


def test_what_is_not_to_be_done_is_not_done() -> None:
    """Without allocate a PodGroup that fits is not bound, and keeps its room from others."""
    policies = build_policies(PolicySelection(actions={"allocate": False}))
    got = plan(
        Scene(
            EIGHT,
            [
                PodGroupCase(1),
                PodGroupCase(1, prefilter_failure=PREFILTER_FAILED),
                PodGroupCase(9),
                PodGroupCase(8),
            ],
        ).snapshot(),
        policies,
    )
    assert described(got) == ["1 QueueMissing", "2 NoCapacity", "3 NoCapacity"]
    assert got.allocations == ()
    assert got.fair_share[:, ResourceKind.GPU].tolist() == [8000]


def test_shares_are_reported() -> None:
    queues = [SnapshotQueue("red", quota=2), SnapshotQueue("blue", weight=3)]
    site = Scene(EIGHT, [PodGroupCase(8, queue="red"), PodGroupCase(8, queue="blue")], queues)
    got = plan(site.snapshot(), POLICIES)
    assert got.fair_share[:, ResourceKind.GPU].tolist() == [4000, 4000]
