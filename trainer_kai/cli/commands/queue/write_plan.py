"""The writes of `trainer-kai queue`: values, which are planned from what exists, and executed.

Three parts: a write and a plan of several; a grant, which is a role and a binding; and `run_plan`,
which reads what a plan needs and executes it. A refusal by RBAC is reported with the missing
permission; earlier writes are kept.
"""

import argparse
import asyncio
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import yaml
from msgspec.structs import replace

from trainer_kai.api.cluster_kinds import PolicyRule, Role, RoleBinding, Subject
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import ACCESS, RBAC, RUN_AI
from trainer_kai.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    QUEUES,
    ROLE_BINDINGS,
    ROLES,
    Resource,
)
from trainer_kai.cli.options import connection
from trainer_kai.cli.output.missing_rights import USER_ROLE
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, command_client
from trainer_kai.kube.rest.request import Body, ListTarget, Patch, PatchKind, WriteOptions, patch
from trainer_kai.kube.rest.response import ApiError, Forbidden, NotFound
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)

T = TypeVar("T", bound=Object)

_WRITE: Final = WriteOptions(field_manager="trainer-kai-queue", strict=True)
_ESCALATES: Final = "attempting to grant RBAC permissions not currently held"
_USE: Final = "use"
_ANY: Final = "*"
_DONE: Final = {"create": "created", "patch": "changed", "": "unchanged"}


class QueueWrite(NamedTuple):
    resource: Resource[Any]
    key: Key
    change: Body | Patch | None  # the object to create; None: no change
    text: str  # what the object sets
    # Without it the rest holds as well: where it is refused, that is said, and no error.
    is_optional: bool = False

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
    writes: tuple[QueueWrite, ...]
    outcome: tuple[str, ...] = ()  # printed after the writes
    notes: tuple[str, ...] = ()  # printed before the writes, on standard error


def existing_queue(queues: Mapping[str, Queue], name: str) -> Queue:
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
    key = queue.metadata.key
    text = f"annotation {ACCESS} is {access}"
    if queue.metadata.annotations.get(ACCESS) == access:
        return QueueWrite(QUEUES, key, None, text)
    fields = {"metadata": {"annotations": {ACCESS: str(access)}}}
    return QueueWrite(QUEUES, key, Patch(PatchKind.MERGE, fields), text)


class QueueGrant(NamedTuple):
    queue: str
    namespace: str  # "" is all namespaces
    subjects: tuple[Subject, ...]

    @property
    def roles(self) -> Resource[Role]:
        return ROLES if self.namespace else CLUSTER_ROLES

    @property
    def bindings(self) -> Resource[RoleBinding]:
        return ROLE_BINDINGS if self.namespace else CLUSTER_ROLE_BINDINGS

    @property
    def key(self) -> Key:
        return Key(self.namespace, f"trainer-kai-use-{self.queue}")


class ExistingGrant(NamedTuple):
    role: Role | None
    binding: RoleBinding | None


def make_grant(
    queue: str, namespace: str, users: Iterable[str] = (), groups: Iterable[str] = ()
) -> QueueGrant:
    """Return a grant; one in a namespace includes the ServiceAccounts there."""
    own_group = (f"system:serviceaccounts:{namespace}",) if namespace else ()
    names = [("Group", name) for name in (*own_group, *groups)] + [("User", name) for name in users]
    unique = dict.fromkeys(names)
    subjects = tuple(Subject(kind=kind, api_group=RBAC, name=name) for kind, name in unique)
    return QueueGrant(queue, namespace, subjects)


def grant_writes(wanted: QueueGrant, existing: ExistingGrant) -> tuple[QueueWrite, QueueWrite]:
    """Return the writes of a grant; existing rules and subjects are kept."""
    return _role_write(wanted, existing.role), _binding_write(wanted, existing.binding)


def user_role_write(subjects: Iterable[Subject], existing: RoleBinding | None) -> QueueWrite:
    """Return the write that lets users read queues, PriorityClasses and runtimes of the cluster.

    They are in no namespace, so the RoleBinding of a grant cannot do that.
    """
    key, named = Key("", USER_ROLE), tuple(subjects)
    names = ", ".join(f"{it.kind.lower()} {it.name}" for it in named)
    text = f"may read queues: {names}"
    if existing is None:
        role = {"apiGroup": RBAC, "kind": CLUSTER_ROLES.kind, "name": USER_ROLE}
        subject_fields = [*map(_subject_fields, named)]
        body = {
            **_new_object(CLUSTER_ROLE_BINDINGS, key),
            "roleRef": role,
            "subjects": subject_fields,
        }
        return QueueWrite(CLUSTER_ROLE_BINDINGS, key, body, text, is_optional=True)
    change = _missing_subjects(existing, named)
    return QueueWrite(CLUSTER_ROLE_BINDINGS, key, change, text, is_optional=True)


def _missing_subjects(binding: RoleBinding, wanted: Iterable[Subject]) -> Patch | None:
    known = {(it.kind, it.name) for it in binding.subjects}
    new = [_subject_fields(it) for it in wanted if (it.kind, it.name) not in known]
    return _append_patch("/subjects", new, exists=bool(binding.subjects)) if new else None


