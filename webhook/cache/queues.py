"""The queues of the cluster: which are closed, and which have children and so hold no workloads.

Until all queues are listed none counts as missing.
"""

from typing import Final

from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)

__all__ = ["QueueTree"]

_MAX_NAMED: Final = 3


class QueueTree:
    """Names of queues, whose children they are, and what they say of who may use them."""

    def __init__(self) -> None:
        self._is_listed = False
        self._parents: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._access: dict[str, str] = {}  # annotations, of queues that have one
        self._closing: set[str] = set()  # queues whose annotation is not open

    def put(self, name: str, parent: str, access: str | None = None) -> None:
        """Take a queue as it is now, with its access annotation."""
        self.drop(name)
        self._parents[name] = parent
        if access is not None:
            self._access[name] = access
            if access != QueueAccessMode.OPEN:
                self._closing.add(name)
        if parent:
            self._children.setdefault(parent, {})[name] = None

    def drop(self, name: str) -> None:
        """Forget a queue; those below it stay where they are."""
        parent = self._parents.pop(name, "")
        self._access.pop(name, None)
        self._closing.discard(name)
        siblings = self._children.get(parent, {})
        siblings.pop(name, None)
        if not siblings:
            self._children.pop(parent, None)

    def mark_listed(self) -> None:
        """Take note that all there are have been put."""
        self._is_listed = True

    def access(self, name: str) -> EffectiveQueueAccess:
        """Return what the queues say of who may use one; of one not heard of, nothing."""
        return effective_queue_access(name, lambda it: self._parents.get(it, ""), self._access.get)

    @property
    def has_closed(self) -> bool:
        """Say whether the annotation of any queue closes it."""
        return bool(self._closing)

    def is_unknown(self, name: str) -> bool:
        """Say whether we have heard of all queues, and not of this one."""
        return self._is_listed and name not in self._parents

    def unusable_reason(self, name: str) -> str | None:
        """Say why no workload can be in a queue, and what would be right."""
        if not self._is_listed:
            return None
        if name not in self._parents:
            return "there is no such queue: make it, or name one that is there"
        below = sorted(self._children.get(name, ()))
        if not below:
            return None
        few = ", ".join((*below[:_MAX_NAMED], *(["…"] if len(below) > _MAX_NAMED else [])))
        return f"that queue has others below it: name one of those ({few})"
