"""What dry runs showed: a TrainJob's JobSet is injected, its pods are marked, others are let be."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    GANG,
    INJECT,
    KAI_PREFIX,
    OURS,
    POD_GROUP,
    QUEUE,
    SKIP_PODGROUPER,
)
from trainer_kai.cli.doctor.facts import Facts, Obj, Trial, at, labels_of, listed, name_of
from trainer_kai.cli.doctor.finding import (
    CannotTell,
    Finding,
    State,
    Unread,
    fault,
    known,
    ok,
    warning,
)
from trainer_kai.cli.doctor.hooks import covers, live_hooks
from trainer_kai.cli.doctor.refused import By, Refused, read_refusal

__all__ = [
    "POLICY",
    "TRAINJOB",
    "answered",
    "check_foreign_pod",
    "check_gang_pod",
    "check_jobset",
    "check_namespaces",
    "check_refusal",
    "given_queue",
    "has_kai",
    "has_policy_only",
    "mode_of",
    "reaching",
    "refused_by",
]

POLICY: Final = "policy"
TRAINJOB: Final = "a TrainJob"  # the check that all the others are for
_MUTATE: Final = "/mutate/"
_OURS: Final = (KAI_PREFIX, OURS, POD_GROUP)
_REFUSES: Final = (
    "manifests/overlays/policy-only, applied again: TrainJobs are refused as this one is"
)
_LOG: Final = "what it asks for, or what its log says: TrainJobs are refused as this one is"


def check_jobset(facts: Facts) -> Iterator[Finding]:
    """Say whether the JobSet of a TrainJob gets scheduler name, queue and marks."""
    check, trial = TRAINJOB, known(facts.jobset)
    refused = refused_by(facts, trial)
    if refused is not None:
        yield _refused(check, "JobSets of TrainJobs", refused)
        return
    got = trial.got or {}
    template = _template(got)
    if has_policy_only(facts):
        yield _by_policy(facts, trial, str(at(template, "spec", "schedulerName") or ""))
        return
    lacks = [
        *(["the mark"] if labels_of(got, "annotations").get(ADMITTED) != ADMITTED_MARK else []),
        *(["a scheduler name"] if not at(template, "spec", "schedulerName") else []),
        *(["a queue"] if not labels_of(got).get(QUEUE) else []),
        *(["a group"] if GANG not in labels_of(template) else []),
    ]
    if lacks:
        right = "webhooks that are called there, and a process behind them that answers"
        yield fault(
            check, f"its JobSet in {trial.namespace} is made without {listed(lacks)}", right
        )
        return
    name, queue = at(template, "spec", "schedulerName"), labels_of(got)[QUEUE]
    if name != facts.site.scheduler_name:
        right = f"--scheduler-name {name}, if that is what the site has chosen"
        yield fault(check, f"it gets the scheduler name {name}", right)
    else:
        yield ok(check, f"dry in {trial.namespace}: queue {queue}, scheduler {name}")


def _by_policy(facts: Facts, trial: Trial, name: str) -> Finding:
    """Judge a JobSet that only gets its scheduler: groups and queues are KAI's to find."""
    check, wanted = TRAINJOB, facts.site.scheduler_name
    if name == wanted:
        return ok(check, f"dry in {trial.namespace}: scheduler {name}")
    right = "a binding of the policy, in a namespace that takes part"
    return fault(
        check, f"its JobSet in {trial.namespace} gets the scheduler {name or 'none'}", right
    )


def check_gang_pod(facts: Facts) -> Iterator[Finding]:
    """Say whether a pod of a gang is put into its group."""
    check = "a pod of a gang"
    if has_policy_only(facts):
        yield ok(check, "left to the KAI that is there")
        return
    trial = known(facts.gang_pod)
    refused = refused_by(facts, trial)
    if refused is not None:
        yield _refused(check, "pods of gangs", refused)
        return
    group = labels_of(trial.got or {}, "annotations").get(POD_GROUP)
    if group:
        yield ok(check, f"dry in {trial.namespace}: it joins its group")
    else:
        right = "a webhook that answers: pods of gangs that are made meanwhile are in no group"
        yield fault(check, f"dry in {trial.namespace}: it joins no group", right)


def check_foreign_pod(facts: Facts) -> Iterator[Finding]:
    """Say whether a pod of others stays as it is."""
    check, trial = "a pod of others", known(facts.foreign_pod)
    refused = refused_by(facts, trial)
    if refused is not None:
        yield _refused(check, "pods that are not ours", refused)
        return
    got = trial.got or {}
    name = at(got, "spec", "schedulerName")
    names = [*labels_of(got), *labels_of(got, "annotations")]
    touched = [f"{it} is set" for it in names if it.startswith(_OURS)]
    if name == facts.site.scheduler_name:
        touched.append(f"its scheduler is {name}")
    if touched:
        right = "no policy or webhook that writes this on pods that nobody gave to us"
        yield fault(check, f"dry in {trial.namespace}: {listed(touched)}", right)
    else:
        yield ok(check, f"dry in {trial.namespace}: it is let be")


