"""ResourceQuota: which pods of a namespace it counts, by their priority class."""

import msgspec

from trainer_kai.api.meta import Meta


class ScopeRequirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A property of pods, an operator (In, NotIn, Exists, DoesNotExist), values."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """All of these must hold."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The scopes of a quota; a scope is an expression with Exists."""

    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuota(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A quota of a namespace; only the API server reads its amounts."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
