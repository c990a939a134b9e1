"""A snapshot of all that is there, made at once: by a state that knew nothing before."""

from scheduler.state.cluster import Cluster
from scheduler.state.encoded import Encoded
from scheduler.state.state import State
from scheduler.state.terms import Stray, Terms

__all__ = ["Encoded", "Stray", "Terms", "encode"]


def encode(cluster: Cluster, terms: Terms) -> Encoded:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    state = State(terms)
    state.tell_all(cluster)
    return state.snapshot(terms.now)
