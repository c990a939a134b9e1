"""A write of `trainer-kai queue` as a value, and a plan of several writes. Pure."""

import textwrap
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.api.queue import Queue
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import QUEUES
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import Body, Patch, PatchKind
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)

_DONE: Final = {"create": "created", "patch": "changed", "": "unchanged"}


class QueueWrite(NamedTuple):
    """An object that is created, patched or unchanged."""

    resource: Resource[Any]
    key: Key
    change: Body | Patch | None  # the object to create; None: no change
    text: str  # what the object sets

    @property
    def verb(self) -> str:
        """Return the verb of the API; "" for no change."""
        if self.change is None:
            return ""
        return "patch" if isinstance(self.change, Patch) else "create"

    def describe(self, *, is_dry: bool) -> str:
        """Return the line that is printed about it; a dry run adds the object or the patch."""
        line = f"{self.resource.kind} {self.key}: {self.text}"
        if not is_dry or self.change is None:
            return f"{_DONE[self.verb]} {line}"
        body = self.change.body if isinstance(self.change, Patch) else self.change
        fields = yaml.safe_dump(body, sort_keys=False)
        return f"would {self.verb} {line}\n{textwrap.indent(fields, '  ')}".rstrip()


class WritePlan(NamedTuple):
    """The writes in their order, and the lines that are printed with them."""

    writes: tuple[QueueWrite, ...]
    outcome: tuple[str, ...] = ()  # printed after the writes
    notes: tuple[str, ...] = ()  # printed before the writes, on standard error


def existing_queue(queues: Mapping[str, Queue], name: str) -> Queue:
    """Return a queue; raise if it does not exist."""
    if name not in queues:
        message = "does not exist: `trainer-kai queue list` shows all queues, `create` creates one"
        raise ConfigError([FieldError(f"queue {name}", message)])
    return queues[name]


def effective_access(
    queues: Mapping[str, Queue], name: str, annotated: str = ""
) -> EffectiveQueueAccess:
    """Return the effective access of a queue, as if the queue *annotated* had the annotation."""

    def parent_of(queue: str) -> str:
        return queues[queue].spec.parent_queue if queue in queues else ""

    def annotation_of(queue: str) -> str | None:
        annotation = queues[queue].metadata.annotations.get(ACCESS) if queue in queues else None
        return annotation or QueueAccessMode.CLOSED if queue == annotated else annotation

    return effective_queue_access(name, parent_of, annotation_of)


def inheriting_queues(queues: Mapping[str, Queue], name: str) -> frozenset[str]:
    """Return a queue and the queues below it that inherit its access."""
    return frozenset(
        it for it in queues if effective_access(queues, it, annotated=name).decided_by == name
    )


def access_write(queue: Queue, access: QueueAccessMode) -> QueueWrite:
    """Return the write that sets the access annotation of a queue."""
    key = queue.metadata.key
    text = f"annotation {ACCESS} is {access}"
    if queue.metadata.annotations.get(ACCESS) == access:
        return QueueWrite(QUEUES, key, None, text)
    fields = {"metadata": {"annotations": {ACCESS: str(access)}}}
    return QueueWrite(QUEUES, key, Patch(PatchKind.MERGE, fields), text)
