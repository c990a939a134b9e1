"""How many idle GPUs of the cluster suit no pod that waits, and why. Pure.

The scheduler's own code reads the objects and tries the pods.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.core.nodes.strategies.idle_gpus import unusable_gpus
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.pod import Pod
from trainer_kai.cli.commands.why.snapshot import TrainJobSnapshot
from trainer_kai.cli.output.unusable_gpus import unusable_sentences

MAX_NODES: Final = 500  # of a larger cluster the metrics say it: its pods are too many to read


def idle_gpu_notes(
    snapshot: TrainJobSnapshot,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    podgroups: Iterable[PodGroup],
    queues: Iterable[Queue],
) -> Iterator[str]:
    cluster = Cluster(
        nodes={it.metadata.name: it for it in nodes},
        pods={it.metadata.key: it for it in pods},
        pod_groups={it.metadata.key: it for it in podgroups},
        queues={it.metadata.name: it for it in queues},
    )
    options = StateOptions(
        now=int(snapshot.now.timestamp()),
        scheduler_name=snapshot.scheduler_name,
        default_queue=snapshot.default_queue,
        places_gpu_shares=True,
        trusts_gpu_labels=True,
    )
    encoded = encode(cluster, options).snapshot
    yield from unusable_sentences(unusable_gpus(encoded), encoded.nodes.names)
