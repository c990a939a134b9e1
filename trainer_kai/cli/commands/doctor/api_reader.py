"""Reads and dry runs with the permissions of the user; a refusal is a fact too."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import Resource
from trainer_kai.cli.commands.doctor.expected import Permission
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    Fact,
    Obj,
    Unread,
    nested_field,
    parse_time,
)
from trainer_kai.errors import ConfigError
from trainer_kai.kube.client import AccessRequest, Client, review_access
from trainer_kai.kube.rest import request
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection, WriteOptions
from trainer_kai.kube.rest.response import ApiError, Forbidden, Garbled, NotFound, Unavailable

A = TypeVar("A")
T = TypeVar("T", bound=Object)

_PAGE: Final = 500
_MAX_CONCURRENT: Final = 16  # access reviews
_DRY_RUN_OPTIONS: Final = WriteOptions(dry_run=True, field_manager="trainer-kai-doctor")


class ListRead(NamedTuple):
    """What is listed, as what it is decoded, and the fact that it becomes.

    The struct of a resource is the type of its objects; with `dict` they are as the API server
    wrote them, with their kind.
    """

    resources: tuple[Resource[Any], ...]
    fact: Callable[[list[Any]], Any] = list
    namespace: str = ""  # "" means all namespaces
    selection: Selection = ALL
    pages: int | None = None  # at most so many; None means all


class _RawPage(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = {}
    items: tuple[dict[str, Any], ...] = ()


async def read_fact(what: str, read: Awaitable[A]) -> Fact[A]:
    try:
        return await read
    except NotFound:
        return Unread(f"it does not exist: {what}")
    except Forbidden:
        return Unread(f"you may not {what}")
    except (ApiError, ConfigError) as error:
        return Unread(str(error))


class ApiReader:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

    async def get(self, resource: Resource[Any], key: Key) -> Fact[Obj | None]:
        """Return an object as it is written; None where there is none."""
        try:
            return await self.client.call(dict, request.get(resource, key))
        except NotFound:
            return None
        except Forbidden:
            return Unread(f"you may not get {resource} {key}")
        except ApiError as error:
            return Unread(str(error))

    async def get_existing(self, resource: Resource[T], keys: Iterable[Key]) -> Fact[list[T]]:
        """Return the objects with these names that exist."""

        async def found() -> list[T]:
            objects = await asyncio.gather(*(self._get_or_none(resource, key) for key in keys))
            return [one for one in objects if one is not None]

        return await read_fact(f"get {resource}", found())

    async def list_fact(self, read: ListRead) -> Fact[Any]:
        """Return the fact of all objects; the first kind that cannot be read makes it unread."""
        objects: list[Any] = []
        for resource in read.resources:
            listing = self._list_raw if resource.struct is dict else self._list
            found = await read_fact(f"list {resource}", listing(resource, read))
            if isinstance(found, Unread):
                return found
            objects += found
        return read.fact(objects)

    async def dry_run(self, resource: Resource[Any], body: Obj) -> Fact[DryRun]:
        """Create an object as a dry run; a refusal is a result."""
        namespace, before = body["metadata"]["namespace"], self.client.clock.now()
        try:
            dry_run = request.create(resource, namespace, body, _DRY_RUN_OPTIONS)
            got = await self.client.call(dict, dry_run)
        except Garbled as error:
            return Unread(str(error))
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.details.status:
                return Unread(str(error))
            return DryRun(body, None, error.details)
        return DryRun(body, got, skew_s=_skew_s(got, before, self.client.clock.now()))

    async def is_denied(self, account: Key, permission: Permission) -> bool:
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
        async with self._semaphore:
            return not (await review_access(self.client, access)).allowed

    async def _get_or_none(self, resource: Resource[T], key: Key) -> T | None:
        try:
            return await self.client.get(resource, key)
        except NotFound:
            return None

    async def _list(self, resource: Resource[T], read: ListRead) -> list[T]:
        objects: list[T] = []
        number = 0
        async for page in self.client.pages(ListTarget(resource, read.namespace, read.selection)):
            objects += page.items
            number += 1
            if number == read.pages:
                break
        return objects

    async def _list_raw(self, resource: Resource[Any], read: ListRead) -> list[Obj]:
        objects: list[Obj] = []
        token = ""
        while True:
            target = ListTarget(resource, read.namespace)
            page = await self.client.call(_RawPage, request.list_page(target, _PAGE, token))
            objects += [{"kind": resource.kind, **it} for it in page.items]
            token = str(page.metadata.get("continue") or "")
            if not token:
                return objects


def _skew_s(got: Obj, before: datetime, after: datetime) -> float:
    """Return how far the API server's clock is ahead; its timestamps are in whole seconds."""
    created = parse_time(str(nested_field(got, "metadata", "creationTimestamp")))
    if created is None:
        return 0.0
    first, last = created - after, created + timedelta(seconds=1) - before
    if first <= timedelta() <= last:
        return 0.0
    return (first if first > timedelta() else last).total_seconds()
