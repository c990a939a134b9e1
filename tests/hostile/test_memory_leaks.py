"""Objects that a tenant makes and deletes leave nothing behind in memory."""

import gc
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.hostile.objects import TENANT, VICTIMS, pod
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod

_MAX_MIB: Final = 2


def _traced_mib() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 2**20


def _large(number: int) -> Iterator[dict[str, Any]]:
    """Yield metadata of 100 KB each: many labels, finalizers, owners; names that are long."""
    names = [f"{number}-{it}-{'x' * 80}" for it in range(1000)]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "uid": "u"}
    yield {"labels": {name: name[:63] for name in names}}
    yield {"annotations": {name: name for name in names}}
    yield {"finalizers": names}
    yield {"ownerReferences": [{**owner, "name": name} for name in names]}
    yield {"ownerReferences": [{**owner, "name": "".join(names)}]}


def test_metadata_is_kept_no_longer_than_its_object() -> None:
    """75 objects of 100 KB, each gone before the next one comes."""
    tracemalloc.start()
    try:
        before = _traced_mib()
        for number in range(15):
            for fields in _large(number):
                decode(Pod, json.dumps({"metadata": {"name": "p", **fields}}).encode())
        assert _traced_mib() - before < _MAX_MIB
    finally:
        tracemalloc.stop()


def test_names_of_resources_are_kept_no_longer_than_their_pods() -> None:
    """750 pods with 30 resources of their own each, 10 at a time, beside 100 of others."""
    live = ClusterCache(lambda: StateOptions(now=0))
    for number in range(100):
        _apply_change(live, pod(VICTIMS[0], f"p{number}"))
    live.snapshot()
    _make_turns(live, range(25))  # bounded caches are full after it
    tracemalloc.start()
    try:
        before = _traced_mib()
        _make_turns(live, range(25, 100))
        assert _traced_mib() - before < _MAX_MIB
    finally:
        tracemalloc.stop()


def _make_turns(live: ClusterCache, turns: range) -> None:
    for turn in turns:
        some = [f"c{turn}-{number}" for number in range(10)]
        for name in some:
            unique = pod(TENANT, name)
            asked = {f"tenant.com/{name}-{number}": "1" for number in range(30)}
            unique["spec"]["containers"][0]["resources"] = {"requests": asked}
            _apply_change(live, unique)
        live.snapshot()
        for name in some:
            live.update_pod(Key(TENANT, name), None)
    live.snapshot()


def _apply_change(live: ClusterCache, report: dict[str, Any]) -> None:
    found = decode(Pod, json.dumps(report).encode())
    live.update_pod(found.metadata.key, found)
