"""`trainer-kai.dev/reserved`: the places reserved for a PodGroup, written and read.

The reservations outlive the scheduler in this annotation: it is written before the first decision
that relies on it, and read at the start. The schema stands in the README of scheduler/state.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model.podgroup import ReservationCause
from trainer_kai.policy.podgroups.anticipated import AnticipatedPods

__all__ = ["NamedPlace", "ReservedPodSet", "read_relocations", "read_reserved", "write_reserved"]

_MAX_PLACES: Final = 100_000  # slots of one leaf


class ReservedPodSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slots of one leaf; of one that is moved also what it is, for it has no pods meanwhile."""

    nodes: Mapping[str, int] = {}
    cause: str = ""
    until: str = ""  # nothing is held after it, if its pods have not come back by then
    like: AnticipatedPods | None = None


class NamedPlace(NamedTuple):
    """One slot, by names."""

    podset: str
    node: str
    cause: ReservationCause


_NO_PLACES: Final = ReservedPodSet()
_NO_PODSETS: Final[Mapping[str, ReservedPodSet]] = MappingProxyType({})
_MOVE_CAUSE: Final = ReservationCause.MOVE.name.lower()
_decoder: Final = msgspec.json.Decoder(dict[str, ReservedPodSet])


def read_reserved(text: str) -> dict[str, tuple[NamedPlace, ...]] | str:
    """Return the slots by leaf, in order of their nodes; or say why they cannot be read."""
    try:
        found = _decoder.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)
    return {podset: tuple(_places(podset, reserved)) for podset, reserved in found.items()}


def read_relocations(text: str) -> dict[str, ReservedPodSet]:
    """Return the leaves that are moved, whose pods are made anew; none if it cannot be read."""
    if _MOVE_CAUSE not in text:  # of nearly all
        return {}
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {
        podset: reserved
        for podset, reserved in found.items()
        if reserved.nodes and reserved.cause == _MOVE_CAUSE
    }


def write_reserved(
    places: Iterable[NamedPlace], relocating: Mapping[str, ReservedPodSet] = _NO_PODSETS
) -> str:
    """Write the slots of a group; nothing where there are none.

    Of leaves that are *moved* it is known what they are, and how long they are waited for; they
    stay such, also if a slot had to become another meanwhile.
    """
    nodes: dict[str, dict[str, int]] = {}
    causes: dict[str, ReservationCause] = {}
    for podset, node, cause in places:
        counts_by_node = nodes.setdefault(podset, {})
        counts_by_node[node] = counts_by_node.get(node, 0) + 1
        causes[podset] = min(cause, causes.get(podset, cause))  # one word for all of them
    if not nodes:
        return ""
    reserved = {}
    for podset in sorted(nodes):
        cause_text = _MOVE_CAUSE if podset in relocating else causes[podset].name.lower()
        reserved[podset] = msgspec.structs.replace(
            relocating.get(podset, _NO_PLACES), nodes=nodes[podset], cause=cause_text
        )
    return msgspec.json.encode(reserved, order="deterministic").decode()


def _places(podset: str, reserved: ReservedPodSet) -> list[NamedPlace]:
    known = {cause.name.lower(): cause for cause in ReservationCause}
    cause = known.get(reserved.cause, ReservationCause.ANTICIPATED)
    places: list[NamedPlace] = []
    for node in sorted(reserved.nodes):
        count = min(max(reserved.nodes[node], 0), _MAX_PLACES - len(places))
        places += [NamedPlace(podset, node, cause)] * count
    return places
