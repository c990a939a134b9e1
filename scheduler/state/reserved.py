"""`trainer-kai.dev/reserved`: the slots that a group holds, written and read.

It is how they outlive the scheduler: they are written before the first decision that relies on
them, and read at the start. The schema stands in the README of this room.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model import Cause
from trainer_kai.policy.anticipated import Later

__all__ = ["Held", "SlotAt", "coming_back", "read_reserved", "write_reserved"]

_MOST: Final = 100_000  # slots of one leaf


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slots of one leaf; of one that is moved also what it is, for it has no pods meanwhile."""

    nodes: Mapping[str, int] = {}
    cause: str = ""
    until: str = ""  # nothing is held after it, if its pods have not come back by then
    like: Later | None = None


class SlotAt(NamedTuple):
    """One slot, by names."""

    leaf: str
    node: str
    cause: Cause


_NOTHING: Final = Held()
_NOBODY: Final[Mapping[str, Held]] = MappingProxyType({})
_MOVED: Final = Cause.MOVE.name.lower()
_read: Final = msgspec.json.Decoder(dict[str, Held])


def read_reserved(text: str) -> dict[str, tuple[SlotAt, ...]] | str:
    """Return the slots by leaf, in order of their nodes; or say why they cannot be read."""
    try:
        found = _read.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)
    return {leaf: tuple(_slots(leaf, held)) for leaf, held in found.items()}


def coming_back(text: str) -> dict[str, Held]:
    """Return the leaves that are moved, whose pods are made anew; none if it cannot be read."""
    if _MOVED not in text:  # of nearly all
        return {}
    try:
        found = _read.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {leaf: held for leaf, held in found.items() if held.nodes and held.cause == _MOVED}


def write_reserved(slots: Iterable[SlotAt], moved: Mapping[str, Held] = _NOBODY) -> str:
    """Write the slots of a group; nothing where there are none.

    Of leaves that are *moved* it is known what they are, and how long they are waited for; they
    stay such, also if a slot had to become another meanwhile.
    """
    nodes: dict[str, dict[str, int]] = {}
    causes: dict[str, Cause] = {}
    for leaf, node, cause in slots:
        of_leaf = nodes.setdefault(leaf, {})
        of_leaf[node] = of_leaf.get(node, 0) + 1
        causes[leaf] = min(cause, causes.get(leaf, cause))  # one word for all of them
    if not nodes:
        return ""
    held = {}
    for leaf in sorted(nodes):
        why = _MOVED if leaf in moved else causes[leaf].name.lower()
        held[leaf] = msgspec.structs.replace(
            moved.get(leaf, _NOTHING), nodes=nodes[leaf], cause=why
        )
    return msgspec.json.encode(held, order="deterministic").decode()


def _slots(leaf: str, held: Held) -> list[SlotAt]:
    known = {cause.name.lower(): cause for cause in Cause}
    cause = known.get(held.cause, Cause.ANTICIPATED)
    slots: list[SlotAt] = []
    for node in sorted(held.nodes):
        count = min(max(held.nodes[node], 0), _MOST - len(slots))
        slots += [SlotAt(leaf, node, cause)] * count
    return slots
