"""What changes in a cluster, as far as it can help a PodGroup that waits."""

from enum import Flag, auto
from typing import Final


class ClusterEvent(Flag):
    """What has happened. A rejection names the events on which its PodGroup is retried.

    `ANY` and `TIME_PASSED` retry every PodGroup that waits; another event retries only
    PodGroups that await it, so that a busy cluster is not planned anew for each of its events.
    """

    RESOURCES_FREED = auto()  # a pod on a node terminates, has ended or was deleted
    FOREIGN_POD_ASSIGNED = auto()  # a pod of another scheduler got a node: it may satisfy affinity
    STAGE_PROGRESS = auto()  # a pod became Ready or no longer is, or a JobSet has a new status
    BUDGET_CHANGED = auto()  # of a PodDisruptionBudget: pods may become evictable
    PODGROUP_INCOMPLETE = auto()  # a pod came to a PodGroup that lacks others: new numbers only
    TIME_PASSED = auto()  # every few seconds
    ANY = auto()  # any other change


NO_EVENT: Final = ClusterEvent(0)
