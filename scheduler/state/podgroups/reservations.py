"""The places reserved for PodGroups: for which PodSet, on which nodes, for which pod class.

Places are reserved only while the PodGroup has started or has a nominated node, and only for pods
without a node: a place is released when its pod is bound.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.core.model.podgroup import ReservationCause
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import EMPTIED
from scheduler.state.inputs import ObjectWarning
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.podgroups.podgroup import NamedPlace, PodGroupRecord, read_reserved
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import DONE, RUNNING, SUCCEEDED, PodTable
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED


class PodSetReservation(NamedTuple):
    """The reserved places of one PodSet: for pods of which class, on which nodes, and why."""

    pod_class: PodClass
    places: tuple[tuple[int, ReservationCause], ...]  # rows of nodes


class Reservations:
    def __init__(self, pod_table: PodTable, nodes: NodeTable) -> None:
        self._pod_table: Final = pod_table
        self._nodes: Final = nodes
        self.by_podgroup: Final[dict[Key, dict[str, PodSetReservation]]] = {}
        self.annotations: Final[dict[Key, str]] = {}  # the annotations that are not empty
        self._warnings: Final[dict[Key, ObjectWarning]] = {}

    @property
    def warnings(self) -> list[ObjectWarning]:
        return [*self._warnings.values()]

    def of_podgroup(self, record: PodGroupRecord) -> dict[str, PodSetReservation]:
        return self.by_podgroup.get(record.key, {})

    def read(self, key: Key, record: PodGroupRecord | None) -> set[int]:
        """Read the reservations of a PodGroup; return the nodes where it has any, or had before."""
        self.annotations.pop(key, None)
        self._warnings.pop(key, None)
        before = self.by_podgroup.pop(key, {})
        if record is not None and record.is_active and record.group is not None:
            text = record.group.metadata.annotations.get(RESERVED, "")
            if text:
                self.annotations[key] = text
                reserved = self._read_one(record, text)
                if reserved:
                    self.by_podgroup[key] = reserved
        affected = (*before.values(), *self.by_podgroup.get(key, {}).values())
        return {row for reserved in affected for row, _ in reserved.places}

    def counts_by_node(self) -> Counter[tuple[int, int]]:
        return Counter(
            (reserved.pod_class.number, row)
            for podsets in self.by_podgroup.values()
            for reserved in podsets.values()
            for row, _ in reserved.places
        )

    def _read_one(self, record: PodGroupRecord, text: str) -> dict[str, PodSetReservation]:
        by_podset = read_reserved(text)
        if isinstance(by_podset, str):
            fault = f"metadata.annotations[{RESERVED}]: {by_podset}; reserved places are released"
            self._warnings[record.key] = ObjectWarning(
                record.key, f"PodGroup {record.key}: {fault}"
            )
            return {}
        if not record.is_valid or not record.has_started:
            return {}
        if record.is_suspended and not record.is_returning:
            return {}
        relocating = record.relocating
        by_podset = {
            podset: places
            for podset, places in by_podset.items()
            if podset in relocating or not _is_relocation(places)
        }
        usable: dict[str, PodSetReservation] = {}
        for podset, minimum in record.min_members.items():
            reserved, pod_class = by_podset.get(podset, ()), self._pod_class(record, podset)
            if reserved and pod_class is not None:
                at = self._usable_places(record, podset, reserved, minimum)
                usable[podset] = PodSetReservation(
                    pod_class, tuple((self._nodes.row_by_name[one.node], one.cause) for one in at)
                )
        return usable

    def _pod_class(self, record: PodGroupRecord, podset: str) -> PodClass | None:
        """Return the class of missing pods of a PodSet: as anticipated, else as its newest pod."""
        if podset in record.expected:
            return record.expected[podset][0]
        pod_classes = record.classes_by_podset.get(podset, ())
        return max(
            pod_classes,
            key=lambda pod_class: self._pod_table.age(self._pod_table.oldest(pod_class)),
            default=None,
        )

    def _usable_places(
        self, record: PodGroupRecord, podset: str, reserved: tuple[NamedPlace, ...], minimum: int
    ) -> list[NamedPlace]:
        """Return the places that can still be used, without those that pods have taken by now."""
        count = record.expected[podset][1] if podset in record.expected else minimum
        if _is_relocation(reserved):  # pods beyond the minimum were relocated as well
            count = max(
                count, sum(record.count_of(podset, one) for one in (*range(DONE), SUCCEEDED))
            )
        done = record.count_of(podset, RUNNING) + record.count_of(podset, SUCCEEDED)
        usable = [one for one in reserved if self._is_usable(one.node)]
        surplus = len(usable) - max(count - done, 0)
        running_nodes = self._running_nodes(record, podset) if surplus > 0 else Counter()
        for one in list(usable):
            if surplus > 0 and running_nodes[one.node] > 0:
                running_nodes[one.node] -= 1
                surplus -= 1
                usable.remove(one)
        return usable[: len(usable) - max(surplus, 0)]

    def _running_nodes(self, record: PodGroupRecord, podset: str) -> Counter[str]:
        state, node, names = self._pod_table.state, self._pod_table.node, self._nodes.names
        pod_rows = (
            pod_row
            for pod_class in record.classes_by_podset.get(podset, ())
            for pod_row in pod_class.pod_rows
        )
        running_rows = (int(node[pod_row]) for pod_row in pod_rows if state[pod_row] == RUNNING)
        return Counter(names[row] for row in running_rows if row != NONE)

    def _is_usable(self, node: str) -> bool:
        """Say whether a place on a node is kept: not if that is emptied; other faults pass."""
        row = self._nodes.row_by_name.get(node)
        return row is not None and self._nodes.faults[row] not in EMPTIED


def _is_relocation(places: Iterable[NamedPlace]) -> bool:
    return any(one.cause == ReservationCause.MOVE for one in places)
