"""Dry runs: a TrainJob's JobSet is admitted, its pods get a PodGroup, other pods are unchanged.

What they show of the installation comes after the checks: who binds pods, and what refused a dry
run.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Meta
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
from trainer_kai.cli.commands.doctor.facts import (
    CannotTell,
    CheckFinding,
    DryRun,
    Fact,
    Findings,
    InstallationFacts,
    Obj,
    Unread,
    annotations_of,
    fault,
    if_read,
    labels_of,
    listed,
    name_of,
    nested_field,
    ok,
    unknown,
    warning,
)
from trainer_kai.kube.rest.response import ErrorDetails

_MODE_POLICY: Final = "policy"
TRAINJOB_CHECK: Final = "TrainJob dry run"  # the main check
INVALID_TRAINJOB_CHECK: Final = "invalid TrainJob dry run"  # users may make this one as well
_MUTATE: Final = "/mutate/"
_OUR_PREFIXES: Final = (KAI_PREFIX, TRAINER_KAI_PREFIX, POD_GROUP)
_DENIED: Final = re.compile(
    r'admission webhook "(?P<hook>[^"]+)" '
    r"(?:denied the request(?: without explanation)?:? ?|(?=does not support dry run))(?P<why>.*)",
    re.DOTALL,
)
_DENIED_BY_POLICY: Final = re.compile(
    r"\bpolicy ['\"](?P<policy>[^'\"]+)['\"](?: with binding '[^']*')? denied request: (?P<why>.*)",
    re.DOTALL,
)
_FAILED: Final = re.compile(r'failed calling webhook "(?P<hook>[^"]+)": (?P<why>.*)', re.DOTALL)
_NOT_ALLOWED: Final = re.compile(r'User "[^"]*" cannot ')
_UNTRUSTED: Final = re.compile(r"(?:tls|x509): .*", re.DOTALL)


class RefusedBy(Enum):
    OURS = "the webhook"
    OUR_POLICY = "the policy"
    OUR_OUTAGE = "the webhook does not respond"
    OTHER = "another webhook"
    OTHER_OUTAGE = "another webhook does not respond"
    ROLES = "the roles of the user"
    SERVER = "the API server"


class DryRunRefusal(NamedTuple):
    """What refused a dry run, the name of the webhook or policy, and its message."""

    by: RefusedBy
    name: str
    message: str

    @property
    def trust_error(self) -> str:
        """Return why the API server does not trust our webhook, or "" where it does."""
        match = _UNTRUSTED.search(self.message) if self.by is RefusedBy.OUR_OUTAGE else None
        return match.group() if match else ""


# By what refused it: what is observed, with its name, and the remedy, with the objects concerned.
_REFUSALS: Final = {
    RefusedBy.OURS: (
        "the webhook {} refuses it",
        "do what the message says, or check the log of the webhook: all TrainJobs are refused",
    ),
    RefusedBy.OUR_POLICY: (
        "the policy {} refuses it",
        "apply manifests/overlays/policy-only again: all TrainJobs are refused like this one",
    ),
    RefusedBy.OUR_OUTAGE: (
        "{} does not respond",
        "check that the webhook runs, and that the API server can reach and trust it",
    ),
    RefusedBy.OTHER_OUTAGE: (
        "the webhook {} of another product does not respond",
        "check that it responds; until then no {} can be created",
    ),
}


def check_namespaces(
    facts: InstallationFacts, read: tuple[Sequence[Obj], Sequence[Meta]]
) -> Findings:
    hooks, metas = namespace_selectors(facts), read[1]
    enabled = [it.name for it in metas if all(selects_namespace(hook, it.labels) for hook in hooks)]
    labelled = [f"{it.name} ({it.labels[INJECT]})" for it in metas if INJECT in it.labels]
    label = f"; {INJECT} is set on {listed(labelled)}" if labelled else ""
    if not hooks:
        raise CannotTell("the webhooks of trainer-kai are not installed")
    if enabled:
        yield ok(f"{len(enabled)} of {len(metas)} take part{label}")
    else:
        remedy = f"set the label {INJECT}=enabled on the namespaces to take part"
        yield warning(f"none of {len(metas)} takes part{label}", remedy)


def check_jobset(facts: InstallationFacts, dry_run: DryRun) -> Findings:
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding("JobSets of TrainJobs", refused)
        return
    got, where, wanted = dry_run.got or {}, dry_run.namespace, facts.installation.scheduler_name
    template = _pod_template(got)
    name, queue = nested_field(template, "spec", "schedulerName"), labels_of(got).get(QUEUE)
    parts = {
        "the mark of admission": annotations_of(got).get(ADMITTED) == ADMITTED_MARK,
        "a scheduler name": name,
        "a queue": queue,
        "a PodGroup": GANG in labels_of(template),
    }
    missing = [part for part, is_there in parts.items() if not is_there]
    if has_policy_only(facts):  # it sets only the scheduler name; KAI finds PodGroups and queue
        remedy = "check the binding of the policy, and that the namespace takes part"
        observed = f"in {where}: its JobSet gets the scheduler {name or 'none'}"
        yield ok(f"in {where}: scheduler {name}") if name == wanted else fault(observed, remedy)
    elif missing:
        remedy = "check that the webhooks are called for this namespace, and that the webhook runs"
        yield fault(f"in {where}: its JobSet is created without {listed(missing)}", remedy)
    elif name != wanted:
        remedy = f"set --scheduler-name {name}, if the cluster is configured so"
        yield fault(f"its pods get the scheduler name {name}", remedy)
    else:
        yield ok(f"in {where}: queue {queue}, scheduler {name}")


def check_refusal(facts: InstallationFacts, dry_run: DryRun) -> Findings:
    refused = refused_by(facts, dry_run)
    if refused is not None and refused.by is RefusedBy.OURS and QUEUE in refused.message:
        yield ok(f"in {dry_run.namespace}: it is refused")
    elif refused is not None:
        yield _refusal_finding("TrainJobs", refused)
    elif webhook_answered(facts) is not True:
        raise CannotTell("it is accepted, and no webhook of trainer-kai responds")
    else:
        remedy = "check that the validating webhooks are called here, and trust the webhook"
        observed = f"in {dry_run.namespace}: a TrainJob with an invalid queue is accepted"
        yield fault(observed, remedy)


def check_gang_pod(facts: InstallationFacts, dry_run: DryRun) -> Findings:
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding("pods of TrainJobs", refused)
    elif annotations_of(dry_run.got or {}).get(POD_GROUP):
        yield ok(f"in {dry_run.namespace}: the pod gets its PodGroup")
    else:
        remedy = "check that the webhook runs; pods that are created meanwhile have no PodGroup"
        yield fault(f"in {dry_run.namespace}: the pod gets no PodGroup", remedy)


def check_foreign_pod(facts: InstallationFacts, dry_run: DryRun) -> Findings:
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding("pods of other workloads", refused)
        return
    got = dry_run.got or {}
    name = nested_field(got, "spec", "schedulerName")
    names = [*labels_of(got), *annotations_of(got)]
    changed = [f"{it} is set" for it in names if it.startswith(_OUR_PREFIXES)]
    if name == facts.installation.scheduler_name:
        changed.append(f"its scheduler is {name}")
    if changed:
        remedy = "find the policy or webhook that sets this on pods of other workloads"
        yield fault(f"in {dry_run.namespace}: {listed(changed)}", remedy)
    else:
        yield ok(f"in {dry_run.namespace}: the pod is unchanged")


def refused_by(facts: InstallationFacts, dry_run: DryRun) -> DryRunRefusal | None:
    """Return what refused a dry run; None if it was accepted."""
    if dry_run.refusal is None:
        return None
    configurations = facts.manifests.configurations
    hooks = frozenset(hook.name for it in configurations for hook in it.hooks)
    return parse_refusal(dry_run.refusal, hooks, frozenset(it.name for it in configurations))


def deciding_check(facts: InstallationFacts) -> str:
    """Return the check that says to a user whether TrainJobs are admitted; "" if it may make none.

    JobSets are created by Trainer, and few users may create them.
    """
    if not _lacks_right(facts, facts.jobset):
        return TRAINJOB_CHECK
    return "" if _lacks_right(facts, facts.trainjob) else INVALID_TRAINJOB_CHECK


def _lacks_right(facts: InstallationFacts, dry_run: Fact[DryRun]) -> bool:
    if isinstance(dry_run, Unread):
        return dry_run.reason.startswith("you may not ")
    refused = refused_by(facts, dry_run)
    return refused is not None and refused.by is RefusedBy.ROLES


def namespace_selectors(facts: InstallationFacts) -> list[Obj]:
    """Return the objects with the selectors of the namespaces: webhooks, or the policy."""
    if has_policy_only(facts):
        policies = _policies_like_webhooks(facts)
        return [nested_field(it, "spec", "matchConstraints") or {} for it in policies]
    pairs = installed_webhooks(facts)
    return [webhook for wanted, webhook in pairs if wanted.path.startswith(_MUTATE)]


def webhook_answered(facts: InstallationFacts) -> bool | None:
    """Say whether the webhook responded for a JobSet; None if not known."""
    if isinstance(facts.jobset, Unread):
        return None
    refused = refused_by(facts, facts.jobset)
    if refused is None:
        return bool(binding_mode(facts))
    return {RefusedBy.OURS: True, RefusedBy.OUR_OUTAGE: False}.get(refused.by)


def assigned_queue(facts: InstallationFacts) -> str:
    """Return the queue of a TrainJob that names none; "" if not known."""
    return labels_of(_stored_jobset(facts)).get(QUEUE, "")


def binding_mode(facts: InstallationFacts) -> str:
    """Return the mode of the webhook, bundled or external; "" if not known.

    It is `policy` if a policy of the API server admits TrainJobs, and no process of ours is needed.
    """
    if has_policy_only(facts):
        return _MODE_POLICY
    annotations = annotations_of(_stored_jobset(facts))
    if not annotations.get(ADMITTED):
        return ""
    return "external" if annotations.get(SKIP_PODGROUPER) else "bundled"


def kai_binds(facts: InstallationFacts) -> bool:
    """Say whether a KAI binds pods, and no scheduler of ours is needed."""
    return binding_mode(facts) in {"external", _MODE_POLICY}


def has_policy_only(facts: InstallationFacts) -> bool:
    if isinstance(facts.configurations, Unread):
        return False
    return bool(_policies_like_webhooks(facts)) and not installed_webhooks(facts)


def _policies_like_webhooks(facts: InstallationFacts) -> list[Obj]:
    """Return the policies with the name of a configuration of ours, which they replace."""
    names = {it.name for it in facts.manifests.configurations}
    return [it for it in if_read(facts.policies, ()) if name_of(it) in names]


def _stored_jobset(facts: InstallationFacts) -> Obj:
    """Return the JobSet of the dry run; empty if it was not tried or refused."""
    dry_run = facts.jobset
    return {} if isinstance(dry_run, Unread) else dry_run.got or {}


def _pod_template(jobset: Obj) -> Mapping[str, Any]:
    first = next(iter(nested_field(jobset, "spec", "replicatedJobs") or ()), None)
    template = nested_field(first, "template", "spec", "template")
    return template if isinstance(template, Mapping) else {}


def parse_refusal(
    refusal: ErrorDetails, our_webhooks: frozenset[str], policies: frozenset[str] = frozenset()
) -> DryRunRefusal:
    text = " ".join(refusal.message.split())
    if failed := _FAILED.search(text):
        is_ours = failed["hook"] in our_webhooks
        by = RefusedBy.OUR_OUTAGE if is_ours else RefusedBy.OTHER_OUTAGE
        return DryRunRefusal(by, failed["hook"], failed["why"])
    if denied := _DENIED.search(text):
        by = RefusedBy.OURS if denied["hook"] in our_webhooks else RefusedBy.OTHER
        return DryRunRefusal(by, denied["hook"], denied["why"] or "without a reason")
    denied = _DENIED_BY_POLICY.search(text)
    if denied and denied["policy"] in policies:
        return DryRunRefusal(RefusedBy.OUR_POLICY, denied["policy"], denied["why"])
    if refusal.status == 403 and _NOT_ALLOWED.search(text):
        return DryRunRefusal(RefusedBy.ROLES, "", text)
    return DryRunRefusal(RefusedBy.SERVER, "", text or f"{refusal.status} {refusal.reason}")


def _refusal_finding(objects: str, refused: DryRunRefusal) -> CheckFinding:
    name, message = refused.name, refused.message
    if refused.by in _REFUSALS:
        observed, remedy = _REFUSALS[refused.by]
        return fault(f"{observed.format(name)}: {message}", remedy.format(objects))
    refuser = f"the webhook {name}" if name else refused.by.value
    return unknown(f"refused by {refuser}: {message}")
