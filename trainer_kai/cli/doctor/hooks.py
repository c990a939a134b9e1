"""Webhook configurations: whether ours are there and whole, whom they reach, who comes before."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from trainer_kai.api.names import JOBSET
from trainer_kai.cli.doctor.expected import Configuration, Hook
from trainer_kai.cli.doctor.facts import Facts, Obj, at, listed, name_of
from trainer_kai.cli.doctor.finding import Finding, Unread, fault, known, ok, warning

__all__ = ["APPLY", "check_configurations", "check_order", "covers", "holds", "live_hooks"]

APPLY: Final = "apply the overlay again (kubectl apply --server-side -k …)"
_MUTATING: Final = "MutatingWebhookConfiguration"
_OURS: Final = "of-a-trainjob"  # the match condition by which others are left alone


def check_configurations(facts: Facts) -> Iterator[Finding]:
    """Say for each of our configurations whether it is what the manifests say."""
    found = known(facts.configurations)
    policies = () if isinstance(facts.policies, Unread) else facts.policies
    for wanted in facts.manifests.configurations:
        there = next((it for it in found if _is(it, wanted)), None)
        if there is None and any(name_of(it) == wanted.name for it in policies):
            check, is_so = _check(wanted), f"none: the policy {wanted.name} is in their place"
            yield ok(check, is_so)
        else:
            yield _judged(wanted, there)


def check_order(facts: Facts) -> Iterator[Finding]:
    """Say whether ours is called after JobSet's and before KAI's: the order is that of names."""
    check = "webhook order"
    ours = {it.name for it in facts.manifests.configurations if it.kind == _MUTATING}
    found = sorted(
        (it for it in known(facts.configurations) if it.get("kind") == _MUTATING), key=name_of
    )
    names = [name_of(it) for it in found]
    own = next((name for name in names if name in ours), None)
    if own is None:
        yield ok(check, "nothing to compare: there is no configuration of ours")
        return
    others = {name_of(it): it for it in found if name_of(it) != own}
    late = [it for it in others if it > own and _defaults_jobsets(others[it])]
    early = [it for it in others if it < own and "kai" in it and _asks_for(others[it], "", "pods")]
    if late:
        right = f"a name before {own}: what JobSet fills in is looked at by ours"
        yield warning(check, f"{listed(late)} is called after {own}", right)
    if early:
        right = f"a name after {own}: its webhook looks at the scheduler name that ours writes"
        yield warning(check, f"{listed(early)} is called before {own}", right)
    if not late and not early:
        yield ok(check, f"{own} is called after JobSet's and before other schedulers'")


def live_hooks(facts: Facts) -> list[tuple[Hook, Obj]]:
    """Return each webhook of ours that is there, with what the manifests say of it."""
    pairs = []
    for wanted in facts.manifests.configurations:
        for there in known(facts.configurations):
            if _is(there, wanted):
                by_name = {it.name: it for it in wanted.hooks}
                pairs += [
                    (by_name[hook["name"]], hook)
                    for hook in there.get("webhooks") or ()
                    if hook.get("name") in by_name
                ]
    return pairs


def covers(hook: Obj, labels: Mapping[str, str]) -> bool:
    """Say whether a webhook is called for objects in a namespace with these labels."""
    selector = hook.get("namespaceSelector") or {}
    wanted = selector.get("matchLabels") or {}
    exact = all(labels.get(name) == value for name, value in wanted.items())
    return exact and all(_meets(it, labels) for it in selector.get("matchExpressions") or ())


def _meets(wish: Obj, labels: Mapping[str, str]) -> bool:
    key, values = wish.get("key", ""), wish.get("values") or ()
    operator = wish.get("operator")
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")


def _is(found: Obj, wanted: Configuration) -> bool:
    return found.get("kind") == wanted.kind and name_of(found) == wanted.name


def _judged(wanted: Configuration, there: Obj | None) -> Finding:
    check = _check(wanted)
    if there is None:
        why = "nobody is injected" if wanted.kind == _MUTATING else "nothing is judged"
        return fault(check, f"there is no {wanted.kind} {wanted.name}: {why}", APPLY)
    live = {it.get("name"): it for it in there.get("webhooks") or ()}
    missing = [it.name for it in wanted.hooks if it.name not in live]
    if missing:
        return fault(check, f"{wanted.name} lacks {listed(missing)}", APPLY)
    pairs = [(it, live[it.name]) for it in wanted.hooks]
    wrong = [f"{it.name}: {why}" for it, hook in pairs for why in _faults(it, hook)]
    if wrong:
        return fault(check, f"{wanted.name}, {listed(wrong, 2)}", APPLY)
    other = [f"{it.name}: {why}" for it, hook in pairs for why in _differences(it, hook)]
    if other:
        right = f"{APPLY}, unless that is what you want"
        return warning(check, f"{wanted.name}, {listed(other, 2)}", right)
    return ok(check, f"{wanted.name} has its {len(pairs)} webhooks, as the manifests say")


def _check(wanted: Configuration) -> str:
    return f"{'mutating' if wanted.kind == _MUTATING else 'validating'} webhooks"


def _faults(wanted: Hook, hook: Obj) -> Iterator[str]:
    """Yield what keeps a webhook from being asked what it has to be asked."""
    path = _path(hook)
    if path != wanted.path:
        yield f"is called at {path or '/'} and not at {wanted.path}"
    lost = _asked(wanted.fields.get("rules")) - _asked(hook.get("rules"))
    if lost:
        yield f"is not called for {listed(sorted(lost))}"
    if hook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
        yield f"sideEffects is {hook.get('sideEffects')}: dry runs are refused"
    if hook.get("failurePolicy") == "Fail":
        yield from (f"{it}: without us others are refused" for it in _widened(wanted, hook))


def _widened(wanted: Hook, hook: Obj) -> Iterator[str]:
    """Yield what no longer leaves others alone, as far as that can be told."""
    live = _conditions(hook)
    expression = _plain(live.get(_OURS))
    if _OURS in wanted.conditions and (expression is None or expression == "true"):
        yield f"match condition {_OURS} lets all through"
    selector = wanted.fields.get("objectSelector")
    if selector is not None and not _narrows(hook.get("objectSelector"), selector):
        yield "objectSelector is wider"


def _differences(wanted: Hook, hook: Obj) -> Iterator[str]:
    """Yield what is otherwise than in the manifests, and works."""
    policy = hook.get("failurePolicy")
    if policy != wanted.failure_policy and wanted.path.startswith("/mutate"):
        yield f"failurePolicy is {policy} and not {wanted.failure_policy}"
    live = _conditions(hook)
    for name, expression in wanted.conditions.items():
        if _plain(live.get(name)) != _plain(expression):
            yield f"match condition {name} is {'another' if name in live else 'missing'}"
    yield from (f"match condition {it} is not ours" for it in live if it not in wanted.conditions)
    for name, value in wanted.fields.items():
        if name not in {"rules", "sideEffects"} and not holds(hook.get(name), value):
            yield f"{name} is another"


def _conditions(hook: Obj) -> dict[str, str]:
    return {it.get("name"): it.get("expression") for it in hook.get("matchConditions") or ()}


def _plain(expression: str | None) -> str | None:
    return None if expression is None else "".join(expression.split())


def holds(live: Any, wanted: Any) -> bool:
    """Say whether a value has all that is wanted; the API server may have filled in more."""
    if isinstance(wanted, Mapping) and wanted:
        return isinstance(live, Mapping) and all(holds(live.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list):
        is_like = isinstance(live, list) and len(live) == len(wanted)
        return is_like and all(map(holds, live, wanted))
    return bool(live == wanted or (wanted == {} and live is None))


def _narrows(live: Any, wanted: Any) -> bool:
    """Say whether a selector asks for all that is wanted, and maybe for more."""
    live = live or {}
    more = live.get("matchExpressions") or ()
    return holds(live.get("matchLabels") or {}, wanted.get("matchLabels") or {}) and all(
        it in more for it in wanted.get("matchExpressions") or ()
    )


def _asked(rules: Any) -> set[str]:
    return {
        f"{operation} of {resource}{group and '.'}{group}"
        for rule in rules or ()
        for operation in rule.get("operations") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    }


def _path(hook: Obj) -> str:
    service, url = at(hook, "clientConfig", "service"), at(hook, "clientConfig", "url")
    return str(at(service, "path") or "") if service else urlsplit(url or "").path


def _asks_for(configuration: Obj, group: str, plural: str) -> bool:
    rules = [rule for it in configuration.get("webhooks") or () for rule in it.get("rules") or ()]
    return any(
        group in (rule.get("apiGroups") or ()) and plural in (rule.get("resources") or ())
        for rule in rules
    )


def _defaults_jobsets(configuration: Obj) -> bool:
    """Say whether it is JobSet's own: Kueue's comes later, and is meant to."""
    called = "jobset" in name_of(configuration)
    return called and _asks_for(configuration, JOBSET, "jobsets")
