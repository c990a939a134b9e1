"""Moments that units say or show: until when they are patient (rule 37a)."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.clusters import NOW, bar_of, encoded, group, node, pod, unit_of

_MADE = {"creationTimestamp": "2026-01-05T07:00:00Z"}
_HOUR = 3600
_EVICTION = "kai.scheduler/last-eviction-timestamp"


def evicted(at: str, made: str = "2026-01-05T07:00:00Z") -> dict[str, Any]:
    """Return the metadata of a group that lost its place."""
    return {"creationTimestamp": made, "annotations": {_EVICTION: at}}


# metadata, delay → before when it takes nothing, in seconds after NOW - 1 h
PATIENCE = [
    Case("none", (_MADE, ""), None),
    Case("ten minutes after it was made", (_MADE, "10m"), 600),
    Case("rounded up", (_MADE, "1.2s"), 2),
    Case("nothing", (_MADE, "0s"), None),
    Case("less than nothing is none", (_MADE, "-10m"), None),
    Case("after it lost its place", (evicted("2026-01-05T07:30:00Z"), "10m"), 2400),
    Case("it lost its place before it was made", (evicted("2020-01-01T00:00:00Z"), "10m"), 600),
    Case("what is no time is none", (evicted("yesterday"), "10m"), 600),
]


@pytest.mark.parametrize("case", PATIENCE, ids=ids)
def test_patience(case: Case[tuple[dict[str, Any], str], int | None]) -> None:
    """From the later of both moments on."""
    meta, delay = case.given

    unit = unit_of(encoded(group("g", meta=meta, preemptionDelay=delay), pod("p", "g")), "g")

    want = 0 if case.want is None else NOW - _HOUR + case.want
    assert (unit.patient_until, unit.patience) == (want, delay)


def test_a_delay_that_is_none_is_said() -> None:
    """As with all that a group says wrongly."""
    found = encoded(group("g", meta=_MADE, preemptionDelay="soon"), pod("p", "g"))

    bar = bar_of(found, "g")
    assert bar is not None
    assert bar[0] == "Misconfigured"
    assert bar[1].startswith("spec.preemptionDelay: 'soon' is no duration")
    assert unit_of(found, "g").patient_until == 0


@pytest.mark.parametrize(("delay", "want"), [("10m", NOW - _HOUR + 600), ("soon", 0), ("", 0)])
def test_a_pod_on_its_own_is_patient_too(delay: str, want: int) -> None:
    """What it says itself counts, and what cannot be meant does not."""
    annotations = {"kai.scheduler/preemption-delay": delay} if delay else {}
    found = encoded(node("a"), pod("p", annotations=annotations, meta={**_MADE}))

    assert unit_of(found, "pg-p-p").patient_until == want
