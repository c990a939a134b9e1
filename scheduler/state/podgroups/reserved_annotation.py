"""`trainer-kai.dev/reserved`: the places reserved for a PodGroup, written and read.

The reservations survive a restart of the scheduler in this annotation: it is written before the
first decision that relies on it, and read at the start. Its schema is in the README of
scheduler/state.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model.podgroup import ReservationCause
from trainer_kai.policy.podgroups.anticipated import AnticipatedPods

_MAX_PLACES: Final = 100_000  # of one PodSet


class ReservedPodSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reserved places of one PodSet; if it is relocated, also what its pods will be like."""

    nodes: Mapping[str, int] = {}
    cause: str = ""
    until: str = ""  # the reservation ends then, if the pods have not come back
    like: AnticipatedPods | None = None


class NamedPlace(NamedTuple):
    """One reserved place, by names."""

    podset: str
    node: str
    cause: ReservationCause


_NO_PLACES: Final = ReservedPodSet()
_NO_PODSETS: Final[Mapping[str, ReservedPodSet]] = MappingProxyType({})
_MOVE_CAUSE: Final = ReservationCause.MOVE.name.lower()
_decoder: Final = msgspec.json.Decoder(dict[str, ReservedPodSet])


def read_reserved(text: str) -> dict[str, tuple[NamedPlace, ...]] | str:
    """Return the places by PodSet, in order of their nodes; or why the text is invalid."""
    try:
        found = _decoder.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)
    return {podset: tuple(_places(podset, reserved)) for podset, reserved in found.items()}


def read_relocations(text: str) -> dict[str, ReservedPodSet]:
    """Return the PodSets that are relocated; none if the text is invalid."""
    if _MOVE_CAUSE not in text:  # as in nearly all annotations
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
    """Return the annotation of a PodGroup with these places; empty without places.

    For a PodSet in *relocating*, `like` and `until` are kept, also if one of its places has changed
    meanwhile.
    """
    nodes: dict[str, dict[str, int]] = {}
    causes: dict[str, ReservationCause] = {}
    for podset, node, cause in places:
        counts_by_node = nodes.setdefault(podset, {})
        counts_by_node[node] = counts_by_node.get(node, 0) + 1
        causes[podset] = min(cause, causes.get(podset, cause))  # one cause for the whole PodSet
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
