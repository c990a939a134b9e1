"""Processes: Deployments, Leases and their holders, other schedulers, settings and clocks.

Processes may run outside of the cluster; then only Leases and dry runs show them.

The settings of the processes that differ from their defaults, as their Deployments show them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.names import DEFAULT_QUEUE, KUEUE_QUEUE, SCHEDULER_NAME
from trainer_kai.cli.commands.doctor.checks.dry_runs import (
    MODE_POLICY,
    binding_mode,
    kai_binds,
)
from trainer_kai.cli.commands.doctor.checks.permissions import SCHEDULER
from trainer_kai.cli.commands.doctor.facts import (
    CLOCK_S,
    UNKNOWN_VALUE,
    InstallationFacts,
    Obj,
    containers_of,
    has_hidden_settings,
    is_alive,
    listed,
    name_of,
    nested_field,
    other_scheduler_objects,
    parse_time,
    settings_of,
    webhook_setting,
)
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    Unread,
    fault,
    ok,
    require,
    unknown,
    warning,
)
from trainer_kai.policy.duplicate_scheduler import (
    REMEDY,
    deployment_ready_message,
    lease_held_message,
)
from trainer_kai.service import config
from trainer_kai.service.settings import PROCESSES

_PREFIX: Final = "TRAINER_KAI_"


def check_settings(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Show for each Deployment of ours which settings its variables and flags change."""
    deployments = {name_of(it): it for it in require(facts.deployments)}
    shown = [
        f"{name.removeprefix('trainer-kai-')}: {_settings_text(name, deployments[name])}"
        for name in facts.manifests.deployments
        if name in deployments
    ]
    where = f"no Deployment in {facts.installation.namespace} shows settings"
    yield ok("settings", "; ".join(shown) or where)


def _settings_text(name: str, deployment: Obj) -> str:
    names = _setting_names(name.removeprefix("trainer-kai-"))
    changed = [
        f"{names[variable][0]}={'from another object' if value == UNKNOWN_VALUE else value}"
        for variable, value in settings_of(deployment).items()
        if variable in names and value.lower() != names[variable][1].lower()
    ]
    hidden = ["more in a file or ConfigMap"] if has_hidden_settings(deployment) else []
    return ", ".join([*changed, *hidden]) or "defaults"


def _setting_names(process: str) -> Mapping[str, tuple[str, str]]:
    """Return name and default of each setting, by its variable without the prefix."""
    model = PROCESSES.get(process)
    settings = config.settings_of(model).values() if model else ()
    return {it.variable.removeprefix(_PREFIX): (it.name, str(it.default)) for it in settings}


_PODGROUPER: Final = "trainer-kai-podgrouper"
_SHARED_SETTINGS: Final = {  # settings that must be the same for all processes, with their defaults
    "MODE": "bundled",
    "SCHEDULER_NAME": SCHEDULER_NAME,
    "DEFAULT_QUEUE": DEFAULT_QUEUE,
    "QUEUE_ACCESS_UNANNOTATED": "open",
    "KUEUE": "false",
    "GPU_SHARING_ENABLED": "true",
    "GPU_SHARING_RUNTIME_CLASS": "nvidia",
    "GPU_SHARING_MEMORY_LIMITS": "off",
}
# Processes that do not have a setting, or ignore it.
_WITHOUT_SETTING: Final = dict.fromkeys(
    (
        *("QUEUE_ACCESS_UNANNOTATED", "KUEUE"),
        *("GPU_SHARING_ENABLED", "GPU_SHARING_RUNTIME_CLASS", "GPU_SHARING_MEMORY_LIMITS"),
    ),
    _PODGROUPER,
)
_FAULT_S: Final = 60.0


