"""What the demo submits: four queues, and nine TrainJobs that do not all fit at once. Pure."""

import math
from typing import Any, Final, NamedTuple

from e2e.cluster.kwok_stages import READY_SECONDS, RUN_SECONDS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.trainjobs import Submission, pod_annotations
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.queues import queue

_POOL: Final = "pool"
_SERVING: Final = "serving"  # a queue, and the pool of the node of its TrainJobs


class DemoTrainJob(NamedTuple):
    """A TrainJob, and what is printed about it."""

    submission: Submission
    words: str


class DemoStep(NamedTuple):
    """Tasks that are submitted together, once those named have pods on nodes."""

    after_scheduled: tuple[str, ...]
    tasks: tuple[DemoTrainJob, ...]


TEAMS: Final = (
    queue("guests", 0),
    queue("research", 32),
    queue("team-a", 16, 16, "research"),
    queue("team-b", 16, -1, "research"),
    queue(_SERVING, 1),
)
NODE_BATCHES: Final = (  # of each batch the prefix of the names, how many, and what they are like
    ("node", 4, NodeShape(gpus=8)),
    ("small", 1, NodeShape(gpus=1, labels={_POOL: _SERVING})),  # no other TrainJob fits on it
)
NAMESPACE: Final = "default"  # where all of them work
TENANTS: Final = ("guests", "team-a", "team-b", _SERVING)  # queues that it may use


def _torch(name: str, team: str, nodes: int, run_for: str) -> Submission:
    """Return a TrainJob with whole nodes, all of which start together or not at all."""
    patches = pod_annotations({"node": {RUN_SECONDS: run_for}})
    labels = {QUEUE: team}
    return Submission(name, "torch-distributed", NAMESPACE, nodes, 8, patches, labels=labels)


def _share(name: str, fraction: str, run_for: str) -> DemoTrainJob:
    """Return a TrainJob with a part of the GPU of the node for such TrainJobs."""
    annotations = {RUN_SECONDS: run_for, "gpu-fraction": fraction}
    pods = {"metadata": {"annotations": annotations}, "spec": {"nodeSelector": {_POOL: _SERVING}}}
    job = {"name": "node", "template": {"spec": {"template": pods}}}
    patches = {"spec": {"replicatedJobs": [job]}}
    submission = Submission(
        name, "torch-distributed", NAMESPACE, 1, patches=patches, labels={QUEUE: _SERVING}
    )
    return DemoTrainJob(submission, f"torch, {fraction} of a GPU")


_MOE: Final = Submission(
    "moe",
    "deepspeed-distributed",
    num_nodes=3,
    gpus=4,
    patches=pod_annotations({"node": {READY_SECONDS: "6s"}, "launcher": {RUN_SECONDS: "8s"}}),
    labels={QUEUE: "team-b"},
)
_TUNE: Final = Submission(
    "tune",
    "torchtune-llama3.2-1b",
    gpus=2,
    patches=pod_annotations(
        {
            "dataset-initializer": {RUN_SECONDS: "2s"},
            "model-initializer": {RUN_SECONDS: "4s"},
            "node": {RUN_SECONDS: "5s"},
        }
    ),
    labels={QUEUE: "team-b"},
)

ACTS: Final = (
    DemoStep(
        (),
        (
            DemoTrainJob(_torch("night", "guests", 2, "9s"), "torch, 2 nodes with 8 GPUs"),
            _share("chat", "0.7", "12s"),
            _share("embed", "0.2", "8s"),
        ),
    ),
    DemoStep(
        ("night",), (DemoTrainJob(_torch("llm", "team-a", 2, "12s"), "torch, 2 nodes with 8 GPUs"),)
    ),
    DemoStep(("chat", "embed"), (_share("draft", "0.2", "3s"),)),
    DemoStep(
        ("llm",),  # no node is idle: for moe the TrainJob of guests is evicted
        (
            DemoTrainJob(
                _MOE, "DeepSpeed, 2 nodes with 4 GPUs, and a launcher once those are Ready"
            ),
            DemoTrainJob(_TUNE, "torchtune, 2 initializers without GPUs, then a node with 2"),
        ),
    ),
    DemoStep(
        ("moe",),
        (
            DemoTrainJob(_torch("sft", "team-a", 1, "5s"), "torch, 1 node with 8 GPUs"),
            DemoTrainJob(_torch("eval", "team-b", 1, "5s"), "torch, 1 node with 8 GPUs"),
        ),
    ),
)
LATE: Final = DemoTrainJob(
    _torch("big", "team-a", 3, "5s"), "3 nodes with 8 GPUs: more than the limit of team-a"
)


def prolonged(obj: Any, times: float) -> Any:
    """Return a TrainJob with pods that run longer: on a slow machine the others come later."""
    if isinstance(obj, list):
        return [prolonged(it, times) for it in obj]
    if not isinstance(obj, dict):
        return obj
    return {
        key: _prolonged_s(value, times)
        if key in (RUN_SECONDS, READY_SECONDS)
        else prolonged(value, times)
        for key, value in obj.items()
    }


def _prolonged_s(seconds: str, times: float) -> str:
    return f"{math.ceil(int(seconds.removesuffix('s')) * times)}s"
