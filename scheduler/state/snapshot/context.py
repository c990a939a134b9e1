"""What the PodGroups of a snapshot are built from."""

from collections.abc import Mapping
from typing import NamedTuple

from scheduler.core.model.resources import Ints
from scheduler.state.podgroups.attributes import AttributeResolver, Evictability
from scheduler.state.podgroups.index import PodGroupIndex
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.pods.pod_table import PodTable
from scheduler.state.queues.access import QueueAccessRule
from scheduler.state.queues.queue_table import QueueTable
from scheduler.state.snapshot.occupancy import SharedGpuTable
from scheduler.state.snapshot.signatures import Encoding
from trainer_kai.api.meta import Key


class BuildContext(NamedTuple):
    """What PodGroups, their pre-filter failures and their queue usage are built from."""

    pod_table: PodTable
    pod_counts: Ints  # [pod class, state]
    podgroup_index: PodGroupIndex
    reservations: Reservations
    attribute_resolver: AttributeResolver
    queues: QueueTable
    encoding: Encoding
    evictability: Evictability
    access_rule: QueueAccessRule
    shared_gpus: SharedGpuTable
    places_gpu_shares: bool
    trusts_gpu_labels: bool
    stale_since: Mapping[Key, int]  # as observed, by PodGroup
