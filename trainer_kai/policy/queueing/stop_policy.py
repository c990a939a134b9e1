"""Whether a queue is held: the annotation `trainer-kai.dev/stop-policy`, with Kueue's values.

While a queue is held nothing starts in it, and what runs stays; `HoldAndDrain` also evicts what
runs. The annotation holds for the queues below, too: of a queue and its ancestors the strictest
counts. An unknown value counts as `Hold`: its author wanted to stop something.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from trainer_kai.api.names import STOP_POLICY


class StopPolicy(StrEnum):
    """In the order of their strictness."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class EffectiveStopPolicy(NamedTuple):
    policy: StopPolicy = StopPolicy.NONE
    decided_by: str = ""  # the queue with the annotation: itself or an ancestor

    @property
    def is_held(self) -> bool:
        return self.policy is not StopPolicy.NONE

    def __str__(self) -> str:
        return f"annotation {STOP_POLICY}: {self.policy} of queue {self.decided_by}"


_STRICTNESS: Final = {policy: number for number, policy in enumerate(StopPolicy)}


def effective_stop_policy(
    queue: str, parent_of: Callable[[str], str], annotation_of: Callable[[str], str | None]
) -> EffectiveStopPolicy:
    """Return the strictest policy of a queue and its ancestors; the nearest of equal ones.

    A queue without a parent, and one that does not exist, has the parent "". A queue that is above
    itself ends the search, as the top does.
    """
    found = EffectiveStopPolicy()
    visited: set[str] = set()
    while queue and queue not in visited:
        policy = _read(annotation_of(queue))
        if _STRICTNESS[policy] > _STRICTNESS[found.policy]:
            found = EffectiveStopPolicy(policy, queue)
        visited.add(queue)
        queue = parent_of(queue)
    return found


def _read(text: str | None) -> StopPolicy:
    if text is None:
        return StopPolicy.NONE
    return StopPolicy(text) if text in {*StopPolicy} else StopPolicy.HOLD


def release_command(queue: str) -> str:
    return f"trainer-kai queue release {queue}"
