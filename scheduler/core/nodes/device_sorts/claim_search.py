"""The search for the devices of a pod's claims on one node, with a bound on its steps.

Requests are taken in their order, alternatives in theirs, devices in that of the snapshot; what
leads nowhere is taken back. Of equal devices only the first is tried.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from scheduler.core.model.claims import (
    ALL,
    MOST_CLAIM_DEVICES,
    Alternative,
    ClaimDevices,
    PodClaim,
    Slot,
    held_device,
    slots_of,
)
from scheduler.core.model.resources import NONE

MOST_STEPS: Final = 1_000  # on one node
_STEPS_IN_TOTAL: Final = 200_000  # for one demand in a plan; then each node gets few
_LAST_STEPS: Final = 32


class _Part(NamedTuple):
    """One alternative of a request, and the constraints that it takes part in."""

    slot: int
    alternative: Alternative
    constraints: tuple[int, ...]


class Demand:
    """What a pod needs of a node: the claims that are not allocated yet."""

    def __init__(self, devices: ClaimDevices, claims: tuple[PodClaim, ...], of: Sequence[int]):
        """*of* are the positions of the claims that are to be allocated."""
        numbers = {slot: number for number, slot in enumerate(slots_of(claims))}
        self.attributes: list[int] = []  # by constraint
        self.requests: Final[list[tuple[_Part, ...]]] = []
        self.names: Final[list[tuple[int, int]]] = []  # of each request: claim and position
        self.steps_left = _STEPS_IN_TOTAL
        for c in of:
            first = len(self.attributes)
            constraints = claims[c].constraints
            self.attributes += [it.attribute for it in constraints]
            for r, request in enumerate(claims[c].requests):
                parts = [
                    _Part(
                        numbers[Slot(c, r, a)],
                        alternative,
                        tuple(first + i for i, it in enumerate(constraints) if (r, a) in it.slots),
                    )
                    for a, alternative in enumerate(request.alternatives)
                ]
                self.requests.append(tuple(parts))
                self.names.append((c, r))
        self.needs: Final = self._simple_needs(devices)

    @property
    def least(self) -> int:
        """Return how many devices a pod needs at least."""
        return sum(
            [min([max(it.alternative.number, 1) for it in parts]) for parts in self.requests]
        )

    def _simple_needs(self, devices: ClaimDevices) -> dict[int, int] | None:
        """Return how many devices of each filter fit the demand; None if that is not enough."""
        needs: dict[int, int] = {}
        for parts in self.requests:
            if len(parts) > 1 or parts[0].alternative.number == ALL or self.attributes:
                return None
            only = parts[0].alternative
            needs[only.filter] = needs.get(only.filter, 0) + only.number
        usable = devices.usable
        for one in needs:
            if any(usable[one, it] for it in devices.counter_use):
                return None
            for other in needs:
                if one < other and (usable[one] & usable[other]).any():
                    return None
        return needs


class NodeDevicesView(NamedTuple):
    """The devices of one node as a search sees them."""

    of_filter: Callable[[int], Sequence[int]]  # usable devices, in their order
    selected: Callable[[int], Sequence[int]]  # also those that are tainted
    is_free: Callable[[int], bool]
    has_counters: Callable[[int, dict[int, int]], bool]  # beside what is used of counters so far
    kind: Sequence[int]  # equal devices have one number


class Search:
    """One search; `found` has the held devices if it succeeds."""

    def __init__(self, devices: ClaimDevices, demand: Demand, view: NodeDevicesView) -> None:
        self._devices: Final = devices
        self._demand: Final = demand
        self._view: Final = view
        self._taken: Final[set[int]] = set()
        self._counters: Final[dict[int, int]] = {}
        self._of_claim: Final[dict[int, int]] = {}  # how many devices it gets so far
        self._values: Final = [[NONE, 0] for _ in demand.attributes]  # and how many devices have it
        self._steps = min(MOST_STEPS, max(demand.steps_left, _LAST_STEPS))
        self._budget: Final = self._steps
        self.found: Final[list[int]] = []

    @property
    def is_limited(self) -> bool:
        return self._steps < 0

    def run(self) -> bool:
        fits = self._request(0)
        self._demand.steps_left -= self._budget - max(self._steps, 0)
        return fits

    def _request(self, number: int) -> bool:
        if number == len(self._demand.requests):
            return True
        claim = self._demand.names[number][0]
        before = self._of_claim.get(claim, 0)
        for part in self._demand.requests[number]:
            of, count = self._view.of_filter(part.alternative.filter), part.alternative.number
            if count == ALL:
                of = self._view.selected(part.alternative.filter)
                usable = self._view.of_filter(part.alternative.filter)
                if not of or len(usable) < len(of):  # all of them, or none
                    continue
                count = len(of)
            if before + count > MOST_CLAIM_DEVICES:  # the API server takes no more
                continue
            self._of_claim[claim] = before + count
            if self._choose(number, part, of, 0, count):
                return True
        self._of_claim[claim] = before
        return False

    def _choose(self, number: int, part: _Part, of: Sequence[int], start: int, count: int) -> bool:
        if count == 0:
            return self._request(number + 1)
        tried: set[int] = set()
        for at in range(start, len(of) - count + 1):
            device = of[at]
            if self._view.kind[device] in tried or not self._take(part, device):
                continue
            self._steps -= 1
            if self._steps < 0:
                self._release(part, device)
                return False
            self.found.append(held_device(part.slot, device))
            if self._choose(number, part, of, at + 1, count - 1):
                return True
            self.found.pop()
            self._release(part, device)
            tried.add(self._view.kind[device])
        return False

    def _take(self, part: _Part, device: int) -> bool:
        if device in self._taken or not self._view.is_free(device):
            return False
        for constraint in part.constraints:
            value = int(self._devices.attributes[self._demand.attributes[constraint], device])
            known, count = self._values[constraint]
            if value == NONE or (count and value != known):
                return False
        if not self._view.has_counters(device, self._counters):
            return False
        self._add(part, device, 1)
        self._taken.add(device)
        return True

    def _release(self, part: _Part, device: int) -> None:
        self._add(part, device, -1)
        self._taken.discard(device)

    def _add(self, part: _Part, device: int, sign: int) -> None:
        for constraint in part.constraints:
            attribute = self._demand.attributes[constraint]
            of = self._values[constraint]
            of[0] = int(self._devices.attributes[attribute, device])
            of[1] += sign
        for counter, amount in self._devices.counter_use.get(device, ()):
            self._counters[counter] = self._counters.get(counter, 0) + sign * amount
