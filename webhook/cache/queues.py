"""The queues of the cluster: which are closed, and which have children and so hold no workloads.

Until all queues are listed, no queue counts as missing.
"""

from typing import Final

from trainer_kai.policy.misspelled_keys import similar_name
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)

_MAX_NAMED_CHILDREN: Final = 3


class QueueTree:
    """The names of queues, their parents, and their access annotations."""

    def __init__(self) -> None:
        self._is_listed = False
        self._parents: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._access: dict[str, str] = {}  # annotations, by queue
        self._annotated_closed: set[str] = set()  # queues with an annotation other than open

    def put(self, name: str, parent: str, access: str | None = None) -> None:
        """Put a queue as it is now, with its access annotation."""
        self.drop(name)
        self._parents[name] = parent
        if access is not None:
            self._access[name] = access
            if access != QueueAccessMode.OPEN:
                self._annotated_closed.add(name)
        if parent:
            self._children.setdefault(parent, {})[name] = None

    def drop(self, name: str) -> None:
        """Forget a queue; its children keep their parent."""
        parent = self._parents.pop(name, "")
        self._access.pop(name, None)
        self._annotated_closed.discard(name)
        siblings = self._children.get(parent, {})
        siblings.pop(name, None)
        if not siblings:
            self._children.pop(parent, None)

    def mark_listed(self) -> None:
        """Note that all queues have been put."""
        self._is_listed = True

    def access(self, name: str) -> EffectiveQueueAccess:
        """Return the access annotation of the queue, or of the nearest parent that has one."""
        return effective_queue_access(name, lambda it: self._parents.get(it, ""), self._access.get)

    @property
    def has_closed_queue(self) -> bool:
        """Say whether the annotation of any queue is not `open`."""
        return bool(self._annotated_closed)

    def is_unknown(self, name: str) -> bool:
        """Say whether all queues are listed, and this queue does not exist."""
        return self._is_listed and name not in self._parents

    def unusable_reason(self, name: str) -> str | None:
        """Say why a queue cannot hold workloads, and what to do; to follow the queue's name."""
        if not self._is_listed:
            return None
        if name not in self._parents:
            meant = similar_name(name, (it for it in self._parents if it not in self._children))
            hint = f"Did you mean {meant!r}? Otherwise create" if meant else "Create"
            return f"does not exist. {hint} the queue, or name an existing one"
        children = sorted(self._children.get(name, ()))
        if not children:
            return None
        more = ["…"] if len(children) > _MAX_NAMED_CHILDREN else []
        few = ", ".join((*children[:_MAX_NAMED_CHILDREN], *more))
        return f"has child queues and cannot hold workloads. Name one of the children: {few}"
