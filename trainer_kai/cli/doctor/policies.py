"""Policies of the API server: whether what our processes write is kept from all other accounts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainer_kai.cli.doctor.expected import Policy
from trainer_kai.cli.doctor.facts import Facts, Obj, at, listed, name_of
from trainer_kai.cli.doctor.finding import Finding, fault, known, ok, warning
from trainer_kai.cli.doctor.hooks import APPLY, holds
from trainer_kai.cli.doctor.tried import has_policy_only

__all__ = ["check_policies"]

_POLICY: Final = "ValidatingAdmissionPolicy"
_BINDING: Final = f"{_POLICY}Binding"
_CHECK: Final = "policies"
_OPEN: Final = "others may write what our processes go by"
_NAME_THEM: Final = (
    "let the policies name the accounts of our processes, as manifests/README.md says; -n tells the"
    " doctor their namespace"
)
_NAMED: Final = re.compile("system:serviceaccount:[-a-z0-9.]+:[-a-z0-9.]*")
_NARROWING: Final = frozenset({"excludeResourceRules", "matchResources", "paramKind", "paramRef"})


def check_policies(facts: Facts) -> Iterator[Finding]:
    """Say whether each policy is there, bound, and as the manifests say."""
    found, wanted = known(facts.validating), facts.manifests.policies
    pairs = [(it, _find(found, _POLICY, it), _find(found, _BINDING, it)) for it in wanted]
    if has_policy_only(facts) and not any(policy for _, policy, _ in pairs):
        yield ok(_CHECK, "none: no process of ours is here whose words they would keep")
        return
    missing = [
        *(f"{_POLICY} {it.name}" for it, policy, _ in pairs if policy is None),
        *(f"{_BINDING} {it.name}" for it, _, binding in pairs if binding is None),
    ]
    idle = [it.name for it, _, binding in pairs if "Deny" not in _actions(binding)]
    strange = [f"{it.name} {why}" for it, policy, _ in pairs for why in _strangers(it, policy)]
    changed = [f"{it.name}: {why}" for it, *both in pairs for why in _differences(it, *both)]
    if missing:
        yield fault(_CHECK, f"there is no {listed(missing)}: {_OPEN}", APPLY)
    elif idle:
        yield fault(_CHECK, f"{listed(idle)} is bound without the action Deny: {_OPEN}", APPLY)
    elif strange:
        yield fault(_CHECK, f"{listed(strange, 2)}: our processes are refused", _NAME_THEM)
    elif changed:
        yield warning(_CHECK, listed(changed, 2), f"{APPLY}, unless that is what you want")
    else:
        yield ok(_CHECK, f"{listed(it.name for it in wanted)} are bound, as the manifests say")


def _differences(wanted: Policy, policy: Obj | None, binding: Obj | None) -> Iterator[str]:
    for whose, found, fields in (
        ("", policy, wanted.spec),
        ("its binding's ", binding, wanted.binding),
    ):
        spec = at(found, "spec") or {}
        narrowed = {*spec, *(at(spec, "matchConstraints") or ())} & _NARROWING
        yield from (f"{whose}{it} is not ours" for it in sorted(narrowed))
        yield from (
            f"{whose}{it} is another" for it in fields if not holds(spec.get(it), fields[it])
        )


def _strangers(wanted: Policy, policy: Obj | None) -> Iterator[str]:
    """Say which accounts a policy names, where they are not those of our processes."""
    named, right = (frozenset(_NAMED.findall(str(it))) for it in (at(policy, "spec"), wanted.spec))
    if named != right:
        told = [listed(sorted(it)) or "none" for it in (named - right, right - named)]
        yield f"names {told[0]} in place of {told[1]}"


def _actions(binding: Obj | None) -> Sequence[str]:
    return at(binding, "spec", "validationActions") or ()


def _find(found: Sequence[Obj], kind: str, wanted: Policy) -> Obj | None:
    named = (it for it in found if it.get("kind") == kind and name_of(it) == wanted.name)
    return next(named, None)
