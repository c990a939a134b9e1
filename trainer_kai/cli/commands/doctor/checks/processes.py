"""Processes: Deployments, Leases and their holders, settings, clocks, and their permissions.

Processes may run outside of the cluster; then only Leases and dry runs show them. Whether each
ServiceAccount has the permissions of its process is asked by access reviews.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from trainer_kai.api.cluster_kinds import Deployment, Lease
from trainer_kai.api.names import DEFAULT_QUEUE, KUEUE_QUEUE, RESERVATION_APP, SCHEDULER_NAME
from trainer_kai.api.resources import DEPLOYMENTS, LEASES
from trainer_kai.cli.commands.doctor.checks.certificates import (
    certificate_in_files,
    is_external_certificate,
)
from trainer_kai.cli.commands.doctor.checks.dry_runs import binding_mode, has_policy_only, kai_binds
from trainer_kai.cli.commands.doctor.checks.gpu_sharing import shares_no_gpus
from trainer_kai.cli.commands.doctor.expected import ExpectedAccount, Permission
from trainer_kai.cli.commands.doctor.facts import (
    CLOCK_S,
    SCHEDULER,
    UNKNOWN_VALUE,
    CannotTell,
    Findings,
    InstallationFacts,
    Obj,
    containers_of,
    fault,
    has_hidden_settings,
    if_read,
    is_alive,
    listed,
    name_of,
    nested_field,
    ok,
    other_scheduler_objects,
    parse_time,
    require,
    scheduler_setting,
    settings_of,
    warning,
    webhook_setting,
)
from trainer_kai.policy.duplicate_scheduler import (
    REMEDY,
    deployment_ready_message,
    lease_held_message,
)
from trainer_kai.service import config
from trainer_kai.service.settings import PROCESSES

_APPLY_ROLES: Final = "apply the roles and bindings of manifests/base/rbac again"
_APPLY_SHARING: Final = "apply manifests/base/gpu-sharing again"
_AGENT: Final = RESERVATION_APP
_ADD_NAMES: Final = "add the names in kai.shards to resourceNames in scheduler.yaml"
_OWN_POD: Final = Permission(verb="get", group="", resource="pods", everywhere=False)


def title(account: ExpectedAccount) -> str:
    return "agent" if account.name == _AGENT else account.name.removeprefix("trainer-kai-")


def check_account(account: ExpectedAccount, facts: InstallationFacts, exists: bool) -> Findings:
    name = account.name
    where = f"{account.namespace or facts.installation.namespace}/{name}"
    if not exists:
        if has_policy_only(facts) or (name == SCHEDULER and kai_binds(facts)):
            yield ok("the account does not exist, and is not needed")
        else:
            remedy = _APPLY_SHARING if name == _AGENT else _APPLY_ROLES
            yield fault(f"the ServiceAccount {where} does not exist", remedy)
        return
    permissions, unneeded = needed_permissions(account, facts), set(_unneeded(facts, account))
    denied = [it for it in require(facts.denied_permissions[name]) if it not in unneeded]
    if denied:
        unnamed = dict.fromkeys(it.name for it in denied if it not in account.rights)
        add = f"; before that, {_ADD_NAMES}: {listed(unnamed)}" if any(unnamed) else ""
        observed = f"{where} may not {listed(map(_permission_text, denied), 3)}"
        yield fault(observed, _APPLY_ROLES + add)
    else:
        yield ok(f"{where} has all {len(permissions) - len(unneeded)} permissions")


def needed_permissions(
    account: ExpectedAccount, facts: InstallationFacts
) -> tuple[Permission, ...]:
    """Return the permissions of an account; settings name further objects for the scheduler."""
    if account.name != SCHEDULER:
        return account.rights
    places = other_scheduler_objects(facts)
    named = (
        Permission(
            verb="get",
            group=resource.group,
            resource=resource.plural,
            name=key.name,
            everywhere=any(it.namespace != facts.installation.namespace for it in keys),
        )
        for resource, keys in ((LEASES, places.leases), (DEPLOYMENTS, places.deployments))
        for key in keys
    )
    return tuple(dict.fromkeys((*account.rights, *named)))


def _unneeded(facts: InstallationFacts, account: ExpectedAccount) -> Iterator[Permission]:
    if shares_no_gpus(facts):
        yield from (it for it in account.rights if _is_for_sharing(it))
    if not is_external_certificate(facts):
        return
    # Only a webhook that creates its certificates writes them.
    reads_secret = facts.secret is not None and not certificate_in_files(facts)
    for it in account.rights:
        is_of_secrets = it.resource == "secrets"
        is_of_certificates = is_of_secrets or it.resource.endswith("webhookconfigurations")
        if (is_of_certificates and it.verb != "get") or (is_of_secrets and not reads_secret):
            yield it


def _is_for_sharing(permission: Permission) -> bool:
    is_elsewhere = bool(permission.namespace)
    return is_elsewhere or permission == _OWN_POD or permission.resource == "configmaps"


def _permission_text(permission: Permission) -> str:
    subresource = f"/{permission.subresource}" if permission.subresource else ""
    group = f".{permission.group}" if permission.group else ""
    name = f" {permission.name}" if permission.name else ""
    return f"{permission.verb} {permission.resource}{subresource}{group}{name}"


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
    if scheduler_setting(facts, "AUTOSCALING_ENABLED", "false").lower() == "true":
        yield from _check_autoscaling(facts)


def _check_autoscaling(facts: InstallationFacts) -> Findings:
    if webhook_setting(facts, "ADMISSION_CLUSTER", "fixed") == "fixed":
        observed = "autoscaling.enabled is true for the scheduler, admission.cluster fixed for the"
        remedy = "set admission.cluster to grows: else TrainJobs may be denied for present nodes"
        yield warning(f"{observed} webhook", remedy)
    yield ok(
        "gangs ask an autoscaler for nodes; Karpenter ignores pods with ResourceClaims unless it"
        " runs with --ignore-dra-requests=false"
    )


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