def check_processes(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the Deployments of our processes are ready."""
    check, found = "processes", {name_of(it): it for it in require(facts.deployments)}
    our_deployments = [found[name] for name in facts.manifests.deployments if name in found]
    missing = [name for name in facts.manifests.deployments if name not in found]
    if SCHEDULER in missing and kai_binds(facts):
        missing.remove(SCHEDULER)
    unready = [_readiness_text(it) for it in our_deployments if _is_unready(it)]
    outdated = [name_of(it) for it in our_deployments if not _is_unready(it) and _has_old_pods(it)]
    unavailable = [
        _readiness_text(it)
        for it in our_deployments
        if not _ready_replicas(it) and (_wanted_replicas(it) or not kai_binds(facts))
    ]
    images = {image for it in our_deployments for image in _images(it)}
    if not our_deployments:
        yield ok(
            check,
            f"no Deployment in {facts.installation.namespace}; the processes may run elsewhere",
        )
    elif unavailable:
        remedy = "see `kubectl describe` and `kubectl logs` of their pods"
        yield fault(check, listed(unavailable), remedy)
    elif missing:
        remedy = "apply the overlay again, unless these processes run elsewhere"
        yield warning(check, f"Deployment {listed(missing)} does not exist", remedy)
    elif unready:
        yield warning(
            check,
            listed(unready),
            "check the missing replicas; a further failure stops the process",
        )
    elif outdated:
        remedy = "see `kubectl rollout status`"
        yield warning(check, f"{listed(outdated)} still has pods of an older version", remedy)
    elif len(images) > 1:
        yield warning(
            check, f"the Deployments use {listed(sorted(images))}", "use one image for all of them"
        )
    else:
        yield ok(check, f"{len(our_deployments)} Deployments are ready")


def check_mode(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say which scheduler binds pods, and whether all processes have the same settings."""
    check, mode = "mode", binding_mode(facts)
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    settings_by_process = {
        name_of(it): settings_of(it) for it in deployments if _is_ours(it, facts)
    }
    for name, default in _SHARED_SETTINGS.items():
        values = {
            process: settings.get(name, default)
            for process, settings in settings_by_process.items()
            if process != _WITHOUT_SETTING.get(name)
        }
        if len(set(values.values()) - {UNKNOWN_VALUE}) > 1:
            described = listed(f"{value} to {process}" for process, value in sorted(values.items()))
            yield fault(
                check, f"TRAINER_KAI_{name} is {described}", "set the same value for all processes"
            )
            return
    if not mode:
        raise CannotTell("no dry run was answered")
    if (
        mode != "bundled"
        and not isinstance(facts.leases, Unread)
        and _has_live_lease(SCHEDULER, facts)
    ):
        remedy = "set the same mode for all processes, or stop the scheduler of trainer-kai"
        yield fault(check, f"the mode is {mode}, but the scheduler of trainer-kai leads", remedy)
        return
    process = "trainer-kai's scheduler binds pods" if mode == "bundled" else "KAI binds pods"
    yield ok(check, f"{mode}: {process}")


def check_leases(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say which podgrouper and which scheduler leads, and whether it renews its Lease."""
    for name in (_PODGROUPER, SCHEDULER):
        check = f"lease of {name.removeprefix('trainer-kai-')}"
        if binding_mode(facts) == MODE_POLICY or (name == SCHEDULER and kai_binds(facts)):
            yield ok(check, "not needed: KAI does this")
            continue
        try:
            yield _lease_finding(check, name, facts)
        except CannotTell as error:
            yield unknown(check, error)


def _lease_finding(check: str, name: str, facts: InstallationFacts) -> CheckFinding:
    lease = next((it for it in require(facts.leases) if it.metadata.name == name), None)
    remedy = f"check that the {name.removeprefix('trainer-kai-')} runs, and may write its Lease"
    where = f"{facts.installation.namespace}/{name}"
    if lease is None:
        return fault(check, f"Lease {where} does not exist: no process has ever led", remedy)
    holder = lease.spec.holder_identity
    if not holder:
        return fault(check, f"Lease {where} has no holder", remedy)
    if not is_alive(lease, facts):
        since = _age_text(lease, facts)
        return fault(check, f"{holder} has not renewed Lease {where} {since}", remedy)
    return ok(check, f"held by {holder}")


def check_other_schedulers(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether another scheduler binds the same pods; in mode external one has to."""
    check, name, beside_kai = (
        "another scheduler",
        facts.installation.scheduler_name,
        kai_binds(facts),
    )
    alive = [
        it
        for it in require(facts.other_scheduler_leases)
        if is_alive(it, facts, is_other_scheduler=True)
    ]
    ready = [
        it for it in require(facts.other_scheduler_deployments) if it.status.ready_replicas > 0
    ]
    active = [
        *(lease_held_message(it.metadata.key, it.spec.holder_identity) for it in alive),
        *(deployment_ready_message(it.metadata.key, it.status.ready_replicas) for it in ready),
    ]
    if active and beside_kai:
        yield ok(check, f"KAI binds pods: {listed(active)}")
    elif active:
        remedy = f"{REMEDY}, or set mode external"
        yield fault(check, f"{listed(active)}, so trainer-kai's scheduler is paused", remedy)
    elif beside_kai:
        where = listed(map(str, other_scheduler_objects(facts).deployments))
        remedy = f"start KAI; expected is a ready Deployment {where}"
        yield warning(
            check, f"no scheduler with the name {name} found, so no pods are bound", remedy
        )
    else:
        yield ok(check, f"no other scheduler with the name {name}")


def check_kueue(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether TrainJobs are managed by Kueue as well."""
    check, names = "Kueue", require(facts.kueue_trainjobs)
    setting = webhook_setting(facts, "KUEUE", "false")
    if not names:
        yield ok(check, "no TrainJob uses Kueue")
    elif setting == UNKNOWN_VALUE:
        observed = f"{listed(names, 3)} has the label {KUEUE_QUEUE}"
        remedy = "the label has an effect only with the setting kueue; without it remove the label"
        yield warning(check, observed, remedy)
    elif setting.lower() == "false":
        observed = f"{listed(names, 3)} has the label {KUEUE_QUEUE}, which has no effect"
        yield warning(
            check, observed, "if Kueue runs here, set the setting kueue; otherwise remove the label"
        )
    else:
        remedy = f"choose one: TrainJobs with {KUEUE_QUEUE} are admitted by Kueue and never evicted"
        yield warning(
            check, f"{listed(names, 3)} is in a queue of Kueue", f"{remedy} by trainer-kai"
        )


def check_clocks(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether clocks agree; start times, grace periods and certificates depend on them."""
    check, skew_s = "clocks", require(facts.skew_s)
    now = facts.now + timedelta(seconds=skew_s)
    ahead = {} if isinstance(facts.leases, Unread) else _clock_skews(facts, now)
    most_skewed = max(ahead, key=lambda it: abs(ahead[it]), default="")
    remedy = "synchronize the clocks, for instance by NTP"
    if most_skewed and abs(ahead[most_skewed]) > CLOCK_S:
        observed = (
            f"the clock of {most_skewed} is {_skew_text(ahead[most_skewed])} the API server's"
        )
        yield (fault if abs(ahead[most_skewed]) > _FAULT_S else warning)(check, observed, remedy)
    elif abs(skew_s) > CLOCK_S:
        yield warning(
            check, f"the clock of this machine is {_skew_text(-skew_s)} the API server's", remedy
        )
    else:
        yield ok(check, "synchronized")


def _has_live_lease(name: str, facts: InstallationFacts) -> bool:
    return any(it.metadata.name == name and is_alive(it, facts) for it in require(facts.leases))


def _clock_skews(facts: InstallationFacts, now: datetime) -> Mapping[str, float]:
    """Return how far the clocks of leaders are ahead, by Leases renewed between two reads.

    An old date of another Lease is no evidence about a clock.
    """
    skews = {}
    for lease in require(facts.leases):
        renewed = parse_time(lease.spec.renew_time)
        if renewed is not None and lease.metadata.uid in facts.renewed:
            skews[lease.spec.holder_identity] = (renewed - now).total_seconds()
    return skews


def _skew_text(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def _age_text(lease: Lease, facts: InstallationFacts) -> str:
    renewed = parse_time(lease.spec.renew_time)
    if renewed is None:
        return "ever"
    seconds = (facts.server_now - renewed).total_seconds()
    return f"for {seconds:.0f} s" if seconds < 600 else f"since {lease.spec.renew_time}"


def _is_ours(deployment: Obj, facts: InstallationFacts) -> bool:
    return name_of(deployment) in facts.manifests.deployments


def _wanted_replicas(deployment: Obj) -> int:
    replicas = nested_field(deployment, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def _ready_replicas(deployment: Obj) -> int:
    return int(nested_field(deployment, "status", "readyReplicas") or 0)


def _is_unready(deployment: Obj) -> bool:
    return _ready_replicas(deployment) < _wanted_replicas(deployment)


def _readiness_text(deployment: Obj) -> str:
    return (
        f"{name_of(deployment)} has {_ready_replicas(deployment)} of "
        f"{_wanted_replicas(deployment)} ready"
    )


def _has_old_pods(deployment: Obj) -> bool:
    """Say whether pods of an older version are left."""
    updated = nested_field(deployment, "status", "updatedReplicas")
    return updated is not None and int(updated) < _wanted_replicas(deployment)


def _images(deployment: Obj) -> Iterator[str]:
    for container in containers_of(deployment)[:1]:
        yield str(container.get("image"))
