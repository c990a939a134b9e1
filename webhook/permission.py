"""Who may use which queue: what is asked, and what of the answers is remembered.

A queue is a person's choice where the TrainJob, its patches or a runtime of its namespace names it;
what a cluster's runtime, a namespace or the settings name was chosen by those who may. Asked is
whether he may `use` it in this namespace, so that a RoleBinding there can grant it there alone.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.names import QUEUE, RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.errors import FieldError

__all__ = ["VERB", "Answers", "UserInfo", "Wish", "forbidden"]

VERB: Final = "use"
_YES_S: Final = 60.0
_NO_S: Final = 5.0  # who has just been granted a queue tries again soon
_MOST: Final = 4096


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request, as the API server knows him."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class Wish(NamedTuple):
    """Somebody wants a queue for a workload in a namespace; equal ones have one answer."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    namespace: str
    queue: str

    @classmethod
    def of(cls, who: UserInfo, namespace: str, queue: str) -> "Wish":
        """Return what somebody wants."""
        extra = tuple(sorted(who.extra.items()))
        return cls(who.username, who.uid, who.groups, extra, namespace, queue)


class Answers:
    """What was answered lately, as much as there is room for: a yes for longer than a no."""

    def __init__(self) -> None:
        self._until: OrderedDict[Wish, tuple[bool, float]] = OrderedDict()

    def recall(self, wish: Wish, now_s: float) -> bool | None:
        """Return an answer that still holds."""
        is_allowed, until_s = self._until.get(wish, (False, 0.0))
        return is_allowed if now_s < until_s else None

    def keep(self, wish: Wish, now_s: float, *, is_allowed: bool) -> None:
        """Take an answer; the oldest one makes room."""
        self._until.pop(wish, None)
        self._until[wish] = (is_allowed, now_s + (_YES_S if is_allowed else _NO_S))
        if len(self._until) > _MOST:
            self._until.popitem(last=False)

    def __len__(self) -> int:
        return len(self._until)


def forbidden(wish: Wish, path: str) -> FieldError:
    """Say that somebody may not use a queue, and what would let him."""
    message = (
        f"{wish.user!r} may not use the queue {wish.queue!r} in the namespace {wish.namespace!r}: "
        f"name another one, or have a role with the verb {VERB!r} on {QUEUES.plural}.{RUN_AI} "
        f"{wish.queue!r} bound there"
    )
    return FieldError(path or f"metadata.labels[{QUEUE}]", message)
