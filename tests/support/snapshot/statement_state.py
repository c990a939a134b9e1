"""The state of a statement, which a placement that fails leaves as it was."""

from collections import Counter
from typing import Any

from scheduler.core.gang import tasks_to_allocate
from scheduler.core.model.resources import DeviceSort
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.device_sorts.gpu_shares import GpuShares
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest, Placer
from scheduler.core.nodes.working_nodes import WorkingNodes


def working_nodes(snapshot: Snapshot, *, spreads_shares: bool = False) -> WorkingNodes:
    return WorkingNodes(snapshot, Policies(scores=(), spreads_shares=spreads_shares))


def gpu_shares(nodes: WorkingNodes) -> GpuShares:
    shares = nodes.devices.participants[DeviceSort.GPU_SHARE]
    assert isinstance(shares, GpuShares)
    return shares


def assert_failures_leave_no_trace(snapshot: Snapshot, policies: Policies) -> None:
    """Place all PodGroups one after the other; one that fails changes nothing.

    The statement is as it was, bit for bit, and what is known of nodes is what a new ranking finds.
    """
    nodes = WorkingNodes(snapshot, policies)
    placer = Placer(nodes, policies)
    for row, podgroup in enumerate(snapshot.podgroups):
        before = statement_state(nodes)
        tasks = tasks_to_allocate(podgroup.tree)
        placed = placer.place(PlacementRequest(tasks, podgroup=row))
        if isinstance(placed, PlacementFailure):
            signatures = placer.signature_runs(tasks)
            collect_fit_errors(nodes, placer.ranking(placed.signature), placed, signatures)
            assert statement_state(nodes) == before
        fresh = Placer(nodes, policies)
        for one in range(len(snapshot.signatures)):
            assert placer.ranking(one).best() == fresh.ranking(one).best()
            for node in range(len(snapshot.nodes.names)):
                assert placer.ranking(one).fits(node) == fresh.ranking(one).fits(node)


def statement_state(nodes: WorkingNodes) -> tuple[Any, ...]:
    """Return all that a statement knows, bit for bit."""
    tables = (
        nodes.resources.idle,
        nodes.resources.free,
        nodes.relations.selector_counts,
        nodes.relations.anti_affinity_counts,
        nodes.relations.ports,
    )
    shares = [
        Counter({(node, slot): n for node, of in used.items() for slot, n in enumerate(of) if n})
        for used in (gpu_shares(nodes).now, gpu_shares(nodes).later)
    ]
    return (
        *((table.dtype, table.tobytes()) for table in tables),
        tuple(nodes.relations.claim_node),
        tuple(nodes.relations.claim_users),
        *shares,
    )
