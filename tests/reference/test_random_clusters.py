"""Random clusters are valid and repeatable, and every outcome is frequent."""

import json
from collections import Counter
from random import Random

from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.support.size import seeds
from trainer_kai.api.decode import decode
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.pod import Pod
from trainer_kai.api.validate import pod_faults, podgroup_faults, queue_faults


def test_no_object_is_invalid() -> None:
    """What the product would refuse to read compares nothing."""
    for seed in seeds(100):
        for one in random_cluster(Random(seed)):
            text = json.dumps(one).encode()
            if one["kind"] == "Pod":
                assert pod_faults(decode(Pod, text)) == ()
            elif one["kind"] == "PodGroup":
                assert podgroup_faults(decode(PodGroup, text)) == ()
            elif one["kind"] == "Queue":
                assert queue_faults(decode(Queue, text)) == ()


def test_every_outcome_is_frequent() -> None:
    """Every reason and every kind of decision is frequent, or the comparison would be idle."""
    seen: Counter[str] = Counter()
    for seed in range(300):
        outcome = run_cycle(random_cluster(Random(seed)))
        seen.update(outcome.unschedulable.values())
        seen.update(bind=len(outcome.binds), nominate=len(outcome.nominations))
        seen.update(reserve=len(outcome.reservations))
    assert {name for name, count in seen.items() if count >= 6} == {
        *("Misconfigured", "QueueMissing", "PodsMissing", "ExceedsLimit"),
        *("NonPreemptibleOverQuota", "NoNodeMatches", "Fragmented", "NoCapacity"),
        *("bind", "nominate", "reserve"),
    }


def test_the_order_of_objects_means_nothing() -> None:
    """The same luck gives the same objects, and in another order they give the same outcome."""
    for seed in seeds(50):
        objects = random_cluster(Random(seed))
        assert objects == random_cluster(Random(seed))
        first = run_cycle(objects)
        Random(seed + 1).shuffle(objects)
        assert run_cycle(objects) == first
