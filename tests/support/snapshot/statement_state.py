"""The state of a statement, which a placement that fails leaves as it was."""

from collections import Counter
from typing import Any

from scheduler.core.gang import AssignedTasks, tasks_to_allocate
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.placement import PlacementFailure, Placer
from scheduler.core.nodes.statement import Statement


def assert_failures_leave_no_trace(snapshot: Snapshot, policies: Policies) -> None:
    """Place all PodGroups one after the other; one that fails changes nothing.

    The statement is as it was, bit for bit, and what is known of nodes is what a new ranking finds.
    """
    statement = Statement(snapshot, spreads_shares=policies.spreads_shares)
    placer = Placer(statement, policies)
    for row, podgroup in enumerate(snapshot.podgroups):
        before = statement_state(statement)
        tasks = tasks_to_allocate(podgroup.tree)
        placed = placer.place(row, tasks, AssignedTasks())
        if isinstance(placed, PlacementFailure):
            signatures = placer.signature_runs(tasks)
            collect_fit_errors(statement, placer.ranking(placed.signature), placed, signatures)
            assert statement_state(statement) == before
        fresh = Placer(statement, policies)
        for one in range(len(snapshot.signatures)):
            assert placer.ranking(one).best() == fresh.ranking(one).best()
            for node in range(len(snapshot.nodes.names)):
                assert placer.ranking(one).fits(node) == fresh.ranking(one).fits(node)


def statement_state(statement: Statement) -> tuple[Any, ...]:
    """Return all that a statement knows, bit for bit."""
    tables = (
        statement.idle,
        statement.free,
        statement.selector_counts,
        statement.anti_affinity_counts,
        statement.ports,
    )
    shares = [
        Counter({(node, slot): n for node, of in used.items() for slot, n in enumerate(of) if n})
        for used in (statement.devices.now, statement.devices.later)
    ]
    return (
        *((table.dtype, table.tobytes()) for table in tables),
        tuple(statement.claim_node),
        tuple(statement.claim_users),
        *shares,
    )
