"""The state of a workload as its users know it, and which conditions end it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from trainer_kai.api.meta import Condition

_COMPLETE: Final = ("Complete", "Completed")  # the second of JobSets


class WorkloadState(StrEnum):
    COMPLETE = "complete"
    FAILED = "failed"
    RUNS = "runs"
    SUSPENDED = "suspended"
    WAITS = "waits"


FINISHED: Final = frozenset({WorkloadState.COMPLETE, WorkloadState.FAILED})


def true_condition(conditions: Iterable[Condition], *types: str) -> Condition | None:
    return next((it for it in conditions if it.type in types and it.status == "True"), None)


def finished_state(conditions: Iterable[Condition]) -> tuple[WorkloadState, Condition] | None:
    """Return how a workload ended, with the condition that says it; None while it has not."""
    conditions = [*conditions]
    failed = true_condition(conditions, "Failed")
    if failed is not None:
        return WorkloadState.FAILED, failed
    complete = true_condition(conditions, *_COMPLETE)
    return (WorkloadState.COMPLETE, complete) if complete is not None else None
