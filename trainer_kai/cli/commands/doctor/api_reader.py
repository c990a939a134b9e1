"""Reads and dry runs with the permissions of the user; a refusal is a fact too."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import Resource
from trainer_kai.cli.commands.doctor.expected import Permission
from trainer_kai.cli.commands.doctor.facts import DryRun, Obj
from trainer_kai.cli.commands.doctor.finding import Fact, Unread
from trainer_kai.errors import ConfigError
from trainer_kai.kube.client import AccessRequest, Client, review_access
from trainer_kai.kube.rest import request
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection, WriteOptions
from trainer_kai.kube.rest.response import ApiError, Forbidden, Garbled, NotFound, Unavailable

A = TypeVar("A")
T = TypeVar("T", bound=Object)

_PAGE: Final = 500
_DRY_RUN_OPTIONS: Final = WriteOptions(dry_run=True, field_manager="trainer-kai-doctor")


class _RawPage(msgspec.Struct, frozen=True):
    """A page of objects as the API server wrote them."""

    metadata: dict[str, Any] = {}
    items: tuple[dict[str, Any], ...] = ()


async def read_fact(what: str, read: Awaitable[A]) -> Fact[A]:
    """Return the result of a read, or why it is unread."""
    try:
        return await read
    except NotFound:
        return Unread(f"it does not exist: {what}")
    except Forbidden:
        return Unread(f"you may not {what}")
    except (ApiError, ConfigError) as error:
        return Unread(str(error))


class ApiReader:
    """Reads and dry runs."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, resource: Resource[Any], key: Key) -> Fact[Obj | None]:
        """Return an object as it is written; None where there is none."""
        what = f"get {resource} {key}"
        try:
            return await self.client.call(dict, request.get(resource, key))
        except NotFound:
            return None
        except ApiError as error:
            return Unread(f"you may not {what}" if isinstance(error, Forbidden) else str(error))

    async def get_existing(self, resource: Resource[T], keys: Iterable[Key]) -> Fact[list[T]]:
        """Return the objects with these names that exist."""

        async def found() -> list[T]:
            objects = await asyncio.gather(*(self._get_or_none(resource, key) for key in keys))
            return [one for one in objects if one is not None]

        return await read_fact(f"get {resource}", found())

    async def list_all(
        self, resource: Resource[T], namespace: str = "", selection: Selection = ALL
    ) -> Fact[list[T]]:
        """Return all objects of a kind."""
        target = ListTarget(resource, namespace, selection)
        return await read_fact(f"list {resource}", self.client.list(target))

    async def list_first(
        self, resource: Resource[T], selection: Selection = ALL, pages: int = 1
    ) -> Fact[list[T]]:
        """Return the objects of the first pages."""
        return await read_fact(
            f"list {resource}", self._list_first(ListTarget(resource, "", selection), pages)
        )

    async def list_raw(self, resource: Resource[Any], namespace: str = "") -> Fact[list[Obj]]:
        """Return all objects of a kind as the API server wrote them, with their kind."""
        return await read_fact(f"list {resource}", self._list_raw(resource, namespace))

    async def dry_run(self, resource: Resource[Any], body: Obj) -> Fact[DryRun]:
        """Create an object as a dry run; a refusal is a result."""
        namespace = body["metadata"]["namespace"]
        try:
            dry_run = request.create(resource, namespace, body, _DRY_RUN_OPTIONS)
            return DryRun(body, await self.client.call(dict, dry_run))
        except Garbled as error:
            return Unread(str(error))
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.details.status:
                return Unread(str(error))
            return DryRun(body, None, error.details)

    async def is_denied(self, account: Key, permission: Permission) -> bool:
        """Say whether a ServiceAccount of ours lacks a permission."""
        own = account.namespace
        groups = ("serviceaccounts", f"serviceaccounts:{own}", "authenticated")
        access = AccessRequest(
            permission.verb,
            permission.group,
            permission.resource,
            name=permission.name,
            namespace="" if permission.everywhere else permission.namespace or own,
            user=f"system:serviceaccount:{own}:{account.name}",
            groups=tuple(f"system:{it}" for it in groups),
            subresource=permission.subresource,
        )
        return not (await review_access(self.client, access)).allowed

    async def _get_or_none(self, resource: Resource[T], key: Key) -> T | None:
        try:
            return await self.client.get(resource, key)
        except NotFound:
            return None

    async def _list_first(self, target: ListTarget[T], pages: int) -> list[T]:
        objects: list[T] = []
        token = ""
        for _ in range(pages):
            page = await self.client.page(target, _PAGE, token)
            objects += page.items
            token = page.metadata.continue_token
            if not token:
                break
        return objects

    async def _list_raw(self, resource: Resource[Any], namespace: str) -> list[Obj]:
        objects: list[Obj] = []
        token = ""
        while True:
            page_request = request.list_page(ListTarget(resource, namespace), _PAGE, token)
            page = await self.client.call(_RawPage, page_request)
            objects += [{"kind": resource.kind, **it} for it in page.items]
            token = str(page.metadata.get("continue") or "")
            if not token:
                return objects
