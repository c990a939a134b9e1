"""Labels and annotations about GPUs cost little and are numbers, whatever a tenant writes."""

from typing import Any, Final

import pytest

from scheduler.core.messages.rejection_messages import prefilter_message
from scheduler.core.model.resources import SUM_MOST
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.cpu_time import assert_cpu_ratio, cpu_s
from tests.support.state.objects import NOW, cluster_cache, node, pod, queue

_NODES: Final = [queue(), node("a"), node("b")]
_LONG: Final = 100_000  # characters: all annotations of an object may have 256 KiB


def _encoded(
    cluster: Cluster, plain: Cluster, *, trusts_gpu_labels: bool = True
) -> EncodedSnapshot:
    """Return a snapshot, which takes not much longer than one of the *plain* cluster."""
    options = StateOptions(
        now=NOW,
        default_queue="q",
        places_gpu_shares=True,
        trusts_gpu_labels=trusts_gpu_labels,
    )
    assert_cpu_ratio(
        20,
        lambda: cpu_s(lambda: encode(cluster, options)),
        lambda: cpu_s(lambda: encode(plain, options)),
    )
    return encode(cluster, options)


@pytest.mark.parametrize("trusts_gpu_labels", [False, True])
@pytest.mark.parametrize("fraction", ["0.001", "0.6"])
def test_pods_with_labels_of_many_gpus(fraction: str, *, trusts_gpu_labels: bool) -> None:
    """A thousand pods of one node name 64 GPUs each: other nodes are as they were."""
    cluster, plain = (_sharing(fraction, gpus) for gpus in (64, 1))

    found = _encoded(cluster, plain, trusts_gpu_labels=trusts_gpu_labels).snapshot

    assert len(found.devices.ids) <= 1024
    assert found.nodes.idle[1].tolist() == found.nodes.allocatable[1].tolist()
    assert found.nodes.releasing.tolist() == [[0] * found.nodes.idle.shape[1]] * 2


def _sharing(fraction: str, gpus: int) -> Cluster:
    """Return 1,000 pods of a node with a share of so many GPUs each, all of their own."""
    notes = {"gpu-fraction": fraction, "gpu-fraction-num-devices": str(gpus)}
    cluster = cluster_cache(*_NODES)
    for number in range(1_000):
        labels = {f"runai-gpu-group/{n}": f"{number}-{n}" for n in range(gpus)}
        one = pod(f"p{number}", node="a", asks={"cpu": "1m"}, annotations=notes, labels=labels)
        cluster.pods.update(cluster_cache(one).pods)
    return cluster


_NUMBERS: Final = {
    "gpu-fraction": ["9" * _LONG, "0." + "0" * _LONG + "1", "1e" + "9" * _LONG, "NaN", "-inf"],
    "gpu-memory": ["9" * _LONG + "Gi", "1e" + "9" * _LONG, "٣" * _LONG, "-" * _LONG],
}


@pytest.mark.parametrize("annotation", _NUMBERS)
def test_numbers_of_any_length(annotation: str) -> None:
    """A pod with a number that is none waits, with a message of some words."""
    texts = _NUMBERS[annotation] * 20
    hostile, plain = (
        [
            pod(f"p{n}", asks={"cpu": "1"}, annotations={annotation: text})
            for n, text in enumerate(some)
        ]
        for some in (texts, ["1"] * len(texts))
    )

    found = _encoded(cluster_cache(*_NODES, *hostile), cluster_cache(*_NODES, *plain))

    failures = [it.prefilter_failure for it in found.snapshot.podgroups]
    assert {it.reason for it in failures if it} == {"Misconfigured"}
    assert max(len(prefilter_message(it)) for it in failures if it) < 400
    assert None not in failures
    assert found.snapshot.queues.requested.max() == 0


def test_mig_profiles_by_annotation_are_bounded() -> None:
    """Pods on a node name a hundred profiles, with numbers of thousands of digits."""
    offered = {f"nvidia.com/mig-{n}g.{n}gb": "1" for n in range(1, 99)}
    named: dict[str, Any] = {f"nvidia.com/mig-{n}g.{n}gb": "9" * 9 for n in range(1, 99)}
    named |= dict.fromkeys(list(offered)[:20], "9" * 5000)
    hostile, plain = (
        cluster_cache(
            *(queue(), node("a", has=offered), node("b")),
            *(pod(f"p{n}", node="a", asks={"cpu": "1"}, annotations=it) for n in range(200)),
        )
        for it in (named, {"nvidia.com/mig-1g.1gb": "1"})
    )

    found = _encoded(hostile, plain).snapshot

    assert found.nodes.closed_to_mig.tolist() == [True, False]
    assert -SUM_MOST - 1000 < int(found.nodes.idle.min()) < -(10**15)
    assert 10**15 < int(found.queues.allocated.max()) <= SUM_MOST
    assert found.nodes.idle[1].tolist() == found.nodes.allocatable[1].tolist()
