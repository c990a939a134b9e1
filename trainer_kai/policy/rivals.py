"""Where another scheduler of our scheduler name shows. Pure.

KAI's operator runs the scheduler of each SchedulingShard as Deployment `<schedulerName>-<shard>`.
With more than one replica it also holds a Lease: `<schedulerName>`, or `<schedulerName>-<value>`
where the shard has a partition label value. Only these names are looked at, and only in namespaces
that a site has named: in any other one a tenant can make a Lease or a Deployment.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.meta import Key

__all__ = ["REMEDY", "USUAL_S", "Places", "good_for_s", "held_by", "places_of", "ready_as"]

REMEDY: Final = "stop that one, or give ours another name (setting scheduler_name)"
USUAL_S: Final = 15  # of a Lease that does not say how long it is good for
_MOST_S: Final = 60  # whatever it says


class Places(NamedTuple):
    """Leases and Deployments of other schedulers, if there are any."""

    leases: tuple[Key, ...]
    deployments: tuple[Key, ...]


def places_of(
    scheduler_name: str, namespaces: Iterable[str], shards: Sequence[str], own: Key
) -> Places:
    """Return where to look: in *namespaces* and in our own; *own* is our Lease and Deployment."""
    where = dict.fromkeys((own.namespace, *namespaces))
    of_shards = [f"{scheduler_name}-{shard}" for shard in shards]
    return Places(
        leases=_keys(where, (scheduler_name, *of_shards), own),
        deployments=_keys(where, of_shards, own),
    )


def good_for_s(claimed_s: int) -> int:
    """Return how long another scheduler's Lease counts since it was renewed."""
    return min(claimed_s or USUAL_S, _MOST_S)


def held_by(lease: Key, holder: str) -> str:
    """Say what another scheduler does that holds a Lease."""
    return f"another scheduler holds Lease {lease} (holder {holder})"


def ready_as(deployment: Key, replicas: int) -> str:
    """Say what another scheduler does that runs without a Lease."""
    return f"another scheduler is ready as Deployment {deployment} (replicas {replicas})"


def _keys(namespaces: Iterable[str], names: Iterable[str], own: Key) -> tuple[Key, ...]:
    found = dict.fromkeys(Key(namespace, name) for namespace in namespaces for name in names)
    return tuple(it for it in found if it != own)
