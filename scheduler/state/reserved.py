"""`trainer-kai.dev/reserved`: the slots that a group holds, written and read.

It is how they outlive the scheduler: they are written before the first decision that relies on
them, and read at the start. The schema stands in the README of this room.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model import Cause

__all__ = ["Held", "SlotAt", "read_reserved", "write_reserved"]

_MOST: Final = 100_000  # slots of one leaf


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of one leaf."""

    nodes: Mapping[str, int] = {}
    cause: str = ""


class SlotAt(NamedTuple):
    """One slot, by names."""

    leaf: str
    node: str
    cause: Cause


_read: Final = msgspec.json.Decoder(dict[str, Held])


def read_reserved(text: str) -> dict[str, tuple[SlotAt, ...]] | str:
    """Return the slots by leaf, in order of their nodes; or say why they cannot be read."""
    try:
        found = _read.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)
    return {leaf: tuple(_slots(leaf, held)) for leaf, held in found.items()}


def write_reserved(slots: Iterable[SlotAt]) -> str:
    """Write the slots of a group; nothing where there are none."""
    nodes: dict[str, dict[str, int]] = {}
    causes: dict[str, Cause] = {}
    for leaf, node, cause in slots:
        of_leaf = nodes.setdefault(leaf, {})
        of_leaf[node] = of_leaf.get(node, 0) + 1
        causes[leaf] = min(cause, causes.get(leaf, cause))  # one word for all of them
    if not nodes:
        return ""
    held = {
        leaf: Held(nodes=nodes[leaf], cause=causes[leaf].name.lower()) for leaf in sorted(nodes)
    }
    return msgspec.json.encode(held, order="deterministic").decode()


def _slots(leaf: str, held: Held) -> list[SlotAt]:
    known = {cause.name.lower(): cause for cause in Cause}
    cause = known.get(held.cause, Cause.ANTICIPATED)
    slots: list[SlotAt] = []
    for node in sorted(held.nodes):
        count = min(max(held.nodes[node], 0), _MOST - len(slots))
        slots += [SlotAt(leaf, node, cause)] * count
    return slots
