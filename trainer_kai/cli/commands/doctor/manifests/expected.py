"""What our manifests install, as data: `expected.json`, which `make tables` writes from them.

A checkout is not needed to compare a cluster with them, and nothing is written down twice.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trainer_kai.api.names import SCHEDULER_NAME

__all__ = [
    "PATH",
    "ExpectedAccount",
    "ExpectedConfiguration",
    "ExpectedDefinition",
    "ExpectedManifests",
    "ExpectedPolicy",
    "ExpectedWebhook",
    "Permission",
    "expected_manifests",
]

PATH: Final = Path(__file__).with_name("expected.json")
_ACCOUNT_PREFIX: Final = "system:serviceaccount"


class ExpectedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A CustomResourceDefinition: what is served, and which fields it must not drop."""

    name: str
    version: str
    fields: tuple[str, ...]
    rules: tuple[str, ...]  # messages of the schema's rules, which only ours have


class ExpectedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook: where it is called, and all else of it that no overlay changes."""

    name: str
    path: str
    failure_policy: str
    fields: Mapping[str, Any]
    conditions: Mapping[str, str]


class ExpectedConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of webhooks."""

    kind: str
    name: str
    hooks: tuple[ExpectedWebhook, ...]


class ExpectedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicy and its binding, which are of one name."""

    name: str
    spec: Mapping[str, Any]
    binding: Mapping[str, Any]


class Permission(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that an account may do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    everywhere: bool = True  # else in our namespace only


class ExpectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A ServiceAccount of ours, and what its roles let it do."""

    name: str
    rights: tuple[Permission, ...]


class ExpectedManifests(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    namespace: str
    definitions: tuple[ExpectedDefinition, ...]
    configurations: tuple[ExpectedConfiguration, ...]
    policies: tuple[ExpectedPolicy, ...]
    accounts: tuple[ExpectedAccount, ...]
    deployments: tuple[str, ...]
    classes: tuple[str, ...]
    runtime_field: str  # as in `Definition.fields`
    runtime_definitions: tuple[str, ...]


@cache
def expected_manifests(
    scheduler_name: str = SCHEDULER_NAME, namespace: str = ""
) -> ExpectedManifests:
    """Read it, once, with the name of a site's scheduler and our namespace there for ours."""
    found = msgspec.json.decode(PATH.read_bytes(), type=ExpectedManifests)
    return replace(
        found,
        configurations=tuple(
            _with_scheduler_name(it, scheduler_name) for it in found.configurations
        ),
        policies=_policies_for(found, namespace or found.namespace, scheduler_name),
        accounts=tuple(_with_lease_names(it, scheduler_name) for it in found.accounts),
    )


def _policies_for(
    found: ExpectedManifests, namespace: str, scheduler_name: str
) -> tuple[ExpectedPolicy, ...]:
    """Return the policies for accounts in a namespace, and pods of a scheduler of that name."""
    text = msgspec.json.encode(found.policies)
    for pattern, ours, theirs in (
        (f"{_ACCOUNT_PREFIX}:{{}}:", found.namespace, namespace),
        ("'{}'", SCHEDULER_NAME, scheduler_name),
    ):
        text = text.replace(pattern.format(ours).encode(), pattern.format(theirs).encode())
    return msgspec.json.decode(text, type=tuple[ExpectedPolicy, ...])


def _with_scheduler_name(
    configuration: ExpectedConfiguration, scheduler_name: str
) -> ExpectedConfiguration:
    """Return it with conditions that ask for another scheduler."""
    ours, theirs = f"'{SCHEDULER_NAME}'", f"'{scheduler_name}'"
    hooks = (
        replace(hook, conditions={k: it.replace(ours, theirs) for k, it in hook.conditions.items()})
        for hook in configuration.hooks
    )
    return replace(configuration, hooks=tuple(hooks))


def _with_lease_names(account: ExpectedAccount, scheduler_name: str) -> ExpectedAccount:
    """Return it with rights to Leases and Deployments of schedulers of another name."""
    rights = (
        replace(it, name=f"{scheduler_name}{it.name.removeprefix(SCHEDULER_NAME)}")
        if f"{it.name}-".startswith(f"{SCHEDULER_NAME}-")
        else it
        for it in account.rights
    )
    return replace(account, rights=tuple(rights))
