"""Who uses which claim, and which claims several pods would use that only one node or pod may."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.claims import claims_of, is_exclusive
from scheduler.state.cluster import Cluster
from scheduler.state.gang import Gang
from scheduler.state.holdings import Holdings
from scheduler.state.kin import Kin
from scheduler.state.roll import DONE, Roll
from trainer_kai.api.meta import Key

__all__ = ["Users"]


class Users:
    """By claim; only of those that are shared."""

    def __init__(self, cluster: Cluster, roll: Roll) -> None:
        self._cluster: Final = cluster
        self._roll: Final = roll
        self._seen: tuple[object, ...] = ()
        self._users: dict[Key, list[Kin]] = {}
        self.awaiting: Final[dict[Key, Counter[Kin]]] = {}  # gangs: pods with volumes to come

    @property
    def claims(self) -> tuple[Key, ...]:
        """Return the claims that are shared."""
        return tuple(self._users)

    def expect(self, key: Key, gang: Gang | None, holdings: Holdings) -> None:
        """Take how many pods with volumes a gang may yet get."""
        self.awaiting.pop(key, None)
        if gang is None or not gang.is_listed:
            return
        found: Counter[Kin] = Counter()
        for held in holdings.of(gang).values():
            found[held.kin] += len(held.at)
        for leaf, (kin, _) in gang.later.items():
            found[kin] += gang.to_come(leaf)
        found = Counter({kin: count for kin, count in found.items() if kin.spec.volumes})
        if found:
            self.awaiting[key] = found

    def shared(self, heads: Ints, version: int) -> tuple[Key, ...]:
        """Return the claims that are shared; nothing is done if nothing has changed."""
        kins, to_come = self._roll.kins, Counter[Kin]()
        for found in self.awaiting.values():
            to_come.update(found)
        numbers = np.flatnonzero(kins.has_volumes[: len(heads)])
        alive = heads[numbers, :DONE].sum(axis=1)
        coming = tuple((kin.serial, count) for kin, count in to_come.items())
        seen = version, kins.serial[numbers].tobytes(), alive.tobytes(), coming
        if seen != self._seen:
            self._seen = seen
            count_of = Counter(to_come)
            count_of.update(
                {kins[n]: count for n, count in zip(numbers.tolist(), alive.tolist(), strict=True)}
            )
            self._read(count_of)
        return self.claims

    def placed(self, held: Mapping[tuple[int, int], int]) -> tuple[tuple[int, int], ...]:
        """Return on which node each claim is in use, and by how many pods; slots are as good."""
        at: dict[int, Counter[int]] = {}
        for (number, row), count in held.items() if self._users else ():
            at.setdefault(number, Counter())[row] += count
        node = self._roll.node
        found = []
        for kins in self._users.values():
            rows = Counter(int(node[slot]) for kin in kins for slot in kin.slots)
            del rows[NONE]
            for kin in kins:
                rows.update(at.get(kin.number, {}))
            found.append((min(rows, default=NONE), rows.total()))
        return tuple(found)

    def _read(self, count_of: Mapping[Kin, int]) -> None:
        number_of: Counter[Key] = Counter()
        users: dict[Key, list[Kin]] = {}
        for kin, count in count_of.items():
            for claim in claims_of(kin) if count else ():
                if is_exclusive(self._cluster, claim):
                    number_of[claim] += count
                    users.setdefault(claim, []).append(kin)
        self._users = {claim: users[claim] for claim in sorted(users) if number_of[claim] > 1}
