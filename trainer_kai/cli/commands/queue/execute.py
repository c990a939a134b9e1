"""Run the queue verbs that write: read what a plan needs, and execute it.

An RBAC refusal is reported with the permission it needs; earlier writes stay.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.queue import Queue
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import QUEUES
from trainer_kai.cli.commands.queue.grants import ExistingGrant, QueueGrant
from trainer_kai.cli.commands.queue.write_plan import QueueWrite, WritePlan
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, command_client
from trainer_kai.kube.rest.errors import Forbidden, NotFound
from trainer_kai.kube.rest.request import ListTarget, Patch, WriteOptions, patch

__all__ = ["QueueReader", "execute_plan", "run_plan"]

T = TypeVar("T", bound=Object)

_WRITE: Final = WriteOptions(field_manager="trainer-kai-queue", strict=True)
_ESCALATES: Final = "attempting to grant RBAC permissions not currently held"


class QueueReader:
    """Reads the objects that a plan needs; raises for a missing permission."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def queues(self) -> dict[str, Queue]:
        """Return all queues."""
        try:
            queues = await self._client.list(ListTarget(QUEUES))
        except NotFound as error:
            message = f"this cluster does not have that kind: {error.details.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
        except Forbidden as error:
            raise _missing_permission("list", QUEUES, Key("", ""), error) from error
        return {it.metadata.name: it for it in queues}

    async def existing_grant(self, grant: QueueGrant) -> ExistingGrant:
        """Return the role and the binding of a grant that exist."""
        role = await self._get(grant.roles, grant.key)
        return ExistingGrant(role, await self._get(grant.bindings, grant.key))

    async def list_all(self, target: ListTarget[T]) -> list[T]:
        """Return the objects of a kind, none where the cluster does not have it."""
        try:
            return await self._client.list(target)
        except NotFound:
            return []
        except Forbidden as error:
            raise _missing_permission("list", target.resource, Key("", ""), error) from error

    async def _get(self, resource: Resource[T], key: Key) -> T | None:
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden as error:
            raise _missing_permission("get", resource, key, error) from error


def run_plan(
    args: argparse.Namespace, make_plan: Callable[[QueueReader], Awaitable[WritePlan]]
) -> int:
    """Make a plan from the objects of the cluster, and execute it."""

    async def run() -> None:
        async with command_client(kubeconfig=args.kubeconfig, context=args.context) as client:
            plan = await make_plan(QueueReader(client))
            for note in plan.notes:
                print(f"trainer-kai: {note}", file=sys.stderr)
            await execute_plan(client, plan, is_dry=args.dry_run)

    asyncio.run(run())
    return 0


async def execute_plan(client: Client, plan: WritePlan, *, is_dry: bool) -> None:
    """Send each write and print its line."""
    for write in plan.writes:
        if not is_dry:
            await _write(client, write)
        print(write.describe(is_dry=is_dry), flush=True)
    for line in () if is_dry else plan.outcome:
        print(line)


async def _write(client: Client, write: QueueWrite) -> None:
    resource, key, change = write.resource, write.key, write.change
    try:
        if isinstance(change, Patch):
            await client.call(resource.struct, patch(resource, key, change, _WRITE))
        elif change is not None:
            await client.create(resource, key.namespace, change, _WRITE)
    except Forbidden as error:
        raise _missing_permission(write.verb, resource, key, error) from error


def _missing_permission(
    verb: str, resource: Resource[Any], key: Key, error: Forbidden
) -> ConfigError:
    """Return the error that names the permission which the user lacks."""
    where = f" in namespace {key.namespace}" if key.namespace else ""
    needed = f"it takes the verb {verb} on {resource}{where}"
    if _ESCALATES in error.details.message:
        needed = (
            f"only a user that has a right may grant it: it takes the verb use on {QUEUES}{where} "
            f"as well, or the verbs escalate and bind on {resource}"
        )
    path = f"{resource.kind} {key}" if key.name else str(resource)
    return ConfigError(
        [FieldError(path, f"{needed}. The API server says: {error.details.message}")]
    )
