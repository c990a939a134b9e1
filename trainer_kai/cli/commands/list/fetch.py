"""Reads what a list needs with the rights of the user: one request a kind, whatever their number.

A kind that the user may not read is left out, and a note says what is missing and who grants it.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from trainer_kai.api.meta import Object
from trainer_kai.api.resources import PODGROUPS, PRIORITY_CLASSES, Resource
from trainer_kai.cli.commands.list.placed_pods import OF_WORKLOADS, PLACED_PODS
from trainer_kai.cli.commands.list.rows import ListedObjects
from trainer_kai.cli.output.missing_rights import missing_right
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection
from trainer_kai.kube.rest.response import Forbidden, NotFound
from trainer_kai.policy.workloads.kinds import KINDS, OWNERS

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

T = TypeVar("T", bound=Object)

_POSITIONS: Final = "positions in queues"


class Listing(NamedTuple):
    objects: ListedObjects
    now: datetime
    notes: tuple[str, ...]


class _Reader:
    def __init__(self, client: "Client", namespace: str) -> None:
        self._client = client
        self._namespace = namespace  # "" is all
        self.notes: list[str] = []

    async def read(
        self, resource: Resource[T], selection: Selection = ALL, what: str = ""
    ) -> list[T] | None:
        """Return the objects of a kind, and none if it is not installed; None if not readable."""
        namespace = self._namespace if resource.namespaced else ""
        return await self.read_in(namespace, resource, selection, what)

    async def read_in(
        self, namespace: str, resource: Resource[T], selection: Selection = ALL, what: str = ""
    ) -> list[T] | None:
        try:
            return await self._client.list(ListTarget(resource, namespace, selection))
        except NotFound:
            return []
        except Forbidden:
            self.notes.append(missing_right(what or resource.plural, resource, namespace))
            return None


async def fetch_listing(
    client: "Client", namespace: str, *, with_nodes: bool, with_places: bool
) -> Listing:
    """Read the workloads of a namespace, or of all ("")."""
    reader = _Reader(client, namespace)
    workloads: dict[str, list[Any]] = {}
    for resource, selection in (
        *((it.resource, Selection(labels=it.selection)) for it in KINDS),
        *((it.resource, ALL) for it in OWNERS),
    ):
        found = await reader.read(resource, selection)
        if found is not None:  # of two versions of a kind the API server serves one
            workloads.setdefault(resource.kind, []).extend(found)
    podgroups = await reader.read(PODGROUPS)
    everywhere, classes = podgroups if not namespace else None, None
    if with_places and podgroups is not None:
        if namespace:
            everywhere = await reader.read_in("", PODGROUPS, what=_POSITIONS)
        if everywhere is not None:
            classes = await reader.read(PRIORITY_CLASSES, what=_POSITIONS)
    pods = await reader.read(PLACED_PODS, OF_WORKLOADS, "nodes") if with_nodes else None
    objects = ListedObjects(
        workloads=workloads,
        podgroups=podgroups or (),
        all_podgroups=everywhere,
        classes={it.metadata.name: it for it in classes} if classes is not None else None,
        pods=pods or (),
    )
    return Listing(objects, client.clock.now(), tuple(reader.notes))
