"""Pods of namespaces with more affinity terms and host ports than the scheduler evaluates.

For each namespace a bounded number is evaluated: those of pods on nodes first, then those of the
oldest pods. The order is kept from one snapshot to the next; only where a pod class has changed it
is computed again, up to the bound.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.rejections import ClusterEvent, PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.state.pods.class_table import grown
from scheduler.state.pods.pod_class import PodClass, SharedSpec
from scheduler.state.pods.pod_table import PodTable
from trainer_kai.api.bounds import MOST_TERMS_PER_NAMESPACE
from trainer_kai.policy.pods.requests import PodHostPort

_FIELDS: Final = "spec.affinity, spec.topologySpreadConstraints and spec.containers[*].ports"


class ConsideredConstraints(NamedTuple):
    """What is evaluated: the serials of the classes that have terms, and all host ports."""

    term_classes: tuple[int, ...] = ()
    ports: tuple[PodHostPort, ...] = ()


class _ConstraintCount:
    def __init__(self) -> None:
        self._shared_specs: Final[set[SharedSpec]] = set()
        self._ports: Final[set[PodHostPort]] = set()
        self.terms = 0

    def add(self, pod_class: PodClass) -> None:
        shared_spec = pod_class.shared_spec
        if shared_spec not in self._shared_specs or shared_spec.has_label_keys:
            self.terms += shared_spec.term_count
        self._shared_specs.add(shared_spec)
        self._ports.update(shared_spec.ports)

    @property
    def ports(self) -> int:
        return len(self._ports)

    @property
    def exceeds_bound(self) -> bool:
        return self.terms + len(self._ports) > MOST_TERMS_PER_NAMESPACE


class _NamespaceClasses:
    """The classes of one namespace by number, in their order as far as it is known."""

    def __init__(self) -> None:
        self._classes: dict[int, tuple[PodClass, tuple[object, ...] | None]] = {}
        self._upper_bound = 0  # of terms and ports: as if all were different
        self.excess: list[int] = []  # numbers of the classes that are not evaluated

    def __len__(self) -> int:
        return len(self._classes)

    def add(self, number: int, pod_class: PodClass) -> None:
        self._classes[number] = pod_class, None
        self._upper_bound += _size(pod_class)

    def remove(self, number: int) -> None:
        self._upper_bound -= _size(self._classes.pop(number)[0])

    def update_excess(self, pod_table: PodTable, are_on_node: Bools) -> None:
        """Find the classes that are not evaluated: the first beyond the bound and all after it."""
        self.excess = []
        if self._upper_bound <= MOST_TERMS_PER_NAMESPACE:
            return
        for number, (pod_class, place) in self._classes.items():
            if place is None:
                order = _order(pod_class, pod_table, is_on_node=bool(are_on_node[number]))
                self._classes[number] = pod_class, order
        ordered = [
            (place, number, pod_class) for number, (pod_class, place) in self._classes.items()
        ]
        ordered.sort(key=itemgetter(0))  # only new classes are out of order
        self._classes = {number: (pod_class, place) for place, number, pod_class in ordered}
        constraints = _ConstraintCount()
        for at, (_, _, pod_class) in enumerate(ordered):
            constraints.add(pod_class)
            if constraints.exceeds_bound:
                self.excess = [number for _, number, _ in ordered[at:]]
                return


class NamespaceBounds:
    """The bounds of all namespaces; `exceeds_namespace_bound` of the class table is the result."""

    def __init__(self, pod_table: PodTable) -> None:
        self._pod_table: Final = pod_table
        self._by_namespace: Final[dict[str, _NamespaceClasses]] = {}
        # At the last read; by now another class may have the number.
        self._class_by_number: Final[dict[int, PodClass]] = {}
        self._states: Ints = np.zeros(0, dtype=np.int64)  # [class]: serial, and whether on a node
        self.considered = ConsideredConstraints()

    def read(self, present: Bools, are_on_node: Bools) -> list[int]:
        """Read which classes exist; return the classes for which the result has changed."""
        classes, size = self._pod_table.class_table, len(present)
        has_constraints = (
            classes.has_pod_terms[:size] | classes.has_ports[:size]
        ) & ~classes.exceeds_pod_bound[:size]
        states = np.where(present & has_constraints, 2 * classes.serial[:size] + are_on_node, NONE)
        changed = self._changed(states)
        if not len(changed):
            return []
        self._states = states
        namespaces: dict[str, None] = {}
        for number in changed.tolist():
            namespaces.update(
                dict.fromkeys(self._replace(number, is_present=states[number] != NONE))
            )
        for namespace in namespaces:
            namespace_classes = self._by_namespace[namespace]
            namespace_classes.update_excess(self._pod_table, are_on_node)
            if not len(namespace_classes):
                del self._by_namespace[namespace]
        return self._write_excess(states != NONE)

    def _changed(self, states: Ints) -> NDArray[np.intp]:
        """Return the numbers of classes that are new, or may have another oldest pod."""
        is_other = states != grown(self._states, len(states), NONE)
        touched = [pod_class.number for pod_class in self._pod_table.changed_classes]
        is_other[touched] |= states[touched] != NONE
        return np.flatnonzero(is_other)

    def _replace(self, number: int, *, is_present: bool) -> Iterable[str]:
        """Store the class that has a number now; yield the namespaces that this affects."""
        before = self._class_by_number.pop(number, None)
        if before is not None:
            self._by_namespace[before.namespace].remove(number)
            yield before.namespace
        if is_present:
            pod_class = self._class_by_number[number] = self._pod_table.class_table[number]
            self._by_namespace.setdefault(pod_class.namespace, _NamespaceClasses()).add(
                number, pod_class
            )
            yield pod_class.namespace

    def _write_excess(self, is_present: Bools) -> list[int]:
        classes, size = self._pod_table.class_table, len(is_present)
        exceeds = np.zeros(size, dtype=np.bool_)
        for namespace_classes in self._by_namespace.values():
            exceeds[namespace_classes.excess] = True
        changed: list[int] = np.flatnonzero(
            exceeds != classes.exceeds_namespace_bound[:size]
        ).tolist()
        classes.exceeds_namespace_bound[:size] = exceeds
        considered = [
            self._class_by_number[number]
            for number in np.flatnonzero(is_present & ~exceeds).tolist()
        ]
        ports = {
            port
            for shared_spec in {pod_class.shared_spec for pod_class in considered}
            for port in shared_spec.ports
        }
        self.considered = ConsideredConstraints(
            term_classes=tuple(
                sorted(
                    pod_class.serial for pod_class in considered if pod_class.shared_spec.term_count
                )
            ),
            ports=tuple(sorted(ports)),
        )
        return [number for number in changed if classes.is_known(number)]


def bound_failure(namespace: str, classes: Iterable[PodClass]) -> PreFilterFailure:
    own = _ConstraintCount()
    for pod_class in classes:
        own.add(pod_class)
    cause = (
        PreFilterCause.PODGROUP_CONSTRAINT_LIMIT
        if own.exceeds_bound
        else PreFilterCause.NAMESPACE_CONSTRAINT_LIMIT
    )
    return PreFilterFailure(
        cause,
        (namespace, MOST_TERMS_PER_NAMESPACE, own.terms, own.ports, _FIELDS),
        ClusterEvent.ANY | ClusterEvent.RESOURCES_FREED,  # an older pod that ends makes room
    )


def _size(pod_class: PodClass) -> int:
    return pod_class.shared_spec.term_count + len(pod_class.shared_spec.ports)


def _order(pod_class: PodClass, pod_table: PodTable, *, is_on_node: bool) -> tuple[object, ...]:
    """Return the sort key of a class: by its oldest pod; classes without pods come last."""
    if pod_class.pod_rows:
        return not is_on_node, False, pod_table.age(pod_table.oldest(pod_class))
    return not is_on_node, True, (), pod_class.shared_spec.encoded, sorted(pod_class.labels.items())
