"""What the manifests install, as data: `expected.json`, which `make tables` writes from them.

So a cluster is compared with the manifests without a checkout.

The fields of a schema, as paths; the API server drops other fields.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trainer_kai.api.names import SCHEDULER_NAME

ANYTHING: Final = "**"  # below it nothing is dropped
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


def field_paths(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield every path: `spec.subGroups[].name`, `spec.resources.*.quota`."""
    if schema.get(_PRESERVE_UNKNOWN):
        yield f"{above}.{ANYTHING}".lstrip(".")
    for name, inner in (schema.get("properties") or {}).items():
        path = f"{above}.{name}" if above else name
        yield path
        yield from field_paths(inner, path)
    items, others = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, Mapping):
        yield from field_paths(items, f"{above}[]")
    if isinstance(others, Mapping):
        yield from field_paths(others, f"{above}.*")


def dropped_fields(schema: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these paths a schema drops, without paths below a dropped one."""
    known_paths = set(field_paths(schema))
    open_prefixes = tuple(it.removesuffix(ANYTHING) for it in known_paths if it.endswith(ANYTHING))
    missing: list[str] = []
    for path in sorted(wanted):
        is_known = path in known_paths or path.startswith(open_prefixes)
        is_covered = any(path.startswith((f"{it}.", f"{it}[")) for it in missing)
        if not is_known and not is_covered:
            missing.append(path)
    return tuple(missing)


PATH: Final = Path(__file__).with_name("expected.json")
_ACCOUNT_PREFIX: Final = "system:serviceaccount"


class ExpectedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A CustomResourceDefinition: its version, and the fields that it must not drop."""

    name: str
    version: str
    fields: tuple[str, ...]
    rules: tuple[str, ...]  # messages of the schema rules, which only our definitions have


class ExpectedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook: its path, and the fields that no overlay changes."""

    name: str
    path: str
    failure_policy: str
    fields: Mapping[str, Any]
    conditions: Mapping[str, str]


class ExpectedConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook configuration."""

    kind: str
    name: str
    hooks: tuple[ExpectedWebhook, ...]


class ExpectedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicy and its binding, which have one name."""

    name: str
    spec: Mapping[str, Any]
    binding: Mapping[str, Any]
    beside_kai: bool  # else only where our scheduler binds pods


class Permission(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One permission of an account."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    everywhere: bool = True  # else only in one namespace
    namespace: str = ""  # that one; empty means that of the account


class ExpectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A ServiceAccount of ours, and the permissions of its roles."""

    name: str
    namespace: str  # empty means that of the installation
    rights: tuple[Permission, ...]


class ExpectedManifests(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the manifests install."""

    namespace: str
    definitions: tuple[ExpectedDefinition, ...]
    configurations: tuple[ExpectedConfiguration, ...]
    policies: tuple[ExpectedPolicy, ...]
    accounts: tuple[ExpectedAccount, ...]
    deployments: tuple[str, ...]
    classes: tuple[str, ...]
    runtime_field: str  # as in `ExpectedDefinition.fields`
    runtime_definitions: tuple[str, ...]


@cache
def expected_manifests(
    scheduler_name: str = SCHEDULER_NAME, namespace: str = ""
) -> ExpectedManifests:
    """Return the manifests for the scheduler name and the namespace of an installation."""
    manifests = msgspec.json.decode(PATH.read_bytes(), type=ExpectedManifests)
    return replace(
        manifests,
        configurations=tuple(
            _with_scheduler_name(it, scheduler_name) for it in manifests.configurations
        ),
        policies=_policies_for(manifests, namespace or manifests.namespace, scheduler_name),
        accounts=tuple(_with_lease_names(it, scheduler_name) for it in manifests.accounts),
    )


def _policies_for(
    manifests: ExpectedManifests, namespace: str, scheduler_name: str
) -> tuple[ExpectedPolicy, ...]:
    """Return the policies for accounts in a namespace, and pods of a scheduler name."""
    text = msgspec.json.encode(manifests.policies)
    for pattern, ours, theirs in (
        (f"{_ACCOUNT_PREFIX}:{{}}:", manifests.namespace, namespace),
        ("'{}'", SCHEDULER_NAME, scheduler_name),
    ):
        text = text.replace(pattern.format(ours).encode(), pattern.format(theirs).encode())
    return msgspec.json.decode(text, type=tuple[ExpectedPolicy, ...])


def _with_scheduler_name(
    configuration: ExpectedConfiguration, scheduler_name: str
) -> ExpectedConfiguration:
    """Return a configuration with match conditions for another scheduler name."""
    ours, theirs = f"'{SCHEDULER_NAME}'", f"'{scheduler_name}'"
    hooks = (
        replace(hook, conditions={k: it.replace(ours, theirs) for k, it in hook.conditions.items()})
        for hook in configuration.hooks
    )
    return replace(configuration, hooks=tuple(hooks))


def _with_lease_names(account: ExpectedAccount, scheduler_name: str) -> ExpectedAccount:
    """Return an account with permissions on Leases and Deployments of another scheduler name."""
    rights = (
        replace(it, name=f"{scheduler_name}{it.name.removeprefix(SCHEDULER_NAME)}")
        if f"{it.name}-".startswith(f"{SCHEDULER_NAME}-")
        else it
        for it in account.rights
    )
    return replace(account, rights=tuple(rights))
