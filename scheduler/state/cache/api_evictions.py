"""Pods that ended by the eviction API, as `kubectl drain` and autoscalers use it.

By PodGroup they are for the next plan, which may have to move what is left of a gang. A Job counts
them as failures, and may be recreated without these.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from scheduler.state.cache.members import podgroup_key
from scheduler.state.commands import PlannedEviction
from scheduler.state.inputs import ApiEviction, ObjectStore
from scheduler.state.podgroups.departures import BEGUN_S, is_api_evicted
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import TERMINAL_PHASES, Pod

_KNOWN_S: Final = 600  # a workload is resumed long before


class _Ended(NamedTuple):
    job: str  # the uid of its controller
    at: int


class ApiEvictions:
    def __init__(
        self,
        by_podgroup: ObjectStore[Key, ApiEviction],
        now: Callable[[], int],
    ) -> None:
        """*by_podgroup* has the last one of each PodGroup; *now* is in seconds since 1970."""
        self._by_podgroup: Final = by_podgroup
        self._now: Final = now
        self._ended: Final[dict[str, _Ended]] = {}  # by the uid of the pod

    def note(self, key: Key, before: Pod | None, now: Pod | None) -> bool:
        """Note a pod that ends; say whether its PodGroup is to be planned for that."""
        pod = before if now is None else now
        if pod is None or not _is_ended(pod, is_gone=now is None):
            return False
        meta = pod.metadata
        at = self._now()
        self._ended[meta.uid] = _Ended(meta.controller.uid if meta.controller else "", at)
        group = podgroup_key(key, pod)
        # One that terminated before was evicted by us, or deleted.
        if group is None or (before is not None and before.metadata.deletion_timestamp):
            return False
        self._by_podgroup.put(group, ApiEviction(key.name, pod.spec.node_name, at))
        return True

    def settle(self, evictions: Iterable[PlannedEviction]) -> None:
        """Forget those of PodGroups that are evicted now."""
        for group in (group for one in evictions for group in one.groups):
            self._by_podgroup.put(group, None)

    def forget_older(self, now: int) -> None:
        for group, one in [*self._by_podgroup.objects.items()]:
            if one.at + BEGUN_S < now:
                self._by_podgroup.put(group, None)
        for uid in [uid for uid, one in self._ended.items() if one.at + _KNOWN_S < now]:
            del self._ended[uid]

    def counts_by_job(self) -> Mapping[str, int]:
        """Return how many pods ended lately, by the uid of their Job."""
        return Counter(one.job for one in self._ended.values())


def _is_ended(pod: Pod, *, is_gone: bool) -> bool:
    is_leaving = is_gone or bool(pod.metadata.deletion_timestamp)
    has_run = bool(pod.spec.node_name) and pod.status.phase not in TERMINAL_PHASES
    return is_leaving and has_run and is_api_evicted(pod)
