"""Stage dependencies: what has to be complete or ready before a PodGroup may start.

The pods of the earlier stage show it. When these have been removed, it shows in pods that are
created only afterwards, or in the status of the workload.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.core.model.rejections import (
    ClusterEvent,
    PreFilterCause,
    PreFilterFailure,
    StageProgress,
)
from scheduler.state.podgroups.index import PodGroupIndex
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.pods.pod_table import GATED, PENDING, RUNNING, SUCCEEDED, PodTable
from trainer_kai.api.meta import Key
from trainer_kai.policy.podgroups.anticipated import StageDependency
from trainer_kai.policy.podgroups.segments import segment_prefix
from trainer_kai.policy.start_order import COMPLETE

_UNFINISHED: Final = (PENDING, GATED, RUNNING)
_RETRY_ON: Final = ClusterEvent.RESOURCES_FREED | ClusterEvent.STAGE_PROGRESS


class StageDependencies:
    """Yields the pre-filter failure of a PodGroup that waits for an earlier stage."""

    def __init__(self, pod_table: PodTable, podgroup_index: PodGroupIndex) -> None:
        self._pod_table: Final = pod_table
        self._podgroup_index: Final = podgroup_index

    def __call__(self, record: PodGroupRecord) -> Iterator[PreFilterFailure]:
        """Yield one failure with the progress of all unmet dependencies, if there are any."""
        unmet = tuple(
            self._progress(record, one)
            for one in record.anticipated.after
            if not self._is_satisfied(record, one)
        )
        if unmet:
            yield PreFilterFailure(PreFilterCause.EARLIER_STAGE, unmet, _RETRY_ON)

    def _is_satisfied(self, record: PodGroupRecord, dependency: StageDependency) -> bool:
        if not dependency.group:
            return True  # its pods are of another scheduler, and in no PodGroup
        if _has_later_pods(record, dependency.before):
            return True
        if _is_satisfied_by_status(record, dependency):
            return True
        return all(
            self._is_index_satisfied(record, dependency, index)
            for index in range(dependency.replicas)
        )

    def _is_index_satisfied(
        self, record: PodGroupRecord, dependency: StageDependency, index: int
    ) -> bool:
        earlier = self._podgroup_index.find(Key(record.key.namespace, dependency.group))
        if earlier is None:
            return dependency.count <= 0
        podsets = _podsets(dependency, index)
        is_enough = self._finished_pods(earlier, dependency, podsets) >= dependency.count
        if dependency.status == COMPLETE:
            is_running = any(
                earlier.count_of(podset, state) for podset in podsets for state in _UNFINISHED
            )
            return is_enough and not is_running
        return is_enough

    def _finished_pods(
        self, earlier: PodGroupRecord, dependency: StageDependency, podsets: Iterable[str]
    ) -> int:
        """Return how many pods of a Job have succeeded or, if that is enough, are ready."""
        succeeded = sum(earlier.count_of(podset, SUCCEEDED) for podset in podsets)
        if dependency.status == COMPLETE:
            return succeeded
        return succeeded + sum(self._ready_pods(earlier, podset) for podset in podsets)

    def _ready_pods(self, earlier: PodGroupRecord, podset: str) -> int:
        pod_table = self._pod_table
        pod_classes = (
            pod_class
            for pod_class in earlier.classes_by_podset.get(podset, ())
            if pod_table.class_table.is_counted[pod_class.number]
        )
        running = (
            pod_row
            for pod_class in pod_classes
            for pod_row in pod_class.pod_rows
            if pod_table.state[pod_row] == RUNNING
        )
        return sum(
            any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
            for pod in map(pod_table.pod, running)
        )

    def _progress(self, record: PodGroupRecord, dependency: StageDependency) -> StageProgress:
        earlier = self._podgroup_index.find(Key(record.key.namespace, dependency.group))
        done = 0
        if earlier is not None:
            each = (
                self._finished_pods(earlier, dependency, _podsets(dependency, index))
                for index in range(dependency.replicas)
            )
            done = sum(min(pods, dependency.count) for pods in each)
        return StageProgress(
            dependency.replicated_job,
            is_complete=dependency.status == COMPLETE,
            done=done,
            needed=dependency.count * dependency.replicas,
        )


def _podsets(dependency: StageDependency, index: int) -> tuple[str, ...]:
    """Return the PodSets with the pods of a Job: one, or its segments."""
    podset = f"{dependency.sub_group_prefix}{index}"
    if not dependency.segments:
        return (podset,)
    prefix = segment_prefix(podset)
    return tuple(f"{prefix}{number}" for number in range(dependency.segments))


def _has_later_pods(record: PodGroupRecord, prefixes: tuple[str, ...]) -> bool:
    states = (*_UNFINISHED, SUCCEEDED)
    return any(
        podset.startswith(prefix) and podset.removeprefix(prefix).isdecimal()
        for podset in record.classes_by_podset
        if any(record.count_of(podset, state) for state in states)
        for prefix in prefixes
    )


def _is_satisfied_by_status(record: PodGroupRecord, dependency: StageDependency) -> bool:
    """Say whether the workload's status counts all its Jobs as done; their pods may be gone."""
    statuses = record.workload.jobs_status if record.workload else ()
    for one in statuses:
        if one.name == dependency.replicated_job:
            done = one.succeeded if dependency.status == COMPLETE else one.succeeded + one.ready
            return done >= dependency.replicas
    return False
