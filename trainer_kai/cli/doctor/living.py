"""Who runs: Deployments, Leases and by whom they are held, other schedulers, and their clocks.

Processes may run elsewhere than in the cluster; then Leases and dry runs are all that shows them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from trainer_kai.api.lease import Lease
from trainer_kai.api.names import DEFAULT_QUEUE, KUEUE_QUEUE, SCHEDULER_NAME
from trainer_kai.cli.doctor.facts import Facts, Obj, at, listed, name_of
from trainer_kai.cli.doctor.finding import (
    CannotTell,
    Finding,
    Unread,
    fault,
    known,
    ok,
    unknown,
    warning,
)
from trainer_kai.cli.doctor.rights import SCHEDULER
from trainer_kai.cli.doctor.settled import (
    ELSEWHERE,
    containers_of,
    rivals_of,
    settings_of,
    told_webhook,
)
from trainer_kai.cli.doctor.tried import POLICY, has_kai, mode_of
from trainer_kai.policy.rivals import REMEDY, USUAL_S, good_for_s, held_by, ready_as

__all__ = [
    "check_clocks",
    "check_kueue",
    "check_leases",
    "check_mode",
    "check_processes",
    "check_rivals",
    "is_doubtful",
]

_PODGROUPER: Final = "trainer-kai-podgrouper"
_SHARED: Final = {  # settings that all have to be told alike, and what they are else
    "MODE": "bundled",
    "SCHEDULER_NAME": SCHEDULER_NAME,
    "DEFAULT_QUEUE": DEFAULT_QUEUE,
    "QUEUE_ACCESS_UNANNOTATED": "open",
    "KUEUE": "false",
}
# It has no such setting, or does not go by it.
_NOT_TOLD: Final = {"QUEUE_ACCESS_UNANNOTATED": _PODGROUPER, "KUEUE": _PODGROUPER}
_WARN_S: Final = 5.0
_FAULT_S: Final = 60.0


def check_processes(facts: Facts) -> Iterator[Finding]:
    """Say whether what is to run in the cluster does."""
    check, found = "processes", {name_of(it): it for it in known(facts.deployments)}
    ours = [found[name] for name in facts.manifests.deployments if name in found]
    missing = [name for name in facts.manifests.deployments if name not in found]
    if SCHEDULER in missing and has_kai(facts):
        missing.remove(SCHEDULER)
    short = [_told(it) for it in ours if _lags(it)]
    old = [name_of(it) for it in ours if not _lags(it) and _is_stuck(it)]
    dead = [_told(it) for it in ours if not _ready(it) and (_wanted(it) or not has_kai(facts))]
    images = {image for it in ours for image in _images(it)}
    if not ours:
        yield ok(check, f"none in {facts.site.namespace}: they run elsewhere, if at all")
    elif dead:
        right = "kubectl describe and kubectl logs of their pods say what is in the way"
        yield fault(check, listed(dead), right)
    elif missing:
        right = "the overlay, applied again, unless they run elsewhere"
        yield warning(check, f"there is no Deployment {listed(missing)}", right)
    elif short:
        yield warning(check, listed(short), "all replicas: the next one to go is missed")
    elif old:
        right = "kubectl rollout status says what is in the way of the new pods"
        yield warning(check, f"{listed(old)} runs in pods of an older version", right)
    elif len(images) > 1:
        yield warning(check, f"they run {listed(sorted(images))}", "one image for all")
    else:
        yield ok(check, f"{len(ours)} Deployments are ready")


def check_mode(facts: Facts) -> Iterator[Finding]:
    """Say who binds, and whether all have been told the same."""
    check, mode = "mode", mode_of(facts)
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    told = {name_of(it): settings_of(it) for it in deployments if _is_ours(it, facts)}
    for name, usual in _SHARED.items():
        values = {
            who: settings.get(name, usual)
            for who, settings in told.items()
            if who != _NOT_TOLD.get(name)
        }
        if len(set(values.values()) - {ELSEWHERE}) > 1:
            said = listed(f"{value} to {who}" for who, value in sorted(values.items()))
            yield fault(check, f"TRAINER_KAI_{name} is {said}", "the same for all of them")
            return
    if not mode:
        raise CannotTell("no dry run was answered")
    if mode != "bundled" and not isinstance(facts.leases, Unread) and _alive(SCHEDULER, facts):
        right = "the same mode for all processes, or no scheduler of ours"
        yield fault(check, f"it is {mode}, and our scheduler leads", right)
        return
    who = "our scheduler binds" if mode == "bundled" else "the KAI that is there binds"
    yield ok(check, f"{mode}: {who}")


def check_leases(facts: Facts) -> Iterator[Finding]:
    """Say who leads podgroupers and schedulers, and whether it goes on."""
    for name in (_PODGROUPER, SCHEDULER):
        check = f"lease of {name.removeprefix('trainer-kai-')}"
        if mode_of(facts) == POLICY or (name == SCHEDULER and has_kai(facts)):
            yield ok(check, "not needed: a KAI does that")
            continue
        try:
            yield _held(check, name, facts)
        except CannotTell as error:
            yield unknown(check, error)


def _held(check: str, name: str, facts: Facts) -> Finding:
    lease = next((it for it in known(facts.leases) if it.metadata.name == name), None)
    right = f"a {name.removeprefix('trainer-kai-')} that runs, and may write its Lease"
    where = f"{facts.site.namespace}/{name}"
    if lease is None:
        return fault(check, f"there is no Lease {where}: none has ever led", right)
    holder = lease.spec.holder_identity
    if not holder:
        return fault(check, f"{where} is held by nobody", right)
    if not _is_alive(lease, facts):
        since = _ago(lease, facts)
        return fault(check, f"{holder} has not renewed {where} {since}", right)
    return ok(check, f"held by {holder}")


def check_rivals(facts: Facts) -> Iterator[Finding]:
    """Say whether another scheduler places the same pods; beside a KAI one has to."""
    check, name, beside = "another scheduler", facts.site.scheduler_name, has_kai(facts)
    alive = [it for it in known(facts.rivals) if _is_alive(it, facts, is_rival=True)]
    ready = [it for it in known(facts.ready_rivals) if it.status.ready_replicas > 0]
    there = [
        *(held_by(it.metadata.key, it.spec.holder_identity) for it in alive),
        *(ready_as(it.metadata.key, it.status.ready_replicas) for it in ready),
    ]
    if there and beside:
        yield ok(check, f"the KAI that binds: {listed(there)}")
    elif there:
        right = f"one scheduler of a name: {REMEDY}, or set mode external"
        yield fault(check, f"{listed(there)}: ours is paused", right)
    elif beside:
        where = listed(map(str, rivals_of(facts).deployments))
        right = f"a KAI that runs: a Deployment {where} that is ready"
        yield warning(check, f"no other scheduler of the name {name} is found: who binds?", right)
    else:
        yield ok(check, f"there is no other of the name {name}")


def check_kueue(facts: Facts) -> Iterator[Finding]:
    """Say whether TrainJobs are managed by Kueue as well."""
    check, names = "Kueue", known(facts.kueues)
    if not names:
        yield ok(check, "it has no TrainJob")
    elif told_webhook(facts, "KUEUE", "false").lower() == "false":
        is_so = f"{listed(names, 3)} has the label {KUEUE_QUEUE}, which keeps nothing"
        yield warning(check, is_so, "setting kueue, if Kueue runs here; else no such label")
    else:
        right = f"one of the two: what carries {KUEUE_QUEUE} is admitted by Kueue and never evicted"
        yield warning(check, f"{listed(names, 3)} is in a queue of Kueue", f"{right} by us")


def check_clocks(facts: Facts) -> Iterator[Finding]:
    """Say whether machines agree about the time; starts, graces and certificates are dated."""
    check, skew_s = "clocks", known(facts.skew_s)
    now = facts.now + timedelta(seconds=skew_s)
    ahead = {} if isinstance(facts.leases, Unread) else _ahead(facts, now)
    worst = max(ahead, key=lambda it: abs(ahead[it]), default="")
    right = "clocks that are set by NTP"
    if worst and abs(ahead[worst]) > _WARN_S:
        is_so = f"that of {worst} is {_apart(ahead[worst])} the API server's"
        yield (fault if abs(ahead[worst]) > _FAULT_S else warning)(check, is_so, right)
    elif abs(skew_s) > _WARN_S:
        yield warning(check, f"that of this machine is {_apart(-skew_s)} the API server's", right)
    else:
        yield ok(check, "none is far off")


def is_doubtful(lease: Lease, now: datetime, *, is_rival: bool = False) -> bool:
    """Say whether a Lease has to be looked at again, to see whether it is renewed.

    That of another scheduler counts no longer here than our scheduler has it count.
    """
    renewed = _time(lease.spec.renew_time)
    if not lease.spec.holder_identity or renewed is None:
        return False
    age_s = (now - renewed).total_seconds()
    claimed_s = lease.spec.lease_duration_seconds
    return not -_WARN_S <= age_s <= (good_for_s(claimed_s) if is_rival else claimed_s or USUAL_S)


def _is_alive(lease: Lease, facts: Facts, *, is_rival: bool = False) -> bool:
    """Say whether a Lease is held and renewed: by its date, or because it changed meanwhile."""
    if not lease.spec.holder_identity:
        return False
    if lease.metadata.uid in facts.renewed:
        return True
    is_dated = bool(lease.spec.renew_time)
    return is_dated and not is_doubtful(lease, facts.server_now, is_rival=is_rival)


def _alive(name: str, facts: Facts) -> bool:
    return any(it.metadata.name == name and _is_alive(it, facts) for it in known(facts.leases))


def _ahead(facts: Facts, now: datetime) -> Mapping[str, float]:
    """Return how far the clocks of leaders are ahead, of those that are renewed for sure.

    A date that is a while ago tells nothing unless the Lease changed while we looked.
    """
    found = {}
    for lease in known(facts.leases):
        renewed = _time(lease.spec.renew_time)
        if renewed is not None and lease.metadata.uid in facts.renewed:
            found[lease.spec.holder_identity] = (renewed - now).total_seconds()
    return found


def _apart(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def _ago(lease: Lease, facts: Facts) -> str:
    renewed = _time(lease.spec.renew_time)
    if renewed is None:
        return "ever"
    seconds = (facts.server_now - renewed).total_seconds()
    return f"for {seconds:.0f} s" if seconds < 600 else f"since {lease.spec.renew_time}"


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _is_ours(deployment: Obj, facts: Facts) -> bool:
    return name_of(deployment) in facts.manifests.deployments


def _wanted(deployment: Obj) -> int:
    found = at(deployment, "spec", "replicas")
    return 1 if found is None else int(found)


def _ready(deployment: Obj) -> int:
    return int(at(deployment, "status", "readyReplicas") or 0)


def _lags(deployment: Obj) -> bool:
    return _ready(deployment) < _wanted(deployment)


def _told(deployment: Obj) -> str:
    return f"{name_of(deployment)} has {_ready(deployment)} of {_wanted(deployment)} ready"


def _is_stuck(deployment: Obj) -> bool:
    """Say whether the pods that are ready are of an older version."""
    updated = at(deployment, "status", "updatedReplicas")
    return updated is not None and int(updated) < _wanted(deployment)


def _images(deployment: Obj) -> Iterator[str]:
    for container in containers_of(deployment)[:1]:
        yield str(container.get("image"))
