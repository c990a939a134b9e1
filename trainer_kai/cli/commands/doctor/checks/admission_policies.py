"""Admission policies: whether they protect what our processes write from all other accounts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.commands.doctor.checks.dry_runs import has_policy_only, kai_binds
from trainer_kai.cli.commands.doctor.checks.webhooks import APPLY, contains
from trainer_kai.cli.commands.doctor.expected import ExpectedPolicy
from trainer_kai.cli.commands.doctor.facts import (
    InstallationFacts,
    Obj,
    kai_namespaces,
    listed,
    name_of,
    nested_field,
)
from trainer_kai.cli.commands.doctor.finding import CheckFinding, fault, ok, require, warning

_POLICY: Final = "ValidatingAdmissionPolicy"
_BINDING: Final = f"{_POLICY}Binding"
_CHECK: Final = "policies"
_UNPROTECTED: Final = "other accounts can write the fields that the processes rely on"
_NAME_ACCOUNTS: Final = (
    "name the accounts of the processes in the policies (see manifests/README.md); set the"
    " namespace of the installation with -n"
)
_ACCOUNT_PATTERN: Final = re.compile("system:serviceaccount:[-a-z0-9.]+:[-a-z0-9.]+")
_NOT_BY_KAI: Final = "not-by-kai"  # the condition that exempts the accounts of KAI
_NARROWING_FIELDS: Final = frozenset(
    {"excludeResourceRules", "matchResources", "paramKind", "paramRef"}
)


def check_policies(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether each policy exists, is bound, and is as in the manifests."""
    found, is_beside_kai = require(facts.validating_policies), kai_binds(facts)
    wanted = [it for it in facts.manifests.policies if it.beside_kai or not is_beside_kai]
    namespaces = kai_namespaces(facts)
    pairs = [
        (it, _as_by_default(_find(found, _POLICY, it), namespaces), _find(found, _BINDING, it))
        for it in wanted
    ]
    if has_policy_only(facts) and not any(policy for _, policy, _ in pairs):
        yield ok(_CHECK, "none, and none is needed: no process of trainer-kai runs here")
        return
    missing = [
        *(f"{_POLICY} {it.name}" for it, policy, _ in pairs if policy is None),
        *(f"{_BINDING} {it.name}" for it, _, binding in pairs if binding is None),
    ]
    not_denying = [
        it.name for it, _, binding in pairs if "Deny" not in _validation_actions(binding)
    ]
    foreign_accounts = [
        f"{it.name} {why}" for it, policy, _ in pairs for why in _account_differences(it, policy)
    ]
    changed = [f"{it.name}: {why}" for it, *both in pairs for why in _policy_differences(it, *both)]
    if missing:
        yield fault(_CHECK, f"{listed(missing)} does not exist: {_UNPROTECTED}", APPLY)
    elif not_denying:
        yield fault(
            _CHECK, f"{listed(not_denying)} is bound without the action Deny: {_UNPROTECTED}", APPLY
        )
    elif foreign_accounts:
        yield fault(
            _CHECK, f"{listed(foreign_accounts, 2)}: the processes are refused", _NAME_ACCOUNTS
        )
    elif changed:
        yield warning(_CHECK, listed(changed, 2), f"{APPLY}, unless this is intended")
    else:
        yield ok(_CHECK, f"{listed(it.name for it in wanted)} are bound, as in the manifests")


def _as_by_default(policy: Obj | None, namespaces: Sequence[str]) -> Obj | None:
    """Return a policy as in the manifests if it exempts KAI where our scheduler looks for it.

    The Helm chart renders the exemption from the setting `kai.namespaces`.
    """
    spec = nested_field(policy, "spec")
    if policy is None or not spec:
        return policy
    rendered, default = _exemption(namespaces), _exemption([SCHEDULER_NAME])
    conditions = [
        {**it, "expression": default}
        if it.get("name") == _NOT_BY_KAI and it.get("expression") == rendered
        else it
        for it in spec.get("matchConditions") or ()
    ]
    return {**policy, "spec": {**spec, "matchConditions": conditions}}


def _exemption(namespaces: Sequence[str]) -> str:
    """Return the condition that no account in these namespaces made the request."""
    accounts = (f"system:serviceaccount:{it}:" for it in namespaces)
    return " && ".join(f"!request.userInfo.username.startsWith('{it}')" for it in accounts) or (
        "true"
    )


def _policy_differences(
    wanted: ExpectedPolicy, policy: Obj | None, binding: Obj | None
) -> Iterator[str]:
    for prefix, found, fields in (
        ("", policy, wanted.spec),
        ("its binding's ", binding, wanted.binding),
    ):
        spec = nested_field(found, "spec") or {}
        narrowed = {*spec, *(nested_field(spec, "matchConstraints") or ())} & _NARROWING_FIELDS
        yield from (f"{prefix}{it} is not in the manifests" for it in sorted(narrowed))
        yield from (
            f"{prefix}{it} differs" for it in fields if not contains(spec.get(it), fields[it])
        )


def _account_differences(wanted: ExpectedPolicy, policy: Obj | None) -> Iterator[str]:
    """Yield the accounts that a policy names, if they are not those of our processes."""
    named, expected_accounts = (
        frozenset(_ACCOUNT_PATTERN.findall(str(it)))
        for it in (nested_field(policy, "spec"), wanted.spec)
    )
    if named != expected_accounts:
        differing = [
            listed(sorted(it)) or "none"
            for it in (named - expected_accounts, expected_accounts - named)
        ]
        yield f"names {differing[0]} instead of {differing[1]}"


def _validation_actions(binding: Obj | None) -> Sequence[str]:
    return nested_field(binding, "spec", "validationActions") or ()


def _find(found: Sequence[Obj], kind: str, wanted: ExpectedPolicy) -> Obj | None:
    named = (it for it in found if it.get("kind") == kind and name_of(it) == wanted.name)
    return next(named, None)
