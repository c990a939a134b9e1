"""Binpack and spread: fill nodes up, or keep them equally empty."""

from scheduler.core.model import Shape
from scheduler.core.policy import Score, Scored, Seats

__all__ = ["binpack", "by_kind", "spread"]


def binpack(_shape: Shape, seats: Seats) -> Scored:
    """Like nodes that have little room left; those with less than none have none."""
    return 1 - seats.room * (seats.room > 0) / max(seats.most, 1)


def spread(_shape: Shape, seats: Seats) -> Scored:
    """Like nodes of which a large part is free; those with less than none have none."""
    return seats.room * (seats.room > 0) / (seats.whole + (seats.whole == 0))


def by_kind(gpu: Score, cpu: Score) -> Score:
    """Return a score that treats pods with GPUs in one way, and others in another."""

    def score(shape: Shape, seats: Seats) -> Scored:
        return gpu(shape, seats) if shape.has_gpu else cpu(shape, seats)

    return score
