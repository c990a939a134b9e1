"""Access to closed queues: which SubjectAccessReviews are needed, and which answers are cached.

A queue is the choice of a user where the TrainJob, its patches or a runtime of its namespace names
it; a runtime of the cluster, a namespace or the settings are written by administrators. The user
needs the verb `use` in this namespace, and for every closed queue the namespace needs it too, as
the scheduler will check again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.errors import FieldError
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    closed_reason,
    grant_command,
    service_accounts_group,
)

__all__ = ["VERB", "AccessCache", "QueueAccessRequest", "UserInfo", "forbidden_fault"]

VERB: Final = "use"
_ALLOWED_S: Final = 60.0
_DENIED_S: Final = 5.0  # who has just been granted a queue tries again soon
_MAX_ENTRIES: Final = 4096


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request, as the API server knows him."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class QueueAccessRequest(NamedTuple):
    """A user, or a namespace, wants a queue for a workload; equal ones have one answer."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    namespace: str
    queue: str

    @classmethod
    def for_user(cls, user_info: UserInfo, namespace: str, queue: str) -> "QueueAccessRequest":
        """Return what a user wants."""
        extra = tuple(sorted(user_info.extra.items()))
        return cls(user_info.username, user_info.uid, user_info.groups, extra, namespace, queue)

    @classmethod
    def for_namespace(cls, namespace: str, queue: str) -> "QueueAccessRequest":
        """Return what a namespace wants: all of its service accounts."""
        return cls("", "", (service_accounts_group(namespace),), (), namespace, queue)

    @property
    def subject(self) -> str:
        """Return whose wish it is, as it is told."""
        return f"user {self.user!r}" if self.user else f"namespace {self.namespace!r}"


class AccessCache:
    """What was answered lately, as much as there is room for: a yes for longer than a no."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()

    def get(self, access_request: QueueAccessRequest, now_s: float) -> bool | None:
        """Return an answer that still holds."""
        is_allowed, until_s = self._until.get(_digest(access_request), (False, 0.0))
        return is_allowed if now_s < until_s else None

    def put(self, access_request: QueueAccessRequest, now_s: float, *, is_allowed: bool) -> None:
        """Take an answer; the oldest one makes room."""
        key = _digest(access_request)
        self._until.pop(key, None)
        self._until[key] = (is_allowed, now_s + (_ALLOWED_S if is_allowed else _DENIED_S))
        if len(self._until) > _MAX_ENTRIES:
            self._until.popitem(last=False)

    def __len__(self) -> int:
        return len(self._until)


def _digest(access_request: QueueAccessRequest) -> bytes:
    """Return what tells a wish from others; itself it may be as long as its user has groups."""
    return hashlib.sha256(msgspec.json.encode(access_request)).digest()


def forbidden_fault(
    denied: Sequence[QueueAccessRequest], access: EffectiveQueueAccess, path: str
) -> FieldError:
    """Say which of user and namespace may not use a closed queue, and what grants it to them."""
    names, first = " and ".join(it.subject for it in denied), denied[0]
    user = next((it.user for it in denied if it.user), "")
    grant = grant_command(first.queue, first.namespace, user=user)
    message = (
        f"{names} may not use the queue {first.queue!r}, which is closed "
        f"({closed_reason(access)}): "
        f"name another queue, or have it granted by: {grant}"
    )
    return FieldError(path, message)
