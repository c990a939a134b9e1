"""Fit errors of one pod, of which a test says only what matters to it."""

from typing import Any

from scheduler.core.model.rejections import FitErrorReason, FitErrors
from trainer_kai.api.reasons import UnschedulableReason


def fit_errors(
    reason: UnschedulableReason, counts: dict[FitErrorReason, int], **more: Any
) -> FitErrors:
    """Return why one pod fits on no node."""
    table: dict[str, Any] = {
        "reason": reason,
        "signature": 0,
        "placed": 0,
        "needed": 1,
        "counts": counts,
        "own_counts": {},
        "taints": {},
        "keys": {},
        "too_small": {},
        "largest_allocatable": {},
        "insufficient": {},
        "largest_free": {},
        "total_free": {},
        "unplaced": 1,
        "fitting": 1,
        "is_resolvable": False,
    }
    return FitErrors(**{**table, **more})
