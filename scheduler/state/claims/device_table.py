"""The devices of ResourceSlices: which ones count, on which nodes they are, what selectors see.

Of a pool only the slices of its highest generation count, and only when all of them are there and
no device is named twice. A slice is read when it changes; the arrays are made anew only then.
Expressions are evaluated slice by slice, as far as their steps go: what is known of other slices,
and of the first devices of one, stays known.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.claims import CounterUse, DeviceName
from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.state.claims.selectors import (
    Outcome,
    SelectableDevice,
    Selectors,
    attribute_text,
    selectable,
)
from scheduler.state.nodes.node_table import NodeTable
from trainer_kai.api.cluster_kinds import Taint
from trainer_kai.api.device_kinds import (
    ConsumedCounters,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
)
from trainer_kai.api.matching import tolerates
from trainer_kai.api.names import AMD_GPU_DRIVER, NVIDIA_GPU_DRIVER
from trainer_kai.api.pod import Toleration
from trainer_kai.api.quantity import QuantityError, milli

GPU_DRIVERS: Final = frozenset({NVIDIA_GPU_DRIVER, AMD_GPU_DRIVER})
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_INCOMPLETE: Final = "their pool lacks slices of its newest generation, or names a device twice"
_OTHER_NODES: Final = "they are on no node of their own, but can be reached from several"
_BINDING: Final = "they have binding conditions"
_SHARING: Final = "several claims may have parts of them (allowMultipleAllocations)"
_COUNTERS: Final = "they use counters that their pool does not have"

_Pool: TypeAlias = tuple[str, str]  # driver and name


class DeviceFilterKey(NamedTuple):
    """What a request accepts: devices that match all expressions, with taints that it tolerates."""

    expressions: tuple[str, ...]
    tolerations: tuple[Toleration, ...]


class FilteredDevices(NamedTuple):
    selected: Bools  # [device]
    tolerated: Bools  # [device]
    error: str  # of the first device for which an expression has no answer


class _SliceDevices(NamedTuple):
    """The devices of a slice that can be allocated, and how many cannot, by why."""

    devices: tuple[Device, ...]
    nodes: tuple[str, ...]
    seen: tuple[SelectableDevice, ...]
    left_out: Mapping[str, int]


class _SliceMask(NamedTuple):
    """Which devices of a slice are selected."""

    selected: Bools
    error: str


class _Evaluated:
    """What is known of some expressions: of whole slices, and of the first devices of one."""

    def __init__(self) -> None:
        self.slices: Final[dict[str, _SliceMask]] = {}
        self.device_count = 0  # of these
        self._current = ""
        self._outcomes: list[Outcome] = []

    def forget(self, name: str) -> None:
        mask = self.slices.pop(name, None)
        self.device_count -= 0 if mask is None else len(mask.selected)
        if name == self._current:
            self._current = ""

    def evaluate(
        self,
        name: str,
        devices: Sequence[SelectableDevice],
        answer: Callable[[SelectableDevice], Outcome | None],
    ) -> bool:
        """Evaluate a slice from where it was left; say whether that is done."""
        if name != self._current:
            self._current, self._outcomes = name, []
        for device in devices[len(self._outcomes) :]:
            outcome = answer(device)
            if outcome is None:
                return False
            self._outcomes.append(outcome)
        error = next((it.error for it in self._outcomes if it.error), "")
        selected = np.array([it.matches for it in self._outcomes], dtype=np.bool_)
        self.slices[name] = _SliceMask(selected, error)
        self.device_count += len(selected)
        self._current, self._outcomes = "", []
        return True


class DeviceTable:
    """Devices in the order of their nodes, then of pool, slice and position."""

    def __init__(self, nodes: NodeTable, selectors: Selectors) -> None:
        self._nodes: Final = nodes
        self._selectors: Final = selectors
        self._slices: Final[dict[str, ResourceSlice]] = {}
        self._read: Final[dict[str, _SliceDevices]] = {}  # by slice
        self._rules: tuple[DeviceTaintRule, ...] = ()
        self._filtered: Final[dict[DeviceFilterKey, FilteredDevices]] = {}
        self._evaluated: Final[dict[tuple[str, ...], _Evaluated]] = {}  # by expressions
        self._attributes: Final[dict[str, NDArray[np.int32]]] = {}
        self._made_for: tuple[str, ...] | None = None  # the names of nodes
        self.version = 0  # of the arrays
        self.names: tuple[DeviceName, ...] = ()
        self.row_of: Mapping[DeviceName, int] = {}
        self.node: Ints = np.zeros(0, dtype=np.int64)
        self.is_gpu: Bools = np.zeros(0, dtype=np.bool_)
        self.counters: tuple[int, ...] = ()
        self.counter_use: Mapping[int, CounterUse] = {}
        self.left_out: Mapping[str, int] = {}
        self._places: list[tuple[str, int]] = []  # slice and position of each device
        # The slices of the devices, each with the position of its first device among those of all.
        self._first: dict[str, int] = {}
        self._seen_count = 0  # devices of these slices
        self._positions: Ints = np.zeros(0, dtype=np.int64)  # of each device, likewise
        self._taints: dict[tuple[Taint, ...], int] = {}
        self._taint_row: Ints = np.zeros(0, dtype=np.int64)

    def read(
        self,
        slices: Mapping[str, ResourceSlice | None],
        rules: Iterable[DeviceTaintRule] | None,
    ) -> None:
        """Apply changed slices; *rules* are all of them, or None if none has changed."""
        for name, it in slices.items():
            self._read.pop(name, None)
            for evaluated in self._evaluated.values():
                evaluated.forget(name)
            if it is None:
                self._slices.pop(name, None)
            else:
                self._slices[name] = it
        if rules is not None:
            self._rules = tuple(sorted(rules, key=lambda it: it.metadata.name))
        if slices or rules is not None or self._made_for != self._nodes.names:
            self._made_for = self._nodes.names
            self._make()

    def evaluate(self, key: DeviceFilterKey) -> bool:
        """Evaluate a filter on all devices, as far as its steps go; say whether that is done."""
        if key in self._filtered:
            return True
        evaluated = self._evaluated.setdefault(key.expressions, _Evaluated())
        answer = partial(self._selectors.evaluate, key.expressions)
        for name in self._first:
            if name not in evaluated.slices:
                devices = self._read[name].seen
                if not (self._selectors.spend(0) and evaluated.evaluate(name, devices, answer)):
                    return False
                self._selectors.used += len(devices)
        if not self._selectors.spend(len(self._first)):
            return False
        self._filtered[key] = self._combined(key, evaluated)
        return True

    def is_evaluated(self, key: DeviceFilterKey) -> bool:
        return key in self._filtered

    def progress(self, key: DeviceFilterKey) -> tuple[int, int]:
        """Return on how many devices of how many a filter is evaluated."""
        evaluated = self._evaluated.get(key.expressions)
        done = 0 if evaluated is None else evaluated.device_count
        return min(done, self._seen_count), self._seen_count

    def filtered(self, key: DeviceFilterKey) -> FilteredDevices:
        """Return what a filter lets through: nothing while it is being evaluated."""
        found = self._filtered.get(key)
        if found is None:
            nothing = np.zeros(len(self.names), dtype=np.bool_)
            return FilteredDevices(nothing, nothing, "")
        return found

    def _combined(self, key: DeviceFilterKey, evaluated: _Evaluated) -> FilteredDevices:
        masks = [evaluated.slices[name] for name in self._first]
        selected = np.zeros(0, dtype=np.bool_)
        if masks:
            selected = np.concatenate([it.selected for it in masks])[self._positions]
        tolerated = np.array(
            [
                all(any(tolerates(it, taint) for it in key.tolerations) for taint in taints)
                for taints in self._taints
            ],
            dtype=np.bool_,
        )[self._taint_row]
        error = next((it.error for it in masks if it.error), "")
        return FilteredDevices(selected, tolerated, error)

    def attribute(self, name: str) -> NDArray[np.int32]:
        """Return the codes of the values of an attribute, [device]; NONE without one."""
        known = self._attributes.get(name)
        if known is not None:
            return known
        codes: dict[object, int] = {}
        found = np.full(len(self.names), NONE, dtype=np.int32)
        for row, (of, position) in enumerate(self._places):
            value = attribute_text(self._read[of].seen[position], name)
            if value is not None:
                found[row] = codes.setdefault(value, len(codes))
        self._attributes[name] = found
        return found

    def forget_filters(self, used: Iterable[DeviceFilterKey]) -> None:
        """Forget what no request asks for any more."""
        kept = set(used)
        for key in [key for key in self._filtered if key not in kept]:
            del self._filtered[key]
        expressions = {it.expressions for it in kept}
        for it in [it for it in self._evaluated if it not in expressions]:
            del self._evaluated[it]

    def _make(self) -> None:
        """Make the arrays of all devices."""
        self.version += 1
        self._filtered.clear()
        self._attributes.clear()
        left_out: Counter[str] = Counter()
        counters: dict[tuple[str, str, str, str], int] = {}  # row of pool, set and counter
        amounts: list[int] = []
        rows: list[tuple[int, DeviceName, tuple[str, int], CounterUse]] = []
        for pool, slices in self._complete_pools(left_out):
            known = _pool_counters(slices)
            for name, one in slices:
                found = self._devices_of(name, one)
                left_out.update(found.left_out)
                for position, (device, node) in enumerate(
                    zip(found.devices, found.nodes, strict=True)
                ):
                    use = _counter_use(device.consumes_counters, known)
                    if use is None:
                        left_out[_COUNTERS] += 1
                        continue
                    numbered = []
                    for key, amount in use:
                        full = (*pool, *key)
                        if full not in counters:
                            counters[full] = len(amounts)
                            amounts.append(known[key])
                        numbered.append((counters[full], amount))
                    row = self._nodes.row_of(node)
                    if row != NONE:
                        name_of = DeviceName(*pool, device.name)
                        rows.append((row, name_of, (name, position), tuple(numbered)))
        rows.sort(key=lambda it: it[0])
        self._store(rows)
        self.counters, self.left_out = tuple(amounts), dict(sorted(left_out.items()))

    def _store(self, rows: Sequence[tuple[int, DeviceName, tuple[str, int], CounterUse]]) -> None:
        self.names = tuple([name for _, name, _, _ in rows])
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.node = np.array([node for node, *_ in rows], dtype=np.int64)
        self.is_gpu = np.array([it.driver in GPU_DRIVERS for it in self.names], dtype=np.bool_)
        self.counter_use = {row: use for row, (*_, use) in enumerate(rows) if use}
        self._places = [place for _, _, place, _ in rows]
        self._store_order()
        self._taints = {}
        taint_rows = [
            self._taints.setdefault(
                _blocking(name, self._read[of].devices[position].taints, self._rules),
                len(self._taints),
            )
            for _, name, (of, position), _ in rows
        ]
        self._taint_row = np.array(taint_rows, dtype=np.int64)

    def _store_order(self) -> None:
        self._first, count = {}, 0
        for name, _ in self._places:
            if name not in self._first:
                self._first[name] = count
                count += len(self._read[name].seen)
        self._seen_count = count
        positions = [self._first[name] + position for name, position in self._places]
        self._positions = np.array(positions, dtype=np.int64)

    def _complete_pools(
        self, left_out: Counter[str]
    ) -> list[tuple[_Pool, list[tuple[str, ResourceSlice]]]]:
        pools: dict[_Pool, list[tuple[str, ResourceSlice]]] = {}
        for name, it in sorted(self._slices.items()):
            pools.setdefault((it.spec.driver, it.spec.pool.name), []).append((name, it))
        found = []
        for pool, slices in sorted(pools.items()):
            newest = max(it.spec.pool.generation for _, it in slices)
            current = [one for one in slices if one[1].spec.pool.generation == newest]
            names = [device.name for _, it in current for device in it.spec.devices]
            is_whole = all(it.spec.pool.resource_slice_count == len(current) for _, it in current)
            if is_whole and len({*names}) == len(names):
                found.append((pool, current))
            else:
                left_out[_INCOMPLETE] += len(names)
        return found

    def _devices_of(self, name: str, it: ResourceSlice) -> _SliceDevices:
        known = self._read.get(name)
        if known is None:
            spec, left_out = it.spec, Counter[str]()
            devices, nodes = [], []
            for device in spec.devices:
                node = device.node_name if spec.per_device_node_selection else spec.node_name
                why = _why_left_out(device, node)
                if why:
                    left_out[why] += 1
                else:
                    devices.append(device)
                    nodes.append(node)
            seen = tuple([selectable(spec.driver, device) for device in devices])
            known = _SliceDevices(tuple(devices), tuple(nodes), seen, left_out)
            self._read[name] = known
        return known


def _why_left_out(device: Device, node: str) -> str:
    if not node:
        return _OTHER_NODES
    if device.binding_conditions:
        return _BINDING
    return _SHARING if device.allow_multiple_allocations else ""


def _pool_counters(slices: Iterable[tuple[str, ResourceSlice]]) -> dict[tuple[str, str], int]:
    """Return what there is of each counter of a pool, by counter set and name."""
    return {
        (of.name, counter): _amount(has.value)
        for _, it in slices
        for of in it.spec.shared_counters
        for counter, has in of.counters.items()
    }


def _counter_use(
    consumed: Iterable[ConsumedCounters], known: Mapping[tuple[str, str], int]
) -> list[tuple[tuple[str, str], int]] | None:
    """Return what a device uses of the counters of its pool; None if one of them is unknown."""
    found = [
        ((of.counter_set, name), _amount(it.value))
        for of in consumed
        for name, it in of.counters.items()
    ]
    return found if all(key in known for key, _ in found) else None


def _amount(value: str | float) -> int:
    try:
        return milli(value)
    except QuantityError:
        return 0


def _blocking(
    name: DeviceName, own: Iterable[DeviceTaint], rules: Iterable[DeviceTaintRule]
) -> tuple[Taint, ...]:
    taints = [*own]
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is not None and all(
            wanted in {"", has}
            for wanted, has in zip(
                (selector.driver, selector.pool, selector.device), name, strict=True
            )
        ):
            taints.append(rule.spec.taint)
    return tuple(
        [
            Taint(key=it.key, value=it.value, effect=it.effect)
            for it in taints
            if it.effect in _EFFECTS
        ]
    )
