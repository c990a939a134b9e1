"""Deployments, leaders and clocks."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    MODE_EXTERNAL,
    check_results,
    deployment,
    healthy_installation,
    injected_jobset,
    lease,
)
from trainer_kai.api.cluster_kinds import Deployment, DeploymentStatus, Lease
from trainer_kai.api.meta import Key, Meta
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    InstallationFacts,
    Obj,
    other_scheduler_objects,
)
from trainer_kai.policy.duplicate_scheduler import duplicate_scheduler_objects
from trainer_kai.service.settings import KaiSettings

GROUPER, SCHEDULER, WEBHOOK = (f"trainer-kai-{it}" for it in ("podgrouper", "scheduler", "webhook"))
KAI = lease("kai-scheduler", "kai-0", namespace="kai")
DEFAULT_SHARD = Meta(name="kai-scheduler-default", namespace="kai")
READY = Deployment(metadata=DEFAULT_SHARD, status=DeploymentStatus(ready_replicas=1))
UNREADY = Deployment(metadata=DEFAULT_SHARD)
OURS = "so trainer-kai's scheduler is paused"
DIFFERING_SETTINGS = [deployment(GROUPER, TRAINER_KAI_MODE="external"), deployment(SCHEDULER)]
EXTERNAL = DryRun(dry_run_objects.jobset("default"), injected_jobset(**{MODE_EXTERNAL: "true"}))


def facts(**fields: Any) -> InstallationFacts:
    return healthy_installation()._replace(**fields)


def deployed(scheduler: int) -> list[Obj]:
    return [deployment(GROUPER), deployment(SCHEDULER, scheduler), deployment(WEBHOOK)]


def with_leases(*leases: Lease, renewed: str = "", **fields: Any) -> InstallationFacts:
    """Return an installation with these Leases, one of which changed while it was looked at."""
    return facts(leases=leases, renewed=frozenset({f"trainer-kai/{renewed}"}), **fields)


def claiming_an_hour(ago_s: float) -> Lease:
    return lease("kai-scheduler", "kai-0", ago_s, namespace="kai", duration_s=3600)


def scaled(replicas: int = 2, ready: int = 2, updated: int = 2) -> list[Obj]:
    last = deployment(WEBHOOK, ready)
    last["spec"]["replicas"] = replicas
    last["status"]["updatedReplicas"] = updated
    return [deployment(GROUPER), deployment(SCHEDULER), last]


CLOSED = [
    deployment(GROUPER),
    deployment(SCHEDULER),
    deployment(WEBHOOK, TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED="closed"),
]
WITH_KUEUE = [
    deployment(GROUPER),
    deployment(SCHEDULER, TRAINER_KAI_KUEUE="true"),
    deployment(WEBHOOK, TRAINER_KAI_KUEUE="true"),
]
NOT_SHARING = [
    deployment(GROUPER),
    deployment(SCHEDULER),
    deployment(WEBHOOK, TRAINER_KAI_GPU_SHARING_ENABLED="false"),
]
CASES: list[Case[tuple[str, InstallationFacts], tuple[str, str]]] = [
    Case(
        "one replica of two",
        ("processes", facts(deployments=deployed(scheduler=1))),
        ("warning", f"{SCHEDULER} has 1 of 2 ready"),
    ),
    Case(
        "no replica",
        ("processes", facts(deployments=deployed(scheduler=0))),
        ("fault", f"{SCHEDULER} has 0 of 2 ready"),
    ),
    Case(
        "none is wanted",
        ("processes", facts(deployments=scaled(replicas=0, ready=0))),
        ("fault", f"{WEBHOOK} has 0 of 0 ready"),
    ),
    Case(
        "an upgrade that does not get on",
        ("processes", facts(deployments=scaled(updated=1))),
        ("warning", f"{WEBHOOK} still has pods of an older version"),
    ),
    Case(
        "one Deployment is missing",
        ("processes", facts(deployments=[deployment(GROUPER), deployment(WEBHOOK)])),
        ("warning", f"Deployment {SCHEDULER} does not exist"),
    ),
    Case(
        "settings that differ",
        ("mode", facts(deployments=DIFFERING_SETTINGS)),
        ("fault", f"TRAINER_KAI_MODE is external to {GROUPER}, bundled to {SCHEDULER}"),
    ),
    Case(
        "queues that are closed at one door",
        ("mode", facts(deployments=CLOSED)),
        (
            "fault",
            f"TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED is open to {SCHEDULER}, closed to {WEBHOOK}",
        ),
    ),
    Case(
        "shares of GPUs that one process does not know of",
        ("mode", facts(deployments=NOT_SHARING)),
        ("fault", f"TRAINER_KAI_GPU_SHARING_ENABLED is true to {SCHEDULER}, false to {WEBHOOK}"),
    ),
    Case(
        "two that bind",
        ("mode", facts(jobset=EXTERNAL)),
        ("fault", "the mode is external, but the scheduler of trainer-kai leads"),
    ),
    Case(
        "a Lease that nobody has made",
        ("leases", with_leases(lease(SCHEDULER))),
        ("fault", f"Lease trainer-kai/{GROUPER} does not exist: no process has ever led"),
    ),
    Case(
        "one that was given back",
        ("leases", with_leases(lease(GROUPER, holder=""))),
        ("fault", f"Lease trainer-kai/{GROUPER} has no holder"),
    ),
    Case(
        "one that is not renewed",
        ("leases", with_leases(lease(GROUPER, ago_s=40))),
        ("fault", f"one has not renewed Lease trainer-kai/{GROUPER} for 40 s"),
    ),
    Case(
        "not for long",
        ("leases", with_leases(lease(GROUPER, ago_s=4000))),
        (
            "fault",
            f"one has not renewed Lease trainer-kai/{GROUPER} since 2026-05-01T10:53:20+00:00",
        ),
    ),
    Case(
        "by a clock that is behind",
        ("leases", with_leases(lease(GROUPER, ago_s=40), renewed=GROUPER)),
        ("ok", "held by one"),
    ),
    Case(
        "a KAI that lives",
        ("another scheduler", facts(other_scheduler_leases=[KAI])),
        (
            "fault",
            (
                "another scheduler holds Lease kai/kai-scheduler (holder kai-0), so "
                "trainer-kai's scheduler is paused"
            ),
        ),
    ),
    Case(
        "a KAI of one replica",
        ("another scheduler", facts(other_scheduler_deployments=[READY])),
        (
            "fault",
            f"another scheduler is ready as Deployment {READY.metadata.key} (replicas 1), {OURS}",
        ),
    ),
    Case(
        "a KAI that is not ready",
        ("another scheduler", facts(other_scheduler_deployments=[UNREADY])),
        ("ok", "no other scheduler with the name kai-scheduler"),
    ),
    Case(
        "a KAI that is gone",
        (
            "another scheduler",
            facts(other_scheduler_leases=[lease("kai-scheduler", ago_s=60, namespace="kai")]),
        ),
        ("ok", "no other scheduler with the name kai-scheduler"),
    ),
    Case(
        "a KAI that is gone, and had claimed an hour",
        ("another scheduler", facts(other_scheduler_leases=[claiming_an_hour(ago_s=600)])),
        ("ok", "no other scheduler with the name kai-scheduler"),
    ),
    Case(
        "a KAI that claims an hour, and lives",
        ("another scheduler", facts(other_scheduler_leases=[claiming_an_hour(ago_s=50)])),
        ("fault", f"another scheduler holds Lease kai/kai-scheduler (holder kai-0), {OURS}"),
    ),
    Case(
        "one of ours that claims an hour",
        ("leases", with_leases(lease(GROUPER, ago_s=600, duration_s=3600))),
        ("ok", "held by one"),
    ),
    Case(
        "nobody binds",
        ("another scheduler", facts(jobset=EXTERNAL)),
        ("warning", "no scheduler with the name kai-scheduler found, so no pods are bound"),
    ),
    Case(
        "TrainJobs of Kueue",
        ("Kueue", facts(kueue_trainjobs=["a/b", "a/c"], deployments=WITH_KUEUE)),
        ("warning", "a/b, a/c is in a queue of Kueue"),
    ),
    Case(
        "TrainJobs with the label of a Kueue that does not run",
        ("Kueue", facts(kueue_trainjobs=["a/b"])),
        ("warning", "a/b has the label kueue.x-k8s.io/queue-name, which has no effect"),
    ),
    Case(
        "TrainJobs with the label of Kueue, and no Deployment that shows the setting",
        ("Kueue", facts(kueue_trainjobs=["a/b"], deployments=[])),
        ("warning", "a/b has the label kueue.x-k8s.io/queue-name"),
    ),
    Case(
        "a clock that is far behind",
        ("clocks", with_leases(lease(GROUPER, ago_s=100), renewed=GROUPER)),
        ("fault", "the clock of one is 100 s behind the API server's"),
    ),
    Case(
        "a clock that is a little ahead",
        ("clocks", with_leases(lease(GROUPER, ago_s=-20), renewed=GROUPER)),
        ("warning", "the clock of one is 20 s ahead of the API server's"),
    ),
    Case(
        "our own clock",
        ("clocks", with_leases(lease(GROUPER, ago_s=-30), skew_s=30.0)),
        ("warning", "the clock of this machine is 30 s behind the API server's"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_processes_leases_and_clocks(
    case: Case[tuple[str, InstallationFacts], tuple[str, str]],
) -> None:
    """Processes may run anywhere; Leases tell."""
    check, installation_facts = case.given

    assert check_results(installation_facts, check)[0] == case.want


def test_others_are_looked_for_where_the_settings_say() -> None:
    """The doctor spells the defaults once more, for settings take long to import."""
    kai, own = KaiSettings(), Key("trainer-kai", SCHEDULER)

    assert other_scheduler_objects(healthy_installation()) == duplicate_scheduler_objects(
        "kai-scheduler", [kai.namespaces], [kai.shards], own
    )


def test_dates_are_compared_with_the_api_servers() -> None:
    """A Lease is no older because the machine that asks is behind."""
    behind = with_leases(lease(GROUPER, ago_s=-30), lease(SCHEDULER, ago_s=-30), skew_s=30.0)

    assert [state for state, _ in check_results(behind, "leases")] == ["ok", "ok"]
