"""Pods that ended by the eviction API: for plans, and for what their Jobs count."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from scheduler.core.model.rejections import ClusterEvent
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction, PodGroupCommands
from scheduler.state.inputs import ApiEviction, StateOptions
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    Fields,
    decode_object,
    group,
    jobset_pod,
    node,
    queue,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS

_GROUP: Final = Key("ns", "g")
_NOTED: Final = ApiEviction("p", "a", NOW)
_TERMINATES: Final = {"deletionTimestamp": "2026-01-05T08:00:30Z"}


def evicted(name: str = "p", *, is_terminating: bool = True, **more: Any) -> Fields:
    reason = more.pop("reason", "EvictionByEvictionAPI")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    meta = {"uid": name, **(_TERMINATES if is_terminating else {})}
    return jobset_pod(name, "g", meta=meta, node="a", status={"conditions": [condition]}, **more)


def cache_with(*pods: Fields, clock: Callable[[], int] = lambda: NOW) -> ClusterCache:
    cache = ClusterCache(lambda: StateOptions(now=clock()))
    for fields in (node("a"), queue(), group("g", minMember=2), *pods):
        resource, key, obj = decode_object(fields)
        cache.update(resource, key, obj)
    return cache


def seen(cache: ClusterCache, fields: Fields) -> ClusterEvent:
    resource, key, obj = decode_object(fields)
    return cache.update(resource, key, obj)


RUNS: Final = jobset_pod("p", "g", node="a")
PODS_SEEN: list[Case[Fields, ApiEviction | None]] = [
    Case("it terminates", evicted(), _NOTED),
    Case("it is about to", evicted(is_terminating=False), None),
    Case("it is deleted by another client", jobset_pod("p", "g", node="a", meta=_TERMINATES), None),
    Case("it is preempted", evicted(reason="PreemptionByScheduler"), None),
    Case("it had ended before", evicted(phase="Failed"), None),
]


@pytest.mark.parametrize("case", PODS_SEEN, ids=ids)
def test_what_is_noted(case: Case[Fields, ApiEviction | None]) -> None:
    """Nobody waits: only the note begins a cycle."""
    cache = cache_with(RUNS)

    event = seen(cache, case.given)

    assert cache.cluster.api_evictions.get(_GROUP) == case.want
    assert (event is ClusterEvent.ANY) == (case.want is not None)


def test_a_pod_that_is_gone_at_once() -> None:
    cache = cache_with(RUNS, evicted(is_terminating=False))

    event = cache.update(PODS, Key("ns", "p"), None)

    assert event is ClusterEvent.ANY
    assert cache.cluster.api_evictions == {_GROUP: _NOTED}
    assert cache.api_evictions.counts_by_job() == {"v": 1}


def test_a_pod_counts_once() -> None:
    """While it terminates and when it is gone; also if its PodGroup was planned in between."""
    cache = cache_with(RUNS, evicted())
    eviction = PlannedEviction((_GROUP,), (), "nodeleaving", None, "it leaves", 0)
    cache.assume(PodGroupCommands(_GROUP, None, (), (), None, (eviction,)))
    assert cache.cluster.api_evictions == {}

    cache.update(PODS, Key("ns", "p"), None)

    assert cache.cluster.api_evictions == {}
    assert cache.api_evictions.counts_by_job() == {"v": 1}


def test_pods_of_a_gang_that_is_evicted_begin_no_eviction() -> None:
    """The drain goes on while the gang is suspended: its Job counts these pods all the same."""
    cache = cache_with(RUNS, jobset_pod("q", "g", node="a"))
    pods = Key("ns", "p"), Key("ns", "q")
    eviction = PlannedEviction((_GROUP,), pods, "nodeleaving", None, "it leaves", 0)
    cache.assume(PodGroupCommands(_GROUP, None, (), (), None, (eviction,)))

    seen(cache, evicted("q"))
    cache.update(PODS, Key("ns", "q"), None)

    assert cache.cluster.api_evictions == {}
    assert cache.api_evictions.counts_by_job() == {"v": 1}


def test_what_is_old_is_forgotten() -> None:
    """A PodGroup that still has its minimum by then was repaired."""
    now = [NOW]
    cache = cache_with(RUNS, evicted(), clock=lambda: now[0])

    for later, is_noted, count in ((60, True, 1), (61, False, 1), (601, False, 0)):
        now[0] = NOW + later
        cache.snapshot()
        found = bool(cache.cluster.api_evictions), cache.api_evictions.counts_by_job().get("v", 0)
        assert found == (is_noted, count)
