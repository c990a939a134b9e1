"""The memory of the GPUs of nodes, and in which form nodes offer them."""

from typing import Any

import pytest

from scheduler.core.model.snapshot import GpuMode
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, encode_objects, node, pod
from tests.support.state.random_changes import apply_change

# label → MiB
MEMORY = [
    Case("MiB are rounded down to hundreds", "40960", 40900),
    Case("bytes are understood as well", str(40_960 * 2**20), 40900),
    Case("the largest number of MiB", str(2**20 - 1), 1048500),
    Case("the smallest number of bytes", str(2**20), 0),
    Case("100 MiB are the least", "100", 100),
    Case("less than 100 MiB is unknown", "99", 0),
    Case("an empty label is unknown", "", 0),
    Case("a negative number is unknown", "-40960", 0),
    Case("a quantity with a suffix is unknown", "40Gi", 0),
    Case("digits of other scripts are unknown", "٤٠٩٦٠", 0),
    Case("a number that is too long is unknown", "9" * 63, 0),
]


@pytest.mark.parametrize("case", MEMORY, ids=ids)
def test_the_memory_of_gpus(case: Case[str, int]) -> None:
    """It is rounded down to hundreds of MiB; 0 is not known."""
    found = encode_objects(node("a", labels={"nvidia.com/gpu.memory": case.given})).snapshot

    assert found.nodes.gpu_memory.tolist() == [case.want]


_ENABLED, _STRATEGY = "node-role.kubernetes.io/mig-enabled", "nvidia.com/mig.strategy"
_OFFERS: dict[str, Any] = {"has": {"nvidia.com/mig-1g.5gb": "7"}}
# node → mode
MODES: list[Case[dict[str, Any], GpuMode]] = [
    Case("a node that says nothing has whole GPUs", {}, GpuMode.WHOLE),
    Case("it offers profiles", _OFFERS, GpuMode.MIG),
    Case("of another form", {"has": {"nvidia.com/mig-1g.5gb.me": "1"}}, GpuMode.MIG),
    Case("it offers none of them", {"has": {"nvidia.com/mig-1g.5gb": "0"}}, GpuMode.WHOLE),
    *(
        Case(f"label {it}", {"labels": {_ENABLED: it}}, GpuMode.MIG)
        for it in ("1", "t", "T", "true", "True", "TRUE")
    ),
    *(
        Case(f"label {it}", {"labels": {_ENABLED: it}, **_OFFERS}, GpuMode.WHOLE)
        for it in ("0", "f", "F", "false", "False", "FALSE")
    ),
    Case("another label, and profiles", {"labels": {_ENABLED: "yes"}, **_OFFERS}, GpuMode.MIG),
    Case("another label alone", {"labels": {_ENABLED: "yes"}}, GpuMode.WHOLE),
    Case(
        "the strategy single is read",
        {"labels": {_STRATEGY: "single"}, **_OFFERS},
        GpuMode.MIG_SINGLE,
    ),
    Case(
        "the strategy mixed is read", {"labels": {_STRATEGY: "mixed"}, **_OFFERS}, GpuMode.MIG_MIXED
    ),
    Case(
        "profiles under another strategy are MIG",
        {"labels": {_STRATEGY: "none"}, **_OFFERS},
        GpuMode.MIG,
    ),
    Case("a strategy on no MIG node", {"labels": {_STRATEGY: "mixed"}}, GpuMode.WHOLE),
]


@pytest.mark.parametrize("case", MODES, ids=ids)
def test_the_mode_of_gpus(case: Case[dict[str, Any], GpuMode]) -> None:
    """The label decides before what the node offers."""
    found = encode_objects(node("a", **case.given)).snapshot

    assert found.nodes.gpu_mode.tolist() == [case.want]


def test_a_snapshot_keeps_the_mode_that_it_has() -> None:
    """A node may get MIG profiles later, also where no label changes."""
    state = ClusterState(StateOptions(now=NOW))
    apply_change(state, node("a", has={"nvidia.com/mig-1g.5gb": "0"}))
    before = state.snapshot(NOW).snapshot
    apply_change(state, node("a", **_OFFERS))

    after = state.snapshot(NOW).snapshot

    assert (before.nodes.gpu_mode.tolist(), after.nodes.gpu_mode.tolist()) == (
        [GpuMode.WHOLE],
        [GpuMode.MIG],
    )


_ANNOTATED: dict[str, Any] = {"annotations": {"nvidia.com/mig-3g.20gb": "2"}, "asks": {"cpu": "1"}}
_BOTH = {"nvidia.com/mig-3g.20gb": "1", "gpu-fraction": "0.5"}
# pods → profiles idle on the node, whether it is closed to MIG, GPUs charged
BY_ANNOTATION: list[Case[list[dict[str, Any]], tuple[int, bool, int]]] = [
    Case("without pods all profiles are idle", [], (4, False, 0)),
    Case(
        "a pod by annotation closes the node to MIG", [{"node": "a", **_ANNOTATED}], (2, True, 6000)
    ),
    Case(
        "beside what it requests",
        [{"node": "a", **_ANNOTATED, "asks": {"nvidia.com/mig-3g.20gb": "1"}}],
        (1, True, 9000),
    ),
    Case(
        "as a resource", [{"node": "a", "asks": {"nvidia.com/mig-3g.20gb": "1"}}], (3, False, 3000)
    ),
    Case(
        "beside a share of a GPU",
        [{"node": "a", **_ANNOTATED, "annotations": _BOTH}],
        (3, True, 3500),
    ),
    Case("a pending pod takes no profile", [_ANNOTATED], (4, False, 0)),
    Case(
        "a pod that succeeded gives its profiles back",
        [{"node": "a", "phase": "Succeeded", **_ANNOTATED}],
        (4, False, 0),
    ),
    Case(
        "of another scheduler", [{"node": "a", "schedulerName": "x", **_ANNOTATED}], (4, False, 0)
    ),
    Case(
        "of another form",
        [{"node": "a", "annotations": {"nvidia.com/mig-1g.5gb.me": "1"}, "asks": {"cpu": "1"}}],
        (4, True, 1000),
    ),
]


@pytest.mark.parametrize("case", BY_ANNOTATION, ids=ids)
def test_mig_by_annotation(case: Case[list[dict[str, Any]], tuple[int, bool, int]]) -> None:
    """It is charged to node and queue, and closes the node."""
    pods = [
        pod(f"p{i}", labels={"kai.scheduler/queue": "q"}, **it) for i, it in enumerate(case.given)
    ]

    found = encode_objects(node("a", has={"nvidia.com/mig-3g.20gb": "4"}), *pods).snapshot

    idle = found.nodes.idle[0, found.resources.names.index("nvidia.com/mig-3g.20gb")]
    allocated = found.queues.allocated[found.queues.names.index("q"), 2]
    assert (int(idle), bool(found.nodes.closed_to_mig[0]), int(allocated)) == case.want
