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

_MAX_NAMED_CHILDREN: Final = 3


class QueueTree:
    """The names of queues, their parents, and their access annotations."""

    def __init__(self) -> None:
        self._is_listed = False
        self._parents: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._access: dict[str, str] = {}  # annotations, of queues that have one
        self._annotated_closed: set[str] = set()  # queues whose annotation is not open

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
        """Forget a queue; those below it stay where they are."""
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
        """Return what the queue or the nearest queue above it says of its access."""
        return effective_queue_access(name, lambda it: self._parents.get(it, ""), self._access.get)

    @property
    def has_closed_queue(self) -> bool:
        """Say whether the annotation of any queue closes it."""
        return bool(self._annotated_closed)

    def is_unknown(self, name: str) -> bool:
        """Say whether all queues are listed, and this one is not among them."""
        return self._is_listed and name not in self._parents

    def unusable_reason(self, name: str) -> str | None:
        """Say why no workload can be in a queue, and what to do."""
        if not self._is_listed:
            return None
        if name not in self._parents:
            return "there is no such queue: make it, or name one that is there"
        children = sorted(self._children.get(name, ()))
        if not children:
            return None
        few = ", ".join(
            (
                *children[:_MAX_NAMED_CHILDREN],
                *(["…"] if len(children) > _MAX_NAMED_CHILDREN else []),
            )
        )
        return f"that queue has others below it: name one of those ({few})"
