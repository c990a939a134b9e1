"""Grants of queues: the writes of their role and binding, given the existing ones. Pure."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import RBAC, RUN_AI
from trainer_kai.api.rbac import PolicyRule, Role, RoleBinding, Subject
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    QUEUES,
    ROLE_BINDINGS,
    ROLES,
)
from trainer_kai.cli.commands.queue.write_plan import QueueWrite
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import Patch, PatchKind

_USE: Final = "use"
_ANY: Final = "*"


class QueueGrant(NamedTuple):
    """A queue, a namespace that may use it, and the users and groups that may use it there."""

    queue: str
    namespace: str  # "" is all namespaces
    subjects: tuple[Subject, ...]

    @property
    def roles(self) -> Resource[Role]:
        """Return the kind of its role."""
        return ROLES if self.namespace else CLUSTER_ROLES

    @property
    def bindings(self) -> Resource[RoleBinding]:
        """Return the kind of its binding."""
        return ROLE_BINDINGS if self.namespace else CLUSTER_ROLE_BINDINGS

    @property
    def key(self) -> Key:
        """Return the namespace and the name of both."""
        return Key(self.namespace, f"trainer-kai-use-{self.queue}")


class ExistingGrant(NamedTuple):
    """The existing role and binding of a grant."""

    role: Role | None
    binding: RoleBinding | None


def make_grant(
    queue: str, namespace: str, users: Iterable[str] = (), groups: Iterable[str] = ()
) -> QueueGrant:
    """Return a grant; one in a namespace includes the ServiceAccounts there."""
    own_group = (f"system:serviceaccounts:{namespace}",) if namespace else ()
    names = [("Group", name) for name in (*own_group, *groups)] + [("User", name) for name in users]
    subjects = (
        Subject(kind=kind, api_group=RBAC, name=name) for kind, name in dict.fromkeys(names)
    )
    return QueueGrant(queue, namespace, tuple(subjects))


def grant_writes(wanted: QueueGrant, existing: ExistingGrant) -> tuple[QueueWrite, QueueWrite]:
    """Return the writes of a grant; existing rules and subjects are kept."""
    return _role_write(wanted, existing.role), _binding_write(wanted, existing.binding)


def _role_write(wanted: QueueGrant, existing: Role | None) -> QueueWrite:
    resource, text = wanted.roles, f"may {_USE} queue {wanted.queue}"
    rule = {
        "apiGroups": [RUN_AI],
        "resources": [QUEUES.plural],
        "resourceNames": [wanted.queue],
        "verbs": [_USE],
    }
    if existing is None:
        return QueueWrite(
            resource, wanted.key, {**_new_object(resource, wanted.key), "rules": [rule]}, text
        )
    if any(_allows_use(it, wanted.queue) for it in existing.rules):
        return QueueWrite(resource, wanted.key, None, text)
    change = _append_patch("/rules", [rule], exists=bool(existing.rules))
    return QueueWrite(resource, wanted.key, change, text)


def _binding_write(wanted: QueueGrant, existing: RoleBinding | None) -> QueueWrite:
    resource, key = wanted.bindings, wanted.key
    text = f"may {_USE} queue {wanted.queue}: {', '.join(map(_subject_text, wanted.subjects))}"
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
    known = {(it.kind, it.name) for it in existing.subjects}
    new = [_subject_fields(it) for it in wanted.subjects if (it.kind, it.name) not in known]
    if not new:
        return QueueWrite(resource, key, None, text)
    return QueueWrite(
        resource, key, _append_patch("/subjects", new, exists=bool(existing.subjects)), text
    )


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


def _subject_text(subject: Subject) -> str:
    return f"{subject.kind.lower()} {subject.name}"
