"""Rather start now than wait."""

import numpy as np
import pytest

from scheduler.core.model.result import NodeFeatures, ScorePlugin
from scheduler.policies.registry import (
    availability,
    binpack,
    by_resource_type,
    nominated_node,
    resource_type,
    spread,
)
from tests.support.case import Case, ids
from tests.support.snapshot.builder import signature


def test_idle_room_is_liked() -> None:
    now = np.array([True, False])
    seats = NodeFeatures(
        free=5, allocatable=8, max_allocatable=8, fits_idle=now, has_gpu=False, is_nominated=False
    )
    assert availability(signature(), seats).tolist() == [1, 0]
    assert availability(signature(gpu=1), seats).tolist() == [1, 0]


def test_the_nominated_node_is_preferred() -> None:
    nominated = np.array([False, True])
    seats = NodeFeatures(
        free=5,
        allocatable=8,
        max_allocatable=8,
        fits_idle=True,
        has_gpu=False,
        is_nominated=nominated,
    )
    assert nominated_node(signature(), seats).tolist() == [0, 1]


# room, the node's whole, the most of any node -> binpack, spread
LIKED: list[Case[tuple[int, int, int], tuple[float, float]]] = [
    Case("full", (0, 8, 8), (1, 0)),
    Case("empty, and the largest", (8, 8, 8), (0, 1)),
    Case("the smallest that is empty", (1, 1, 1), (0, 1)),
    Case("half", (4, 8, 8), (0.5, 0.5)),
    Case("less than nothing is nothing", (-8, 8, 8), (1, 0)),
    Case("packing looks at the room, spreading at the part", (4, 4, 16), (0.75, 1)),
    Case("a node that has nothing of it", (0, 0, 8), (1, 0)),
    Case("no node has any of it", (0, 0, 0), (1, 0)),
]


@pytest.mark.parametrize("case", LIKED, ids=ids)
def test_placements(case: Case[tuple[int, int, int], tuple[float, float]]) -> None:
    seats = NodeFeatures(*case.given, fits_idle=True, has_gpu=True, is_nominated=False)
    assert (binpack(signature(), seats), spread(signature(), seats)) == case.want


@pytest.mark.parametrize(("gpu", "want"), [(0, 0.5), (1, 1.0)])
def test_each_kind_has_its_own(gpu: int, want: float) -> None:
    both: ScorePlugin = by_resource_type(gpu=spread, cpu=binpack)
    seats = NodeFeatures(4, 4, 8, fits_idle=True, has_gpu=True, is_nominated=False)
    assert both(signature(gpu=gpu), seats) == want


@pytest.mark.parametrize(("gpu", "want"), [(0, [0, 1]), (0.5, [0, 0]), (8, [0, 0])])
def test_pods_without_gpus_prefer_nodes_without_gpus(gpu: float, want: list[int]) -> None:
    has = np.array([True, False])
    seats = NodeFeatures(
        free=5, allocatable=8, max_allocatable=8, fits_idle=True, has_gpu=has, is_nominated=False
    )
    assert resource_type(signature(gpu=gpu), seats).tolist() == want
