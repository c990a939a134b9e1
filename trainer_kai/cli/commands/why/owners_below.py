"""Finds the PodGroups of objects below a workload: of the Jobs of a CronJob, for instance.

Only metadata is read, one list for each kind on the way. What a user may not read ends it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta, OwnerReference, PartialObject
from trainer_kai.api.resources import PODS, Resource
from trainer_kai.cli.commands.why.snapshot import PodSnapshot
from trainer_kai.cli.input.named_kinds import POD_OWNERS
from trainer_kai.policy.workloads.kinds import KINDS
from trainer_kai.policy.workloads.owner_chain import MOST_OWNERS, leading_owner

OWNER_RESOURCES: Final[Mapping[tuple[str, str], Resource[PartialObject]]] = {
    it.group_kind: Resource(
        it.group, it.version, it.plural, it.kind, namespaced=True, struct=PartialObject
    )
    for it in POD_OWNERS
}
_RESOURCES: Final = {
    **OWNER_RESOURCES,
    **{
        (it.group, it.kind): it
        for it in (kind.resource.with_struct(PartialObject) for kind in KINDS)
    },
}


class Lists(Protocol):
    async def list(self, resource: Resource[Any], namespace: str) -> tuple[Any, ...]:
        """Return the objects of a kind, as far as the user may read them."""


async def podgroups_below(
    reader: Lists,
    namespace: str,
    uid: str,
    groups: Iterable[PodGroup],
    pods: Iterable[PodSnapshot],
) -> tuple[PodGroup, ...]:
    """Return the PodGroups whose owners lead to an object; *uid* is that of the object."""
    walk = _OwnerWalk(reader, namespace, {it.metadata.uid: it.metadata for it in pods})
    return tuple([it for it in groups if await walk.leads_to(uid, it.metadata)])


class _OwnerWalk:
    def __init__(self, reader: Lists, namespace: str, pods: Mapping[str, Meta]) -> None:
        self._reader = reader
        self._namespace = namespace
        self._known: dict[tuple[str, str], Mapping[str, Meta]] = {(PODS.group, PODS.kind): pods}

    async def leads_to(self, uid: str, meta: Meta) -> bool:
        found: Meta | None = meta
        for _ in range(MOST_OWNERS):
            owner = leading_owner(found.owner_references) if found is not None else None
            if owner is None or owner.uid == uid:
                return owner is not None
            found = await self._read(owner)
        return False

    async def _read(self, owner: OwnerReference) -> Meta | None:
        kind = owner.api_version.rpartition("/")[0], owner.kind
        if kind not in self._known:
            resource = _RESOURCES.get(kind)
            listed = await self._reader.list(resource, self._namespace) if resource else ()
            self._known[kind] = {it.metadata.uid: it.metadata for it in listed}
        return self._known[kind].get(owner.uid)
