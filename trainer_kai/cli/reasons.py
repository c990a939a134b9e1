"""Why a unit waits: one word and one sentence, which says what would change it.

What is a fact by itself comes before what the scheduler said of it, for that may be old.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.event import Event
from trainer_kai.api.job import JobCounts
from trainer_kai.api.lease import Lease
from trainer_kai.api.names import (
    JOB_NAME,
    LAST_EVICTION,
    LAST_START,
    POD_GROUP,
    REPLICATED_JOB,
    STALE_SINCE,
)
from trainer_kai.api.podgroup import PodGroup, SchedulingCondition
from trainer_kai.cli.found import LEASE, Found, SeenPod
from trainer_kai.cli.parts import Heads, Part
from trainer_kai.cli.titles import VERDICTS, Title
from trainer_kai.policy.stages import COMPLETE, Edge
from trainer_kai.policy.unmade import (
    CANNOT,
    Made,
    Unmade,
    has_made_since,
    is_recent,
    is_told_still,
    owner_of,
    read_unmade,
)

__all__ = ["Reason", "event_time", "evicted_at", "moment", "why_part"]

_SILENT: Final = timedelta(minutes=2)  # clocks differ, and a leader renews every few seconds
_FEW: Final = 3
_OURS: Final = VERDICTS | {Title.SCHEDULER_PAUSED}
_AGAIN: Final = ". It goes on when that can be made"


class Reason(NamedTuple):
    """Why something waits."""

    title: str
    sentence: str
    since: str = ""  # RFC 3339, where somebody has written it down


def why_part(part: Part, heads: Heads, found: Found) -> Reason:
    """Return the one reason why a unit waits."""
    facts = (
        _before_pods(part, heads, found),
        _starting(part, heads),
        _left(part, found),
        _unscheduled(part, heads, found),
        _explained(part, found),
        _ungrouped(part, found),
        _missing(part, heads, found) if heads.there < part.least else None,
        _held(part, heads),
        _astray(part, found),
        _incomplete(part, heads),
        _marked(part),
    )
    who = f"{_pods(heads.unplaced)} {_do(heads.unplaced, 'wait')}"
    end = "nobody has said why yet. If that stays so, the scheduler may not run"
    return next(filter(None, facts), Reason(Title.NOTHING_SAID, f"{who}: {end}"))


def _before_pods(part: Part, heads: Heads, found: Found) -> Reason | None:
    """Say why there are no pods at all."""
    if heads.there:
        return None
    waits = [*_unreached(part.edges, found)]
    if waits:
        sentence = f"{'; '.join(waits)}. Its pods are made afterwards"
        return Reason(Title.WAITING_FOR_STAGE, sentence)
    said = _explained(part, found)
    is_so = said is not None and said.title == Title.PODS_MISSING
    return said if is_so else _missing(part, heads, found)


def _unreached(edges: Iterable[Edge], found: Found) -> Iterator[str]:
    """Yield what others have not reached yet."""
    for edge in edges:
        done, needed, what = _progress(edge, found)
        if done < needed:
            yield f"{edge.before} is not {edge.status}: {done} of {needed} of its {what} are"


def _progress(edge: Edge, found: Found) -> tuple[int, int, str]:
    """Return how many are that far, of how many, as the JobSet says it; else its pods do."""
    is_complete = edge.status == COMPLETE
    jobset = found.jobset
    if jobset is not None:
        counts = {it.name: it for it in jobset.status.replicated_jobs_status}
        one = counts.get(edge.before, JobCounts(name=edge.before))
        replicas = {it.name: it.replicas for it in jobset.spec.replicated_jobs}
        done = one.succeeded + (0 if is_complete else one.ready)
        return done, replicas.get(edge.before, 1), "Jobs"
    pods = [it for it in found.pods if it.metadata.labels.get(REPLICATED_JOB) == edge.before]
    over = sum(it.status.phase == "Succeeded" for it in pods)
    ready = 0 if is_complete else sum(map(_is_ready, pods))
    return over + ready, max(len(pods), 1), "pods"


def _is_ready(pod: SeenPod) -> bool:
    return any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions)


def _missing(part: Part, heads: Heads, found: Found) -> Reason:
    exist = f"pods are missing: {heads.there} of {part.least} exist"
    told = _last_failure(part, found)
    if told:
        return Reason(Title.PODS_MISSING, f"{exist}. {told}{_AGAIN}")
    going = f" once {_pods(heads.going)} of it ended" if heads.going else ""
    return Reason(Title.PODS_MISSING, f"{exist}. Their Jobs make the others{going}")


def _last_failure(part: Part, found: Found) -> str:
    """Return what was said last of pods that could not be made, where that still holds."""
    pods = [_made(pod) for pod in found.pods]
    events = filter(None, map(read_unmade, found.events))
    told = [one for one in events if _is_of(one, part, found) and _holds(one, pods, found)]
    return str(max(told)) if told else ""


def _is_of(one: Unmade, part: Part, found: Found) -> bool:
    if found.jobset is None:
        return one.job.name.startswith(tuple(f"{found.key.name}-{it}-" for it in part.names))
    owner = owner_of(one.job, {found.key: found.jobset})
    return owner is not None and owner[1].name in part.names


def _holds(one: Unmade, pods: list[Made], found: Found) -> bool:
    if found.jobset is None:  # it may not be read
        return is_recent(one, found.now) and not has_made_since(one, pods)
    return is_told_still(one, found.jobset, pods, found.now)


def _made(pod: SeenPod) -> Made:
    meta = pod.metadata
    counts = not meta.deletion_timestamp and pod.status.phase != "Failed"
    return Made(meta.labels.get(JOB_NAME, ""), meta.creation_timestamp, counts)


def _starting(part: Part, heads: Heads) -> Reason | None:
    """Say why pods that have their node do not run yet."""
    if not heads.starting or heads.unplaced:
        return None
    pods = [it for it in part.pods if it.spec.node_name and it.status.phase == "Pending"]
    why = Counter(filter(None, map(_holdup, pods)))
    told = "; ".join(text for text, _ in why.most_common(_FEW)) or "its kubelet has not said why"
    nodes = _some(sorted({pod.spec.node_name for pod in pods}))
    do = "does" if heads.starting == 1 else "do"
    begin = f"{_pods(heads.starting)} on {nodes} {do} not run yet"
    return Reason(Title.STARTING, f"{begin}: {told}")


def _holdup(pod: SeenPod) -> str:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waits = status.state.waiting
        if waits is not None and waits.reason != "PodInitializing":
            return f"{waits.reason}: {waits.message}" if waits.message else waits.reason
    return ""


def _left(part: Part, found: Found) -> Reason | None:
    """Say whose pods they are, if not ours."""
    others = [pod for pod in _unplaced(part) if pod.spec.scheduler_name != found.scheduler_name]
    if not others:
        return None
    whose = _some(sorted({pod.spec.scheduler_name or "nobody" for pod in others}))
    words = next(filter(None, map(_words, others)), "it has said nothing of them yet")
    sentence = f"{_pods(len(others))} {_do(len(others), 'wait')} for {whose}, not for us: {words}"
    return Reason(Title.LEFT_TO_OTHERS, sentence)


def _unscheduled(part: Part, heads: Heads, found: Found) -> Reason | None:
    is_flat = part.found is not None and not part.found.spec.sub_groups
    if found.leases is None or is_flat or not heads.unplaced:
        return None
    last = _said(part)
    if not found.leases and last is not None:
        return None  # it is installed somewhere else
    text = _silence(found.leases, found.now)
    if not text:
        return None
    more = f". The last that was said of it: {last.title}: {last.sentence}" if last else ""
    return Reason(Title.NOBODY_SCHEDULES, f"{text}. It goes on when the scheduler runs{more}")


def _silence(leases: Iterable[Lease], now: datetime) -> str:
    """Say that nobody leads, judging by the Lease of the scheduler; "" where somebody may."""
    lease = next(iter(leases), None)
    if lease is None:
        return f"no scheduler has ever run, or not in its namespace: there is no Lease {LEASE}"
    name, spec = str(lease.metadata.key), lease.spec
    if not spec.holder_identity:
        return f"no scheduler runs: nobody holds the Lease {name} since {spec.renew_time}"
    renewed = moment(spec.renew_time)
    if renewed is None or now - renewed <= _SILENT:
        return ""
    whose = spec.holder_identity.partition("_")[0]
    return f"no scheduler runs: {whose} has not renewed the Lease {name} since {spec.renew_time}"


def _said(part: Part) -> Reason | None:
    """Return what a scheduler has written on the group; an external one's as it is."""
    conditions = part.found.status.scheduling_conditions if part.found else ()
    for it in reversed(conditions):
        ours = next((one for one in reversed(it.reasons) if one.reason in _OURS), None)
        if ours is not None:
            return Reason(ours.reason, ours.message or it.message, it.last_transition_time)
    return _as_it_is(conditions[-1]) if conditions else None


