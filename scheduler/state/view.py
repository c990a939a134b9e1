"""What is known while one snapshot is made."""

from typing import NamedTuple

from scheduler.core.model import Ints
from scheduler.state.codes import Codes
from scheduler.state.gangs import Gangs
from scheduler.state.holdings import Holdings
from scheduler.state.permits import Permits
from scheduler.state.queues import QueueRows
from scheduler.state.roll import Roll
from scheduler.state.standing import Standings
from scheduler.state.stays import Stays

__all__ = ["View"]


class View(NamedTuple):
    """All that units are made of."""

    roll: Roll
    heads: Ints  # pods, [kin, state]
    gangs: Gangs
    holdings: Holdings
    standings: Standings
    queues: QueueRows
    codes: Codes
    stays: Stays
    permits: Permits
