"""Dry runs: a TrainJob's JobSet is admitted, its pods get a PodGroup, other pods are unchanged."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

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
from trainer_kai.cli.commands.doctor.checks.webhooks import (
    installed_webhooks,
    selects_namespace,
)
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
from trainer_kai.kube.rest.response import ErrorDetails

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
    """What refused a dry run."""

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


def parse_refusal(
    refusal: ErrorDetails, our_webhooks: frozenset[str], policies: frozenset[str] = frozenset()
) -> DryRunRefusal:
    """Return what refused a dry run; our webhooks and policies are known by their names."""
    text = " ".join(refusal.message.split())
    denied, failed = _DENIED.search(text), _FAILED.search(text)
    if failed:
        name, message = failed["hook"], failed["why"]
        return DryRunRefusal(
            RefusedBy.OUR_OUTAGE if name in our_webhooks else RefusedBy.OTHER_OUTAGE, name, message
        )
    if denied:
        name, message = denied["hook"], denied["why"] or "without a reason"
        return DryRunRefusal(
            RefusedBy.OURS if name in our_webhooks else RefusedBy.OTHER, name, message
        )
    denied_by_policy = _DENIED_BY_POLICY.search(text)
    if denied_by_policy and denied_by_policy["policy"] in policies:
        return DryRunRefusal(
            RefusedBy.OUR_POLICY, denied_by_policy["policy"], denied_by_policy["why"]
        )
    if refusal.status == 403 and _NOT_ALLOWED.search(text):
        return DryRunRefusal(RefusedBy.ROLES, "", text)
    return DryRunRefusal(RefusedBy.SERVER, "", text or f"{refusal.status} {refusal.reason}")


MODE_POLICY: Final = "policy"
TRAINJOB_CHECK: Final = "TrainJob dry run"  # the main check
_MUTATE: Final = "/mutate/"
_OUR_PREFIXES: Final = (KAI_PREFIX, TRAINER_KAI_PREFIX, POD_GROUP)
_CHECK_POLICY: Final = (
    "apply manifests/overlays/policy-only again: all TrainJobs are refused like this one"
)
_CHECK_LOG: Final = (
    "do what the message says, or check the log of the webhook: all TrainJobs are refused"
)


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
        *(
            ["the mark of admission"]
            if labels_of(got, "annotations").get(ADMITTED) != ADMITTED_MARK
            else []
        ),
        *(["a scheduler name"] if not nested_field(template, "spec", "schedulerName") else []),
        *(["a queue"] if not labels_of(got).get(QUEUE) else []),
        *(["a PodGroup"] if GANG not in labels_of(template) else []),
    ]
    if missing:
        remedy = "check that the webhooks are called for this namespace, and that the webhook runs"
        yield fault(
            check,
            f"in {dry_run.namespace}: its JobSet is created without {listed(missing)}",
            remedy,
        )
        return
    name, queue = nested_field(template, "spec", "schedulerName"), labels_of(got)[QUEUE]
    if name != facts.installation.scheduler_name:
        remedy = f"set --scheduler-name {name}, if the cluster is configured so"
        yield fault(check, f"its pods get the scheduler name {name}", remedy)
    else:
        yield ok(check, f"in {dry_run.namespace}: queue {queue}, scheduler {name}")


def _policy_finding(facts: InstallationFacts, dry_run: DryRun, name: str) -> CheckFinding:
    """Check a JobSet that only gets its scheduler name: KAI finds its PodGroups and queue."""
    check, wanted = TRAINJOB_CHECK, facts.installation.scheduler_name
    if name == wanted:
        return ok(check, f"in {dry_run.namespace}: scheduler {name}")
    remedy = "check the binding of the policy, and that the namespace takes part"
    return fault(
        check, f"in {dry_run.namespace}: its JobSet gets the scheduler {name or 'none'}", remedy
    )


def check_gang_pod(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a pod of a TrainJob gets its PodGroup."""
    check = "gang pod dry run"
    if has_policy_only(facts):
        yield ok(check, "not needed: KAI groups pods")
        return
    dry_run = require(facts.gang_pod)
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding(check, "pods of TrainJobs", refused)
        return
    group = labels_of(dry_run.got or {}, "annotations").get(POD_GROUP)
    if group:
        yield ok(check, f"in {dry_run.namespace}: the pod gets its PodGroup")
    else:
        remedy = "check that the webhook runs; pods that are created meanwhile have no PodGroup"
        yield fault(check, f"in {dry_run.namespace}: the pod gets no PodGroup", remedy)


