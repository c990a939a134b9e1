"""Whether a queue is open or closed, and the commands that change it.

A queue declares its access by the annotation `trainer-kai.dev/access`. The nearest of the queue and
its parents that has the annotation decides. An open queue needs no permission; a closed one may be
used by namespaces and users that have the verb `use` on it. The configuration decides for queues
without the annotation.
"""

import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from trainer_kai.api.names import ACCESS


class QueueAccessMode(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class EffectiveQueueAccess(NamedTuple):
    """*decided_by* is the queue with the annotation: itself or an ancestor."""

    mode: QueueAccessMode | None  # None: no queue up to the top has the annotation
    decided_by: str = ""


def effective_queue_access(
    queue: str, parent_of: Callable[[str], str], annotation_of: Callable[[str], str | None]
) -> EffectiveQueueAccess:
    """Return the access mode of a queue.

    A queue without a parent, and one that does not exist, has the parent "", and one without the
    annotation has None. A value that is neither of the two counts as closed. A queue that is above
    itself ends the search, as the top does.
    """
    visited: set[str] = set()
    while queue and queue not in visited:
        annotation = annotation_of(queue)
        if annotation is not None:
            is_open = annotation == QueueAccessMode.OPEN
            mode = QueueAccessMode.OPEN if is_open else QueueAccessMode.CLOSED
            return EffectiveQueueAccess(mode, queue)
        visited.add(queue)
        queue = parent_of(queue)
    return EffectiveQueueAccess(None)


def is_closed(effective: EffectiveQueueAccess, unannotated: str) -> bool:
    """*unannotated* is the mode of queues without the annotation."""
    return (effective.mode or unannotated) == QueueAccessMode.CLOSED


def closed_reason(effective: EffectiveQueueAccess) -> str:
    if effective.mode is None:
        return "the setting queue_access.unannotated is closed, and the queue has no annotation"
    return f"annotation {ACCESS} of queue {effective.decided_by}"


def service_accounts_group(namespace: str) -> str:
    """Return the group that an access review of a namespace names: its service accounts."""
    return f"system:serviceaccounts:{namespace}"


def grant_command(queue: str, namespace: str, *, user: str = "", groups: Sequence[str] = ()) -> str:
    """Return the command that lets a namespace use a queue, and users and groups in there.

    The grant of a namespace includes its ServiceAccounts, so they are not named as users.
    """
    words = ["trainer-kai", "queue", "allow", queue, "-n", namespace]
    is_own_account = user.startswith(f"system:serviceaccount:{namespace}:")
    words += ["--user", user] if user and not is_own_account else []
    words += [word for group in groups for word in ("--group", group)]
    return shlex.join(words)


def close_command(queue: str) -> str:
    """Return the command that closes a queue and grants its present users access."""
    return shlex.join(["trainer-kai", "queue", "close", queue, "--from-usage"])