def _explained(part: Part, found: Found) -> Reason | None:
    """Return what was said; why pods are missing a scheduler does not know, unless it is ours."""
    said = _said(part)
    if said is None or said.title != Title.PODS_MISSING:
        return said
    told = "" if CANNOT in said.sentence else _last_failure(part, found)
    sentence = f"{said.sentence}. {told}" if told else said.sentence
    return said._replace(sentence=f"{sentence}{_AGAIN if CANNOT in sentence else ''}")


def _as_it_is(condition: SchedulingCondition) -> Reason:
    reasons = [
        f"{it.reason}: {it.message}" if it.message else it.reason for it in condition.reasons
    ]
    sentence = condition.message or "; ".join(reasons) or "nothing more is said"
    title = condition.reasons[-1].reason if condition.reasons else condition.reason
    return Reason(title or condition.type, sentence, condition.last_transition_time)


def _ungrouped(part: Part, found: Found) -> Reason | None:
    if part.found is not None or "podgroups" in found.unknown:
        return None
    named = sorted({it.metadata.annotations.get(POD_GROUP, "") for it in _unplaced(part)} - {""})
    if named:
        begin = f"its pods are in the PodGroup {_some(named)}, which does not exist"
    elif part.group:
        begin = f"its pods name no PodGroup, and {part.group} does not exist"
    else:
        begin = "its pods name no PodGroup"
    who = "It goes on when the podgrouper, or whoever groups them, makes it"
    return Reason(Title.GROUP_MISSING, f"{begin}. {who}")


