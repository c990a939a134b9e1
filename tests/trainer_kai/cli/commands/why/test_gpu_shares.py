"""Which shares of GPUs pods on nodes have, in the report on a pod, a Job and a TrainJob."""

from typing import Any, Final, TypeAlias

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.api.resources import PODS
from trainer_kai.cli.commands.why.output import as_json, as_text

Fields: TypeAlias = dict[str, Any]

LARGE: Final[Fields] = {
    "labels": {"runai-gpu-group": "g1"},
    "annotations": {"gpu-fraction": "0.7", "trainer-kai.dev/gpu-devices": "GPU-a"},
}
TWO_OF_KAI: Final[Fields] = {
    "labels": {"runai-gpu-group/g2": "g2", "runai-gpu-group/g3": "g3"},
    "annotations": {"gpu-memory": "3072", "gpu-fraction-num-devices": "2"},
}


def put_pod(cluster: TrainJobCluster, meta: Fields) -> None:
    """Have a pod that runs on a node."""
    metadata = {"namespace": "default", "name": "alone", "uid": "alone", **meta}
    spec = {"schedulerName": "kai-scheduler", "nodeName": "node-1"}
    cluster.store.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


# the metadata of a pod that runs -> the lines about its shares
CASES: Final[list[Case[Fields, list[str]]]] = [
    Case("of one GPU", LARGE, ["alone on node-1: 0.7 of a GPU, device GPU-a, group g1"]),
    Case(
        "memory of two GPUs, of which KAI wrote no devices",
        TWO_OF_KAI,
        ["alone on node-1: 3072 MiB of each of 2 GPUs, device not known, groups g2 and g3"],
    ),
    Case("of a request that is invalid", {**LARGE, "annotations": {"gpu-fraction": "x"}}, []),
    Case("of no GPU, as the pod names no group", {"annotations": {"gpu-fraction": "0.5"}}, []),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_a_pod_that_runs(case: Case[Fields, list[str]]) -> None:
    """Its part, node, device and group."""
    cluster = TrainJobCluster()
    put_pod(cluster, case.given)

    _, *lines = as_text(await cluster.why("alone"), 100).splitlines()

    heading = ["", "shares of GPUs:"] if case.want else []
    assert [it.strip() for it in lines] == [*heading, *case.want]


async def test_pods_of_a_trainjob() -> None:
    """Those on nodes that have not ended; a program gets all, with plain values."""
    cluster = TrainJobCluster()
    for number, phase in enumerate(["Running"] * 17 + ["Succeeded"]):
        status = {"phase": phase}
        cluster.pods(
            "node",
            spec={"nodeName": f"node-{number}"},
            status=status,
            labels={"runai-gpu-group": f"g{number}"},
            meta={
                "annotations": {
                    "gpu-fraction": "0.5",
                    "trainer-kai.dev/gpu-devices": f"GPU-{number}",
                }
            },
        )

    report = await cluster.why()

    lines = as_text(report, 100).splitlines()
    assert len([it for it in lines if "0.5 of a GPU" in it]) == 16
    assert "  and 1 more (-o json lists all)" in lines
    shares = [share for it in as_json(report)["podGroups"] for share in it["gpuShares"]]
    assert len(shares) == 17
    assert shares[0] == {
        "pod": "job-node-0-1",
        "node": "node-0",
        "gpus": 1,
        "fraction": 0.5,
        "memoryMiB": None,
        "groups": ["g0"],
        "devices": ["GPU-0"],
    }
