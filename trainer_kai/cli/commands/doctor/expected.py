"""What the manifests install, as data: `expected.json`, which `make tables` writes from them.

So a cluster is compared with the manifests without a checkout. The fields of a schema are paths:
`spec.subGroups[].name`, `spec.resources.*.quota`; the API server drops other fields.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trainer_kai.api.names import SCHEDULER_NAME

PATH: Final = Path(__file__).with_name("expected.json")
_ANYTHING: Final = "**"  # below it nothing is dropped
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


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
    kind: str
    name: str
    hooks: tuple[ExpectedWebhook, ...]


class ExpectedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicy and its binding, which have one name."""

    name: str
    spec: Mapping[str, Any]
    binding: Mapping[str, Any]
    beside_kai: bool  # else only where our scheduler binds pods


class Permission(msgspec.Struct, frozen=True, kw_only=True, order=True, omit_defaults=True):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    everywhere: bool = True  # else only in one namespace
    namespace: str = ""  # that one; empty means that of the account


class ExpectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str  # empty means that of the installation
    rights: tuple[Permission, ...]


class ExpectedManifests(msgspec.Struct, frozen=True, kw_only=True):
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
    text, account = PATH.read_text(encoding="utf-8"), "system:serviceaccount:{}:"
    home = msgspec.json.decode(text, type=ExpectedManifests).namespace
    text = text.replace(account.format(home), account.format(namespace or home))
    text = text.replace(f"'{SCHEDULER_NAME}'", f"'{scheduler_name}'")
    manifests = msgspec.json.decode(text, type=ExpectedManifests)
    accounts = tuple(_with_lease_names(it, scheduler_name) for it in manifests.accounts)
    return replace(manifests, accounts=accounts)


def _with_lease_names(account: ExpectedAccount, scheduler_name: str) -> ExpectedAccount:
    rights = (
        replace(it, name=it.name.replace(SCHEDULER_NAME, scheduler_name, 1))
        if f"{it.name}-".startswith(f"{SCHEDULER_NAME}-")
        else it
        for it in account.rights
    )
    return replace(account, rights=tuple(rights))


def field_paths(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    if schema.get(_PRESERVE_UNKNOWN):
        yield f"{above}.{_ANYTHING}".lstrip(".")
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
    open_prefixes = tuple(
        it.removesuffix(_ANYTHING) for it in known_paths if it.endswith(_ANYTHING)
    )
    missing: list[str] = []
    for path in sorted(wanted):
        is_known = path in known_paths or path.startswith(open_prefixes)
        is_covered = any(path.startswith((f"{it}.", f"{it}[")) for it in missing)
        if not is_known and not is_covered:
            missing.append(path)
    return tuple(missing)


def rule_messages(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for rule in schema.get("x-kubernetes-validations") or ():
            yield str(rule.get("message") or rule.get("messageExpression"))
        for inner in schema.values():
            yield from rule_messages(inner)
