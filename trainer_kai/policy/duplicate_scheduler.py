"""Where another scheduler with our scheduler name shows. Pure.

KAI's operator runs the scheduler of each SchedulingShard as Deployment `<schedulerName>-<shard>`.
With more than one replica it also holds a Lease: `<schedulerName>`, or `<schedulerName>-<value>`
where the shard has a partition label value. Only these names are read, and only in namespaces that
the site has named: in any other one a user can create a Lease or a Deployment.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.meta import Key

__all__ = [
    "DEFAULT_LEASE_S",
    "REMEDY",
    "DuplicateSchedulerObjects",
    "deployment_ready_message",
    "duplicate_scheduler_objects",
    "lease_duration_s",
    "lease_held_message",
]

REMEDY: Final = "stop that one, or give ours another name (setting scheduler_name)"
DEFAULT_LEASE_S: Final = 15  # of a Lease that does not say how long it is good for
_MAX_LEASE_S: Final = 60  # whatever the Lease says


class DuplicateSchedulerObjects(NamedTuple):
    """Leases and Deployments of other schedulers, if there are any."""

    leases: tuple[Key, ...]
    deployments: tuple[Key, ...]


def duplicate_scheduler_objects(
    scheduler_name: str, namespaces: Iterable[str], shards: Sequence[str], own: Key
) -> DuplicateSchedulerObjects:
    """Return where to look: in *namespaces* and in our own; *own* is our Lease and Deployment."""
    searched = dict.fromkeys((own.namespace, *namespaces))
    shard_names = [f"{scheduler_name}-{shard}" for shard in shards]
    return DuplicateSchedulerObjects(
        leases=_keys(searched, (scheduler_name, *shard_names), own),
        deployments=_keys(searched, shard_names, own),
    )


def lease_duration_s(declared_s: int) -> int:
    """Return how long another scheduler's Lease counts since it was renewed."""
    return min(declared_s or DEFAULT_LEASE_S, _MAX_LEASE_S)


def lease_held_message(lease: Key, holder: str) -> str:
    """Say what another scheduler does that holds a Lease."""
    return f"another scheduler holds Lease {lease} (holder {holder})"


def deployment_ready_message(deployment: Key, replicas: int) -> str:
    """Say what another scheduler does that runs without a Lease."""
    return f"another scheduler is ready as Deployment {deployment} (replicas {replicas})"


def _keys(namespaces: Iterable[str], names: Iterable[str], own: Key) -> tuple[Key, ...]:
    found = dict.fromkeys(Key(namespace, name) for namespace in namespaces for name in names)
    return tuple(it for it in found if it != own)
