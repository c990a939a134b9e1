"""Why a PodGroup waits that would pass a limit or a quota, and to what that has to rise."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.rejections import rejection_message
from scheduler.core.model.cluster_events import ClusterEvent
from scheduler.core.model.rejections import (
    EarlierPodGroup,
    EvictionFailure,
    PreFilterDetails,
    QueueBoundExceeded,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.resources import ResourceKind
from tests.support.case import Case, ids
from tests.support.snapshot.builder import GIB, Builder, SnapshotQueue, signature

BUILD: Final = Builder(queues=[SnapshotQueue("department"), SnapshotQueue("team")])


def bounds(
    reason: UnschedulableReason, *passed: tuple[int, ResourceKind, int, int, int]
) -> Rejection:
    """Return a rejection by bounds: queue, kind, bound, allocated, asked."""
    first, *others = (QueueBoundExceeded(*one) for one in passed)
    details = first._replace(others=tuple(others))
    return Rejection(0, reason, details, is_resolvable=False, retry_on=ClusterEvent.ANY)


def bound(reason: UnschedulableReason, kind: ResourceKind, *amounts: Any) -> Rejection:
    """Return a rejection by one bound of the team's queue."""
    return bounds(reason, (1, kind, *amounts))


def rejected(*amounts: int, releasing: int) -> Rejection:
    """Return a rejection by the limit of the team's queue, beside what is ending of it."""
    found = bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, *amounts)
    assert isinstance(found.details, QueueBoundExceeded)
    return replace(found, details=found.details._replace(releasing=releasing))


# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "a limit in GPUs",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 8000, 6000, 3000),
        "queue team may have at most 8 GPU and has 6 GPU; 3 GPU more are needed. It can start when "
        "1 GPU of queue team is given back or its limit rises to 9 GPU",
    ),
    Case(
        "a limit that pods still fill that are ending",
        rejected(8000, 1000, 3000, releasing=6000),
        "queue team may have at most 8 GPU and has 1 GPU and 6 GPU in pods that are ending; 3 GPU "
        "more are needed. It can start when pods of queue team that are ending have left 2 GPU or "
        "its limit rises to 10 GPU",
    ),
    Case(
        "a limit in memory",
        bound(
            UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, 3 * GIB, 2 * GIB, 5 * GIB // 2
        ),
        "queue team may have at most 3 GiB memory and has 2 GiB memory; 2.5 GiB memory more are "
        "needed. It can start when 1.5 GiB memory of queue team are given back or its limit rises "
        "to 4.5 GiB memory",
    ),
    Case(
        "memory of which there is little",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, 2**20, 2**20, 2**10),
        "queue team may have at most 1 MiB memory and has 1 MiB memory; 0.001 MiB memory more is "
        "needed. It can start when 0.001 MiB memory of queue team is given back or its limit rises "
        "to 1.001 MiB memory",
    ),
    Case(
        "what has to be given back is rounded up",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, GIB, GIB, GIB + 1),
        "queue team may have at most 1 GiB memory and has 1 GiB memory; 1.001 GiB memory more are "
        "needed. It can never start unless the limit of queue team rises to 1.001 GiB memory (to "
        "2.001 GiB memory as long as it has 1 GiB memory), or it asks for less",
    ),
    Case(
        "as much as the limit is possible",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 2000, 1000, 2000),
        "queue team may have at most 2 GPU and has 1 GPU; 2 GPU more are needed. It can start when "
        "1 GPU of queue team is given back or its limit rises to 3 GPU",
    ),
    Case(
        "more than the limit is not",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 2000, 0, 3000),
        "queue team may have at most 2 GPU and has 0 GPU; 3 GPU more are needed. It can never "
        "start unless the limit of queue team rises to 3 GPU, or it asks for less",
    ),
    Case(
        "an amount that was cut off is told as such",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, GIB, 0, 2**45),
        "queue team may have at most 1 GiB memory and has 0 GiB memory; at least 32768 GiB memory "
        "more are needed. It can never start unless the limit of queue team rises to at least "
        "32768 GiB memory, or it asks for less",
    ),
    Case(
        "two limits",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            (1, ResourceKind.GPU, 8000, 6000, 3000),
            (0, ResourceKind.GPU, 16000, 15000, 3000),
        ),
        "queue team may have at most 8 GPU and has 6 GPU, queue department may have at most 16 GPU "
        "and has 15 GPU; 3 GPU more are needed. It can start when 1 GPU of queue team is given "
        "back or its limit rises to 9 GPU, and 2 GPU of queue department are given back or its "
        "limit rises to 18 GPU",
    ),
    Case(
        "limits of two resources, one of which can never do",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            (1, ResourceKind.CPU, 8000, 6000, 3000),
            (0, ResourceKind.GPU, 2000, 0, 3000),
        ),
        "queue team may have at most 8 CPU and has 6 CPU, queue department may have at most 2 GPU "
        "and has 0 GPU; 3 CPU, 3 GPU more are needed. It can never start unless the limit of queue "
        "department rises to 3 GPU, or it asks for less",
    ),
    Case(
        "of many limits the first are told",
        bounds(UnschedulableReason.EXCEEDS_LIMIT, *[(0, ResourceKind.GPU, 2000, 0, 3000)] * 4),
        f"{', '.join(['queue department may have at most 2 GPU and has 0 GPU'] * 3)}, …; 3 GPU "
        "more are needed. It can never start unless "
        f"{', and '.join(['the limit of queue department rises to 3 GPU'] * 3)}, …, or it asks for "
        "less",
    ),
    Case(
        "a quota in CPU",
        bound(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, ResourceKind.CPU, 1000, 100, 901),
        "what cannot be preempted may have the quota of queue team, 1 CPU, and has 0.1 CPU; 0.901 "
        "CPU more is needed. It can start when 0.001 CPU of that in queue team is given back or "
        "its quota rises to 1.001 CPU, or it may be preempted",
    ),
    Case(
        "more than the quota",
        bound(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, ResourceKind.GPU, 2000, 0, 3000),
        "what cannot be preempted may have the quota of queue team, 2 GPU, and has 0 GPU; 3 GPU "
        "more are needed. It can never start unless the quota of queue team rises to 3 GPU, it "
        "asks for less, or it may be preempted",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    """Whole sentences: what there is, what is asked for, what would change it."""
    assert rejection_message(BUILD.snapshot(), case.given) == case.want


def test_the_earlier_podgroup_is_reported() -> None:
    """By its name, with all that it asks for."""
    build = Builder(queues=[SnapshotQueue("team")])
    for _ in range(2):
        build.uniform_podgroup(1, signature(gpu=1))
    one = Rejection(
        1,
        UnschedulableReason.MISCONFIGURED,
        PreFilterDetails("it waits"),
        is_resolvable=False,
        retry_on=ClusterEvent.ANY,
    )
    earlier_podgroup = replace(
        one,
        eviction_failure=EvictionFailure(earlier_podgroup=EarlierPodGroup(0, (0, 2 * GIB, 3000))),
    )
    assert rejection_message(build.snapshot(), one) == "it waits"
    assert rejection_message(build.snapshot(), earlier_podgroup) == (
        "it waits. What others may have to give back is first for unit-0, which asks for "
        "2 GiB memory, 3 GPU"
    )
