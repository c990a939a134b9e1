"""Every runtime that Trainer ships, from TrainJob to Complete, by our processes alone."""

from typing import Final

import pytest

from e2e.cluster.resources import CLUSTER_RUNTIMES, PODS, TRAINJOBS
from e2e.cluster.trainjobs import Submission
from e2e.front.install import PODGROUPS
from e2e.front.ours import QUEUE, finishing, is_complete
from e2e.scheduler.conftest import House

_NODES: Final = 4
_RUNTIMES: Final = (
    "torch-distributed",
    "jax-distributed",
    "xgboost-distributed",
    "deepspeed-distributed",
    "mlx-distributed",
    "torch-distributed-with-cache",
    "torchtune-llama3.2-1b",
    "torchtune-qwen2.5-1.5b",
)


@pytest.mark.parametrize("runtime", _RUNTIMES)
async def test_a_shipped_runtime_is_complete(runtime: str, house: House, room: str) -> None:
    """It goes through all its stages."""
    installed = await house.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    labels = {QUEUE: "default-queue"}
    job = Submission("job", runtime, room, _NODES, 1, finishing(installed), labels=labels)
    async with house.cluster.timeline(TRAINJOBS, PODGROUPS, PODS, namespace=room) as seen:
        await house.cluster.api.create(job.trainjob())
        await seen.until(is_complete, "the TrainJob is Complete", 60)
