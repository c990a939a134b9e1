"""One group that pods name: what it says of itself, and how far its pods are."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model import NONE, Bar, Ints, Verdict
from scheduler.state.kin import Kin
from scheduler.state.reserved import Held, coming_back
from scheduler.state.roll import GATED, RELEASING, STATES, STUCK, SUCCEEDED, THERE, WAITING, Roll
from scheduler.state.terms import Stray, epoch_s
from scheduler.state.trees import DEFAULT, group_bar, minima, topology_bar
from trainer_kai.api.counted import group_warnings
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import ANTICIPATED, RESERVED, SUBGROUP
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS
from trainer_kai.policy.anticipated import Anticipated, read_anticipated

__all__ = ["Gang", "Origin", "ends_at", "moved_leaves"]

_TOLD: Final = 8  # names in a message
_WAKES_ON: Final = frozenset({"groups"})
_NONE: Final = (0,) * STATES
_NOTHING: Final = Anticipated()


class Origin(NamedTuple):
    """What a gang is made from besides its group and its pods."""

    now: int
    jobset: JobSet | None = None
    runs_again: bool | None = None  # its TrainJob; None if there is none
    is_due: bool = False  # a group that does not exist, and that a JobSet is to have


class Gang:
    """It is made anew when its group changes, and counted anew when its pods do."""

    __slots__ = (
        "bar",
        "comes_back",
        "coming_back",
        "group",
        "heads",
        "is_awaited",
        "is_due",
        "is_forsaken",
        "is_listed",
        "is_promised",
        "is_sound",
        "is_suspended",
        "jobset",
        "key",
        "later",
        "leaves",
        "minima",
        "number",
        "owner",
        "refused",
        "said",
        "topology_bar",
        "warnings",
    )

    def __init__(self, number: int, key: Key, group: PodGroup | None, origin: Origin) -> None:
        jobset = origin.jobset
        self.number: Final = number
        self.key: Final = key
        self.group: Final = group
        self.jobset: Final = jobset
        self.owner: Final = _owner(group.metadata) if group else ""
        self.is_due: Final = origin.is_due
        self.is_suspended: Final = jobset is not None and jobset.spec.suspend
        self.leaves: Final[dict[str, list[Kin]]] = {}  # those that have a place in it
        self.refused: Final[dict[Kin, str]] = {}
        self.later: dict[str, tuple[Kin, int]] = {}  # by leaf: kin, and how many in all
        self.heads: Final[dict[str, tuple[int, ...]]] = {}  # by leaf: those that count, by state
        self.coming_back: Final = moved_leaves(group, origin.now) if group else {}
        self.is_awaited: Final = bool(self.coming_back) and origin.runs_again is True
        # If nobody says whether its TrainJob goes on, its pods tell whether it is moved.
        self.comes_back: Final = self.is_awaited or (
            bool(self.coming_back) and origin.runs_again is None and not self.is_suspended
        )
        # Somebody else has suspended it, or it is over: what it holds is let go, for good.
        self.is_forsaken: Final = bool(self.coming_back) and origin.runs_again is False
        self.is_promised = False  # a node, to one that waits, or that is moved
        self.is_listed = False  # it wants or has anything
        self.said = _NOTHING
        # What of the group counts otherwise than it is written.
        self.warnings: Final = tuple(group_warnings(group.spec)) if group else ()
        if group is None:
            message = f"its pods name the group {key}, which does not exist"
            self.bar: Bar | None = Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)
        else:
            self.bar = group_bar(group)
        self.topology_bar: Final = topology_bar(group) if group else None
        self.is_sound: Final = group is not None and self.bar is None
        self.minima: Final = minima(group) if group and self.is_sound else {DEFAULT: 1}
        if group and self.is_sound:
            self._read_said(group.metadata.annotations.get(ANTICIPATED, ""))

    @property
    def kins(self) -> list[Kin]:
        """Return those that have a place in it."""
        return [kin for kins in self.leaves.values() for kin in kins]

    @property
    def is_begun(self) -> bool:
        """Say whether some of it has its place, or the promise of one."""
        return self.is_promised or any(heads[THERE] for heads in self.heads.values())

    @property
    def is_wanting(self) -> bool:
        """Say whether it has begun, or some of it waits to."""
        return self.is_begun or any(heads[WAITING] for heads in self.heads.values())

    def seat(self, kins: Iterable[Kin]) -> None:
        """Give all that name it their places."""
        for kin in kins:
            refusal = self._refusal(kin)
            if refusal is None:
                self.leaves.setdefault(self.leaf_of(kin) or DEFAULT, []).append(kin)
            else:
                self.refused[kin] = f"the group {self.key} {refusal}"

    def count(self, roll: Roll, heads: Ints) -> None:
        """Count the pods; *heads*, [kin, state], are those of all kin."""
        counts = roll.kins.counts
        self.heads.clear()
        self.is_promised = self.comes_back
        for leaf, kins in self.leaves.items():
            numbers = [kin.number for kin in kins if counts[kin.number]]
            if numbers:
                row = heads[numbers[0]] if len(numbers) == 1 else heads[numbers].sum(axis=0)
                self.heads[leaf] = tuple(row.tolist())
        if roll.nominated:
            self.is_promised = self.is_promised or any(
                counts[kin.number] and any(roll.promised(slot) != NONE for slot in kin.slots)
                for kin in self.kins
            )
        states = (THERE,) if self.is_suspended else (WAITING, GATED, THERE)
        if self.comes_back:
            states = (*states, RELEASING, STUCK)
        self.is_listed = (
            self.is_awaited
            or self.is_forsaken
            or any(row[state] for row in self.heads.values() for state in states)
        )

    def of(self, leaf: str, state: int) -> int:
        """Return how many pods of a leaf count and are so far."""
        return self.heads.get(leaf, _NONE)[state]

    def waiting(self, leaf: str, roll: Roll) -> tuple[int, ...]:
        """Return the pods of a leaf that wait, in the order of their placement."""
        if self.is_suspended or not self.is_listed or not self.of(leaf, WAITING):
            return ()
        return self._pods(leaf, WAITING, roll)

    def there(self, leaf: str, roll: Roll) -> tuple[int, ...]:
        """Return the pods of a leaf that have their places, in the order of their placement."""
        return self._pods(leaf, THERE, roll)

    def _pods(self, leaf: str, wanted: int, roll: Roll) -> tuple[int, ...]:
        state, counts = roll.state, roll.kins.counts
        found = [
            (kin.rank, roll.age(slot), slot)
            for kin in self.leaves.get(leaf, ())
            if counts[kin.number]
            for slot in kin.slots
            if state[slot] == wanted
        ]
        return tuple(slot for _, _, slot in sorted(found))

    def to_come(self, leaf: str) -> int:
        """Return how many pods of a leaf do not exist yet."""
        if leaf not in self.later or (self.is_suspended and not self.comes_back):
            return 0
        has = self.heads.get(leaf, _NONE)
        exist = has[WAITING] + has[GATED] + has[THERE] + has[SUCCEEDED]
        return max(self.later[leaf][1] - exist, 0)

    def strays(self, is_waiting: Callable[[Kin], bool]) -> Iterator[Stray]:
        """Yield the pods that do not count, and what of the group counts otherwise than written."""
        for it in self.warnings:
            yield Stray(self.key, f"PodGroup {self.key}: {it}", counts=True)
        for kin, message in self.refused.items():
            yield Stray(self.key, message, waits=is_waiting(kin))

    def leaf_of(self, kin: Kin) -> str | None:
        """Return the leaf of pods; None if the group has none for them."""
        name = kin.labels.get(SUBGROUP, "")
        if not self.is_sound:
            return DEFAULT
        name = name or (DEFAULT if len(self.minima) == 1 else "")
        return name if name in self.minima else None

    def _refusal(self, kin: Kin) -> str | None:
        """Say why pods that name the group do not count."""
        if self.owner and not kin.is_of_job:
            return "is of a JobSet, and pods that no Job made name it"
        if self.leaf_of(kin) is not None:
            return None
        right = ", ".join([*self.minima][:_TOLD]) + (", …" if len(self.minima) > _TOLD else "")
        name = kin.labels.get(SUBGROUP, "")
        named = f"the sub-group {name}, which it does not have" if name else "no sub-group"
        return f"has pods that name {named}; it has {right}"

    def _read_said(self, text: str) -> None:
        try:
            self.said = read_anticipated(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            message = f"metadata.annotations[{ANTICIPATED}]: {error}"
            self.bar = Bar(Verdict.MISCONFIGURED, message, _WAKES_ON)


def moved_leaves(group: PodGroup, now: int) -> dict[str, Held]:
    """Return the leaves whose pods were evicted to be made anew elsewhere, and are waited for."""
    found = coming_back(group.metadata.annotations.get(RESERVED, ""))
    return {leaf: held for leaf, held in found.items() if ends_at(held) > now}


def ends_at(held: Held) -> float:
    """Return until when pods that come back are waited for, in seconds since 1970."""
    return (epoch_s(held.until) or 0) if held.until else math.inf


def _owner(meta: Meta) -> str:
    """Return the uid of the JobSet that owns a group."""
    for owner in meta.owner_references:
        if owner.kind == JOBSETS.kind and owner.api_version.partition("/")[0] == JOBSETS.group:
            return owner.uid or owner.name
    return ""
