"""Dry runs: a TrainJob's JobSet is injected, its pods are marked, other pods stay unchanged."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    GANG,
    INJECT,
    KAI_PREFIX,
    POD_GROUP,
    QUEUE,
    SKIP_PODGROUPER,
    TRAINER_KAI_PREFIX,
)
from trainer_kai.cli.commands.doctor.checks.webhooks import installed_webhooks, selects_namespace
from trainer_kai.cli.commands.doctor.dry_run_refusal import DryRunRefusal, RefusedBy, parse_refusal
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    InstallationFacts,
    Obj,
    labels_of,
    listed,
    name_of,
    nested_field,
)
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    CheckState,
    Unread,
    fault,
    ok,
    require,
    warning,
)

__all__ = [
    "MODE_POLICY",
    "TRAINJOB_CHECK",
    "assigned_queue",
    "binding_mode",
    "check_foreign_pod",
    "check_gang_pod",
    "check_jobset",
    "check_namespaces",
    "check_refusal",
    "has_policy_only",
    "kai_binds",
    "namespace_selectors",
    "refused_by",
    "webhook_answered",
]

MODE_POLICY: Final = "policy"
TRAINJOB_CHECK: Final = "a TrainJob"  # the main check
_MUTATE: Final = "/mutate/"
_OUR_PREFIXES: Final = (KAI_PREFIX, TRAINER_KAI_PREFIX, POD_GROUP)
_CHECK_POLICY: Final = (
    "manifests/overlays/policy-only, applied again: TrainJobs are refused as this one is"
)
_CHECK_LOG: Final = "what it asks for, or what its log says: TrainJobs are refused as this one is"


def check_jobset(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the JobSet of a TrainJob gets scheduler name, queue and marks."""
    check, dry_run = TRAINJOB_CHECK, require(facts.jobset)
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding(check, "JobSets of TrainJobs", refused)
        return
    got = dry_run.got or {}
    template = _pod_template(got)
    if has_policy_only(facts):
        yield _policy_finding(
            facts, dry_run, str(nested_field(template, "spec", "schedulerName") or "")
        )
        return
    missing = [
        *(["the mark"] if labels_of(got, "annotations").get(ADMITTED) != ADMITTED_MARK else []),
        *(["a scheduler name"] if not nested_field(template, "spec", "schedulerName") else []),
        *(["a queue"] if not labels_of(got).get(QUEUE) else []),
        *(["a group"] if GANG not in labels_of(template) else []),
    ]
    if missing:
        remedy = "webhooks that are called there, and a process behind them that answers"
        yield fault(
            check, f"its JobSet in {dry_run.namespace} is made without {listed(missing)}", remedy
        )
        return
    name, queue = nested_field(template, "spec", "schedulerName"), labels_of(got)[QUEUE]
    if name != facts.installation.scheduler_name:
        remedy = f"--scheduler-name {name}, if that is what the site has chosen"
        yield fault(check, f"it gets the scheduler name {name}", remedy)
    else:
        yield ok(check, f"dry in {dry_run.namespace}: queue {queue}, scheduler {name}")


def _policy_finding(facts: InstallationFacts, dry_run: DryRun, name: str) -> CheckFinding:
    """Check a JobSet that only gets its scheduler name: KAI finds its PodGroups and queue."""
    check, wanted = TRAINJOB_CHECK, facts.installation.scheduler_name
    if name == wanted:
        return ok(check, f"dry in {dry_run.namespace}: scheduler {name}")
    remedy = "a binding of the policy, in a namespace that takes part"
    return fault(
        check, f"its JobSet in {dry_run.namespace} gets the scheduler {name or 'none'}", remedy
    )


