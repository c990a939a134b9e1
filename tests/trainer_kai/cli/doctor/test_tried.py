"""What dry runs tell."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.doctor.sound import (
    MODE_EXTERNAL,
    configured,
    injected,
    refused,
    sound,
    states,
    taken,
)
from trainer_kai.api.meta import Meta
from trainer_kai.cli.doctor import trials
from trainer_kai.cli.doctor.facts import Facts, Trial
from trainer_kai.cli.doctor.tried import answered, given_queue, mode_of

HOOK = "jobset-create.trainer-kai.dev"
DENIED = f'admission webhook "{HOOK}" denied the request: trainer-kai failed to decide'
RULED = (
    "x is forbidden: policy 'kai-trainer' with binding 'kai-trainer' denied request: no such key"
)
ROLES = 'x is forbidden: User "u" cannot create resource'
OUT = [Meta(name="a", labels={"trainer-kai.dev/inject": "disabled"})]
DECIDED_NOT = (
    'admission webhook "trainjob.trainer-kai.dev" denied the request: trainer-kai failed to decide'
)
AWAY = f'Internal error occurred: failed calling webhook "{HOOK}": failed to call webhook: refused'


def jobset(trial: Trial) -> Facts:
    """Return what becomes of the JobSet."""
    return sound()._replace(jobset=trial)


def left(kind: str, **fields: Any) -> Trial:
    """Return a dry run of what nobody touched, with some fields of metadata."""
    body = getattr(trials, kind)("default")
    got = {**body, "metadata": {**body["metadata"], **fields}}
    return Trial(body, got)


def scheduled(name: str) -> Trial:
    """Return an injected JobSet, or somebody's pod, with a scheduler name."""
    got: Any = injected()
    got["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] = name
    return Trial(trials.jobset("default"), got)


def foreign(name: str = "default-scheduler", **fields: Any) -> Facts:
    """Return what becomes of a pod of others."""
    trial: Any = left("foreign_pod", **fields)
    trial.got["spec"]["schedulerName"] = name
    return sound()._replace(foreign_pod=trial)


TOLD: list[Case[tuple[str, Facts], tuple[str, str]]] = [
    Case(
        "we refuse it ourselves",
        ("a TrainJob", jobset(refused(DENIED, 503))),
        ("fault", f"our webhook {HOOK} refuses it: trainer-kai failed to decide"),
    ),
    Case(
        "we do not answer",
        ("a TrainJob", jobset(refused(AWAY))),
        ("fault", f"{HOOK} does not answer: failed to call webhook: refused"),
    ),
    Case(
        "our policy refuses it",
        ("a TrainJob", jobset(refused(RULED, 403))),
        ("fault", "our policy kai-trainer refuses it: no such key"),
    ),
    Case(
        "nobody injects it",
        ("a TrainJob", jobset(left("jobset"))),
        (
            "fault",
            "its JobSet in default is made without the mark, a scheduler name, a queue, a group",
        ),
    ),
    Case(
        "another scheduler name",
        ("a TrainJob", jobset(scheduled("mine"))),
        ("fault", "it gets the scheduler name mine"),
    ),
    Case(
        "a policy of the site",
        ("a TrainJob", jobset(refused('admission webhook "v.kyverno.svc" denied the request: no'))),
        ("unknown", "cannot tell: refused by the webhook v.kyverno.svc: no"),
    ),
    Case(
        "JobSet itself is away",
        ("a TrainJob", jobset(refused('failed calling webhook "mjobset.kb.io": refused'))),
        ("fault", "the webhook mjobset.kb.io of others does not answer: refused"),
    ),
    Case(
        "no right to try",
        ("a TrainJob", jobset(refused(ROLES, 403))),
        (
            "unknown",
            f"cannot tell: refused by the roles of the user: {ROLES}",
        ),
    ),
    Case(
        "what cannot work is refused",
        ("a wrong TrainJob", sound()),
        ("ok", "dry in default: it is refused"),
    ),
    Case(
        "what cannot work is taken",
        ("a wrong TrainJob", sound()._replace(trainjob=taken())),
        ("fault", "dry in default: one with a queue that cannot be is taken"),
    ),
    Case(
        "and nobody answers anyway",
        ("a wrong TrainJob", jobset(refused(AWAY))._replace(trainjob=taken())),
        ("unknown", "cannot tell: it is taken, and no webhook of ours answers"),
    ),
    Case(
        "what cannot work is refused by others",
        ("a wrong TrainJob", sound()._replace(trainjob=refused("exceeded quota", 403))),
        ("unknown", "cannot tell: refused by the API server: exceeded quota"),
    ),
    Case(
        "what cannot work is refused for another reason",
        ("a wrong TrainJob", sound()._replace(trainjob=refused(DECIDED_NOT, 503))),
        ("fault", "our webhook trainjob.trainer-kai.dev refuses it: trainer-kai failed to decide"),
    ),
    Case(
        "a pod that joins nothing",
        ("a pod of a gang", sound()._replace(gang_pod=left("gang_pod"))),
        ("fault", "dry in default: it joins no group"),
    ),
    Case(
        "a pod of others that is sent to us",
        ("a pod of others", foreign("kai-scheduler")),
        ("fault", "dry in default: its scheduler is kai-scheduler"),
    ),
    Case(
        "one that is sent to somebody else",
        ("a pod of others", foreign("yunikorn")),
        ("ok", "dry in default: it is let be"),
    ),
    Case(
        "one that is labelled",
        ("a pod of others", foreign(labels={"kai.scheduler/queue": "a", "app": "b"})),
        ("fault", "dry in default: kai.scheduler/queue is set"),
    ),
    Case(
        "one that others change",
        ("a pod of others", foreign(labels={"istio": "yes"})),
        ("ok", "dry in default: it is let be"),
    ),
    Case(
        "nobody takes part",
        ("namespaces", sound()._replace(namespaces=OUT)),
        ("warning", "none of 1 takes part; trainer-kai.dev/inject stands on a (disabled)"),
    ),
    Case(
        "there are no webhooks to take part in",
        ("namespaces", sound()._replace(configurations=[])),
        ("unknown", "cannot tell: there are no webhooks of ours"),
    ),
]


@pytest.mark.parametrize("case", TOLD, ids=ids)
def test_what_is_told(case: Case[tuple[str, Facts], tuple[str, str]]) -> None:
    """Our own refusal is a fault, that of others is not ours to judge."""
    check, facts = case.given

    assert states(facts, check) == [case.want]


def test_a_policy_that_does_not_reach_a_trainjob() -> None:
    """It is there, and its binding is not."""
    policy = {"metadata": {"name": "kai-trainer"}}
    facts = sound()._replace(configurations=[], policies=[policy], jobset=left("jobset"))

    assert states(facts, "a TrainJob") == [
        ("fault", "its JobSet in default gets the scheduler none")
    ]


# what became of the JobSet -> whether we answered, in which mode, with which queue
SHOWN: list[Case[Trial, tuple[bool | None, str, str]]] = [
    Case("injected", Trial({}, injected()), (True, "bundled", "default-queue")),
    Case(
        "injected for a KAI",
        Trial({}, injected(**{MODE_EXTERNAL: "true"})),
        (True, "external", "default-queue"),
    ),
    Case("untouched", left("jobset"), (False, "", "")),
    Case("refused by us", refused(DENIED), (True, "", "")),
    Case("we are away", refused(AWAY), (False, "", "")),
    Case("refused by others", refused("exceeded quota", 403), (None, "", "")),
]


@pytest.mark.parametrize("case", SHOWN, ids=ids)
def test_what_a_dry_run_shows(case: Case[Trial, tuple[bool | None, str, str]]) -> None:
    """Other checks go by it."""
    facts = jobset(case.given)

    assert (answered(facts), mode_of(facts), given_queue(facts)) == case.want


def test_only_namespaces_that_all_webhooks_cover_take_part() -> None:
    """The label that asks for us counts where the configuration says so."""

    def opt_in(found: Any) -> None:
        for hook in found[0]["webhooks"]:
            wish = hook["namespaceSelector"]["matchExpressions"][1]
            wish |= {"operator": "In", "values": ["enabled"]}

    named = {name: {"kubernetes.io/metadata.name": name} for name in ("a", "b", "kube-system")}
    named["a"]["trainer-kai.dev/inject"] = "enabled"
    named["kube-system"]["trainer-kai.dev/inject"] = "enabled"
    metas = [Meta(name=name, labels=labels) for name, labels in named.items()]
    facts = sound()._replace(configurations=configured(change=opt_in), namespaces=metas)

    (told,) = states(facts, "namespaces")

    assert told[0] == "ok"
    assert told[1].startswith("1 of 3 take part")
