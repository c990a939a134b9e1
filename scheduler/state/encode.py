"""A snapshot of all that is there, made at once: by a state that knew nothing before."""

from scheduler.state.cluster import Cluster
from scheduler.state.encoded import EncodedSnapshot
from scheduler.state.state import ClusterState
from scheduler.state.terms import ObjectWarning, StateOptions

__all__ = ["EncodedSnapshot", "ObjectWarning", "StateOptions", "encode"]


def encode(cluster: Cluster, options: StateOptions) -> EncodedSnapshot:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    state = ClusterState(options)
    state.put_all(cluster)
    return state.snapshot(options.now)
