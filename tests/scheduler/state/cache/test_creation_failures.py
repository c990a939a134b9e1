"""Which pods cannot be created, and when the failure is forgotten."""

from typing import Any

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.cache.creation_failures import MAX_JOBS
from scheduler.state.inputs import StateOptions
from tests.support.state.failed_create import (
    MESSAGE,
    PODGROUP_NAME,
    failed_create_event,
    jobset,
    pod_of_job,
    podgroup_object,
)
from tests.support.state.objects import NOW, decode_object
from trainer_kai.api.cluster_kinds import Event
from trainer_kai.api.meta import Key


class CreationFailureHarness:
    """A cache that gets one object after the other."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.now = NOW
        self.cache = ClusterCache(lambda: StateOptions(now=self.now, default_queue="q"))
        for fields in objects:
            self.put(fields)

    def put(self, fields: dict[str, Any]) -> None:
        self.cache.update(*decode_object(fields))

    def put_event(self, event: Event) -> Any:
        """Update the failures with an event; return the cluster event."""
        return self.cache.creation_failures.update(event.metadata.key, event)

    @property
    def creation_failures(self) -> dict[str, tuple[str, int, int]]:
        """Return by PodGroup why pods are missing, how many exist and how many are required."""
        self.cache.snapshot()
        return {key.name: (*it,) for key, it in self.cache.creation_failures.by_podgroup.items()}


def test_a_group_reports_the_failure_of_its_job() -> None:
    """A new reason is a cluster event; the same one again is none."""
    harness = CreationFailureHarness(jobset(), podgroup_object())

    assert (harness.put_event(failed_create_event(1)), harness.creation_failures) == (
        ClusterEvent.ANY,
        {PODGROUP_NAME: (MESSAGE, 0, 3)},
    )
    assert harness.put_event(failed_create_event(2)) == NO_EVENT
    assert harness.put_event(failed_create_event(3, why="no")) == ClusterEvent.ANY
    assert harness.put_event(failed_create_event(2)) == NO_EVENT  # it is older than the known one
    assert harness.creation_failures[PODGROUP_NAME][0].endswith("no")


def test_it_is_over_when_the_pods_come() -> None:
    """And when one of them is gone later, the reason is another one."""
    harness = CreationFailureHarness(jobset(), podgroup_object(), pod_of_job(0, 1))
    harness.put_event(failed_create_event(1))
    assert harness.creation_failures == {PODGROUP_NAME: (MESSAGE, 1, 3)}
    harness.put(pod_of_job(1, 1))
    harness.put(pod_of_job(2, 1))
    assert (harness.creation_failures, len(harness.cache.creation_failures)) == ({}, 0)
    harness.cache.update_pod(Key("ns", "p2"), None)

    assert harness.creation_failures == {}


def test_a_suspension_ends_it() -> None:
    """A failure before it says nothing of the time after the resumption."""
    harness = CreationFailureHarness(jobset(), podgroup_object())
    harness.put_event(failed_create_event(1))
    harness.put(jobset(suspend=True))
    assert harness.creation_failures == {}
    harness.put(jobset())

    assert harness.creation_failures == {}


def test_a_failure_without_new_events_is_forgotten() -> None:
    """As is one without a PodGroup, and one without its event."""
    harness = CreationFailureHarness(jobset(), podgroup_object())
    harness.put_event(failed_create_event(1))
    harness.put_event(failed_create_event(1, "other-n-0", name="f"))
    assert (harness.creation_failures, len(harness.cache.creation_failures)) == (
        {PODGROUP_NAME: (MESSAGE, 0, 3)},
        2,
    )
    harness.now += 602
    assert (harness.creation_failures, len(harness.cache.creation_failures)) == ({}, 0)

    harness = CreationFailureHarness(jobset(), podgroup_object())
    harness.put_event(failed_create_event(1))
    assert harness.cache.creation_failures.update(Key("ns", "other"), None) == NO_EVENT
    assert harness.cache.creation_failures.update(Key("ns", "e"), None) == ClusterEvent.ANY
    assert harness.creation_failures == {}


def test_a_jobset_may_be_known_later_than_its_events() -> None:
    """Each kind has its own watch."""
    harness = CreationFailureHarness()
    harness.put_event(failed_create_event(1))
    assert harness.creation_failures == {}
    harness.put(jobset())
    assert harness.creation_failures == {}
    harness.put(podgroup_object())

    assert harness.creation_failures == {PODGROUP_NAME: (MESSAGE, 0, 3)}


def test_events_of_other_jobs_are_bounded() -> None:
    """No more than the maximum is kept, and ours are not forgotten for it."""
    harness = CreationFailureHarness(jobset(), podgroup_object())
    for i in range(2 * MAX_JOBS):
        harness.put_event(failed_create_event(2, f"cron-{i}", name=f"c{i}"))
    harness.put_event(failed_create_event(1))
    harness.put_event(failed_create_event(3, "cron-x"))

    assert len(harness.cache.creation_failures) == MAX_JOBS
    assert harness.creation_failures == {PODGROUP_NAME: (MESSAGE, 0, 3)}
