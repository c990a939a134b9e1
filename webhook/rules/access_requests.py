"""Access to closed queues: which SubjectAccessReviews are sent, and which answers are cached.

A queue is the choice of a user if the TrainJob, its patches or a runtime of its namespace names it;
then the user needs the verb `use` on the queue, in this namespace. Cluster runtimes, namespaces and
settings are written by administrators. For every closed queue the namespace needs the verb as well:
the scheduler checks the namespace again.
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

VERB: Final = "use"
_ALLOWED_TTL_S: Final = 60.0
_DENIED_TTL_S: Final = 5.0  # a user retries soon after access was granted
_MAX_ENTRIES: Final = 4096


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class QueueAccessRequest(NamedTuple):
    """A request of a user or a namespace to use a queue; equal requests have the same answer."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    namespace: str
    queue: str

    @classmethod
    def for_user(cls, user_info: UserInfo, namespace: str, queue: str) -> "QueueAccessRequest":
        extra = tuple(sorted(user_info.extra.items()))
        return cls(user_info.username, user_info.uid, user_info.groups, extra, namespace, queue)

    @classmethod
    def for_namespace(cls, namespace: str, queue: str) -> "QueueAccessRequest":
        return cls("", "", (service_accounts_group(namespace),), (), namespace, queue)

    @property
    def subject(self) -> str:
        return f"user {self.user!r}" if self.user else f"namespace {self.namespace!r}"


class AccessCache:
    """Recent answers, limited in number; a denial is cached for a shorter time."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()

    def get(self, access_request: QueueAccessRequest, now_s: float) -> bool | None:
        is_allowed, until_s = self._entries.get(_digest(access_request), (False, 0.0))
        return is_allowed if now_s < until_s else None

    def put(self, access_request: QueueAccessRequest, now_s: float, *, is_allowed: bool) -> None:
        """Put an answer; above the limit the oldest one is dropped."""
        key = _digest(access_request)
        self._entries.pop(key, None)
        self._entries[key] = (is_allowed, now_s + (_ALLOWED_TTL_S if is_allowed else _DENIED_TTL_S))
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


def forbidden_fault(
    denied: Sequence[QueueAccessRequest], access: EffectiveQueueAccess, path: str
) -> FieldError:
    names, first = " and ".join(it.subject for it in denied), denied[0]
    user = next((it.user for it in denied if it.user), "")
    grant = grant_command(first.queue, first.namespace, user=user)
    message = (
        f"{names} may not use queue {first.queue!r}: the queue is closed ({closed_reason(access)})."
        f" Name another queue, or ask an administrator to run: {grant}"
    )
    return FieldError(path, message)


def _digest(access_request: QueueAccessRequest) -> bytes:
    """Return a short key for a request: a user may have many groups."""
    return hashlib.sha256(msgspec.json.encode(access_request)).digest()
