"""Grants of queues: the role and the binding that one takes, beside what is there already. Pure."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import RBAC, RUN_AI
from trainer_kai.api.rbac import Role, RoleBinding, Rule, Subject
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    QUEUES,
    ROLE_BINDINGS,
    ROLES,
)
from trainer_kai.cli.queue.step import Step
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.request import Patch, PatchKind

__all__ = ["Grant", "Held", "grant", "granting"]

_USE: Final = "use"
_ANY: Final = "*"


class Grant(NamedTuple):
    """A queue, where it may be used, and by whom."""

    queue: str
    namespace: str  # "" is every one
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
        """Return where both are."""
        return Key(self.namespace, f"trainer-kai-use-{self.queue}")


class Held(NamedTuple):
    """What is there of a grant."""

    role: Role | None
    binding: RoleBinding | None


def grant(
    queue: str, namespace: str, users: Iterable[str] = (), groups: Iterable[str] = ()
) -> Grant:
    """Return a grant: in a namespace all that runs there has it too, beside users and groups."""
    own = (f"system:serviceaccounts:{namespace}",) if namespace else ()
    names = [("Group", name) for name in (*own, *groups)] + [("User", name) for name in users]
    found = (Subject(kind=kind, api_group=RBAC, name=name) for kind, name in dict.fromkeys(names))
    return Grant(queue, namespace, tuple(found))


def granting(given: Grant, held: Held) -> tuple[Step, Step]:
    """Return what is written for a grant; nothing that is there is taken away."""
    return _role(given, held.role), _binding(given, held.binding)


def _role(given: Grant, held: Role | None) -> Step:
    resource, words = given.roles, f"may {_USE} queue {given.queue}"
    rule = {
        "apiGroups": [RUN_AI],
        "resources": [QUEUES.plural],
        "resourceNames": [given.queue],
        "verbs": [_USE],
    }
    if held is None:
        return Step(resource, given.key, {**_named(resource, given.key), "rules": [rule]}, words)
    if any(_lets_use(it, given.queue) for it in held.rules):
        return Step(resource, given.key, None, words)
    change = _added("/rules", [rule], is_there=bool(held.rules))
    return Step(resource, given.key, change, words)


def _binding(given: Grant, held: RoleBinding | None) -> Step:
    resource, key = given.bindings, given.key
    words = f"may {_USE} queue {given.queue}: {', '.join(map(_spelt, given.subjects))}"
    role = {"apiGroup": RBAC, "kind": given.roles.kind, "name": key.name}
    if held is None:
        subjects = [_written(it) for it in given.subjects]
        body = {**_named(resource, key), "roleRef": role, "subjects": subjects}
        return Step(resource, key, body, words)
    if (held.role_ref.kind, held.role_ref.name) != (role["kind"], role["name"]):
        message = (
            f"is {held.role_ref.kind} {held.role_ref.name}, which cannot be changed, and must be "
            f"{role['kind']} {role['name']}: delete this {resource.kind}, then repeat the command"
        )
        raise ConfigError([FieldError(f"{resource.kind} {key}: roleRef", message)])
    known = {(it.kind, it.name) for it in held.subjects}
    new = [_written(it) for it in given.subjects if (it.kind, it.name) not in known]
    if not new:
        return Step(resource, key, None, words)
    return Step(resource, key, _added("/subjects", new, is_there=bool(held.subjects)), words)


def _named(resource: Resource[Any], key: Key) -> dict[str, Any]:
    metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _lets_use(rule: Rule, queue: str) -> bool:
    return (
        bool({RUN_AI, _ANY} & {*rule.api_groups})
        and bool({QUEUES.plural, _ANY} & {*rule.resources})
        and (not rule.resource_names or queue in rule.resource_names)
        and bool({_USE, _ANY} & {*rule.verbs})
    )


def _added(path: str, items: list[dict[str, Any]], *, is_there: bool) -> Patch:
    """Add to the end of a list, whatever others have added meanwhile."""
    if not is_there:
        return Patch(PatchKind.JSON, [{"op": "add", "path": path, "value": items}])
    return Patch(PatchKind.JSON, [{"op": "add", "path": f"{path}/-", "value": it} for it in items])


def _written(subject: Subject) -> dict[str, str]:
    return {"apiGroup": subject.api_group, "kind": subject.kind, "name": subject.name}


def _spelt(subject: Subject) -> str:
    return f"{subject.kind.lower()} {subject.name}"
