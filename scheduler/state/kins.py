"""All kin: found again by what their pods say, and given up when there are none of them.

They are found by the identity of the parts that decoded siblings share, and only where those differ
by their text. What an identity stands for may be gone tomorrow, and another thing stand in its
place, so identities are forgotten after each reading.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.kin import Kin, Recipe, Said
from scheduler.state.sharing import sharing_of
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.share import Stamped, without_node

__all__ = ["NOBODY", "Kins", "grown"]

N = TypeVar("N", bound=np.generic)

NOBODY: Final = 0  # the kin of who is not there

_FIRST: Final = 64  # rows of an empty table


class Kins:
    """By number; arrays are [kin]."""

    def __init__(self, terms: Terms) -> None:
        self._scheduler_name: Final = terms.scheduler_name
        self._gpus: Final = terms.gpu_resources
        self.by_index: frozenset[str] = frozenset()  # where pods of one Job are told apart
        self.rows: Final[list[Kin | None]] = [None]
        self.born = 0
        self._free: Final[list[int]] = []
        self._known: Final[dict[tuple[object, ...], Kin]] = {}
        self._recipes: Final[dict[bytes, Recipe]] = {}
        self._seen: Final[dict[tuple[int | str, ...], Kin]] = {}
        self._seen_specs: Final[dict[tuple[int, ...] | int, Recipe]] = {}
        self._askers: Final[dict[str, int]] = {}  # kin that ask for the index of others
        self.namespaces: Final[dict[str, int]] = {}  # how many kin are in each
        self.is_ours: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.is_alone: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.is_stray: Bools = np.zeros(_FIRST, dtype=np.bool_)  # without a place in its group
        self.is_foreign: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.speaks: Bools = np.zeros(_FIRST, dtype=np.bool_)  # of other pods
        self.is_excessive: Bools = np.zeros(_FIRST, dtype=np.bool_)  # says more than is looked at
        self.is_left_out: Bools = np.zeros(_FIRST, dtype=np.bool_)  # its namespace says too much
        self.has_ports: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.has_volumes: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.shares: Bools = np.zeros(_FIRST, dtype=np.bool_)  # devices
        self.keeps: Bools = np.zeros(_FIRST, dtype=np.bool_)  # devices, for pods that share them
        self.is_foreseen: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.gang: Ints = np.full(_FIRST, NONE, dtype=np.int64)  # where they have a place
        self.counts: Bools = np.zeros(_FIRST, dtype=np.bool_)  # into it
        self.queue: Ints = np.full(_FIRST, NONE, dtype=np.int64)
        self.is_fixed: Bools = np.zeros(_FIRST, dtype=np.bool_)  # for its queue
        self.is_heard: Bools = np.zeros(_FIRST, dtype=np.bool_)  # who waits counts for its queue
        self.serial: Ints = np.full(_FIRST, NONE, dtype=np.int64)

    def __getitem__(self, number: int) -> Kin:
        kin = self.rows[number]
        assert kin is not None
        return kin

    def is_known(self, number: int) -> bool:
        """Say whether somebody has a number."""
        return self.rows[number] is not None if number < len(self.rows) else False

    def numbers(self, serials: Iterable[int]) -> list[int]:
        """Return the numbers of kin."""
        wanted = np.isin(self.serial[: len(self.rows)], list(serials))
        return [number for number in np.flatnonzero(wanted).tolist() if self.is_known(number)]

    @property
    def asks_for_index(self) -> frozenset[str]:
        """Return the namespaces in which pods have to be told apart by their index."""
        return frozenset(self._askers)

    def of(self, key: Key, pod: Pod) -> Kin:
        """Return the kin of a pod; identities hold until they are forgotten."""
        meta, spec = pod.metadata, pod.spec
        if spec.node_name:  # then no two pods have the same
            recipe = self._recipe_of(spec)
        else:
            known = self._seen_specs.get(id(spec))
            recipe = known or self._seen_specs.setdefault(id(spec), self._recipe_of(spec))
        labels, annotations = meta.labels, meta.annotations
        if type(labels) is Stamped and key.namespace not in self.by_index:
            labels = labels.shared
        if type(annotations) is Stamped:
            annotations = annotations.shared
        parts = (
            id(recipe),
            id(labels),
            id(annotations),
            id(meta.owner_references),
            key.namespace,
        )
        kin = self._seen.get(parts)
        if kin is None:
            kin = self._enter(key, pod, (labels, annotations), recipe)
            if not kin.own_name:
                self._seen[parts] = kin
        return kin

    def forget_identities(self) -> None:
        """Forget what only holds as long as the objects last."""
        self._seen.clear()
        self._seen_specs.clear()

    def foresee(self, key: Key, pod: Pod, said: Said) -> Kin:
        """Return kin of which there may be no pods yet; they stay until they are let go."""
        kin = self._enter(key, pod, said, self._recipe(pod.spec))
        kin.foreseen += 1
        self.is_foreseen[kin.number] = True
        return kin

    def let_go(self, kin: Kin) -> None:
        """Await pods no longer."""
        kin.foreseen -= 1
        self.is_foreseen[kin.number] = kin.foreseen > 0
        self.sweep(kin)

    def sweep(self, kin: Kin) -> bool:
        """Give kin up if there are no pods of it, and say whether it was."""
        if kin.slots or kin.foreseen or self.rows[kin.number] is not kin:
            return False
        del self._known[_content(kin)]
        kin.recipe.kins -= 1
        if not kin.recipe.kins:
            del self._recipes[kin.recipe.text]
        if kin.recipe.asks_for_index:
            _count(self._askers, kin.namespace, -1)
        _count(self.namespaces, kin.namespace, -1)
        self.rows[kin.number] = None
        self.speaks[kin.number] = self.has_ports[kin.number] = self.has_volumes[kin.number] = False
        self._free.append(kin.number)
        return True

    def _enter(self, key: Key, pod: Pod, said: Said, recipe: Recipe) -> Kin:
        made = Kin(key, pod, said, recipe)
        kin = self._known.setdefault(_content(made), made)
        if kin is made:
            self._admit(kin)
        return kin

    def _admit(self, kin: Kin) -> None:
        if self._free:
            kin.number = self._free.pop()
        else:
            kin.number = len(self.rows)
            self.rows.append(None)
            if kin.number == len(self.gang):
                self._grow(2 * kin.number)
        self.rows[kin.number] = kin
        kin.recipe.kins += 1
        kin.serial = self.born
        self.born += 1
        _count(self.namespaces, kin.namespace, 1)
        if kin.recipe.asks_for_index:
            _count(self._askers, kin.namespace, 1)
        self._describe(kin)

    def _describe(self, kin: Kin) -> None:
        """Write the columns of a kin that is new, whatever they said of who had its number."""
        number, spec = kin.number, kin.spec
        is_ours = spec.scheduler_name == self._scheduler_name
        self.is_ours[number] = is_ours
        self.is_alone[number] = is_ours and not kin.group
        self.is_foreign[number] = not is_ours and not kin.is_of_scheduler
        self.speaks[number] = kin.recipe.terms > 0
        self.is_excessive[number] = kin.recipe.excess is not None
        self.has_ports[number] = bool(kin.recipe.ports)
        self.has_volumes[number] = bool(spec.volumes)
        self.shares[number] = sharing_of(kin, self._gpus) is not None
        self.keeps[number] = kin.is_reservation
        self.is_foreseen[number] = self.is_stray[number] = self.is_left_out[number] = False
        self.gang[number] = self.queue[number] = NONE
        self.counts[number] = self.is_fixed[number] = self.is_heard[number] = False
        self.serial[number] = kin.serial

    def _grow(self, size: int) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, grown(column, size))

    def _recipe_of(self, spec: PodSpec) -> Recipe:
        """Return one recipe for all specs that are equal but for their node."""
        parts = _parts(spec)
        recipe = self._seen_specs.get(parts)
        if recipe is None:
            recipe = self._seen_specs[parts] = self._recipe(spec)
        return recipe

    def _recipe(self, spec: PodSpec) -> Recipe:
        bare = without_node(spec)
        text = msgspec.json.encode(bare, order="deterministic")
        recipe = self._recipes.get(text)
        if recipe is None:
            recipe = self._recipes[text] = Recipe(bare, text)
        return recipe


def grown(column: NDArray[N], size: int) -> NDArray[N]:
    """Return a longer column that begins with the same."""
    longer: NDArray[N] = np.zeros(size, dtype=column.dtype)
    longer[: len(column)] = column
    return longer


def _count(numbers: dict[str, int], name: str, more: int) -> None:
    numbers[name] = numbers.get(name, 0) + more
    if not numbers[name]:
        del numbers[name]


def _content(kin: Kin) -> tuple[object, ...]:
    """Return all that makes kin differ from others."""
    return (
        kin.recipe,
        kin.namespace,
        kin.own_name,
        *kin.controller,
        *kin.wishes,
        *chain.from_iterable(sorted(kin.labels.items())),
    )


def _parts(spec: PodSpec) -> tuple[int, ...]:
    """Return what is the same in copies of a spec that lie on different nodes."""
    return (
        id(spec.volumes),
        id(spec.init_containers),
        id(spec.containers),
        id(spec.node_selector),
        spec.host_network,
        id(spec.affinity),
        id(spec.scheduler_name),
        id(spec.tolerations),
        id(spec.priority_class_name),
        id(spec.overhead),
        id(spec.topology_spread_constraints),
        id(spec.scheduling_gates),
        id(spec.resource_claims),
        id(spec.resources),
    )