def _role_write(wanted: QueueGrant, existing: Role | None) -> QueueWrite:
    resource, text = wanted.roles, f"may {_USE} queue {wanted.queue}"
    rule = {
        "apiGroups": [RUN_AI],
        "resources": [QUEUES.plural],
        "resourceNames": [wanted.queue],
        "verbs": [_USE],
    }
    change: Body | Patch | None = None
    if existing is None:
        change = {**_new_object(resource, wanted.key), "rules": [rule]}
    elif not any(_allows_use(it, wanted.queue) for it in existing.rules):
        change = _append_patch("/rules", [rule], exists=bool(existing.rules))
    return QueueWrite(resource, wanted.key, change, text)


def _binding_write(wanted: QueueGrant, existing: RoleBinding | None) -> QueueWrite:
    resource, key = wanted.bindings, wanted.key
    names = ", ".join(f"{it.kind.lower()} {it.name}" for it in wanted.subjects)
    text = f"may {_USE} queue {wanted.queue}: {names}"
    role = {"apiGroup": RBAC, "kind": wanted.roles.kind, "name": key.name}
    if existing is None:
        subjects = [_subject_fields(it) for it in wanted.subjects]
        body = {**_new_object(resource, key), "roleRef": role, "subjects": subjects}
        return QueueWrite(resource, key, body, text)
    if (existing.role_ref.kind, existing.role_ref.name) != (role["kind"], role["name"]):
        message = (
            f"is {existing.role_ref.kind} {existing.role_ref.name}, but must be "
            f"{role['kind']} {role['name']}. A roleRef cannot be changed: delete this "
            f"{resource.kind}, then repeat the command"
        )
        raise ConfigError([FieldError(f"{resource.kind} {key}: roleRef", message)])
    return QueueWrite(resource, key, _missing_subjects(existing, wanted.subjects), text)


def _new_object(resource: Resource[Any], key: Key) -> dict[str, Any]:
    metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _allows_use(rule: PolicyRule, queue: str) -> bool:
    return (
        bool({RUN_AI, _ANY} & {*rule.api_groups})
        and bool({QUEUES.plural, _ANY} & {*rule.resources})
        and (not rule.resource_names or queue in rule.resource_names)
        and bool({_USE, _ANY} & {*rule.verbs})
    )


def _append_patch(path: str, items: list[dict[str, Any]], *, exists: bool) -> Patch:
    """Return a patch that appends to a list; concurrent additions are kept."""
    if not exists:
        return Patch(PatchKind.JSON, [{"op": "add", "path": path, "value": items}])
    return Patch(PatchKind.JSON, [{"op": "add", "path": f"{path}/-", "value": it} for it in items])


def _subject_fields(subject: Subject) -> dict[str, str]:
    return {"apiGroup": subject.api_group, "kind": subject.kind, "name": subject.name}


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
        try:
            queues = await self._client.list(ListTarget(QUEUES))
        except NotFound as error:
            message = f"the cluster does not have this kind: {error.details.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
        except Forbidden as error:
            raise _missing_permission("list", QUEUES, Key("", ""), error) from error
        return {it.metadata.name: it for it in queues}

    async def existing_grant(self, grant: QueueGrant) -> ExistingGrant:
        role, binding = self._get(grant.roles, grant.key), self._get(grant.bindings, grant.key)
        return ExistingGrant(*await read_all(role, binding))

    async def user_role_binding(self) -> RoleBinding | None:
        return await self._get(CLUSTER_ROLE_BINDINGS, Key("", USER_ROLE))

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
    async def run() -> None:
        async with command_client(**connection(args)) as client:
            plan = await make_plan(QueueReader(client))
            for note in plan.notes:
                print(f"trainer-kai: {note}", file=sys.stderr)
            await execute_plan(client, plan, is_dry=args.dry_run)

    asyncio.run(run())
    return 0


async def execute_plan(client: Client, plan: WritePlan, *, is_dry: bool) -> None:
    for number, write in enumerate(plan.writes, 1):
        if not is_dry:
            try:
                await _write(client, write, _WRITE)
            except (ConfigError, ApiError) as error:
                if write.is_optional:
                    print(f"trainer-kai: not written: {error}", file=sys.stderr)
                    continue
                if not isinstance(error, ConfigError):
                    raise
                more = await _further_faults(client, plan.writes[number:])
                raise ConfigError([*error.faults, *more]) from error
        print(write.describe(is_dry=is_dry), flush=True)
    for line in () if is_dry else plan.outcome:
        print(line)


async def _further_faults(client: Client, writes: Sequence[QueueWrite]) -> list[FieldError]:
    """Return the missing permissions of the remaining writes, found by server-side dry runs."""
    faults: list[FieldError] = []
    for write in (it for it in writes if not it.is_optional):
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
    where = f" in namespace {key.namespace}" if key.namespace else ""
    needed = f"permission to {verb} {resource}{where} is missing"
    if _ESCALATES in error.details.message:
        needed = (
            f"a user can only grant permissions of their own: permission to use {QUEUES}{where} "
            f"is missing (or to escalate and bind {resource})"
        )
    path = f"{resource.kind} {key}" if key.name else str(resource)
    return ConfigError([FieldError(path, f"{needed}. API server: {error.details.message}")])
