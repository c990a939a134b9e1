"""Messages about devices of ResourceClaims: which request lacks some, and why devices fall out."""

from collections.abc import Iterable, Iterator, Mapping

from scheduler.core.model.claims import MOST_CLAIM_DEVICES
from scheduler.core.model.rejections import ClaimShortage
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.text import counted, first_listed, verb_form


def needed_devices(shortage: ClaimShortage | None, pods: int) -> list[str]:
    """Return what some pods need of the request that lacks devices."""
    if shortage is None or shortage.allocated_on != NONE:
        return []
    of = f"of class {shortage.class_name}"
    if not shortage.needed:
        return [f"all devices {of}"]
    return [f"{counted(shortage.needed * pods, 'device')} {of}"]


def device_reasons(snapshot: Snapshot, shortage: ClaimShortage) -> str:
    """Return why the devices of the nodes are too few."""
    if shortage.allocated_on != NONE:
        node = snapshot.nodes.names[shortage.allocated_on]
        return f"claim {shortage.claim} has its devices on node {node}"
    number = counted(shortage.needed, "device") if shortage.needed else "all devices"
    wanted = f"{number} of class {shortage.class_name}"
    request = f"request {shortage.request} of claim {shortage.claim} for {wanted}"
    if not shortage.devices:
        return "; ".join([f"{request}: no devices there", *_left_out(shortage)])
    return "; ".join([f"{request}: {', '.join(_causes(shortage))}", *_notes(shortage)])


def served_resources(
    snapshot: Snapshot, too_small: Iterable[int], largest: Mapping[int, int]
) -> str:
    """Return which resources no node has, because their devices come by ResourceClaim only."""
    served, names = snapshot.claim_devices.served, snapshot.resources.names
    return first_listed(
        f"the scheduler allocates devices of DeviceClass {served[names[r]]} by ResourceClaim only"
        for r in too_small
        if names[r] in served and not largest.get(r)
    )


def _causes(it: ClaimShortage) -> Iterator[str]:
    yield f"of {counted(it.devices, 'device')} there"
    for number, what in (
        (it.not_selected, "not selected"),
        (it.tainted, "tainted"),
        (it.taken, "taken"),
    ):
        if number:
            yield f"{number} {verb_form(number, 'are')} {what}"
    if it.largest_free:
        yield f"at most {it.largest_free} {verb_form(it.largest_free, 'are')} free on one node"


def _notes(it: ClaimShortage) -> Iterator[str]:
    if it.is_search_limited:
        yield "the search for a combination ended at its bound, so there may be one"
    elif it.is_combination:
        yield "the free devices do not fit together (all of the claims, constraints, counters)"
    if not it.needed and it.largest_free > MOST_CLAIM_DEVICES:
        yield f"a claim gets at most {MOST_CLAIM_DEVICES} devices, so request a number of them"
    if it.error:
        yield f"a selector failed on some devices, which do not match then: {it.error}"
    yield from _left_out(it)


def _left_out(it: ClaimShortage) -> Iterator[str]:
    for why, number in it.left_out:
        left_out = f"{counted(number, 'device')} of the cluster {verb_form(number, 'are')} left out"
        yield f"{left_out}: {why}"
