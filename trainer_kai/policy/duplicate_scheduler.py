"""The Leases and Deployments that another scheduler with our scheduler name would have. Pure.

KAI's operator runs the scheduler of each SchedulingShard as Deployment `<schedulerName>-<shard>`.
With more than one replica it also holds a Lease: `<schedulerName>`, or `<schedulerName>-<value>`
if the shard has a partition label value. Only these names are read, and only in namespaces from the
settings: in any other namespace a user could create a Lease or a Deployment.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.meta import Key

REMEDY: Final = (
    "stop the other scheduler, or give trainer-kai another name (setting scheduler_name)"
)
DEFAULT_LEASE_S: Final = 15  # of a Lease without a duration
_MAX_LEASE_S: Final = 60  # longer durations are not trusted


class DuplicateSchedulerObjects(NamedTuple):
    leases: tuple[Key, ...]
    deployments: tuple[Key, ...]


def duplicate_scheduler_objects(
    scheduler_name: str, namespaces: Iterable[str], shards: Sequence[str], own: Key
) -> DuplicateSchedulerObjects:
    """*own* is our Lease and Deployment; its namespace is searched too."""
    searched = dict.fromkeys((own.namespace, *namespaces))
    shard_names = [f"{scheduler_name}-{shard}" for shard in shards]
    return DuplicateSchedulerObjects(
        leases=_keys(searched, (scheduler_name, *shard_names), own),
        deployments=_keys(searched, shard_names, own),
    )


def lease_duration_s(declared_s: int) -> int:
    """Return how long another scheduler's Lease counts after its renewal."""
    return min(declared_s or DEFAULT_LEASE_S, _MAX_LEASE_S)


def lease_held_message(lease: Key, holder: str) -> str:
    return f"another scheduler holds Lease {lease} (holder {holder})"


def deployment_ready_message(deployment: Key, replicas: int) -> str:
    return f"another scheduler is ready as Deployment {deployment} (replicas {replicas})"


def _keys(namespaces: Iterable[str], names: Iterable[str], own: Key) -> tuple[Key, ...]:
    found = dict.fromkeys(Key(namespace, name) for namespace in namespaces for name in names)
    return tuple(it for it in found if it != own)
