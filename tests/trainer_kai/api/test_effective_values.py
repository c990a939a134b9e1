"""Whatever KAI's CRD admits counts as something, with a warning where not as written."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import PodGroup, Queue, QueueResource, QueueResources, QueueSpec
from trainer_kai.api.quantity import nanoseconds
from trainer_kai.api.requested_values import effective_queue, podgroup_warnings

Obj = dict[str, Any]
BOUND = "must be 0 or more, or -1 (unlimited): it counts as -1"
NO_DURATION = (
    '\'soon\' is not a duration; write a duration such as "90s", "10m" or "1h30m"; units are ns, '
    "us, ms, s, m and h: it counts as absent"
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


def spec_of(fields: Obj) -> QueueSpec:
    return decode(Queue, encode({"metadata": {"name": "q"}, "spec": fields})).spec


def gpu(**resource: Any) -> Obj:
    return {"resources": {"gpu": resource}}


def counts(field: str, number: int) -> QueueSpec:
    resource = QueueResource(**{field: Decimal(number)})
    return QueueSpec(resources=QueueResources(gpu=resource))


# a queue's spec -> as it counts, and its warnings
QUEUES: list[Case[Obj, tuple[QueueSpec, list[str]]]] = [
    Case(
        "a weight of -1 is 1",
        gpu(overQuotaWeight=-1),
        (
            counts("over_quota_weight", 1),
            ["spec.resources.gpu.overQuotaWeight: -1 must be 0 or more: it counts as 1"],
        ),
    ),
    Case("-1 is no quota", gpu(quota=-1), (counts("quota", -1), [])),
    Case(
        "a quota below -1 is none",
        gpu(quota=-2),
        (
            counts("quota", -1),
            [f"spec.resources.gpu.quota: -2 {BOUND}"],
        ),
    ),
    Case(
        "a part of a limit below zero is none",
        gpu(limit=-0.5),
        (
            counts("limit", -1),
            [f"spec.resources.gpu.limit: -0.5 {BOUND}"],
        ),
    ),
    Case(
        "no resources",
        {},
        (counts("quota", 0), ["spec.resources: is absent: the queue may use no resources"]),
    ),
    Case(
        "a time that is none is absent, and one below zero is 0",
        {**gpu(), "preemptMinRuntime": "soon", "reclaimMinRuntime": "-10m"},
        (
            QueueSpec(reclaim_min_runtime="0s", resources=QueueResources()),
            [
                f"spec.preemptMinRuntime: {NO_DURATION}",
                "spec.reclaimMinRuntime: '-10m' must not be negative: it counts as 0s",
            ],
        ),
    ),
    Case(
        "what is no number is nothing",
        gpu(quota="NaN"),
        (counts("quota", 0), ["spec.resources.gpu.quota: NaN is not a number: it counts as 0"]),
    ),
]


@pytest.mark.parametrize("case", QUEUES, ids=ids)
def test_what_counts_of_a_queue(case: Case[Obj, tuple[QueueSpec, list[str]]]) -> None:
    """With the field, its value and what is used in its place."""
    effective, warnings = effective_queue(spec_of(case.given))

    assert (effective, [str(it) for it in warnings]) == case.want


@given(st.tuples(NUMBER, NUMBER, NUMBER), st.text() | st.none())
def test_any_number_and_text_counts(numbers: tuple[float, float, float], text: str | None) -> None:
    """Bounds are -1, 0 or more; weights 0 or more; durations 0 or more."""
    resource = dict(zip(("quota", "limit", "overQuotaWeight"), numbers, strict=True))
    fields = {**gpu(**resource), "reclaimMinRuntime": text}

    effective, warnings = effective_queue(spec_of(fields))

    assert effective.resources is not None
    got = effective.resources.gpu
    assert all(number == -1 or number >= 0 for number in (got.quota, got.limit))
    assert got.over_quota_weight >= 0
    assert not effective.reclaim_min_runtime or nanoseconds(effective.reclaim_min_runtime) >= 0
    assert bool(warnings) == (effective != spec_of(fields))


def test_durations_of_a_group() -> None:
    """Below zero they mean something there; a value that is none gives a warning."""
    group = decode(PodGroup, encode({
        "metadata": {"name": "g"},
        "spec": {"preemptionDelay": "-1m", "stalenessGracePeriod": "a minute"},
    }))  # fmt: skip

    (warnings,) = podgroup_warnings(group.spec)

    assert warnings.path == "spec.stalenessGracePeriod"
    assert warnings.message.startswith("'a minute' is not a duration")
    assert warnings.message.endswith(": it counts as absent")