def check_refusal(facts: Facts) -> Iterator[Finding]:
    """Say whether a TrainJob that cannot work is refused."""
    check = "a wrong TrainJob"
    if has_policy_only(facts):
        yield ok(check, "not judged: a policy refuses nothing")
        return
    trial = known(facts.trainjob)
    refused = refused_by(facts, trial)
    if refused is not None and refused.by is By.OURS and QUEUE in refused.why:
        yield ok(check, f"dry in {trial.namespace}: it is refused")
    elif refused is not None:
        yield _refused(check, "TrainJobs", refused)
    elif answered(facts) is not True:
        raise CannotTell("it is taken, and no webhook of ours answers")
    else:
        right = "validating webhooks that are called there, and trust the webhook"
        yield fault(
            check, f"dry in {trial.namespace}: one with a queue that cannot be is taken", right
        )


def check_namespaces(facts: Facts) -> Iterator[Finding]:
    """Say which namespaces take part."""
    check, hooks = "namespaces", reaching(facts)
    metas = known(facts.namespaces)
    taking = [it.name for it in metas if hooks and all(covers(hook, it.labels) for hook in hooks)]
    said = [f"{it.name} ({it.labels[INJECT]})" for it in metas if INJECT in it.labels]
    label = f"; {INJECT} stands on {listed(said)}" if said else ""
    if taking:
        yield ok(check, f"{len(taking)} of {len(metas)} take part{label}")
    elif hooks:
        right = f"the label {INJECT}=enabled on a namespace whose TrainJobs are ours"
        yield warning(check, f"none of {len(metas)} takes part{label}", right)
    else:
        raise CannotTell("there are no webhooks of ours")


def refused_by(facts: Facts, trial: Trial) -> Refused | None:
    """Return who refused a dry run, unless it went through."""
    if trial.refusal is None:
        return None
    configurations = facts.manifests.configurations
    hooks = {hook.name for it in configurations for hook in it.hooks}
    policies = {it.name for it in configurations}
    return read_refusal(trial.refusal, frozenset(hooks), frozenset(policies))


def reaching(facts: Facts) -> list[Obj]:
    """Return what says by a selector which namespaces take part: webhooks, or the policy."""
    if not has_policy_only(facts):
        return [hook for wanted, hook in live_hooks(facts) if wanted.path.startswith(_MUTATE)]
    names = {it.name for it in facts.manifests.configurations}
    ours = [it for it in known(facts.policies) if name_of(it) in names]
    return [at(it, "spec", "matchConstraints") or {} for it in ours]


def answered(facts: Facts) -> bool | None:
    """Say whether the webhook was asked about a JobSet, and gave an answer; None: nobody knows."""
    if isinstance(facts.jobset, Unread):
        return None
    refused = refused_by(facts, facts.jobset)
    if refused is None:
        return bool(mode_of(facts))
    return {By.OURS: True, By.OUR_OUTAGE: False}.get(refused.by)


def given_queue(facts: Facts) -> str:
    """Return the queue that a TrainJob gets that names none; "" where that did not show."""
    return _of_jobset(facts, lambda got: labels_of(got).get(QUEUE, ""))


def mode_of(facts: Facts) -> str:
    """Return who binds: bundled, external, as the webhook was told; "" where that did not show.

    Where a policy of the API server injects, and no process of ours is needed, it is `policy`.
    """
    if has_policy_only(facts):
        return POLICY
    admitted = _of_jobset(facts, lambda got: labels_of(got, "annotations").get(ADMITTED, ""))
    if not admitted:
        return ""
    left = _of_jobset(facts, lambda got: labels_of(got, "annotations").get(SKIP_PODGROUPER, ""))
    return "external" if left else "bundled"


def has_kai(facts: Facts) -> bool:
    """Say whether a KAI binds, and no scheduler of ours is needed."""
    return mode_of(facts) in {"external", POLICY}


def has_policy_only(facts: Facts) -> bool:
    """Say whether a policy does what else a webhook does."""
    if isinstance(facts.policies, Unread) or isinstance(facts.configurations, Unread):
        return False
    names = {it.name for it in facts.manifests.configurations}
    return any(name_of(it) in names for it in facts.policies) and not live_hooks(facts)


def _of_jobset(facts: Facts, read: Callable[[Obj], str]) -> str:
    trial = facts.jobset
    return "" if isinstance(trial, Unread) or trial.got is None else read(trial.got)


def _template(jobset: Obj) -> Mapping[str, Any]:
    """Return the pod template of the first replicatedJob."""
    first = next(iter(at(jobset, "spec", "replicatedJobs") or ()), None)
    found = at(first, "template", "spec", "template")
    return found if isinstance(found, Mapping) else {}


def _refused(check: str, whose: str, refused: Refused) -> Finding:
    hook = refused.hook
    if refused.by is By.OURS:
        return fault(check, f"our webhook {hook} refuses it: {refused.why}", _LOG)
    if refused.by is By.OUR_POLICY:
        return fault(check, f"our policy {hook} refuses it: {refused.why}", _REFUSES)
    if refused.by is By.OUR_OUTAGE:
        right = "a webhook that runs, and that the API server reaches and trusts"
        return fault(check, f"{hook} does not answer: {refused.why}", right)
    if refused.by is By.OTHER_OUTAGE:
        right = f"that it answers: until then no {whose} are made"
        return fault(check, f"the webhook {hook} of others does not answer: {refused.why}", right)
    who = f"the webhook {hook}" if hook else refused.by.value
    return Finding(check, State.UNKNOWN, f"cannot tell: refused by {who}: {refused.why}")
