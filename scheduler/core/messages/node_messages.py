"""Messages about nodes: what a pod requests, why no node fits it, and what would help.

Nodes are counted by the first reason that excludes them. The reason that is nearest to a fit is
named first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from scheduler.core.messages.amounts import (
    form_reason,
    form_remedies,
    free_shares,
    free_shares_in_total,
    kai_insufficient_shares,
    needed_shares,
    requested_share,
    resource_amount,
    resource_request,
    timestamp,
    too_small_gpus,
)
from scheduler.core.messages.claim_messages import device_reasons, needed_devices, served_resources
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import (
    DomainShortage,
    FitErrorReason,
    FitErrors,
    RoomShortage,
    ShareShortage,
)
from scheduler.core.model.resources import NONE, ResourceColumns
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.text import capitalized, counted, first_listed, joined_by_or, verb_form

N = TypeVar("N", int, str)
_NEVER: Final = "It can never start as it is: pods of the PodGroup exclude each other"
_MAX_REMEDIES: Final = 2  # changes that are named
# Of one node, and of several.
_FIT_ERRORS: Final = {
    FitErrorReason.DOMAIN: (
        "is outside the topology domains that the PodGroup may use",
        "are outside the topology domains that the PodGroup may use",
    ),
    FitErrorReason.LEAVING: ("leaves the cluster", "leave the cluster"),
    FitErrorReason.CORDONED: ("is cordoned", "are cordoned"),
    FitErrorReason.NOT_READY: ("is not ready", "are not ready"),
    FitErrorReason.PRESSURE: ("is under resource pressure", "are under resource pressure"),
    FitErrorReason.NO_NETWORK: ("has no network", "have no network"),
    FitErrorReason.TAINT: (
        "has a taint that the pod does not tolerate",
        "have taints that the pod does not tolerate",
    ),
    FitErrorReason.SELECTOR: (
        "does not match the node selector, node affinity or volumes of the pod",
        "do not match the node selector, node affinity or volumes of the pod",
    ),
    FitErrorReason.GPU_MEMORY: (
        "does not state the memory of its GPUs in the label nvidia.com/gpu.memory",
        "do not state the memory of their GPUs in the label nvidia.com/gpu.memory",
    ),
    FitErrorReason.TOO_SMALL: ("is too small even when empty", "are too small even when empty"),
    FitErrorReason.DEVICES: (
        "has too few devices for the ResourceClaims of the pod, even when all are free",
        "have too few devices for the ResourceClaims of the pod, even when all are free",
    ),
    FitErrorReason.AVOIDED: (
        "is avoided because it refused a pod of the PodGroup",
        "are avoided because they refused pods of the PodGroup",
    ),
    FitErrorReason.CLAIM: (
        "cannot use a PersistentVolumeClaim that is in use elsewhere",
        "cannot use a PersistentVolumeClaim that is in use elsewhere",
    ),
    FitErrorReason.PORT: (
        "has a host port of the pod in use",
        "have a host port of the pod in use",
    ),
    FitErrorReason.AFFINITY: (
        "has no pod that the pod affinity requires",
        "have no pod that the pod affinity requires",
    ),
    FitErrorReason.ANTI_AFFINITY: (
        "has a pod that anti-affinity excludes",
        "have pods that anti-affinity excludes",
    ),
    FitErrorReason.SPREAD: (
        "would violate a topology spread constraint",
        "would violate a topology spread constraint",
    ),
}
_REMEDIES: Final = {
    FitErrorReason.DOMAIN: "a node gets the labels of such a domain",
    FitErrorReason.LEAVING: "a node that leaves stays after all",
    FitErrorReason.CORDONED: "a node is uncordoned",
    FitErrorReason.NOT_READY: "a node becomes ready",
    FitErrorReason.PRESSURE: "the resource pressure on a node ends",
    FitErrorReason.NO_NETWORK: "a node gets its network",
    FitErrorReason.TAINT: "the pod tolerates the taints of a node",
    FitErrorReason.SELECTOR: "the pod selects other nodes",
    FitErrorReason.GPU_MEMORY: "a node states the memory of its GPUs (label nvidia.com/gpu.memory)",
    FitErrorReason.TOO_SMALL: "the pod requests less",
    FitErrorReason.DEVICES: "a node has the devices that its ResourceClaims request",
    FitErrorReason.AVOIDED: "a node is avoided no longer",
    FitErrorReason.CLAIM: "the PersistentVolumeClaim is no longer in use",
    FitErrorReason.PORT: "the host port is free",
    FitErrorReason.AFFINITY: "a pod that the pod affinity requires is there",
    FitErrorReason.ANTI_AFFINITY: "the pods that anti-affinity excludes are gone",
    FitErrorReason.SPREAD: "other pods even out the topology spread",
}
# As KAI writes them: tools read these.
_KAI_FIT_ERRORS: Final = {
    FitErrorReason.DOMAIN: "are outside the topology domain",
    FitErrorReason.LEAVING: "are leaving the cluster",
    FitErrorReason.CORDONED: "are cordoned",
    FitErrorReason.NOT_READY: "are not ready",
    FitErrorReason.PRESSURE: "are under pressure",
    FitErrorReason.NO_NETWORK: "have no network",
    FitErrorReason.TAINT: "have taints it does not tolerate",
    FitErrorReason.SELECTOR: "do not match what it selects",
    FitErrorReason.GPU_MODE: "do not offer GPUs in the requested form (MIG)",
    FitErrorReason.GPU_MEMORY: "do not state the memory of their GPUs",
    FitErrorReason.TOO_SMALL: "are too small even when empty",
    FitErrorReason.DEVICES: "have too few devices for its claims",
    FitErrorReason.AVOIDED: "refused one of its pods",
    FitErrorReason.CLAIM: "cannot give it a claim that is in use",
    FitErrorReason.PORT: "have its host port in use",
    FitErrorReason.AFFINITY: "are not near the pods it wants",
    FitErrorReason.ANTI_AFFINITY: "are near pods it must avoid",
    FitErrorReason.SPREAD: "would make its spread uneven",
}


def fit_errors_message(snapshot: Snapshot, details: FitErrors) -> str:
    if details.domain_shortage is not None:
        return _domain_message(snapshot, details, details.domain_shortage)
    remedy = _remedy(snapshot, details)
    requests = f"{_subject(details)} requests {_requests(snapshot, details)}"
    nodes = len(snapshot.nodes.names)
    if not nodes:
        return f"{requests}, and there are no nodes. {remedy}"
    then = " then" if details.placed else ""
    fits = _unmet(snapshot, details, is_one=nodes == 1)
    none = "the only node does not" if nodes == 1 else f"none of the {nodes} nodes"
    why = ", ".join(_node_reasons(snapshot, details))
    return f"{requests}, and {none}{then} {fits}{why and f': {why}'}. {remedy}"


def _domain_message(snapshot: Snapshot, details: FitErrors, shortage: DomainShortage) -> str:
    topology, number = snapshot.topologies[shortage.topology], len(shortage.domains)
    subject = f"sub-group {shortage.subgroup}" if shortage.subgroup else "the PodGroup"
    level = f"level {topology.levels[shortage.level]} of Topology {topology.name}"
    level += " (the default of its queue)" if shortage.is_default else ""
    if not number:
        return (
            f"{capitalized(subject)} requires one domain of {level}, and no node has all labels "
            f"of the Topology ({', '.join(topology.levels)}). It can start when nodes have them"
        )
    required = f"{capitalized(subject)} requires {counted(shortage.needed, 'pod')} in one domain"
    required = f"{required} of {level}{', that of its running pods' if shortage.is_bound else ''}"
    missing = shortage.needed - shortage.fitting
    if shortage.largest < shortage.needed:
        wider = ", ".join(topology.levels[: shortage.level])
        changes = [f"it requires a wider level ({wider})"] if wider else []
        remedy = joined_by_or([*changes, "it requests less", "a domain gets more nodes"])
        fits = f"at most {shortage.largest} would fit in one if no other pods ran"
        return f"{required}, but {fits}. It can start when {remedy}"
    best = "/".join(topology.paths[shortage.level][shortage.domain])
    where = f"domain {best}" if number == 1 else f"the best of {number} domains, {best}"
    if not missing:
        return (
            f"{required}. They would fit in {where}, but not together with its other pods. It can "
            "start when more is free in one domain"
        )
    needs = _resources_of(snapshot, details, missing)
    then = f"{missing} more {verb_form(missing, 'fit')} there{needs and f' ({needs})'}"
    return f"{required}, but only {shortage.fitting} fit in {where}. It can start when {then}"


def _resources_of(snapshot: Snapshot, details: FitErrors, pods: int) -> str:
    resources, signature = snapshot.resources, _signature(snapshot, details)
    requested = [
        resource_amount(resources, r, n * pods)
        for r, n in enumerate(signature.request)
        if n and r != resources.pods
    ]
    share = requested_share(signature)
    return ", ".join([*requested, *([f"{pods} x {share}"] if share else [])])


def kai_fit_errors_message(snapshot: Snapshot, details: FitErrors) -> str:
    if details.domain_shortage is not None:
        return (
            f"no nodes with enough resources were found: {fit_errors_message(snapshot, details)}."
        )
    histogram = ", ".join(sorted(_kai_fit_errors(snapshot, details)))
    return f"no nodes with enough resources were found: {histogram}."


def _kai_fit_errors(snapshot: Snapshot, details: FitErrors) -> Iterator[str]:
    for fit_error_reason, count in details.counts.items():
        if fit_error_reason != FitErrorReason.ROOM:
            yield f"{count} node(s) {_KAI_FIT_ERRORS[fit_error_reason]}"
    names = snapshot.resources.names
    insufficient = [(count, names[r]) for r, count in details.insufficient.items()]
    if details.share_shortage is not None:
        shares = kai_insufficient_shares(_signature(snapshot, details))
        insufficient.append((_nodes_without_shares(details.share_shortage), shares))
    if details.claim_shortage is not None and FitErrorReason.ROOM in details.counts:
        insufficient.append((details.claim_shortage.insufficient, "devices"))
    for count, name in insufficient:
        if count:
            yield f"{count} node(s) didn't have enough resources: {name}"


def _nodes_without_shares(shortage: ShareShortage) -> int:
    return shortage.insufficient + (0 if shortage.places is None else shortage.places.nodes)


def _signature(snapshot: Snapshot, details: FitErrors) -> SchedulingSignature:
    return snapshot.signatures[details.signature]


def _subject(details: FitErrors) -> str:
    if details.needed == 1:
        return "A pod"
    fit = verb_form(details.placed, "fit")
    return f"{details.placed} of {details.needed} pods {fit}; the next pod"


def _requests(snapshot: Snapshot, details: FitErrors) -> str:
    resources, signature = snapshot.resources, _signature(snapshot, details)
    requested = [
        resource_request(resources, r, n)
        for r, n in enumerate(signature.request)
        if n and r != resources.pods
    ]
    requested += filter(None, [requested_share(signature)])
    requested += [f"ResourceClaim {it.name}" for it in signature.claims]
    if signature.unknown_resources:
        requested.append(first_listed(f"{n} {name}" for name, n in signature.unknown_resources))
    return ", ".join(requested) or "no resources"


def _unmet(snapshot: Snapshot, details: FitErrors, *, is_one: bool) -> str:
    """Return what no node does; where all have too little free, with the amounts."""
    if {*details.counts} != {FitErrorReason.ROOM}:
        return "fit it" if is_one else "fits it"
    signature = _signature(snapshot, details)
    needs = [
        resource_amount(snapshot.resources, r, signature.request[r])
        for r in _by_count(details.insufficient)
    ]
    needs += needed_shares(signature, details.share_shortage, 1)
    needs += needed_devices(details.claim_shortage, 1)
    if not needs:
        return "fit it" if is_one else "fits it"
    return f"{'have' if is_one else 'has'} {', '.join(needs)} free"


def _node_reasons(snapshot: Snapshot, details: FitErrors) -> Iterator[str]:
    for fit_error_reason, count in sorted(details.counts.items(), reverse=True):
        nodes = counted(count, "node")
        if fit_error_reason == FitErrorReason.ROOM:
            yield f"{nodes} {_too_little_free(snapshot, details, count)}"
            continue
        if fit_error_reason == FitErrorReason.GPU_MODE:
            signature = _signature(snapshot, details)
            reason = form_reason(signature, details.mig_refusals, is_one=count == 1)
            yield f"{nodes} {reason}"
            continue
        own = details.own_counts.get(fit_error_reason, 0)
        because = f"{own} because of pods of the same PodGroup" if own else ""
        named = because or _reason_names(snapshot, details, fit_error_reason, count)
        yield f"{nodes} {_FIT_ERRORS[fit_error_reason][count > 1]}{named and f' ({named})'}"


def _reason_names(
    snapshot: Snapshot, details: FitErrors, fit_error_reason: FitErrorReason, count: int
) -> str:
    """Return the names of taints, labels or resources in the way, the most frequent first."""
    if fit_error_reason == FitErrorReason.TAINT:
        return first_listed(snapshot.nodes.taint_names[it] for it in _by_count(details.taints))
    if fit_error_reason == FitErrorReason.SELECTOR:
        order = _by_count(details.keys)
        existing = _existing_values(snapshot, details, order)
        return "; ".join(filter(None, [first_listed(order), existing]))
    if fit_error_reason == FitErrorReason.TOO_SMALL:
        signature = _signature(snapshot, details)
        unknown = first_listed(name for name, _ in signature.unknown_resources)
        named = [
            _sizes(snapshot.resources, details, count),
            too_small_gpus(snapshot, signature),
            f"no node has {unknown}" if unknown else "",
            served_resources(snapshot, details.too_small, details.largest_allocatable),
        ]
        return "; ".join(filter(None, named))
    if fit_error_reason == FitErrorReason.DEVICES and details.claim_shortage is not None:
        return device_reasons(snapshot, details.claim_shortage)
    if fit_error_reason == FitErrorReason.AVOIDED:
        return _avoided_until(snapshot, _signature(snapshot, details))
    return ""


def _avoided_until(snapshot: Snapshot, signature: SchedulingSignature) -> str:
    """Name the avoided nodes, the one that is tried again first with the time."""
    avoided = [it for it in signature.avoided_nodes if it.node != NONE]
    order = sorted(avoided, key=lambda it: (it.until, it.node))
    if not order:
        return ""
    names = first_listed(snapshot.nodes.names[it.node] for it in order)
    if len(avoided) < len(signature.avoided_nodes):
        names = f"{counted(len(avoided), 'node')} refused pods, and no other one is tried meanwhile"
        return f"{names}; until {timestamp(order[0].until)}"
    next_one = order[0]
    which = f"{snapshot.nodes.names[next_one.node]} " if order[1:] else ""
    return f"{names}; {which}until {timestamp(next_one.until)}"


def _existing_values(snapshot: Snapshot, details: FitErrors, wanted: list[str]) -> str:
    """Return what nodes have of the first label in the way, where nothing else would help."""
    if FitErrorReason.ROOM in details.counts or not wanted:
        return ""
    label, _, value = wanted[0].partition("=")
    nodes = snapshot.nodes
    codes = dict(zip(nodes.key_names, nodes.key_values, strict=False)).get(label)
    if codes:
        return f"nodes have {label} {first_listed(codes)}"
    return f"no node has the label {label}" if value else ""


def _sizes(resources: ResourceColumns, details: FitErrors, count: int) -> str:
    small, order = details.too_small, _by_count(details.too_small)
    most = {r: resource_amount(resources, r, details.largest_allocatable[r]) for r in order}
    if any(small[r] < count for r in order):
        return first_listed(f"{small[r]} with at most {most[r]}" for r in order)
    subject = "it has" if count == 1 else "the largest has"
    return f"{subject} {first_listed(most.values())}" if most else ""


def _by_count(counts: Mapping[N, int]) -> list[N]:
    return sorted(counts, key=lambda it: (-counts[it], it))


def _too_little_free(snapshot: Snapshot, details: FitErrors, count: int) -> str:
    free = ", ".join(
        resource_amount(snapshot.resources, r, details.largest_free[r])
        for r in _by_count(details.insufficient)
    )
    parts = [free if count == 1 else f"at most {free} on one node"] if free else []
    signature = _signature(snapshot, details)
    parts += free_shares(snapshot, signature, details.share_shortage, count)
    if details.claim_shortage is not None:
        parts.append(device_reasons(snapshot, details.claim_shortage))
    return f"{verb_form(count, 'have')} too little free ({', '.join(parts)})"


def missing_room(snapshot: Snapshot, details: FitErrors) -> str:
    """Return what must be free, as a clause; "" if more than that is missing."""
    is_room_alone = FitErrorReason.ROOM in details.counts and details.domain_shortage is None
    needs = _needs(snapshot, details)
    if not (is_room_alone and needs and details.fitting >= details.unplaced):
        return ""
    return _room(needs, details.unplaced)


def needed_room(snapshot: Snapshot, shortage: RoomShortage) -> str:
    """Return the same of pods that lack only room; "" if they lack none."""
    if not shortage.pods:
        return ""
    request = snapshot.signatures[shortage.signature].request
    needs = _amounts(snapshot, request, shortage.resources, shortage.pods)
    return _room(", ".join(needs), shortage.pods)


def _room(needs: str, pods: int) -> str:
    if pods == 1:
        return f"a node that it fits has {needs} free"
    return f"the nodes that it fits have enough free for {pods} of its pods ({needs})"


def _remedy(snapshot: Snapshot, details: FitErrors) -> str:
    if FitErrorReason.ROOM not in details.counts:
        return _node_remedy(snapshot, details)
    needs = _needs(snapshot, details)
    if details.fitting < details.unplaced:
        change = _node_remedy(snapshot, details, needs)
        less = "" if change == _NEVER else ", or when the PodGroup requests less"
        taken = _taken(snapshot, details)
        return f"{taken}Even if no other pods ran, {_too_few(details)}. {change}{less}"
    change = f"It can start when {_needed_resources(details, needs)}"
    if details.reason == UnschedulableReason.FRAGMENTED and not _lacks_places_alone(details):
        return f"Enough is free in total, but too little on each node. {change}"
    free = ", ".join(_free_in_total(snapshot, details))
    if free:
        then = "then " if details.placed else ""
        return f"Together the nodes {then}have {free} free. {change}"
    return change


def _lacks_places_alone(details: FitErrors) -> bool:
    """Say whether only places for reservation pods are missing, which the reason leaves out."""
    shortage = details.share_shortage
    if shortage is None or shortage.places is None:
        return False
    return not details.insufficient and not shortage.insufficient


def _needs(snapshot: Snapshot, details: FitErrors) -> str:
    signature, pods = _signature(snapshot, details), details.unplaced
    needs = _amounts(snapshot, signature.request, details.insufficient, pods)
    needs += needed_shares(signature, details.share_shortage, pods)
    needs += needed_devices(details.claim_shortage, pods)
    return ", ".join(needs)


def _amounts(
    snapshot: Snapshot, request: Sequence[int], insufficient: Iterable[int], pods: int
) -> list[str]:
    return [resource_amount(snapshot.resources, r, request[r] * pods) for r in sorted(insufficient)]


def _free_in_total(snapshot: Snapshot, details: FitErrors) -> Iterator[str]:
    """Only what is more than one node has, and still too little."""
    signature = _signature(snapshot, details)
    for r in sorted(details.insufficient):
        free, requested = details.total_free[r], signature.request[r] * details.unplaced
        if details.largest_free[r] < free < requested:
            yield resource_amount(snapshot.resources, r, free)
    if details.share_shortage is not None and details.counts[FitErrorReason.ROOM] > 1:
        free_shares = free_shares_in_total(signature, details.share_shortage, details.unplaced)
        if free_shares:
            yield free_shares


def _too_few(details: FitErrors) -> str:
    if details.placed + details.unplaced == details.needed:
        return f"only {details.placed + details.fitting} of {details.needed} pods would fit"
    if not details.fitting:
        return "no pod like this one would fit beside the other pods of the PodGroup"
    return f"only {details.fitting} of {details.unplaced} pods like this one would fit"


def _taken(snapshot: Snapshot, details: FitErrors) -> str:
    """Return what the pods of the PodGroup that fit take of the resource that most nodes lack."""
    resources, lacking = snapshot.resources, _by_count(details.insufficient)
    if not lacking or lacking[0] == resources.pods:
        return ""
    pods = Counter[int]()
    for signature, count in details.placed_before:
        pods[snapshot.signatures[signature].request[lacking[0]]] += count
    del pods[0]
    if not pods:
        return ""
    taken = resource_amount(resources, lacking[0], sum(each * n for each, n in pods.items()))
    sizes = sorted(pods.items(), reverse=True)
    listed = first_listed(
        f"{n} with {resource_amount(resources, lacking[0], each)}" for each, n in sizes
    )
    return f"Its pods that fit take {taken} ({listed}). "


def _needed_resources(details: FitErrors, needs: str) -> str:
    if not needs:
        return "its ResourceClaims have their devices on a node with enough free"
    is_one = details.counts[FitErrorReason.ROOM] == 1
    then = "then " if details.placed else ""
    if details.unplaced == 1:
        return f"{'that node' if is_one else 'one of the nodes'} {then}has {needs} free"
    subject = f"that node {then}has" if is_one else f"the nodes {then}have"
    return f"{subject} enough free for {details.unplaced} such pods ({needs})"


def _node_remedy(snapshot: Snapshot, details: FitErrors, needs: str = "") -> str:
    """Return what could make a node fit, the nearest first; of each node one reason is known.

    One more node may not be enough for many pods, or while other pods use it.
    """
    counts, own, signature = details.counts, details.own_counts, _signature(snapshot, details)
    foreign = [it for it, n in sorted(counts.items()) if n > own.get(it, 0)]
    if FitErrorReason.ROOM in foreign:
        foreign.remove(FitErrorReason.ROOM)
    is_only_short_of_places = {*details.too_small} == {snapshot.resources.pods} and not (
        signature.unknown_resources or too_small_gpus(snapshot, signature)
    )
    if is_only_short_of_places:  # each pod needs one
        foreign.remove(FitErrorReason.TOO_SMALL)
    changes = [it for reason in reversed(foreign) for it in _remedies(details, reason)]
    changes = changes[:_MAX_REMEDIES]
    if FitErrorReason.CLAIM not in foreign and not (
        signature.rwop_claims and FitErrorReason.CLAIM in counts
    ):
        changes.append("a node that matches is added")
    if not changes:
        return _NEVER
    if details.unplaced == 1:
        condition = ", if enough is then free there" if foreign else ""
        return f"It can start when {joined_by_or(changes)}{condition}"
    if FitErrorReason.TOO_SMALL in foreign:
        needs = ""  # it may request less
    enough = f"enough is then free for {details.unplaced} such pods{needs and f' ({needs})'}"
    return f"It can start when {joined_by_or(changes)}, if {enough}"


def _remedies(details: FitErrors, fit_error_reason: FitErrorReason) -> Iterator[str]:
    if fit_error_reason == FitErrorReason.GPU_MODE:
        yield from form_remedies(details.mig_refusals)
    else:
        yield _REMEDIES[fit_error_reason]
