"""Run the queue commands that write: read the objects for a plan, and execute it.

A refusal by RBAC is reported with the missing permission; earlier writes are kept.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.queue import Queue
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import QUEUES
from trainer_kai.cli.commands.queue.grants import ExistingGrant, QueueGrant
from trainer_kai.cli.commands.queue.write_plan import QueueWrite, WritePlan
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, command_client
from trainer_kai.kube.rest.errors import ApiError, Forbidden, NotFound
from trainer_kai.kube.rest.request import ListTarget, Patch, WriteOptions, patch

T = TypeVar("T", bound=Object)

_WRITE: Final = WriteOptions(field_manager="trainer-kai-queue", strict=True)
_ESCALATES: Final = "attempting to grant RBAC permissions not currently held"


async def read_all(*reads: Awaitable[Any]) -> list[Any]:
    """Return the results of all reads; raise one error with the faults of all of them."""
    results = await asyncio.gather(*reads, return_exceptions=True)
    faults: list[FieldError] = []
    for result in results:
        if isinstance(result, ConfigError):
            faults += result.faults
        elif isinstance(result, BaseException):
            raise result
    if faults:
        raise ConfigError(faults)
    return results


class QueueReader:
    """Reads the objects that a plan needs; raises for missing permissions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def queues(self) -> dict[str, Queue]:
        """Return all queues."""
        try:
            queues = await self._client.list(ListTarget(QUEUES))
        except NotFound as error:
            message = f"the cluster does not have this kind: {error.details.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
        except Forbidden as error:
            raise _missing_permission("list", QUEUES, Key("", ""), error) from error
        return {it.metadata.name: it for it in queues}

    async def existing_grant(self, grant: QueueGrant) -> ExistingGrant:
        """Return the existing role and binding of a grant."""
        key = grant.key
        reads = (self._get(grant.roles, key), self._get(grant.bindings, key))
        return ExistingGrant(*await read_all(*reads))

    async def list_all(self, target: ListTarget[T]) -> list[T]:
        """Return all objects of a kind; none if the cluster does not have the kind."""
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
    """Execute each write and print its line, and in a dry run its object."""
    for number, write in enumerate(plan.writes, 1):
        if not is_dry:
            try:
                await _write(client, write, _WRITE)
            except ConfigError as error:
                more = await _further_faults(client, plan.writes[number:])
                raise ConfigError([*error.faults, *more]) from error
        print(write.describe(is_dry=is_dry), flush=True)
    for line in () if is_dry else plan.outcome:
        print(line)


async def _further_faults(client: Client, writes: Sequence[QueueWrite]) -> list[FieldError]:
    """Return the missing permissions of the remaining writes, found by server-side dry runs."""
    faults: list[FieldError] = []
    for write in writes:
        try:
            await _write(client, write, replace(_WRITE, dry_run=True))
        except ConfigError as error:
            faults += error.faults
        except ApiError:
            continue  # it may depend on an earlier write
    return faults


async def _write(client: Client, write: QueueWrite, options: WriteOptions) -> None:
    resource, key, change = write.resource, write.key, write.change
    try:
        if isinstance(change, Patch):
            await client.call(resource.struct, patch(resource, key, change, options))
        elif change is not None:
            await client.create(resource, key.namespace, change, options)
    except Forbidden as error:
        raise _missing_permission(write.verb, resource, key, error) from error
    except NotFound as error:
        if f'namespaces "{key.namespace}" not found' not in error.details.message:
            raise
        message = "does not exist; create it, or name another one with -n"
        raise ConfigError([FieldError(f"namespace {key.namespace}", message)]) from error


def _missing_permission(
    verb: str, resource: Resource[Any], key: Key, error: Forbidden
) -> ConfigError:
    """Return the error that names the permission which the user lacks."""
    where = f" in namespace {key.namespace}" if key.namespace else ""
    needed = f"permission to {verb} {resource}{where} is missing"
    if _ESCALATES in error.details.message:
        needed = (
            f"a user can only grant permissions of their own: permission to use {QUEUES}{where} "
            f"is missing (or to escalate and bind {resource})"
        )
    path = f"{resource.kind} {key}" if key.name else str(resource)
    return ConfigError([FieldError(path, f"{needed}. API server: {error.details.message}")])
