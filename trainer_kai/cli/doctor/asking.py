"""Ask the API server with the rights of the user; what is refused is a fact like any other."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.cli.doctor.expected import Right
from trainer_kai.cli.doctor.facts import Obj, Trial
from trainer_kai.cli.doctor.finding import Fact, Unread
from trainer_kai.errors import ConfigError
from trainer_kai.kube import request as build
from trainer_kai.kube.actions import Question, is_allowed
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Forbidden, Garbled, NotFound, Unavailable
from trainer_kai.kube.request import ALL, Selection, Target, Write

__all__ = ["Asking", "told"]

A = TypeVar("A")
T = TypeVar("T", bound=Object)

_PAGE: Final = 500
_DRY: Final = Write(dry_run=True, field_manager="trainer-kai-doctor")


class _Items(msgspec.Struct, frozen=True):
    """A page of objects that have no struct of ours."""

    metadata: dict[str, Any] = {}
    items: tuple[dict[str, Any], ...] = ()


async def told(what: str, asked: Awaitable[A]) -> Fact[A]:
    """Return what was asked for, or why it is not known."""
    try:
        return await asked
    except NotFound:
        return Unread(f"there is no such thing here: {what}")
    except Forbidden:
        return Unread(f"you may not {what}")
    except (ApiError, ConfigError) as error:
        return Unread(str(error))


class Asking:
    """Reads and dry runs."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def one(self, resource: Resource[Any], key: Key) -> Fact[Obj | None]:
        """Return an object as it is written; None where there is none."""
        what = f"get {resource} {key}"
        try:
            return await self.client.ask(dict, build.get(resource, key))
        except NotFound:
            return None
        except ApiError as error:
            return Unread(f"you may not {what}" if isinstance(error, Forbidden) else str(error))

    async def some(self, resource: Resource[T], keys: Iterable[Key]) -> Fact[list[T]]:
        """Return the objects of these names, as far as they exist."""

        async def found() -> list[T]:
            got = await asyncio.gather(*(self._there(resource, key) for key in keys))
            return [one for one in got if one is not None]

        return await told(f"get {resource}", found())

    async def every(
        self, resource: Resource[T], namespace: str = "", selection: Selection = ALL
    ) -> Fact[list[T]]:
        """Return all objects of a kind."""
        target = Target(resource, namespace, selection)
        return await told(f"list {resource}", self.client.list(target))

    async def first(
        self, resource: Resource[T], selection: Selection = ALL, pages: int = 1
    ) -> Fact[list[T]]:
        """Return the first of many objects."""
        return await told(f"list {resource}", self._first(Target(resource, "", selection), pages))

    async def raw(self, resource: Resource[Any], namespace: str = "") -> Fact[list[Obj]]:
        """Return all objects of a kind as they are written, with their kind."""
        return await told(f"list {resource}", self._raw(resource, namespace))

    async def dry(self, resource: Resource[Any], body: Obj) -> Fact[Trial]:
        """Make an object as a dry run; a refusal is an answer."""
        namespace = body["metadata"]["namespace"]
        try:
            sent = build.create(resource, namespace, body, _DRY)
            return Trial(body, await self.client.ask(dict, sent))
        except Garbled as error:
            return Unread(str(error))
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.refusal.status:
                return Unread(str(error))
            return Trial(body, None, error.refusal)

    async def lacks(self, user: str, namespace: str, right: Right) -> bool:
        """Say whether a ServiceAccount of ours may not do something."""
        groups = ("serviceaccounts", f"serviceaccounts:{namespace}", "authenticated")
        question = Question(
            right.verb,
            right.group,
            right.resource,
            name=right.name,
            namespace="" if right.everywhere else namespace,
            user=f"system:serviceaccount:{namespace}:{user}",
            groups=tuple(f"system:{it}" for it in groups),
            subresource=right.subresource,
        )
        return not (await is_allowed(self.client, question)).allowed

    async def _there(self, resource: Resource[T], key: Key) -> T | None:
        try:
            return await self.client.get(resource, key)
        except NotFound:
            return None

    async def _first(self, target: Target[T], pages: int) -> list[T]:
        found: list[T] = []
        token = ""
        for _ in range(pages):
            page = await self.client.page(target, _PAGE, token)
            found += page.items
            token = page.metadata.continue_token
            if not token:
                break
        return found

    async def _raw(self, resource: Resource[Any], namespace: str) -> list[Obj]:
        found: list[Obj] = []
        token = ""
        while True:
            asked = build.list_page(Target(resource, namespace), _PAGE, token)
            page = await self.client.ask(_Items, asked)
            found += [{"kind": resource.kind, **it} for it in page.items]
            token = str(page.metadata.get("continue") or "")
            if not token:
                return found
