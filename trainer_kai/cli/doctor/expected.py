"""What our manifests install, as data: `expected.json`, which `make tables` writes from them.

A checkout is not needed to compare a cluster with them, and nothing is written down twice.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = [
    "PATH",
    "Account",
    "Configuration",
    "Definition",
    "Expected",
    "Hook",
    "Right",
    "expected",
]

PATH: Final = Path(__file__).with_name("expected.json")


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A CustomResourceDefinition: what is served, and which fields it must not drop."""

    name: str
    version: str
    fields: tuple[str, ...]
    rules: tuple[str, ...]  # messages of the schema's rules, which only ours have


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook: where it is called, and all else of it that no overlay changes."""

    name: str
    path: str
    failure_policy: str
    fields: Mapping[str, Any]
    conditions: Mapping[str, str]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of webhooks."""

    kind: str
    name: str
    hooks: tuple[Hook, ...]


class Right(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that an account may do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    everywhere: bool = True  # else in our namespace only


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A ServiceAccount of ours, and what its roles let it do."""

    name: str
    rights: tuple[Right, ...]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    namespace: str
    definitions: tuple[Definition, ...]
    configurations: tuple[Configuration, ...]
    accounts: tuple[Account, ...]
    deployments: tuple[str, ...]
    classes: tuple[str, ...]
    runtime_field: str  # as in `Definition.fields`
    runtime_definitions: tuple[str, ...]


@cache
def expected() -> Expected:
    """Read it, once."""
    return msgspec.json.decode(PATH.read_bytes(), type=Expected)
