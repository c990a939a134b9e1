"""Processes: Deployments, Leases and their holders, other schedulers, settings and clocks.

Processes may run outside of the cluster; then only Leases and dry runs show them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from trainer_kai.api.cluster_kinds import Deployment, Lease
from trainer_kai.api.names import DEFAULT_QUEUE, KUEUE_QUEUE, SCHEDULER_NAME
from trainer_kai.cli.commands.doctor.checks.dry_runs import binding_mode, kai_binds
from trainer_kai.cli.commands.doctor.facts import (
    CLOCK_S,
    SCHEDULER,
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
    Findings,
    fault,
    if_read,
    ok,
    warning,
)
from trainer_kai.policy.duplicate_scheduler import (
    REMEDY,
    deployment_ready_message,
    lease_held_message,
)
from trainer_kai.service import config
from trainer_kai.service.settings import PROCESSES

PODGROUPER: Final = "trainer-kai-podgrouper"
_PREFIX: Final = "TRAINER_KAI_"
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
# Those that the podgrouper does not have, or ignores.
_NOT_OF_PODGROUPER: Final = _SHARED_SETTINGS.keys() - {"MODE", "SCHEDULER_NAME", "DEFAULT_QUEUE"}
_FAULT_S: Final = 60.0


def check_mode(facts: InstallationFacts) -> Findings:
    mode = binding_mode(facts)
    if observed := _differing_setting(facts):
        yield fault(observed, "set the same value for all processes")
    elif not mode:
        raise CannotTell("no dry run was answered")
    elif mode == "bundled":
        yield ok("bundled: trainer-kai's scheduler binds pods")
    elif any(
        it.metadata.name == SCHEDULER and is_alive(it, facts) for it in if_read(facts.leases, ())
    ):
        remedy = "set the same mode for all processes, or stop the scheduler of trainer-kai"
        yield fault(f"the mode is {mode}, but the scheduler of trainer-kai leads", remedy)
    else:
        yield ok(f"{mode}: KAI binds pods")


def _differing_setting(facts: InstallationFacts) -> str:
    """Return the first setting that processes do not share, and its values; "" for none."""
    by_process = {name: settings_of(it) for name, it in facts.our_deployments.items()}
    for name, default in _SHARED_SETTINGS.items():
        values = {
            process: settings.get(name, default)
            for process, settings in sorted(by_process.items())
            if process != PODGROUPER or name not in _NOT_OF_PODGROUPER
        }
        if len(set(values.values()) - {UNKNOWN_VALUE}) > 1:
            return f"TRAINER_KAI_{name} is {listed(f'{it} to {at}' for at, it in values.items())}"
    return ""


def check_settings(facts: InstallationFacts, _: object) -> Findings:
    shown = [
        f"{(process := name.removeprefix('trainer-kai-'))}: {_settings_text(process, it)}"
        for name, it in facts.our_deployments.items()
    ]
    where = f"no Deployment in {facts.installation.namespace} shows settings"
    yield ok("; ".join(shown) or where)


def _settings_text(process: str, deployment: Obj) -> str:
    names = _setting_names(process)
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


def check_processes(facts: InstallationFacts, _: object) -> Findings:
    found, beside_kai = facts.our_deployments, kai_binds(facts)
    missing = [name for name in facts.manifests.deployments if name not in found]
    if SCHEDULER in missing and beside_kai:
        missing.remove(SCHEDULER)
    unready = [_readiness_text(it) for it in found.values() if _is_unready(it)]
    outdated = [name for name, it in found.items() if not _is_unready(it) and _has_old_pods(it)]
    unavailable = [
        _readiness_text(it)
        for it in found.values()
        if not _ready_replicas(it) and (_wanted_replicas(it) or not beside_kai)
    ]
    images = {str(it.get("image")) for each in found.values() for it in containers_of(each)[:1]}
    if not found:
        where = facts.installation.namespace
        yield ok(f"no Deployment in {where}; the processes may run elsewhere")
    elif unavailable:
        yield fault(listed(unavailable), "see `kubectl describe` and `kubectl logs` of their pods")
    elif missing:
        remedy = "apply the overlay again, unless these processes run elsewhere"
        yield warning(f"Deployment {listed(missing)} does not exist", remedy)
    elif unready:
        remedy = "check the missing replicas; a further failure stops the process"
        yield warning(listed(unready), remedy)
    elif outdated:
        observed = f"{listed(outdated)} still has pods of an older version"
        yield warning(observed, "see `kubectl rollout status`")
    elif len(images) > 1:
        observed = f"the Deployments use {listed(sorted(images))}"
        yield warning(observed, "use one image for all of them")
    else:
        yield ok(f"{len(found)} Deployments are ready")


def check_lease(name: str, facts: InstallationFacts, leases: Sequence[Lease]) -> Findings:
    lease = next((it for it in leases if it.metadata.name == name), None)
    holder = lease.spec.holder_identity if lease else ""
    remedy = f"check that the {name.removeprefix('trainer-kai-')} runs, and may write its Lease"
    where = f"{facts.installation.namespace}/{name}"
    if lease is None:
        yield fault(f"Lease {where} does not exist: no process has ever led", remedy)
    elif not holder:
        yield fault(f"Lease {where} has no holder", remedy)
    elif not is_alive(lease, facts):
        since = _age_text(lease, facts)
        yield fault(f"{holder} has not renewed Lease {where} {since}", remedy)
    else:
        yield ok(f"held by {holder}")


def check_other_schedulers(
    facts: InstallationFacts, read: tuple[Sequence[Lease], Sequence[Deployment]]
) -> Findings:
    name, beside_kai = facts.installation.scheduler_name, kai_binds(facts)
    leases, deployments = read
    alive = [it for it in leases if is_alive(it, facts, is_other_scheduler=True)]
    ready = [it for it in deployments if it.status.ready_replicas > 0]
    active = [
        *(lease_held_message(it.metadata.key, it.spec.holder_identity) for it in alive),
        *(deployment_ready_message(it.metadata.key, it.status.ready_replicas) for it in ready),
    ]
    if active and beside_kai:
        yield ok(f"KAI binds pods: {listed(active)}")
    elif active:
        remedy = f"{REMEDY}, or set mode external"
        yield fault(f"{listed(active)}, so trainer-kai's scheduler is paused", remedy)
    elif beside_kai:
        where = listed(map(str, other_scheduler_objects(facts).deployments))
        remedy = f"start KAI; expected is a ready Deployment {where}"
        yield warning(f"no scheduler with the name {name} found, so no pods are bound", remedy)
    else:
        yield ok(f"no other scheduler with the name {name}")


def check_kueue(facts: InstallationFacts, names: Sequence[str]) -> Findings:
    setting = webhook_setting(facts, "KUEUE", "false")
    observed = f"{listed(names, 3)} has the label {KUEUE_QUEUE}"
    if not names:
        yield ok("no TrainJob uses Kueue")
    elif setting == UNKNOWN_VALUE:
        remedy = "the label has an effect only with the setting kueue; without it remove the label"
        yield warning(observed, remedy)
    elif setting.lower() == "false":
        remedy = "if Kueue runs here, set the setting kueue; otherwise remove the label"
        yield warning(f"{observed}, which has no effect", remedy)
    else:
        remedy = (
            f"choose one: TrainJobs with {KUEUE_QUEUE} are admitted by Kueue and never evicted by"
            " trainer-kai"
        )
        yield warning(f"{listed(names, 3)} is in a queue of Kueue", remedy)


def check_clocks(facts: InstallationFacts, skew_s: float) -> Findings:
    """Compare clocks: start times, grace periods and certificates depend on them."""
    ahead = _clock_skews(facts, facts.now + timedelta(seconds=skew_s))
    most_skewed = max(ahead, key=lambda it: abs(ahead[it]), default="")
    remedy = "synchronize the clocks, for instance by NTP"
    if most_skewed and abs(ahead[most_skewed]) > CLOCK_S:
        how = _skew_text(ahead[most_skewed])
        finding = fault if abs(ahead[most_skewed]) > _FAULT_S else warning
        yield finding(f"the clock of {most_skewed} is {how} the API server's", remedy)
    elif abs(skew_s) > CLOCK_S:
        observed = f"the clock of this machine is {_skew_text(-skew_s)} the API server's"
        yield warning(observed, remedy)
    else:
        yield ok("synchronized")


def _clock_skews(facts: InstallationFacts, now: datetime) -> Mapping[str, float]:
    """Return how far the clocks of leaders are ahead, by Leases renewed between two reads.

    An old date of another Lease is no evidence about a clock.
    """
    skews = {}
    for lease in if_read(facts.leases, ()):
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


def _wanted_replicas(deployment: Obj) -> int:
    replicas = nested_field(deployment, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def _ready_replicas(deployment: Obj) -> int:
    return int(nested_field(deployment, "status", "readyReplicas") or 0)


def _is_unready(deployment: Obj) -> bool:
    return _ready_replicas(deployment) < _wanted_replicas(deployment)


def _readiness_text(deployment: Obj) -> str:
    ready, wanted = _ready_replicas(deployment), _wanted_replicas(deployment)
    return f"{name_of(deployment)} has {ready} of {wanted} ready"


def _has_old_pods(deployment: Obj) -> bool:
    updated = nested_field(deployment, "status", "updatedReplicas")
    return updated is not None and int(updated) < _wanted_replicas(deployment)
