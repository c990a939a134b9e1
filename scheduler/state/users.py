"""Who uses which claim, and which claims several pods would use that only one node or pod may."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Ints
from scheduler.state.claims import claim_keys, is_exclusive
from scheduler.state.cluster import Cluster
from scheduler.state.gang import PodGroupRecord
from scheduler.state.holdings import Reservations
from scheduler.state.kin import PodClass
from scheduler.state.roll import DONE, PodTable
from trainer_kai.api.meta import Key

__all__ = ["SharedClaims"]


class SharedClaims:
    """By claim; only of those that are shared."""

    def __init__(self, cluster: Cluster, pod_table: PodTable) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._read_for: tuple[object, ...] = ()
        self._classes_by_claim: dict[Key, list[PodClass]] = {}
        self.expected_pods: Final[
            dict[Key, Counter[PodClass]]
        ] = {}  # gangs: pods with volumes to come

    @property
    def claims(self) -> tuple[Key, ...]:
        """Return the claims that are shared."""
        return tuple(self._classes_by_claim)

    def expect(self, key: Key, record: PodGroupRecord | None, reservations: Reservations) -> None:
        """Take how many pods with volumes a gang may yet get."""
        self.expected_pods.pop(key, None)
        if record is None or not record.is_active:
            return
        found: Counter[PodClass] = Counter()
        for reserved in reservations.of_podgroup(record).values():
            found[reserved.pod_class] += len(reserved.places)
        for podset, (pod_class, _) in record.expected.items():
            found[pod_class] += record.expected_count(podset)
        found = Counter(
            {pod_class: count for pod_class, count in found.items() if pod_class.spec.volumes}
        )
        if found:
            self.expected_pods[key] = found

    def update(self, pod_counts: Ints, version: int) -> tuple[Key, ...]:
        """Return the claims that are shared; nothing is done if nothing has changed."""
        classes, to_come = self._pod_table.class_table, Counter[PodClass]()
        for found in self.expected_pods.values():
            to_come.update(found)
        numbers = np.flatnonzero(classes.has_volumes[: len(pod_counts)])
        alive = pod_counts[numbers, :DONE].sum(axis=1)
        coming = tuple((pod_class.serial, count) for pod_class, count in to_come.items())
        seen = version, classes.serial[numbers].tobytes(), alive.tobytes(), coming
        if seen != self._read_for:
            self._read_for = seen
            count_of = Counter(to_come)
            count_of.update(
                {
                    classes[n]: count
                    for n, count in zip(numbers.tolist(), alive.tolist(), strict=True)
                }
            )
            self._read(count_of)
        return self.claims

    def claim_usage(self, reserved: Mapping[tuple[int, int], int]) -> tuple[tuple[int, int], ...]:
        """Return on which node each claim is in use, and by how many pods; slots are as good."""
        at: dict[int, Counter[int]] = {}
        for (number, row), count in reserved.items() if self._classes_by_claim else ():
            at.setdefault(number, Counter())[row] += count
        node = self._pod_table.node
        found = []
        for classes in self._classes_by_claim.values():
            rows = Counter(
                int(node[pod_row]) for pod_class in classes for pod_row in pod_class.pod_rows
            )
            del rows[NONE]
            for pod_class in classes:
                rows.update(at.get(pod_class.number, {}))
            found.append((min(rows, default=NONE), rows.total()))
        return tuple(found)

    def _read(self, count_of: Mapping[PodClass, int]) -> None:
        number_of: Counter[Key] = Counter()
        classes_by_claim: dict[Key, list[PodClass]] = {}
        for pod_class, count in count_of.items():
            for claim in claim_keys(pod_class) if count else ():
                if is_exclusive(self._cluster, claim):
                    number_of[claim] += count
                    classes_by_claim.setdefault(claim, []).append(pod_class)
        self._classes_by_claim = {
            claim: classes_by_claim[claim]
            for claim in sorted(classes_by_claim)
            if number_of[claim] > 1
        }
