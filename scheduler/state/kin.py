"""What one pod says for all its kin: who binds it, which group it is of, what it asks for."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.core.model import NONE
from trainer_kai.api.affinity import Affinity, PodAffinityTerm
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    APP,
    COMPLETION_INDEX,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    KUBEFLOW_JOB_ROLE,
    POD_GROUP,
    RAY_NODE_TYPE,
    RESERVATION_APP,
    SCALING_APP,
    TASK_PRIORITY,
)
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.api.resources import JOBS
from trainer_kai.api.selector import LabelSelector
from trainer_kai.policy.census import sight
from trainer_kai.policy.demand import Amounts, demand

__all__ = ["Kin", "pod_terms"]

_WISHES: Final = (POD_GROUP, GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES)
_LEADERS: Final = ((KUBEFLOW_JOB_ROLE, ("master", "launcher")), (RAY_NODE_TYPE, ("head",)))
_NUMBER: Final = re.compile("[+-]?[0-9]{1,9}")
_UNRANKED: Final = 10**9  # behind all that have a number


class Kin:
    """Pods that are alike."""

    __slots__ = (
        "_demand",
        "annotations",
        "controller",
        "labels",
        "namespace",
        "number",
        "own_name",
        "pod",
        "spec",
        "spec_number",
    )

    def __init__(
        self, key: Key, pod: Pod, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        self.pod: Final = pod  # the first of them
        self.namespace: Final = key.namespace
        self.labels: Final = labels
        self.annotations: Final = annotations
        self.spec: Final[PodSpec] = pod.spec
        owner = pod.metadata.controller if pod.metadata.owner_references else None
        self.controller: Final = (owner.api_version, owner.kind) if owner else None
        # A claim that is made for a pod is called after it, so that such a pod has no kin.
        has_own = any(volume.ephemeral for volume in pod.spec.volumes)
        self.own_name: Final = key.name if has_own else ""
        self.spec_number = 0
        self.number = NONE
        self._demand: Amounts | str | None = None

    @property
    def wishes(self) -> tuple[str | None, ...]:
        """Return the annotations that we read."""
        return tuple(map(self.annotations.get, _WISHES))

    @property
    def title(self) -> str:
        """Return what to call them: the first of them."""
        name = self.pod.metadata.name
        return f"pod {name}" if name else "a pod that comes later"

    @property
    def group(self) -> str:
        """Return the group that they name, or nothing."""
        return self.annotations.get(POD_GROUP, "")

    @property
    def is_of_job(self) -> bool:
        """Say whether a Job made them."""
        return self.controller == (JOBS.api_version, JOBS.kind)

    @property
    def is_reservation(self) -> bool:
        """Say whether they only hold the devices that others share."""
        # Anybody may write the label; in their namespace it is the scheduler who makes pods.
        return self.namespace == self.labels.get(APP) == RESERVATION_APP

    @property
    def is_of_scheduler(self) -> bool:
        """Say whether they do something for the scheduler, and are no work."""
        return self.labels.get(APP) in {RESERVATION_APP, SCALING_APP}

    @property
    def attempt(self) -> tuple[str, tuple[int, int]]:
        """Return the Job, as a leaf, and which attempt they are of."""
        sighting = sight(self.pod)
        return sighting.leaf, sighting.attempt

    @property
    def rank(self) -> int:
        """Return their place among the pods of a leaf; smaller comes first."""
        if any(self.labels.get(name) in values for name, values in _LEADERS):
            return -_UNRANKED - 1
        text = self.labels.get(TASK_PRIORITY, "")
        return -int(text) if _NUMBER.fullmatch(text) else _UNRANKED

    @property
    def asks_for_index(self) -> bool:
        """Say whether their neighbours are chosen by the index of pods."""
        spec = self.spec
        if spec.affinity is None and not spec.topology_spread_constraints:
            return False
        return any(
            COMPLETION_INDEX in keys or _names_index(selector)
            for selector, keys in _selections(spec)
        )

    def demand(self) -> Amounts:
        """Return what one of them asks for, in thousandths; nothing for what cannot be read."""
        found = self._read_demand()
        return {} if isinstance(found, str) else found

    def demand_fault(self) -> str | None:
        """Say what is wrong with what they ask for."""
        found = self._read_demand()
        if isinstance(found, str):
            return found
        try:
            below = sorted(name for name, quantity in _asked(self.spec) if milli(quantity) < 0)
        except QuantityError as error:  # in a limit that a request outranks
            return str(error)
        return f"it asks for less than nothing of {below[0]}" if below else None

    def _read_demand(self) -> Amounts | str:
        if self._demand is None:
            try:
                self._demand = demand(self.spec)
            except QuantityError as error:
                self._demand = str(error)
        return self._demand


def _asked(spec: PodSpec) -> Iterator[tuple[str, Quantity]]:
    parts = [one.resources for one in (*spec.init_containers, *spec.containers)]
    for part in (*parts, *([spec.resources] if spec.resources else [])):
        yield from part.requests.items()
        yield from part.limits.items()
    yield from spec.overhead.items()


def pod_terms(affinity: Affinity | None, *, apart: bool) -> tuple[PodAffinityTerm, ...]:
    """Return which neighbours must be near, or must not be."""
    if affinity is None:
        return ()
    of = affinity.pod_anti_affinity if apart else affinity.pod_affinity
    return of.required if of else ()


def _selections(spec: PodSpec) -> Iterator[tuple[LabelSelector | None, tuple[str, ...]]]:
    for apart in (False, True):
        for term in pod_terms(spec.affinity, apart=apart):
            yield term.label_selector, term.match_label_keys + term.mismatch_label_keys
    for spread in spec.topology_spread_constraints:
        yield spread.label_selector, spread.match_label_keys


def _names_index(selector: LabelSelector | None) -> bool:
    if selector is None:
        return False
    return COMPLETION_INDEX in selector.match_labels or any(
        need.key == COMPLETION_INDEX for need in selector.match_expressions
    )
