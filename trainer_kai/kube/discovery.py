"""The kinds that the API server serves, read once and cached.

One response has all groups ("aggregated discovery"). It is read again when a kind is missing, but
at most every few seconds: a custom resource may have been installed since.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trainer_kai.api.meta import PartialObject
from trainer_kai.api.resource import Resource
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import Request

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_REFRESH_AGAIN_S: Final = 5.0


class _Kind(msgspec.Struct):
    kind: str = ""


class _Resource(msgspec.Struct, rename="camel"):
    resource: str
    scope: str = ""
    singular_resource: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    response_kind: _Kind = msgspec.field(default_factory=_Kind)


class _Version(msgspec.Struct):
    version: str
    resources: tuple[_Resource, ...] = ()


class _Meta(msgspec.Struct):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Meta
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct):
    items: tuple[_Group, ...] = ()


class Discovery:
    """The kinds that an API server serves."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: list[tuple[Resource[Any], _Resource]] = []
        self._refreshed_s = float("-inf")

    async def find(self, name: str) -> Resource[PartialObject] | None:
        """Return the kind with this name, in the version that the API server prefers.

        The name is a plural, a singular, a kind or a short name, and may have the group behind a
        dot: `pods`, `podgroups.scheduling.run.ai`, `pg`.
        """
        resource = self._find(name.lower())
        if resource is None:
            await self._refresh_if_due()
            resource = self._find(name.lower())
        return resource

    async def serves(self, resource: Resource[Any]) -> bool:
        """Say whether exactly this group, version and plural is served."""
        if not self._serves(resource):
            await self._refresh_if_due()
        return self._serves(resource)

    async def refresh(self) -> None:
        """Read it again."""
        served: list[tuple[Resource[Any], _Resource]] = []
        for root in ("/api", "/apis"):
            request = Request("GET", root, accept=_AGGREGATED, repeatable=True)
            served += _resources(await self._client.call(_Groups, request))
        self._served = served
        self._refreshed_s = self._client.clock.monotonic_s()

    async def _refresh_if_due(self) -> None:
        if self._client.clock.monotonic_s() - self._refreshed_s > _REFRESH_AGAIN_S:
            await self.refresh()

    def _find(self, name: str) -> Resource[PartialObject] | None:
        plain, _, group = name.partition(".")
        for resource, api_resource in self._served:
            names = (resource.plural, api_resource.singular_resource, resource.kind.lower())
            if (
                plain
                and plain in (*names, *api_resource.short_names)
                and group in ("", resource.group)
            ):
                return resource
        return None

    def _serves(self, resource: Resource[Any]) -> bool:
        same = (resource.group, resource.version, resource.plural)
        return any((r.group, r.version, r.plural) == same for r, _ in self._served)


def _resources(groups: _Groups) -> Iterator[tuple[Resource[PartialObject], _Resource]]:
    for group in groups.items:
        for version in group.versions:
            for api_resource in version.resources:
                yield (
                    Resource(
                        group.metadata.name,
                        version.version,
                        api_resource.resource,
                        api_resource.response_kind.kind,
                        api_resource.scope == "Namespaced",
                        PartialObject,
                    ),
                    api_resource,
                )
