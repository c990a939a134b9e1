"""What a PodGroup that waits for room on nodes asks of an autoscaler, or why it asks for none."""

from enum import Enum
from typing import Final, NamedTuple

from scheduler.core.model.resources import NONE, Amounts

MOST_ASKING: Final = 2000  # PodGroups: no autoscaler adds nodes for more of them at once


class RefusalCause(Enum):
    """Why no nodes are asked for, although a PodGroup waits."""

    LIMIT = "limit"  # of a queue
    QUOTA = "quota"  # of a queue
    DELAY = "delay"  # it evicts others when its preemption delay is over
    DOMAIN = "domain"  # its pods have to be in one domain
    SHARE = "share"  # its pods request shares of GPUs
    AVOIDS = "avoids"  # so many nodes refused its pods that it tries no other one for a while
    MANY = "many"  # as many as may ask at once come before it


class RequestRefusal(NamedTuple):
    cause: RefusalCause
    queue: int = NONE
    by_others: bool = False  # what others ask for would exceed the bound together with it
    level: str = ""  # of the domain


class LackingPods(NamedTuple):
    """Equal pods without a node, and what one of them requests."""

    number: int
    amounts: Amounts


class NodeRequest(NamedTuple):
    """What a waiting PodGroup lacks; its pods ask for nodes, or a refusal says why they do not."""

    podgroup: int
    pods: tuple[int, ...]  # that ask
    lacking: tuple[LackingPods, ...] = ()  # of the next attempt
    refusal: RequestRefusal | None = None
    has_claims: bool = False  # its pods have ResourceClaims

    @property
    def lacking_count(self) -> int:
        return sum(it.number for it in self.lacking)