def _held(part: Part, heads: Heads) -> Reason | None:
    if heads.gated and heads.gated == heads.unplaced:
        gates = sorted({it.name for pod in _unplaced(part) for it in pod.spec.scheduling_gates})
        begin = f"{_pods(heads.gated)} {'is' if heads.gated == 1 else 'are'} gated"
        return Reason(Title.GATED, f"{begin}. It goes on when these gates are gone: {_some(gates)}")
    if heads.promised:
        nodes = sorted({it.status.nominated_node_name for it in _unplaced(part)} - {""})
        begin = f"{_pods(heads.promised)} {'has' if heads.promised == 1 else 'have'} the promise"
        return Reason(
            Title.WAITING_FOR_VICTIMS, f"{begin} of {_some(nodes)}, and can start when others left"
        )
    return None


def _astray(part: Part, found: Found) -> Reason | None:
    queue = part.found.spec.queue if part.found else ""
    if found.queues.get(queue, True):
        return None
    how = "It goes on when that is made, or when it is suspended and resumed with another"
    return Reason(Title.QUEUE_MISSING, f"queue {queue} does not exist. {how}")


def _marked(part: Part) -> Reason | None:
    """Return what is written on pods, for whoever may not read groups."""
    words = next(filter(None, map(_words, _unplaced(part))), "")
    title, _, sentence = words.partition(": ")
    if title in VERDICTS:
        return Reason(title, sentence)
    return Reason("Unschedulable", words) if words else None


def _incomplete(part: Part, heads: Heads) -> Reason | None:
    """Say that a unit has begun and lost pods: nobody else says so as long as it is patient."""
    begun = heads.running + heads.starting
    if not begun or not heads.unplaced:
        return None
    notes = part.found.metadata.annotations if part.found else {}
    needs = f"{heads.unplaced} more {_do(heads.unplaced, 'need')} room"
    lack = f"{_pods(begun)} {_do(begun, 'run')}, and {needs}"
    sentence = f"{lack}. If there is none in time it is taken off its nodes whole, and starts anew"
    return Reason(Title.INCOMPLETE, sentence, notes.get(STALE_SINCE, ""))


def _words(pod: SeenPod) -> str:
    return next(
        (it.message for it in pod.status.conditions if it.type == "PodScheduled" and it.message), ""
    )


def _unplaced(part: Part) -> list[SeenPod]:
    over = ("Succeeded", "Failed")
    return [
        pod
        for pod in part.pods
        if not (pod.spec.node_name or pod.metadata.deletion_timestamp or pod.status.phase in over)
    ]


def event_time(event: Event) -> str:
    """Return when it happened last, to be compared with others."""
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(it or "" for it in times)


def evicted_at(group: PodGroup) -> str:
    """Return when a group was evicted last; "" if it was not, or has started since."""
    evicted, started = (
        group.metadata.annotations.get(it, "") for it in (LAST_EVICTION, LAST_START)
    )
    then, since = moment(evicted), moment(started)
    return evicted if then and not (since and since > then) else ""


def moment(text: str) -> datetime | None:
    """Return a time that somebody has written down; None for none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _pods(number: int) -> str:
    return f"{number} pod{'s' * (number != 1)}"


def _do(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb
