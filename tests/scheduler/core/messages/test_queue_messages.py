"""Why a PodGroup waits that would exceed a limit or a quota, and what would help."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.rejections import (
    ClusterEvent,
    EarlierPodGroup,
    EvictionFailure,
    PreFilterCause,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
)
from scheduler.core.model.resources import ResourceKind
from tests.support.case import Case, ids
from tests.support.snapshot.builder import GIB, Builder, SnapshotQueue, signature
from trainer_kai.api.kai_kinds import ABSENT_RESOURCE, QueueResource, QueueResources, QueueSpec
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.policy.lint.queue_limits import over_bounds

BUILD: Final = Builder(
    queues=[SnapshotQueue(name) for name in ("department", "team", "division", "company")]
)


def bounds(
    reason: UnschedulableReason, *passed: tuple[int, ResourceKind, int, int, int]
) -> Rejection:
    """Return a rejection by bounds: queue, kind, bound, allocated, requested."""
    first, *others = (QueueBoundExceeded(*one) for one in passed)
    details = first._replace(others=tuple(others))
    return Rejection(0, reason, details, is_resolvable=False, retry_on=ClusterEvent.ANY)


def bound(reason: UnschedulableReason, kind: ResourceKind, *amounts: Any) -> Rejection:
    return bounds(reason, (1, kind, *amounts))


def rejected(*amounts: int, releasing: int) -> Rejection:
    """Return a rejection by the limit of the team's queue, beside its terminating pods."""
    found = bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, *amounts)
    assert isinstance(found.details, QueueBoundExceeded)
    return replace(found, details=found.details._replace(releasing=releasing))


# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "a limit in GPUs",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 8000, 6000, 3000),
        "Queue team has a limit of 8 GPU and uses 6 GPU; the PodGroup requests 3 GPU more. It "
        "cannot start before pods of queue team release 1 GPU or its limit is raised to 9 GPU",
    ),
    Case(
        "a limit that terminating pods still use",
        rejected(8000, 1000, 3000, releasing=6000),
        "Queue team has a limit of 8 GPU and uses 1 GPU, and its terminating pods use 6 GPU; the "
        "PodGroup requests 3 GPU more. It cannot start before terminating pods of queue team "
        "release 2 GPU or its limit is raised to 10 GPU",
    ),
    Case(
        "a limit in memory",
        bound(
            UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, 3 * GIB, 2 * GIB, 5 * GIB // 2
        ),
        "Queue team has a limit of 3 GiB memory and uses 2 GiB memory; the PodGroup requests 2.5 "
        "GiB memory more. It cannot start before pods of queue team release 1.5 GiB memory or its "
        "limit is raised to 4.5 GiB memory (spec.resources.memory.limit: 4832)",
    ),
    Case(
        "memory of which there is little",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, 2**20, 2**20, 2**10),
        "Queue team has a limit of 1 MiB memory (spec.resources.memory.limit: 1.04858 is in "
        "megabytes) and uses 1 MiB memory; the PodGroup requests 0.001 MiB memory more. It cannot "
        "start before pods of queue team release 0.001 MiB memory or its limit is raised to 1.001 "
        "MiB memory (spec.resources.memory.limit: 2)",
    ),
    Case(
        "what has to be released is rounded up",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, GIB, GIB, GIB + 1),
        "Queue team has a limit of 1 GiB memory and uses 1 GiB memory; the PodGroup requests "
        "1.001 GiB memory more. It can never start unless the limit of queue team is raised to "
        "1.001 GiB memory (spec.resources.memory.limit: 1074), or to 2.001 GiB memory "
        "(spec.resources.memory.limit: 2148) while it uses 1 GiB memory, or the PodGroup requests "
        "less",
    ),
    Case(
        "as much as the limit is possible",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 2000, 1000, 2000),
        "Queue team has a limit of 2 GPU and uses 1 GPU; the PodGroup requests 2 GPU more. It "
        "cannot start before pods of queue team release 1 GPU or its limit is raised to 3 GPU",
    ),
    Case(
        "more than the limit is not",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.GPU, 2000, 0, 3000),
        "Queue team has a limit of 2 GPU and uses 0 GPU; the PodGroup requests 3 GPU more. It can"
        " never start unless the limit of queue team is raised to 3 GPU, or the PodGroup requests"
        " less",
    ),
    Case(
        "an amount that was cut is marked",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.MEMORY, GIB, 0, 2**45),
        "Queue team has a limit of 1 GiB memory and uses 0 GiB memory; the PodGroup requests at "
        "least 32768 GiB memory more. It can never start unless the limit of queue team is raised"
        " to at least 32768 GiB memory (spec.resources.memory.limit: 35184373), or the PodGroup "
        "requests less",
    ),
    Case(
        "two limits are told together",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            (1, ResourceKind.GPU, 8000, 6000, 3000),
            (0, ResourceKind.GPU, 16000, 15000, 3000),
        ),
        "Queue team has a limit of 8 GPU and uses 6 GPU; queue department has a limit of 16 GPU "
        "and uses 15 GPU; the PodGroup requests 3 GPU more. It cannot start before pods of queue "
        "team release 1 GPU or its limit is raised to 9 GPU, and pods of queue department release "
        "2 GPU or its limit is raised to 18 GPU",
    ),
    Case(
        "limits of two resources, one of which can never do",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            (1, ResourceKind.CPU, 8000, 6000, 3000),
            (0, ResourceKind.GPU, 2000, 0, 3000),
        ),
        "Queue team has a limit of 8 CPU and uses 6 CPU; queue department has a limit of 2 GPU "
        "and uses 0 GPU; the PodGroup requests 3 CPU, 3 GPU more. It can never start unless the "
        "limit of queue department is raised to 3 GPU, or the PodGroup requests less",
    ),
    Case(
        "of many limits the first are listed",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            *[(queue, ResourceKind.GPU, 2000, 0, 3000) for queue in (1, 0, 2, 3)],
        ),
        "Queue team has a limit of 2 GPU and uses 0 GPU; queue department has a limit of 2 GPU "
        "and uses 0 GPU; queue division has a limit of 2 GPU and uses 0 GPU, …; the PodGroup "
        "requests 3 GPU more. It can never start unless the limit of queue team is raised to 3 "
        "GPU, and the limit of queue department is raised to 3 GPU, and the limit of queue "
        "division is raised to 3 GPU, …, or the PodGroup requests less",
    ),
    Case(
        "a queue with limits of 0",
        bounds(
            UnschedulableReason.EXCEEDS_LIMIT,
            (1, ResourceKind.CPU, 0, 0, 4000),
            (1, ResourceKind.MEMORY, 0, 0, 8 * GIB),
        ),
        "Queue team has a limit of 0 CPU (spec.resources.cpu.limit is absent or 0), 0 GiB memory "
        "(spec.resources.memory.limit is absent or 0) and uses 0 CPU, 0 GiB memory; the PodGroup "
        "requests 4 CPU, 8 GiB memory more. It can never start unless the limit of queue team is "
        "raised to 4 CPU (spec.resources.cpu.limit: 4000), 8 GiB memory "
        "(spec.resources.memory.limit: 8590), or the PodGroup requests less",
    ),
    Case(
        "a number of millicores that looks like cores",
        bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.CPU, 4, 0, 4000),
        "Queue team has a limit of 0.004 CPU (spec.resources.cpu.limit: 4 is in millicores) and "
        "uses 0 CPU; the PodGroup requests 4 CPU more. It can never start unless the limit of "
        "queue team is raised to 4 CPU (spec.resources.cpu.limit: 4000), or the PodGroup requests "
        "less",
    ),
    Case(
        "a quota in CPU",
        bound(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, ResourceKind.CPU, 1000, 100, 901),
        "Queue team has a quota of 1 CPU, of which its non-preemptible pods use 0.1 CPU; the "
        "PodGroup is non-preemptible and requests 0.901 CPU more. It cannot start before the "
        "PodGroup becomes preemptible (label kai.scheduler/preemptibility: preemptible), it names "
        "another queue with enough quota, or non-preemptible pods of queue team release 0.001 CPU "
        "or its quota is raised to 1.001 CPU (spec.resources.cpu.quota: 1001)",
    ),
    Case(
        "more than the quota",
        bound(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, ResourceKind.GPU, 2000, 0, 3000),
        "Queue team has a quota of 2 GPU, of which its non-preemptible pods use 0 GPU; the "
        "PodGroup is non-preemptible and requests 3 GPU more. It can never start unless the "
        "PodGroup becomes preemptible (label kai.scheduler/preemptibility: preemptible), it names "
        "another queue with enough quota, the PodGroup requests less, or the quota of queue team "
        "is raised to 3 GPU",
    ),
    Case(
        "quotas of two resources on two levels",
        bounds(
            UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
            (1, ResourceKind.CPU, 0, 0, 500),
            (1, ResourceKind.GPU, 0, 0, 1000),
            (0, ResourceKind.GPU, 0, 0, 1000),
        ),
        "Queue team has a quota of 0 CPU, 0 GPU, of which its non-preemptible pods use 0 CPU, 0 "
        "GPU; queue department has a quota of 0 GPU, of which its non-preemptible pods use 0 GPU; "
        "the PodGroup is non-preemptible and requests 0.5 CPU, 1 GPU more. It can never start "
        "unless the PodGroup becomes preemptible (label kai.scheduler/preemptibility: "
        "preemptible), it names another queue with enough quota, the PodGroup requests less, or "
        "the quota of queue team is raised to 0.5 CPU (spec.resources.cpu.quota: 500), 1 GPU, and "
        "the quota of queue department is raised to 1 GPU",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    assert rejection_message(BUILD.snapshot(), case.given) == case.want


def test_the_earlier_podgroup_is_reported() -> None:
    build = Builder(queues=[SnapshotQueue("team")])
    for _ in range(2):
        build.uniform_podgroup(1, signature(gpu=1))
    one = Rejection(
        1,
        UnschedulableReason.MISCONFIGURED,
        PreFilterFailure(PreFilterCause.IGNORED_PODS, ("it waits",)),
        is_resolvable=False,
        retry_on=ClusterEvent.ANY,
    )
    earlier_podgroup = replace(
        one,
        eviction_failure=EvictionFailure(earlier_podgroup=EarlierPodGroup(0, (0, 2 * GIB, 3000))),
    )
    assert rejection_message(build.snapshot(), one) == "it waits"
    assert rejection_message(build.snapshot(), earlier_podgroup) == (
        "it waits. unit-0, which requests 2 GiB memory, 3 GPU, is ahead of it for resources that "
        "can be reclaimed"
    )


NOTES: list[Case[tuple[str, Decimal | None], str]] = [
    Case("a resource that is absent is noted", ("limit", None), "(spec.resources.cpu is absent)"),
    Case("no quota, absent", ("quota", None), "(spec.resources.cpu is absent)"),
    Case(
        "a limit of 0 is noted", ("limit", Decimal(0)), "(spec.resources.cpu.limit is absent or 0)"
    ),
    Case("a quota of 0", ("quota", Decimal(0)), ""),
    Case(
        "a number below 1000 is noted as millicores",
        ("limit", Decimal(999)),
        "(spec.resources.cpu.limit: 999 is in millicores)",
    ),
    Case(
        "a quota in cores", ("quota", Decimal(4)), "(spec.resources.cpu.quota: 4 is in millicores)"
    ),
    Case("a number from 1000 on is not noted", ("limit", Decimal(1000)), ""),
]


@pytest.mark.parametrize("case", NOTES, ids=ids)
def test_admission_has_the_same_notes(case: Case[tuple[str, Decimal | None], str]) -> None:
    """The core cannot import the rules of admission, so the notes exist twice."""
    field, number = case.given
    free = QueueResource(quota=Decimal(-1), limit=Decimal(-1))
    amounts = {"quota": free.quota, "limit": free.limit, field: number or Decimal(0)}
    written = QueueResource(**amounts)
    cpu = ABSENT_RESOURCE if number is None else written
    spec = QueueSpec(resources=QueueResources(gpu=free, memory=free, cpu=cpu))
    [admission] = over_bounds("path", {"cpu": 4000}, (), "team", {"team": spec}, field)

    snapshot = BUILD.snapshot()
    absent = frozenset({(1, ResourceKind.CPU)} if number is None else ())
    snapshot = replace(snapshot, queues=replace(snapshot.queues, absent=absent))
    reason = UnschedulableReason.EXCEEDS_LIMIT
    if field == "quota":
        reason = UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA
    rejection = bound(reason, ResourceKind.CPU, int(number or 0), 0, 4000)

    for message in (admission.message, rejection_message(snapshot, rejection)):
        first = re.split(r"; |\. ", message)[0]
        assert "".join(re.findall(r"\(spec\.resources[^)]*\)", first)) == case.want


def test_an_absent_resource_is_reported() -> None:
    """Its quota and limit are 0, although nothing in the queue says so."""
    snapshot = BUILD.snapshot()
    queues = replace(snapshot.queues, absent=frozenset({(1, ResourceKind.CPU)}))
    rejection = bound(UnschedulableReason.EXCEEDS_LIMIT, ResourceKind.CPU, 0, 0, 4000)

    assert rejection_message(replace(snapshot, queues=queues), rejection).startswith(
        "Queue team has a limit of 0 CPU (spec.resources.cpu is absent) and uses 0 CPU; "
    )
