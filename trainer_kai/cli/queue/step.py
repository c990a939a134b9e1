"""One write of `trainer-kai queue` as a value, and a whole plan of them. Pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.api.queue import Queue
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import QUEUES
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.request import Body, Patch, PatchKind
from trainer_kai.policy.access import Access, Said, said_of

__all__ = ["Plan", "Step", "governed", "marked", "said_by", "stored"]

_DONE: Final = {"create": "created", "patch": "changed", "": "unchanged"}


class Step(NamedTuple):
    """An object that is made, or changed, or that is as it should be."""

    resource: Resource[Any]
    key: Key
    change: Body | Patch | None  # the object to make; None: there is nothing to do
    words: str  # what it says

    @property
    def verb(self) -> str:
        """Return the verb of the API that it takes; "" for none."""
        if self.change is None:
            return ""
        return "patch" if isinstance(self.change, Patch) else "create"

    def told(self, *, is_dry: bool) -> str:
        """Return the line about it."""
        is_wish = is_dry and self.change is not None
        done = f"would {self.verb}" if is_wish else _DONE[self.verb]
        return f"{done} {self.resource.kind} {self.key}: {self.words}"


class Plan(NamedTuple):
    """What is written, in this order, and what is said about it."""

    steps: tuple[Step, ...]
    ending: tuple[str, ...] = ()  # what is so afterwards
    notes: tuple[str, ...] = ()  # what should be known all the same


def stored(queues: Mapping[str, Queue], name: str) -> Queue:
    """Return a queue that is there; raise for one that is not."""
    if name not in queues:
        message = "does not exist: `trainer-kai queue list` shows which do, `create` makes one"
        raise ConfigError([FieldError(f"queue {name}", message)])
    return queues[name]


def said_by(queues: Mapping[str, Queue], name: str, above: str = "") -> Said:
    """Return what counts for the access to a queue; as if *above* were annotated."""

    def parent_of(one: str) -> str:
        return queues[one].spec.parent_queue if one in queues else ""

    def annotation_of(one: str) -> str | None:
        said = queues[one].metadata.annotations.get(ACCESS) if one in queues else None
        return said or Access.CLOSED if one == above else said

    return said_of(name, parent_of, annotation_of)


def governed(queues: Mapping[str, Queue], name: str) -> frozenset[str]:
    """Return the queues for which counts what a queue says: itself, and queues that inherit it."""
    return frozenset(it for it in queues if said_by(queues, it, above=name).by == name)


def marked(queue: Queue, access: Access) -> Step:
    """Return the write by which a queue says who may use it."""
    key = queue.metadata.key
    words = f"annotation {ACCESS} is {access}"
    if queue.metadata.annotations.get(ACCESS) == access:
        return Step(QUEUES, key, None, words)
    fields = {"metadata": {"annotations": {ACCESS: str(access)}}}
    return Step(QUEUES, key, Patch(PatchKind.MERGE, fields), words)
