"""What dry runs tell."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    MODE_EXTERNAL,
    accepted_trainjob,
    check_results,
    healthy_installation,
    injected_jobset,
    refused_jobset,
    webhook_configurations,
)
from trainer_kai.api.meta import Meta
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.checks.dry_runs import (
    assigned_queue,
    binding_mode,
    webhook_answered,
)
from trainer_kai.cli.commands.doctor.facts import DryRun, InstallationFacts

HOOK = "jobset-create.trainer-kai.dev"
DENIED = f'admission webhook "{HOOK}" denied the request: trainer-kai failed to decide'
DENIED_BY_POLICY = (
    "x is forbidden: policy 'kai-trainer' with binding 'kai-trainer' denied request: no such key"
)
ROLES = 'x is forbidden: User "u" cannot create resource'
DISABLED = [Meta(name="a", labels={"trainer-kai.dev/inject": "disabled"})]
UNDECIDED = (
    'admission webhook "trainjob.trainer-kai.dev" denied the request: trainer-kai failed to decide'
)
UNREACHABLE = (
    f'Internal error occurred: failed calling webhook "{HOOK}": failed to call webhook: refused'
)


def jobset(dry_run: DryRun) -> InstallationFacts:
    return healthy_installation()._replace(jobset=dry_run)


def unchanged(kind: str, **fields: Any) -> DryRun:
    """Return a dry run of an object that no webhook changed, with some fields of metadata."""
    body = getattr(dry_run_objects, kind)("default")
    got = {**body, "metadata": {**body["metadata"], **fields}}
    return DryRun(body, got)


def scheduled(name: str) -> DryRun:
    got: Any = injected_jobset()
    got["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] = name
    return DryRun(dry_run_objects.jobset("default"), got)


def foreign(name: str = "default-scheduler", **fields: Any) -> InstallationFacts:
    dry_run: Any = unchanged("foreign_pod", **fields)
    dry_run.got["spec"]["schedulerName"] = name
    return healthy_installation()._replace(foreign_pod=dry_run)


CASES: list[Case[tuple[str, InstallationFacts], tuple[str, str]]] = [
    Case(
        "we refuse it ourselves",
        ("TrainJob dry run", jobset(refused_jobset(DENIED, 503))),
        ("fault", f"the webhook {HOOK} refuses it: trainer-kai failed to decide"),
    ),
    Case(
        "we do not answer",
        ("TrainJob dry run", jobset(refused_jobset(UNREACHABLE))),
        ("fault", f"{HOOK} does not respond: failed to call webhook: refused"),
    ),
    Case(
        "our policy refuses it",
        ("TrainJob dry run", jobset(refused_jobset(DENIED_BY_POLICY, 403))),
        ("fault", "the policy kai-trainer refuses it: no such key"),
    ),
    Case(
        "nobody injects it",
        ("TrainJob dry run", jobset(unchanged("jobset"))),
        (
            "fault",
            (
                "in default: its JobSet is created without the mark of admission, a scheduler "
                "name, a queue, a PodGroup"
            ),
        ),
    ),
    Case(
        "another scheduler name",
        ("TrainJob dry run", jobset(scheduled("mine"))),
        ("fault", "its pods get the scheduler name mine"),
    ),
    Case(
        "a policy of the site",
        (
            "TrainJob dry run",
            jobset(refused_jobset('admission webhook "v.kyverno.svc" denied the request: no')),
        ),
        ("unknown", "refused by the webhook v.kyverno.svc: no"),
    ),
    Case(
        "JobSet itself is away",
        (
            "TrainJob dry run",
            jobset(refused_jobset('failed calling webhook "mjobset.kb.io": refused')),
        ),
        ("fault", "the webhook mjobset.kb.io of another product does not respond: refused"),
    ),
    Case(
        "no right to try",
        ("TrainJob dry run", jobset(refused_jobset(ROLES, 403))),
        (
            "unknown",
            f"refused by the roles of the user: {ROLES}",
        ),
    ),
    Case(
        "what cannot work is refused",
        ("invalid TrainJob dry run", healthy_installation()),
        ("ok", "in default: it is refused"),
    ),
    Case(
        "what cannot work is taken",
        ("invalid TrainJob dry run", healthy_installation()._replace(trainjob=accepted_trainjob())),
        ("fault", "in default: a TrainJob with an invalid queue is accepted"),
    ),
    Case(
        "and nobody answers anyway",
        (
            "invalid TrainJob dry run",
            jobset(refused_jobset(UNREACHABLE))._replace(trainjob=accepted_trainjob()),
        ),
        ("unknown", "it is accepted, and no webhook of trainer-kai responds"),
    ),
    Case(
        "what cannot work is refused by others",
        (
            "invalid TrainJob dry run",
            healthy_installation()._replace(trainjob=refused_jobset("exceeded quota", 403)),
        ),
        ("unknown", "refused by the API server: exceeded quota"),
    ),
    Case(
        "what cannot work is refused for another reason",
        (
            "invalid TrainJob dry run",
            healthy_installation()._replace(trainjob=refused_jobset(UNDECIDED, 503)),
        ),
        ("fault", "the webhook trainjob.trainer-kai.dev refuses it: trainer-kai failed to decide"),
    ),
    Case(
        "a pod that joins nothing",
        ("gang pod dry run", healthy_installation()._replace(gang_pod=unchanged("gang_pod"))),
        ("fault", "in default: the pod gets no PodGroup"),
    ),
    Case(
        "a pod of others that is sent to us",
        ("other pod dry run", foreign("kai-scheduler")),
        ("fault", "in default: its scheduler is kai-scheduler"),
    ),
    Case(
        "one that is sent to somebody else",
        ("other pod dry run", foreign("yunikorn")),
        ("ok", "in default: the pod is unchanged"),
    ),
    Case(
        "one that is labelled",
        ("other pod dry run", foreign(labels={"kai.scheduler/queue": "a", "app": "b"})),
        ("fault", "in default: kai.scheduler/queue is set"),
    ),
    Case(
        "one that others change",
        ("other pod dry run", foreign(labels={"istio": "yes"})),
        ("ok", "in default: the pod is unchanged"),
    ),
    Case(
        "nobody takes part",
        ("namespaces", healthy_installation()._replace(namespaces=DISABLED)),
        ("warning", "none of 1 takes part; trainer-kai.dev/inject is set on a (disabled)"),
    ),
    Case(
        "there are no webhooks to take part in",
        ("namespaces", healthy_installation()._replace(configurations=[])),
        ("unknown", "the webhooks of trainer-kai are not installed"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_reported(case: Case[tuple[str, InstallationFacts], tuple[str, str]]) -> None:
    """Our own refusal is a fault, that of another webhook is unknown."""
    check, facts = case.given

    assert check_results(facts, check) == [case.want]


def test_a_policy_that_does_not_reach_a_trainjob() -> None:
    """It is there, and its binding is not."""
    policy = {"metadata": {"name": "kai-trainer"}}
    facts = healthy_installation()._replace(
        configurations=[], policies=[policy], jobset=unchanged("jobset")
    )

    assert check_results(facts, "TrainJob dry run") == [
        ("fault", "in default: its JobSet gets the scheduler none")
    ]


# what became of the JobSet -> whether we answered, in which mode, with which queue
SHOWN: list[Case[DryRun, tuple[bool | None, str, str]]] = [
    Case("injected", DryRun({}, injected_jobset()), (True, "bundled", "default-queue")),
    Case(
        "injected for a KAI",
        DryRun({}, injected_jobset(**{MODE_EXTERNAL: "true"})),
        (True, "external", "default-queue"),
    ),
    Case("untouched", unchanged("jobset"), (False, "", "")),
    Case("refused by us", refused_jobset(DENIED), (True, "", "")),
    Case("we are away", refused_jobset(UNREACHABLE), (False, "", "")),
    Case("refused by others", refused_jobset("exceeded quota", 403), (None, "", "")),
]


@pytest.mark.parametrize("case", SHOWN, ids=ids)
def test_what_a_dry_run_shows(case: Case[DryRun, tuple[bool | None, str, str]]) -> None:
    """Other checks go by it."""
    facts = jobset(case.given)

    assert (webhook_answered(facts), binding_mode(facts), assigned_queue(facts)) == case.want


def test_only_namespaces_that_all_webhooks_cover_take_part() -> None:
    """The label that asks for us counts where the configuration says so."""

    def opt_in(found: Any) -> None:
        for hook in found[0]["webhooks"]:
            requirement = hook["namespaceSelector"]["matchExpressions"][1]
            requirement |= {"operator": "In", "values": ["enabled"]}

    named = {name: {"kubernetes.io/metadata.name": name} for name in ("a", "b", "kube-system")}
    named["a"]["trainer-kai.dev/inject"] = "enabled"
    named["kube-system"]["trainer-kai.dev/inject"] = "enabled"
    metas = [Meta(name=name, labels=labels) for name, labels in named.items()]
    facts = healthy_installation()._replace(
        configurations=webhook_configurations(change=opt_in), namespaces=metas
    )

    (result,) = check_results(facts, "namespaces")

    assert result[0] == "ok"
    assert result[1].startswith("1 of 3 take part")
