"""Devices that were planned are taken, before a watch shows it and until it does not."""

from typing import Final

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import commands_from_plan
from scheduler.state.inputs import StateOptions
from tests.support.state.devices import (
    allocation,
    claim_template,
    claiming_gang,
    claiming_pod,
    device_class,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import NOW, Fields, decode_object, group, node, queue
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import RESOURCE_CLAIMS

_POLICIES: Final = build_policies(PolicySelection())
_CLAIM: Final = Key("ns", "g0-gpu")


def _cache() -> ClusterCache:
    """Return a cache in which the only pod is assumed to be bound, with its device."""
    cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q"))
    _show(
        cache,
        queue(),
        device_class(),
        claim_template(),
        node("a", gpu=0),
        resource_slice("a", 2),
        group("g", minMember=1),
        *claiming_gang("g", 1),
    )
    encoded = cache.snapshot()
    (commands,) = commands_from_plan(encoded, plan(encoded.snapshot, _POLICIES)).podgroups
    cache.assume(commands)
    return cache


def _show(cache: ClusterCache, *objects: Fields) -> None:
    for fields in objects:
        cache.update(*decode_object(fields))


def _taken(cache: ClusterCache) -> list[int]:
    return sorted(cache.snapshot().snapshot.claim_devices.taken)


def test_a_planned_device_is_taken() -> None:
    cache = _cache()
    assert _taken(cache) == [0]
    assert cache.snapshot().snapshot.held_devices
    cache.check()


def test_what_a_watch_shows_counts() -> None:
    """Another device than was planned, of another scheduler; then it is free again."""
    cache = _cache()
    _show(cache, resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-1", users=["g0"])))
    assert not cache.cluster.assumed_claims
    assert _taken(cache) == [1]
    _show(cache, resource_claim("g0-gpu", of="g0"))
    assert _taken(cache) == []


def test_a_bind_that_is_forgotten_gives_the_device_back() -> None:
    cache = _cache()
    cache.assumed.forget_bind(Key("ns", "g0"))
    assert _taken(cache) == []
    assert not cache.cluster.assumed_claims


def test_a_claim_that_is_gone_is_forgotten() -> None:
    cache = _cache()
    cache.update(RESOURCE_CLAIMS, _CLAIM, None)
    assert not cache.cluster.assumed_claims
    assert _taken(cache) == []


def test_a_bind_is_seen_before_the_claim() -> None:
    """Watches of two kinds have no common order."""
    cache = _cache()
    _show(cache, claiming_pod("g0", "g", node="a"))
    assert _taken(cache) == [0]
    _show(cache, resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-0", users=["g0"])))
    assert _taken(cache) == [0]
    assert not cache.cluster.assumed_claims
    cache.check()
