"""Admission policies: whether they protect what our processes write from all other accounts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.commands.doctor.checks.dry_runs import has_policy_only, kai_binds
from trainer_kai.cli.commands.doctor.checks.webhooks import APPLY, contains
from trainer_kai.cli.commands.doctor.expected import ExpectedPolicy
from trainer_kai.cli.commands.doctor.facts import (
    Findings,
    InstallationFacts,
    Obj,
    fault,
    kai_namespaces,
    listed,
    name_of,
    nested_field,
    ok,
    warning,
)

_POLICY: Final = "ValidatingAdmissionPolicy"
_BINDING: Final = f"{_POLICY}Binding"
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


def check_policies(facts: InstallationFacts, found: Sequence[Obj]) -> Findings:
    is_beside_kai = kai_binds(facts)
    wanted = [it for it in facts.manifests.policies if it.beside_kai or not is_beside_kai]
    namespaces = kai_namespaces(facts)
    pairs = [
        (it, _as_by_default(_find(found, _POLICY, it), namespaces), _find(found, _BINDING, it))
        for it in wanted
    ]
    if has_policy_only(facts) and not any(policy for _, policy, _ in pairs):
        yield ok("none, and none is needed: no process of trainer-kai runs here")
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
    changed = [f"{it.name}: {why}" for it, *both in pairs for why in _differences(it, *both)]
    if missing:
        yield fault(f"{listed(missing)} does not exist: {_UNPROTECTED}", APPLY)
    elif not_denying:
        observed = f"{listed(not_denying)} is bound without the action Deny: {_UNPROTECTED}"
        yield fault(observed, APPLY)
    elif foreign_accounts:
        observed = f"{listed(foreign_accounts, 2)}: the processes are refused"
        yield fault(observed, _NAME_ACCOUNTS)
    elif changed:
        yield warning(listed(changed, 2), f"{APPLY}, unless this is intended")
    else:
        yield ok(f"{listed(it.name for it in wanted)} are bound, as in the manifests")


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
    accounts = (f"system:serviceaccount:{it}:" for it in namespaces)
    conditions = (f"!request.userInfo.username.startsWith('{it}')" for it in accounts)
    return " && ".join(conditions) or "true"


def _differences(wanted: ExpectedPolicy, policy: Obj | None, binding: Obj | None) -> Iterator[str]:
    for prefix, found, fields in (
        ("", policy, wanted.spec),
        ("its binding's ", binding, wanted.binding),
    ):
        spec = nested_field(found, "spec") or {}
        narrowed = {*spec, *(nested_field(spec, "matchConstraints") or ())} & _NARROWING_FIELDS
        yield from (f"{prefix}{it} is not in the manifests" for it in sorted(narrowed))
        differing = (it for it in fields if not contains(spec.get(it), fields[it]))
        yield from (f"{prefix}{it} differs" for it in differing)


def _account_differences(wanted: ExpectedPolicy, policy: Obj | None) -> Iterator[str]:
    named = set(_ACCOUNT_PATTERN.findall(str(nested_field(policy, "spec"))))
    ours = set(_ACCOUNT_PATTERN.findall(str(wanted.spec)))
    if named != ours:
        others, missing = (listed(sorted(it)) or "none" for it in (named - ours, ours - named))
        yield f"names {others} instead of {missing}"


def _validation_actions(binding: Obj | None) -> Sequence[str]:
    return nested_field(binding, "spec", "validationActions") or ()


def _find(found: Sequence[Obj], kind: str, wanted: ExpectedPolicy) -> Obj | None:
    named = (it for it in found if it.get("kind") == kind and name_of(it) == wanted.name)
    return next(named, None)