def check_foreign_pod(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a pod that does not belong to a TrainJob is unchanged."""
    check, dry_run = "other pod dry run", require(facts.foreign_pod)
    refused = refused_by(facts, dry_run)
    if refused is not None:
        yield _refusal_finding(check, "pods of other workloads", refused)
        return
    got = dry_run.got or {}
    name = nested_field(got, "spec", "schedulerName")
    names = [*labels_of(got), *labels_of(got, "annotations")]
    changed = [f"{it} is set" for it in names if it.startswith(_OUR_PREFIXES)]
    if name == facts.installation.scheduler_name:
        changed.append(f"its scheduler is {name}")
    if changed:
        remedy = "find the policy or webhook that sets this on pods of other workloads"
        yield fault(check, f"in {dry_run.namespace}: {listed(changed)}", remedy)
    else:
        yield ok(check, f"in {dry_run.namespace}: the pod is unchanged")


def check_refusal(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether an invalid TrainJob is refused."""
    check = "invalid TrainJob dry run"
    if has_policy_only(facts):
        yield ok(check, "not checked: the policy refuses no TrainJobs")
        return
    dry_run = require(facts.trainjob)
    refused = refused_by(facts, dry_run)
    if refused is not None and refused.by is RefusedBy.OURS and QUEUE in refused.message:
        yield ok(check, f"in {dry_run.namespace}: it is refused")
    elif refused is not None:
        yield _refusal_finding(check, "TrainJobs", refused)
    elif webhook_answered(facts) is not True:
        raise CannotTell("it is accepted, and no webhook of trainer-kai responds")
    else:
        remedy = "check that the validating webhooks are called here, and trust the webhook"
        yield fault(
            check, f"in {dry_run.namespace}: a TrainJob with an invalid queue is accepted", remedy
        )


def check_namespaces(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say in which namespaces TrainJobs are handled."""
    check, hooks = "namespaces", namespace_selectors(facts)
    metas = require(facts.namespaces)
    enabled = [
        it.name
        for it in metas
        if hooks and all(selects_namespace(webhook, it.labels) for webhook in hooks)
    ]
    labelled = [f"{it.name} ({it.labels[INJECT]})" for it in metas if INJECT in it.labels]
    label = f"; {INJECT} is set on {listed(labelled)}" if labelled else ""
    if enabled:
        yield ok(check, f"{len(enabled)} of {len(metas)} take part{label}")
    elif hooks:
        remedy = f"set the label {INJECT}=enabled on the namespaces to take part"
        yield warning(check, f"none of {len(metas)} takes part{label}", remedy)
    else:
        raise CannotTell("the webhooks of trainer-kai are not installed")


def refused_by(facts: InstallationFacts, dry_run: DryRun) -> DryRunRefusal | None:
    """Return what refused a dry run; None if it was accepted."""
    if dry_run.refusal is None:
        return None
    configurations = facts.manifests.configurations
    hooks = {webhook.name for it in configurations for webhook in it.hooks}
    policies = {it.name for it in configurations}
    return parse_refusal(dry_run.refusal, frozenset(hooks), frozenset(policies))


def namespace_selectors(facts: InstallationFacts) -> list[Obj]:
    """Return the objects with the selectors of the namespaces: webhooks, or the policy."""
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
    """Say whether the webhook responded for a JobSet; None if not known."""
    if isinstance(facts.jobset, Unread):
        return None
    refused = refused_by(facts, facts.jobset)
    if refused is None:
        return bool(binding_mode(facts))
    return {RefusedBy.OURS: True, RefusedBy.OUR_OUTAGE: False}.get(refused.by)


def assigned_queue(facts: InstallationFacts) -> str:
    """Return the queue of a TrainJob that names none; "" if not known."""
    return _read_jobset(facts, lambda got: labels_of(got).get(QUEUE, ""))


def binding_mode(facts: InstallationFacts) -> str:
    """Return the mode of the webhook, bundled or external; "" if not known.

    It is `policy` if a policy of the API server admits TrainJobs, and no process of ours is needed.
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
    """Say whether a KAI binds pods, and no scheduler of ours is needed."""
    return binding_mode(facts) in {"external", MODE_POLICY}


def has_policy_only(facts: InstallationFacts) -> bool:
    """Say whether a policy admits TrainJobs instead of our webhooks."""
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
        return fault(check, f"the webhook {webhook} refuses it: {refused.message}", _CHECK_LOG)
    if refused.by is RefusedBy.OUR_POLICY:
        return fault(check, f"the policy {webhook} refuses it: {refused.message}", _CHECK_POLICY)
    if refused.by is RefusedBy.OUR_OUTAGE:
        remedy = "check that the webhook runs, and that the API server can reach and trust it"
        return fault(check, f"{webhook} does not respond: {refused.message}", remedy)
    if refused.by is RefusedBy.OTHER_OUTAGE:
        remedy = f"check that it responds; until then no {objects} can be created"
        return fault(
            check,
            f"the webhook {webhook} of another product does not respond: {refused.message}",
            remedy,
        )
    refuser = f"the webhook {webhook}" if webhook else refused.by.value
    return CheckFinding(check, CheckState.UNKNOWN, f"refused by {refuser}: {refused.message}")
