"""GPU sharing: what reservation pods need, pods that reserve no GPU, and a second installation."""

from collections.abc import Sequence
from typing import Final

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import APP, RESERVATION_APP, RESERVED_DEVICE
from trainer_kai.cli.commands.doctor.checks.dry_runs import kai_binds
from trainer_kai.cli.commands.doctor.facts import (
    UNKNOWN_VALUE,
    Findings,
    InstallationFacts,
    Obj,
    annotations_of,
    fault,
    is_alive,
    labels_of,
    listed,
    name_of,
    nested_field,
    ok,
    parse_time,
    require,
    scheduler_setting,
    warning,
    webhook_setting,
)

_RUNTIME_CLASS: Final = "nvidia"  # the default of the setting
_ALLOCATION_S: Final = 40.0


def shares_no_gpus(facts: InstallationFacts) -> bool:
    """Say whether our scheduler binds no pods that share GPUs, as far as settings show it."""
    enabled = webhook_setting(facts, "GPU_SHARING_ENABLED", "true")
    return kai_binds(facts) or enabled.lower() == "false"


def check_gpu_sharing(facts: InstallationFacts, namespaces: Sequence[Meta]) -> Findings:
    if RESERVATION_APP not in {it.name for it in namespaces}:
        remedy = "apply manifests/base/gpu-sharing, or set gpuSharing.createNamespace in the chart"
        observed = f"namespace {RESERVATION_APP} does not exist, so no pod gets a share of a GPU"
        yield fault(observed, remedy)
        return
    name = webhook_setting(facts, "GPU_SHARING_RUNTIME_CLASS", _RUNTIME_CLASS)
    name = _RUNTIME_CLASS if name == UNKNOWN_VALUE else name
    if name and name not in require(facts.runtime_classes):
        remedy = (
            "install NVIDIA's GPU operator, or set gpu_sharing.runtime_class to an existing"
            " RuntimeClass, or to nothing, for webhook and scheduler"
        )
        observed = (
            f"RuntimeClass {name} does not exist: the API server denies pods that request shares"
            " of GPUs without a RuntimeClass of their own, and reservation pods"
        )
        yield warning(observed, remedy)
    else:
        runtime = f"RuntimeClass {name} exists" if name else "without a RuntimeClass"
        yield ok(f"namespace {RESERVATION_APP} exists; {runtime}")


def check_reservation_pods(facts: InstallationFacts, found: Sequence[Obj]) -> Findings:
    pods = [
        it
        for it in found
        if labels_of(it).get(APP) == RESERVATION_APP
        and not nested_field(it, "metadata", "deletionTimestamp")
    ]
    failing = [why for it in pods if (why := _reservation_fault(it, facts))]
    if failing:
        remedy = (
            f"see `kubectl -n {RESERVATION_APP} describe pods`: the image must be available in"
            " this namespace, and the GPU must be free and visible to the pod"
        )
        yield warning(listed(failing, 2), remedy)
    else:
        yield ok(f"{len(pods)} reserve shared GPUs")


def check_other_installations(facts: InstallationFacts, leases: Sequence[Lease]) -> Findings:
    """Say whether the scheduler of another trainer-kai deletes the reservation pods of this one."""
    own = facts.installation.namespace
    others = [
        f"Lease {it.metadata.key} is held by {it.spec.holder_identity}"
        for it in leases
        if it.metadata.namespace != own and is_alive(it, facts, is_other_scheduler=True)
    ]
    if others:
        remedy = "run one installation in a cluster: uninstall one, or set its mode to external"
        observed = f"{listed(others, 2)}: each scheduler deletes the reservation pods of the other"
        yield fault(observed, remedy)
    else:
        yield ok(f"no scheduler of trainer-kai leads outside namespace {own}")


def _reservation_fault(pod: Obj, facts: InstallationFacts) -> str:
    """Return why a reservation pod has no GPU, if it has had the time to get one."""
    where = f"{name_of(pod)} on node {nested_field(pod, 'spec', 'nodeName') or 'none'}"
    phase = nested_field(pod, "status", "phase")
    if phase in ("Failed", "Succeeded"):
        reason = nested_field(pod, "status", "reason")
        return f"{where} is {phase}{f' ({reason})' if reason else ''}"
    created = parse_time(str(nested_field(pod, "metadata", "creationTimestamp") or ""))
    age_s = (facts.server_now - created).total_seconds() if created else 0.0
    if annotations_of(pod).get(RESERVED_DEVICE) or age_s <= _allocation_s(facts):
        return ""
    statuses = nested_field(pod, "status", "containerStatuses") or ()
    reasons = (nested_field(it, "state", "waiting", "reason") for it in statuses)
    waiting = next(filter(None, reasons), "")
    return f"{where} has no device for {age_s:.0f} s{f' ({waiting})' if waiting else ''}"


def _allocation_s(facts: InstallationFacts) -> float:
    try:
        return float(scheduler_setting(facts, "RESERVATION_PODS_ALLOCATION_S", ""))
    except ValueError:
        return _ALLOCATION_S
