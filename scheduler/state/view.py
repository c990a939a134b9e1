"""What is known while one snapshot is made."""

from typing import NamedTuple

from scheduler.core.model import Ints
from scheduler.state.codes import Encoding
from scheduler.state.gangs import PodGroupIndex
from scheduler.state.holdings import Reservations
from scheduler.state.permits import QueueAccessRule
from scheduler.state.queues import QueueTable
from scheduler.state.roll import PodTable
from scheduler.state.standing import AttributeResolver
from scheduler.state.stays import Evictability

__all__ = ["BuildContext"]


class BuildContext(NamedTuple):
    """All that units are made of."""

    pod_table: PodTable
    pod_counts: Ints  # pods, [kin, state]
    podgroup_index: PodGroupIndex
    reservations: Reservations
    attribute_resolver: AttributeResolver
    queues: QueueTable
    encoding: Encoding
    evictability: Evictability
    access_rule: QueueAccessRule
