"""Roles and their bindings, with the parts that grant the use of a queue."""

import msgspec

from trainer_kai.api.meta import Meta


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Verbs on objects; without names the rule is for all objects."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()


class Role(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Role or a ClusterRole."""

    metadata: Meta
    rules: tuple[PolicyRule, ...] = ()


class RoleRef(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The role of a binding; it is immutable."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A user, a group, or a ServiceAccount."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A RoleBinding or a ClusterRoleBinding."""

    metadata: Meta
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] = ()
