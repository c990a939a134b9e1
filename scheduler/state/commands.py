"""Commands: what to bind, nominate, reserve and evict, by names instead of the rows of a plan."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from scheduler.core.messages.eviction_messages import eviction_message
from scheduler.core.model.claims import DeviceName, slot_and_device, slots_of
from scheduler.core.model.podgroup import ReservationCause, podsets_of
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure, Rejection
from scheduler.core.model.resources import NONE, DeviceSort, devices_of
from scheduler.core.model.result import (
    Eviction,
    Plan,
    PodGroupAllocation,
    PodPlacement,
    Relocation,
    Reservation,
)
from scheduler.core.model.snapshot import PodState
from scheduler.state.podgroups.line import write_line
from scheduler.state.podgroups.podgroup import (
    NamedPlace,
    read_relocations,
    write_reserved,
)
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.meta import Key
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.policy.podgroups.grouping import workload_name
from trainer_kai.policy.workloads.workload import ObjectKey


class SuspendableId(NamedTuple):
    """What is suspended and resumed, with all PodGroups of its workload."""

    key: ObjectKey
    uid: str  # "": it is not known


class PlannedEviction(NamedTuple):
    """Pods that are evicted at once: all pods of a workload, or the victims of one PodGroup."""

    groups: tuple[Key, ...]
    pods: tuple[Key, ...]
    action: str
    preemptor: Key | None  # the PodGroup that gets their room, if any does
    reason: str  # as the victim shows it
    gpus: int  # thousandths
    lost_work: int = 0  # GPU-seconds
    places: tuple[tuple[Key, tuple[NamedPlace, ...]], ...] = ()  # of PodGroups that are relocated
    reserved_annotations: tuple[tuple[Key, str], ...] = ()  # these places, once it is assumed
    uids: tuple[str, ...] = ()  # of the pods, once it is assumed
    suspends: SuspendableId | None = None  # pods without one are deleted
    queue: str = ""  # of the victim
    preemptor_queue: str = ""
    evicted_gpus: int = 0  # thousandths that the pods have; `gpus` counts for the rate limit

    @property
    def title(self) -> str:
        """Return the name of the victim in messages."""
        return f"{workload_name(self.groups[0])} ({self.action})"


class PodAndNode(NamedTuple):
    pod: Key
    node: str


class UnschedulablePodGroup(NamedTuple):
    group: Key
    reason: UnschedulableReason
    rejection: Rejection


class ClaimedDevice(NamedTuple):
    """A device of a claim, and the request for which it is, as the status of the claim names it."""

    request: str
    device: DeviceName


class ClaimAllocationCommand(NamedTuple):
    """A claim of a pod that is bound, and its devices: all of them are on the node of the pod."""

    claim: Key
    devices: tuple[ClaimedDevice, ...]


class PodGroupCommands(NamedTuple):
    """What is done for one PodGroup: reserve, bind and nominate, evict, then release."""

    group: Key  # of a standalone pod: a name that no PodGroup has; or a stale PodGroup
    reserve_annotation: str | None  # with the new places; None leaves the annotation as it is
    binds: tuple[PodAndNode, ...]
    nominations: tuple[PodAndNode, ...]  # with the node "" the nomination is removed
    release_annotation: str | None  # at the end, without the places of pods that were placed
    evictions: tuple[PlannedEviction, ...] = ()  # for the nominated pods, or of a stale PodGroup
    uids: tuple[str, ...] = ()  # of the nominated pods, once it is assumed
    # By pod that is bound and gets shares of GPUs: the ids of these GPUs.
    gpu_groups: Mapping[Key, tuple[str, ...]] = {}
    claims: Mapping[Key, tuple[ClaimAllocationCommand, ...]] = {}  # by pod that is bound
    line_annotation: str | None = None  # its place in the line; None leaves it as it is


@dataclass(frozen=True)
class Commands:
    podgroups: tuple[PodGroupCommands, ...]  # in the order of the plan, those for no preemptor last
    unschedulable: tuple[UnschedulablePodGroup, ...]

    @property
    def binds(self) -> Iterator[PodAndNode]:
        return chain.from_iterable(one.binds for one in self.podgroups)

    @property
    def nominations(self) -> Iterator[PodAndNode]:
        """Yield the new nominations, without those that are removed."""
        return (it for one in self.podgroups for it in one.nominations if it.node)

    @property
    def evictions(self) -> Iterator[PlannedEviction]:
        return chain.from_iterable(one.evictions for one in self.podgroups)


def commands_from_plan(
    encoded: EncodedSnapshot, plan: Plan, new_gpu_group: Callable[[], str] | None = None
) -> Commands:
    """Return the commands for a plan.

    *new_gpu_group* returns an id that no shared GPU ever had. Without it the commands name no GPUs.
    """
    unschedulable = {
        encoded.podgroup_keys[it.podgroup]: UnschedulablePodGroup(
            encoded.podgroup_keys[it.podgroup], it.reason, it
        )
        for it in plan.rejections
    }
    unschedulable |= {it.group: it for it in _podgroups_with_uncounted_pods(encoded)}
    return Commands(
        tuple(_podgroup_commands(encoded, plan, new_gpu_group)), tuple(unschedulable.values())
    )


def _podgroup_commands(
    encoded: EncodedSnapshot, plan: Plan, new_gpu_group: Callable[[], str] | None
) -> Iterator[PodGroupCommands]:
    """Yield the commands of each PodGroup of the plan, of others, and those of stale gangs."""
    allocations, fully_evicted = _by_podgroup(plan.allocations), _fully_evicted(plan)
    lost_nominations = _lost_nominations(encoded, plan)
    evictions = _evictions_by_preemptor(encoded, plan)
    gpu_groups = _gpu_groups(encoded, plan, new_gpu_group) if new_gpu_group else {}
    lines = _line_annotations(encoded, plan)
    others = encoded.reserved.keys() | lost_nominations.keys() | lines.keys()
    others -= allocations.keys()
    for row in [*allocations, *sorted(others)]:
        if row in fully_evicted:
            continue  # its reservations end when its pods are gone, or its relocation replaces them
        own = allocations.get(row, [])
        reserve_annotation, release_annotation = _annotation_changes(encoded, row, own)
        binds = _pods_and_nodes(encoded, (it for one in own for it in one.binds))
        nominations = _pods_and_nodes(encoded, (it for one in own for it in one.nominations))
        nominations += tuple(
            PodAndNode(encoded.pod_keys[pod], "") for pod in lost_nominations.get(row, ())
        )
        texts = reserve_annotation, release_annotation, lines.get(row)
        if texts != (None, None, None) or binds or nominations:
            yield PodGroupCommands(
                encoded.podgroup_keys[row],
                reserve_annotation,
                binds,
                nominations,
                release_annotation,
                tuple(evictions.get(row, ())),
                gpu_groups={it.pod: gpu_groups[it.pod] for it in binds if it.pod in gpu_groups},
                claims=_claims(encoded, (it for one in own for it in one.binds)),
                line_annotation=lines.get(row),
            )
    for key, text in encoded.outdated_lines.items():
        yield PodGroupCommands(key, None, (), (), None, line_annotation=text)
    for one in evictions.get(NONE, ()):
        yield PodGroupCommands(one.groups[0], None, (), (), None, (one,))  # for no preemptor


def _line_annotations(encoded: EncodedSnapshot, plan: Plan) -> dict[int, str]:
    names = encoded.snapshot.nodes.names
    return {it.podgroup: write_line(it.record, names) for it in plan.line}


def _gpu_groups(
    encoded: EncodedSnapshot, plan: Plan, new_gpu_group: Callable[[], str]
) -> dict[Key, tuple[str, ...]]:
    """Return the ids of the GPUs of bound pods with shares, in the order of their slots.

    A slot with a made-up id gets a new id, and so does a slot that is closed: its GPU was freed.
    All pods of the plan that have a share of it get the same one.
    """
    devices, ids = encoded.snapshot.devices, dict[tuple[int, int], str]()
    without_id, groups = devices.made_up | devices.closed, {}
    for bind in (it for one in plan.allocations for it in one.binds if it.slots):
        node = bind.node
        first, end = np.searchsorted(devices.node, (node, node + 1)).tolist()
        for slot in bind.slots:
            if (node, slot) not in ids:
                row = first + slot
                is_known = row < end and row not in without_id
                ids[node, slot] = devices.ids[row] if is_known else new_gpu_group()
        groups[encoded.pod_keys[bind.pod]] = tuple([ids[node, slot] for slot in bind.slots])
    return groups


def _claims(
    encoded: EncodedSnapshot, binds: Iterable[PodPlacement]
) -> dict[Key, tuple[ClaimAllocationCommand, ...]]:
    """Return the claims of bound pods with their devices."""
    snapshot, found = encoded.snapshot, {}
    names = snapshot.claim_devices.names
    for bind in binds:
        keys = encoded.claim_keys.get(bind.pod)
        if not keys:
            continue
        claims = snapshot.signatures[int(snapshot.pods.signature[bind.pod])].claims
        slots, devices = slots_of(claims), dict[int, list[ClaimedDevice]]()
        for held in devices_of(bind.held, DeviceSort.CLAIM):
            slot, device = slot_and_device(held)
            c, r, a = slots[slot]
            request = claims[c].requests[r]
            alternative = request.alternatives[a].name
            name = f"{request.name}/{alternative}" if alternative else request.name
            devices.setdefault(c, []).append(ClaimedDevice(name, names[device]))
        found[encoded.pod_keys[bind.pod]] = tuple(
            [
                ClaimAllocationCommand(key, tuple(devices.get(c, ())))
                for c, key in enumerate(keys)
                if key is not None
            ]
        )
    return found


def _annotation_changes(
    encoded: EncodedSnapshot, row: int, allocations: list[PodGroupAllocation]
) -> tuple[str | None, str | None]:
    """Return the annotation to write first, with all new places, and that to write at the end."""
    written = encoded.reserved.get(row, "")
    relocations = read_relocations(written)
    remaining = write_reserved(_remaining_places(encoded, row, allocations), relocations)
    with_new = write_reserved(
        _remaining_places(encoded, row, allocations, keeps_all=True), relocations
    )
    has_new = with_new != written and any(one.reservations for one in allocations)
    before_release = with_new if has_new else written
    return with_new if has_new else None, remaining if remaining != before_release else None


def _pods_and_nodes(
    encoded: EncodedSnapshot, placements: Iterable[PodPlacement]
) -> tuple[PodAndNode, ...]:
    nodes = encoded.snapshot.nodes.names
    return tuple(PodAndNode(encoded.pod_keys[pod], nodes[node]) for pod, node, _ in placements)


def _evictions_by_preemptor(
    encoded: EncodedSnapshot, plan: Plan
) -> dict[int, list[PlannedEviction]]:
    evictions: dict[int, list[PlannedEviction]] = {}
    for eviction in merge_evictions(plan.evictions):
        evictions.setdefault(eviction.preemptor, []).append(
            planned_eviction(encoded, eviction, plan.relocations)
        )
    return evictions


def _by_podgroup(decisions: Iterable[PodGroupAllocation]) -> dict[int, list[PodGroupAllocation]]:
    by_podgroup: dict[int, list[PodGroupAllocation]] = {}
    for allocation in decisions:
        by_podgroup.setdefault(allocation.podgroup, []).append(allocation)
    return by_podgroup


def _lost_nominations(encoded: EncodedSnapshot, plan: Plan) -> dict[int, list[int]]:
    """Return the nominated pods, by PodGroup, that have no room on their node or elsewhere."""
    snapshot = encoded.snapshot
    nominated_signatures = [
        row for row, signature in enumerate(snapshot.signatures) if signature.nominated_node != NONE
    ]
    if not nominated_signatures:
        return {}
    rejected = {
        it.podgroup
        for it in plan.rejections
        if it.reason.rank >= UnschedulableReason.EXCEEDS_LIMIT.rank
    }
    placed = {it.pod for one in plan.allocations for it in (*one.binds, *one.nominations)}
    lost: dict[int, list[int]] = {}
    pods = snapshot.pods
    for pod in np.flatnonzero(np.isin(pods.signature, nominated_signatures)).tolist():
        podgroup_row = int(pods.podgroup[pod])
        if podgroup_row in rejected and pods.state[pod] == PodState.PENDING and pod not in placed:
            lost.setdefault(podgroup_row, []).append(pod)
    return lost


def _fully_evicted(plan: Plan) -> set[int]:
    """Return the PodGroups that lose all their pods, and their reserved places too."""
    return {row for one in plan.evictions if one.is_whole for row in one.podgroups}


def _podgroups_with_uncounted_pods(encoded: EncodedSnapshot) -> Iterator[UnschedulablePodGroup]:
    seen: set[Key] = set()
    for warning in sorted(encoded.warnings):
        if warning.is_pod_pending and warning.object_key not in seen:
            seen.add(warning.object_key)
            failure = PreFilterFailure(PreFilterCause.IGNORED_PODS, (warning.message,))
            rejection = Rejection(
                NONE,
                failure.reason,
                failure,
                is_resolvable=False,
                retry_on=failure.retry_on,
            )
            yield UnschedulablePodGroup(warning.object_key, failure.reason, rejection)


def changed_annotations(encoded: EncodedSnapshot, plan: Plan) -> Iterator[tuple[Key, str]]:
    """Yield the annotations of reserved places as they are when all of a plan is done; "" is none.

    The commands write the same, step by step: those of a relocation when its pods are evicted.
    """
    relocations = [
        PodGroupAllocation(it.podgroup, reservations=it.reservations) for it in plan.relocations
    ]
    by_podgroup = _by_podgroup((*plan.allocations, *relocations))
    fully_evicted = _fully_evicted(plan) - {it.podgroup for it in relocations}
    for row in sorted({*by_podgroup, *encoded.reserved}):
        text = write_reserved(
            _remaining_places(encoded, row, by_podgroup.get(row, [])),
            read_relocations(encoded.reserved.get(row, "")),
        )
        text = "" if row in fully_evicted else text
        if text != encoded.reserved.get(row, ""):
            yield encoded.podgroup_keys[row], text


def _remaining_places(
    encoded: EncodedSnapshot,
    row: int,
    allocations: list[PodGroupAllocation],
    *,
    keeps_all: bool = False,
) -> Iterator[NamedPlace]:
    """Yield the places that a PodGroup reserves after the plan: less one for each placed pod.

    With *keeps_all* all of them: they are released when the pods are bound or nominated.
    """
    nodes = encoded.snapshot.nodes.names
    placed = {it.pod for one in allocations for it in (*one.binds, *one.nominations)}
    placed = set() if keeps_all else placed
    for podset in podsets_of(encoded.snapshot.podgroups[row].tree):
        placed_count = sum(pod in placed for pod in podset.pending)
        for place in podset.reserved_places[placed_count:]:
            yield NamedPlace(podset.name, nodes[place.node], place.cause)
    for allocation in allocations:
        yield from named_places(nodes, allocation.reservations)


def planned_eviction(
    encoded: EncodedSnapshot, one: Eviction, relocations: Iterable[Relocation] = ()
) -> PlannedEviction:
    nodes = encoded.snapshot.nodes.names
    return PlannedEviction(
        queue=_queue_name(encoded, one.podgroups[0]),
        preemptor_queue=_queue_name(encoded, one.preemptor),
        evicted_gpus=one.gpus,
        groups=tuple(encoded.podgroup_keys[row] for row in one.podgroups),
        pods=tuple(encoded.pod_keys[row] for row in one.pods),
        action=one.action.value,
        preemptor=None if one.preemptor == NONE else encoded.podgroup_keys[one.preemptor],
        reason=eviction_message(encoded.snapshot, one),
        gpus=one.limited_gpus,
        lost_work=one.work_lost,
        places=tuple(
            (encoded.podgroup_keys[it.podgroup], named_places(nodes, it.reservations))
            for it in relocations
            if it.podgroup in one.podgroups
        ),
    )


def _queue_name(encoded: EncodedSnapshot, podgroup: int) -> str:
    """Return the queue of a PodGroup by its row; "" if it has none, or for no PodGroup."""
    snapshot = encoded.snapshot
    row = NONE if podgroup == NONE else snapshot.podgroups[podgroup].queue
    return "" if row == NONE else snapshot.queues.names[row]


def merge_evictions(evictions: Iterable[Eviction]) -> list[Eviction]:
    """Return evictions, with all those of one PodGroup for one preemptor merged into one."""
    merged: dict[tuple[object, ...], Eviction] = {}
    for one in evictions:
        identity = one.podgroups, one.is_whole, one.action, one.preemptor, one.victim_order
        before = merged.get(identity)
        merged[identity] = one if before is None else _merged(before, one)
    return [*merged.values()]


def _merged(one: Eviction, more: Eviction) -> Eviction:
    return replace(
        one,
        pods=one.pods + more.pods,
        gpus=one.gpus + more.gpus,
        work_lost=one.work_lost + more.work_lost,
        budgets=tuple(sorted({*one.budgets, *more.budgets})),
    )


def named_places(
    nodes: Sequence[str], reservations: Iterable[Reservation]
) -> tuple[NamedPlace, ...]:
    """Return the places of some reservations by names, one for each pod."""
    return tuple(
        NamedPlace(one.podset, nodes[one.node], ReservationCause(one.cause))
        for one in reservations
        for _ in range(one.number)
    )
