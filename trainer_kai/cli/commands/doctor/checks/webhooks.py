"""Webhook configurations: present and complete, their selectors, and the order of webhooks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from trainer_kai.api.names import (
    DEVICE_ACCESS_WEBHOOK,
    GPU_SHARE_WEBHOOK,
    JOB_GANG_WEBHOOK,
    JOBSET,
)
from trainer_kai.cli.commands.doctor.expected import ExpectedConfiguration, ExpectedWebhook
from trainer_kai.cli.commands.doctor.facts import (
    UNKNOWN_VALUE,
    CheckFinding,
    Findings,
    InstallationFacts,
    Obj,
    fault,
    if_read,
    listed,
    name_of,
    nested_field,
    ok,
    require,
    warning,
    webhook_setting,
)

APPLY: Final = "apply the overlay again (kubectl apply --server-side -k …)"
_MUTATING: Final = "MutatingWebhookConfiguration"
_BUNDLED: Final = "bundled"
_DEVICE_SETTING: Final = "ADMISSION_NVIDIA_VISIBLE_DEVICES"
# The match conditions that exclude other workloads.
_OUR_CONDITIONS: Final = ("of-ours", "of-our-scheduler", "requests-a-share")


def check_configurations(facts: InstallationFacts, found: Sequence[Obj]) -> Findings:
    policies = {name_of(it) for it in if_read(facts.policies, ())}
    for wanted in facts.manifests.configurations:
        check = f"{'mutating' if wanted.kind == _MUTATING else 'validating'} webhooks"
        installed = next((it for it in found if _is_same(it, wanted)), None)
        if installed is None and wanted.name in policies:
            yield ok(f"none: the policy {wanted.name} is used instead")._replace(check=check)
            continue
        yield _configuration_finding(_required(wanted, facts), installed)._replace(check=check)
        if installed is not None and wanted.kind == _MUTATING:
            for it in _device_access_findings(installed, facts):
                yield it._replace(check=check)


def _required(wanted: ExpectedConfiguration, facts: InstallationFacts) -> ExpectedConfiguration:
    """Return a configuration without the webhooks for what our scheduler does not do here."""
    is_off = webhook_setting(facts, "GPU_SHARING_ENABLED", "true").lower() == "false"
    is_bundled = webhook_setting(facts, "MODE", _BUNDLED) == _BUNDLED
    if is_bundled and not is_off:
        return wanted
    unused = {GPU_SHARE_WEBHOOK} if is_bundled else {GPU_SHARE_WEBHOOK, JOB_GANG_WEBHOOK}
    hooks = tuple(it for it in wanted.hooks if it.name not in unused)
    return msgspec.structs.replace(wanted, hooks=hooks)


def _configuration_finding(wanted: ExpectedConfiguration, installed: Obj | None) -> CheckFinding:
    if installed is None:
        why = f"no TrainJob is {'admitted' if wanted.kind == _MUTATING else 'validated'}"
        return fault(f"the {wanted.kind} {wanted.name} does not exist: {why}", APPLY)
    live = {it.get("name"): it for it in installed.get("webhooks") or ()}
    missing = [it.name for it in wanted.hooks if it.name not in live]
    if missing:
        return fault(f"{wanted.name} lacks {listed(missing)}", APPLY)
    pairs = [(it, live[it.name]) for it in wanted.hooks]
    wrong = [f"{it.name}: {why}" for it, hook in pairs for why in _problems(it, hook)]
    if wrong:
        return fault(f"{wanted.name}, {listed(wrong, 2)}", APPLY)
    other = [f"{it.name}: {why}" for it, hook in pairs for why in _differences(it, hook)]
    if other:
        return warning(f"{wanted.name}, {listed(other, 2)}", f"{APPLY}, unless this is intended")
    return ok(f"{wanted.name} has its {len(pairs)} webhooks, as in the manifests")


def _device_access_findings(installed: Obj, facts: InstallationFacts) -> Findings:
    setting = webhook_setting(facts, _DEVICE_SETTING, "allow")
    hooks = installed.get("webhooks") or ()
    is_called = any(it.get("name") == DEVICE_ACCESS_WEBHOOK for it in hooks)
    if setting == UNKNOWN_VALUE or is_called == (setting == "block"):
        return
    consequence = (
        "exists: containers may use GPUs that they did not request"
        if is_called
        else "does not exist: only pods with shares of GPUs are restricted"
    )
    observed = (
        f"TRAINER_KAI_{_DEVICE_SETTING} is {setting}, and the webhook {DEVICE_ACCESS_WEBHOOK}"
    )
    yield fault(f"{observed} {consequence}", "apply the overlay with the component device-access")


def check_order(facts: InstallationFacts, found: Sequence[Obj]) -> Findings:
    """Say whether our webhook is called after JobSet's and before KAI's: the order is by name."""
    ours = {it.name for it in facts.manifests.configurations if it.kind == _MUTATING}
    by_name = {name_of(it): it for it in found if it.get("kind") == _MUTATING}
    our_name = next((name for name in sorted(by_name) if name in ours), None)
    if our_name is None:
        yield ok("not checked: the webhook configuration of trainer-kai does not exist")
        return
    others = {name: by_name[name] for name in sorted(by_name) if name != our_name}
    called_after = [it for it in others if it > our_name and _defaults_jobsets(others[it])]
    called_before = [
        it
        for it in others
        if it < our_name and "kai" in it and _has_rule_for(others[it], "", "pods")
    ]
    if called_after:
        remedy = f"rename it to a name before {our_name}, which needs what JobSet fills in"
        yield warning(f"{listed(called_after)} is called after {our_name}", remedy)
    if called_before:
        remedy = (
            f"rename it to a name after {our_name}, which sets the scheduler name that it checks"
        )
        yield warning(f"{listed(called_before)} is called before {our_name}", remedy)
    if not called_after and not called_before:
        yield ok(f"{our_name} is called after JobSet's and before other schedulers'")


def installed_webhooks(facts: InstallationFacts) -> list[tuple[ExpectedWebhook, Obj]]:
    """Return each installed webhook of ours, with that of the manifests."""
    found = require(facts.configurations)
    return [
        (wanted, hook)
        for configuration in facts.manifests.configurations
        for installed in found
        if _is_same(installed, configuration)
        for hook in installed.get("webhooks") or ()
        for wanted in configuration.hooks
        if wanted.name == hook.get("name")
    ]


def selects_namespace(hook: Obj, labels: Mapping[str, str]) -> bool:
    selector = hook.get("namespaceSelector") or {}
    wanted, requirements = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    labels_match = all(labels.get(name) == value for name, value in wanted.items())
    return labels_match and all(_matches_requirement(it, labels) for it in requirements)


def _matches_requirement(requirement: Obj, labels: Mapping[str, str]) -> bool:
    key, values = requirement.get("key", ""), requirement.get("values") or ()
    operator = requirement.get("operator")
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")


def _is_same(found: Obj, wanted: ExpectedConfiguration) -> bool:
    return found.get("kind") == wanted.kind and name_of(found) == wanted.name


def _problems(wanted: ExpectedWebhook, hook: Obj) -> Iterator[str]:
    """Yield why a webhook is not called for what it has to review, or blocks other workloads."""
    path = _called_path(hook)
    if path != wanted.path:
        yield f"is called at {path or '/'} instead of {wanted.path}"
    missing_rules = _called_for(wanted.fields.get("rules")) - _called_for(hook.get("rules"))
    if missing_rules:
        yield f"is not called for {listed(sorted(missing_rules))}"
    if hook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
        yield f"sideEffects is {hook.get('sideEffects')}: dry runs are refused"
    for it in _wider_selectors(wanted, hook) if hook.get("failurePolicy") == "Fail" else ():
        yield f"{it}: other workloads are refused while the webhook is down"


def _wider_selectors(wanted: ExpectedWebhook, hook: Obj) -> Iterator[str]:
    """Yield the conditions and selectors that no longer exclude other workloads."""
    live = _match_conditions(hook)
    for name in _OUR_CONDITIONS:
        expression = _without_whitespace(live.get(name))
        if name in wanted.conditions and (expression is None or expression == "true"):
            yield f"match condition {name} matches everything"
    selector = wanted.fields.get("objectSelector")
    if selector is not None and not _is_as_narrow(hook.get("objectSelector"), selector):
        yield "objectSelector is wider"


def _differences(wanted: ExpectedWebhook, hook: Obj) -> Iterator[str]:
    """Yield differences from the manifests that still work."""
    policy = hook.get("failurePolicy")
    if policy != wanted.failure_policy and wanted.path.startswith("/mutate"):
        yield f"failurePolicy is {policy} instead of {wanted.failure_policy}"
    live = _match_conditions(hook)
    for name, expression in wanted.conditions.items():
        if _without_whitespace(live.get(name)) != _without_whitespace(expression):
            yield f"match condition {name} {'differs' if name in live else 'is missing'}"
    more = (it for it in live if it not in wanted.conditions)
    yield from (f"match condition {it} is not in the manifests" for it in more)
    for name, value in wanted.fields.items():
        if name not in {"rules", "sideEffects"} and not contains(hook.get(name), value):
            yield f"{name} differs"


def _match_conditions(hook: Obj) -> dict[str, str]:
    return {it.get("name"): it.get("expression") for it in hook.get("matchConditions") or ()}


def _without_whitespace(expression: str | None) -> str | None:
    return None if expression is None else "".join(expression.split())


def contains(live: Any, wanted: Any) -> bool:
    """Say whether a value has all wanted fields; the API server may have added defaults."""
    if isinstance(wanted, Mapping) and wanted:
        is_mapping = isinstance(live, Mapping)
        return is_mapping and all(contains(live.get(name), it) for name, it in wanted.items())
    if isinstance(wanted, list):
        same_length = isinstance(live, list) and len(live) == len(wanted)
        return same_length and all(map(contains, live, wanted))
    return bool(live == wanted or (wanted == {} and live is None))


def _is_as_narrow(live: Any, wanted: Any) -> bool:
    live = live or {}
    more = live.get("matchExpressions") or ()
    is_in_more = all(it in more for it in wanted.get("matchExpressions") or ())
    return is_in_more and contains(live.get("matchLabels") or {}, wanted.get("matchLabels") or {})


def _called_for(rules: Any) -> set[str]:
    return {
        f"{operation} of {resource}{group and '.'}{group}"
        for rule in rules or ()
        for operation in rule.get("operations") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    }


def _called_path(hook: Obj) -> str:
    service = nested_field(hook, "clientConfig", "service")
    if service:
        return str(nested_field(service, "path") or "")
    return urlsplit(nested_field(hook, "clientConfig", "url") or "").path


def _has_rule_for(configuration: Obj, group: str, plural: str) -> bool:
    return any(
        group in (rule.get("apiGroups") or ()) and plural in (rule.get("resources") or ())
        for hook in configuration.get("webhooks") or ()
        for rule in hook.get("rules") or ()
    )


def _defaults_jobsets(configuration: Obj) -> bool:
    """Say whether it is JobSet's own configuration; Kueue's comes later on purpose."""
    is_jobset = "jobset" in name_of(configuration)
    return is_jobset and _has_rule_for(configuration, JOBSET, "jobsets")