def check_gang_pod(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a pod of a TrainJob is put into its PodGroup."""
    check = "a pod of a gang"
    if has_policy_only(facts):
        yield ok(check, "left to the KAI that is there")
        return
    dry_run = require(facts.gang_pod)
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding(check, "pods of gangs", refused)
        return
    group = labels_of(dry_run.got or {}, "annotations").get(POD_GROUP)
    if group:
        yield ok(check, f"dry in {dry_run.namespace}: it joins its group")
    else:
        remedy = "a webhook that answers: pods of gangs that are made meanwhile are in no group"
        yield fault(check, f"dry in {dry_run.namespace}: it joins no group", remedy)


def check_foreign_pod(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a pod that is not ours stays unchanged."""
    check, dry_run = "a pod of others", require(facts.foreign_pod)
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding(check, "pods that are not ours", refused)
        return
    got = dry_run.got or {}
    name = nested_field(got, "spec", "schedulerName")
    names = [*labels_of(got), *labels_of(got, "annotations")]
    changed = [f"{it} is set" for it in names if it.startswith(_OUR_PREFIXES)]
    if name == facts.installation.scheduler_name:
        changed.append(f"its scheduler is {name}")
    if changed:
        remedy = "no policy or webhook that writes this on pods that nobody gave to us"
        yield fault(check, f"dry in {dry_run.namespace}: {listed(changed)}", remedy)
    else:
        yield ok(check, f"dry in {dry_run.namespace}: it is let be")


def check_refusal(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether an invalid TrainJob is refused."""
    check = "a wrong TrainJob"
    if has_policy_only(facts):
        yield ok(check, "not judged: a policy refuses nothing")
        return
    dry_run = require(facts.trainjob)
    refused = refused_by(facts, dry_run)
    if refused is not None and refused.by is RefusedBy.OURS and QUEUE in refused.message:
        yield ok(check, f"dry in {dry_run.namespace}: it is refused")
    elif refused is not None:
        yield _refusal_finding(check, "TrainJobs", refused)
    elif webhook_answered(facts) is not True:
        raise CannotTell("it is taken, and no webhook of ours answers")
    else:
        remedy = "validating webhooks that are called there, and trust the webhook"
        yield fault(
            check, f"dry in {dry_run.namespace}: one with a queue that cannot be is taken", remedy
        )


def check_namespaces(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say which namespaces take part."""
    check, hooks = "namespaces", namespace_selectors(facts)
    metas = require(facts.namespaces)
    enabled = [
        it.name
        for it in metas
        if hooks and all(selects_namespace(webhook, it.labels) for webhook in hooks)
    ]
    labelled = [f"{it.name} ({it.labels[INJECT]})" for it in metas if INJECT in it.labels]
    label = f"; {INJECT} stands on {listed(labelled)}" if labelled else ""
    if enabled:
        yield ok(check, f"{len(enabled)} of {len(metas)} take part{label}")
    elif hooks:
        remedy = f"the label {INJECT}=enabled on a namespace whose TrainJobs are ours"
        yield warning(check, f"none of {len(metas)} takes part{label}", remedy)
    else:
        raise CannotTell("there are no webhooks of ours")


def refused_by(facts: InstallationFacts, dry_run: DryRun) -> DryRunRefusal | None:
    """Return what refused a dry run; None if it was accepted."""
    if dry_run.refusal is None:
        return None
    configurations = facts.manifests.configurations
    hooks = {webhook.name for it in configurations for webhook in it.hooks}
    policies = {it.name for it in configurations}
    return parse_refusal(dry_run.refusal, frozenset(hooks), frozenset(policies))


def namespace_selectors(facts: InstallationFacts) -> list[Obj]:
    """Return the objects whose selectors choose the namespaces: webhooks, or the policy."""
    if not has_policy_only(facts):
        return [
            webhook
            for wanted, webhook in installed_webhooks(facts)
            if wanted.path.startswith(_MUTATE)
        ]
    names = {it.name for it in facts.manifests.configurations}
    our_policies = [it for it in require(facts.policies) if name_of(it) in names]
    return [nested_field(it, "spec", "matchConstraints") or {} for it in our_policies]


def webhook_answered(facts: InstallationFacts) -> bool | None:
    """Say whether the webhook answered for a JobSet; None where it is not known."""
    if isinstance(facts.jobset, Unread):
        return None
    refused = refused_by(facts, facts.jobset)
    if refused is None:
        return bool(binding_mode(facts))
    return {RefusedBy.OURS: True, RefusedBy.OUR_OUTAGE: False}.get(refused.by)


def assigned_queue(facts: InstallationFacts) -> str:
    """Return the queue of a TrainJob that names none; "" where it is not known."""
    return _read_jobset(facts, lambda got: labels_of(got).get(QUEUE, ""))


def binding_mode(facts: InstallationFacts) -> str:
    """Return who binds: the mode of the webhook, bundled or external; "" where it is not known.

    It is `policy` where a policy of the API server injects, and no process of ours is needed.
    """
    if has_policy_only(facts):
        return MODE_POLICY
    admitted = _read_jobset(facts, lambda got: labels_of(got, "annotations").get(ADMITTED, ""))
    if not admitted:
        return ""
    is_external = _read_jobset(
        facts, lambda got: labels_of(got, "annotations").get(SKIP_PODGROUPER, "")
    )
    return "external" if is_external else "bundled"


def kai_binds(facts: InstallationFacts) -> bool:
    """Say whether a KAI binds, and no scheduler of ours is needed."""
    return binding_mode(facts) in {"external", MODE_POLICY}


def has_policy_only(facts: InstallationFacts) -> bool:
    """Say whether a policy injects in place of our webhooks."""
    if isinstance(facts.policies, Unread) or isinstance(facts.configurations, Unread):
        return False
    names = {it.name for it in facts.manifests.configurations}
    return any(name_of(it) in names for it in facts.policies) and not installed_webhooks(facts)


def _read_jobset(facts: InstallationFacts, read: Callable[[Obj], str]) -> str:
    dry_run = facts.jobset
    return "" if isinstance(dry_run, Unread) or dry_run.got is None else read(dry_run.got)


def _pod_template(jobset: Obj) -> Mapping[str, Any]:
    """Return the pod template of the first replicatedJob."""
    first = next(iter(nested_field(jobset, "spec", "replicatedJobs") or ()), None)
    template = nested_field(first, "template", "spec", "template")
    return template if isinstance(template, Mapping) else {}


def _refusal_finding(check: str, objects: str, refused: DryRunRefusal) -> CheckFinding:
    webhook = refused.name
    if refused.by is RefusedBy.OURS:
        return fault(check, f"our webhook {webhook} refuses it: {refused.message}", _CHECK_LOG)
    if refused.by is RefusedBy.OUR_POLICY:
        return fault(check, f"our policy {webhook} refuses it: {refused.message}", _CHECK_POLICY)
    if refused.by is RefusedBy.OUR_OUTAGE:
        remedy = "a webhook that runs, and that the API server reaches and trusts"
        return fault(check, f"{webhook} does not answer: {refused.message}", remedy)
    if refused.by is RefusedBy.OTHER_OUTAGE:
        remedy = f"that it answers: until then no {objects} are made"
        return fault(
            check, f"the webhook {webhook} of others does not answer: {refused.message}", remedy
        )
    refuser = f"the webhook {webhook}" if webhook else refused.by.value
    return CheckFinding(
        check, CheckState.UNKNOWN, f"cannot tell: refused by {refuser}: {refused.message}"
    )
