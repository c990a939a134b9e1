"""What the claims of a pod class request, as filters, numbers and constraints; or why they wait.

A failure names the claim as the pod does, what is wrong, and what is to change. Every shape of the
API that is not supported has one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from scheduler.core.model.claims import (
    ALL,
    MOST_CLAIM_DEVICES,
    Alternative,
    ClaimRequest,
    MatchConstraint,
    PodClaim,
)
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE
from scheduler.state.claims.device_table import GPU_DRIVERS, DeviceFilterKey
from scheduler.state.claims.selectors import NO_CEL, Selectors
from trainer_kai.api import device_kinds
from trainer_kai.api.bounds import (
    MOST_CLAIM_CONSTRAINTS,
    MOST_CLAIMS,
    MOST_DEVICE_REQUESTS,
    MOST_SELECTORS,
    MOST_SELECTORS_PER_NAMESPACE,
)
from trainer_kai.api.device_kinds import (
    DeviceClass,
    DeviceConstraint,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from trainer_kai.api.text import listed_names

_EXACT: Final = "ExactCount"
_EVERY: Final = "All"
_CORRECTED: Final = "it is corrected"
_INSTALLED: Final = (
    "the package is in the environment of trainer-kai (pip install cel-expr-python, or pip install "
    ". in a checkout of trainer-kai)"
)
_MOST_NAMED: Final = 5


class RequestFilter(NamedTuple):
    """A row of the filters of a snapshot."""

    class_name: str
    key: DeviceFilterKey
    counts_gpus: bool


class _Attribute(NamedTuple):
    name: str


class ClaimShape(NamedTuple):
    """What one claim requests; *gpus* is what it is charged at least, in GPUs."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[MatchConstraint, ...] = ()
    gpus: int = 0


class ShapeFault(NamedTuple):
    cause: PreFilterCause
    what: str
    remedy: str

    def of(self, claim: str) -> PreFilterFailure:
        return PreFilterFailure(self.cause, (claim, self.what, self.remedy))


def invalid(what: str, remedy: str = _CORRECTED) -> ShapeFault:
    return ShapeFault(PreFilterCause.CLAIM_INVALID, what, remedy)


def unsupported(what: str, remedy: str) -> ShapeFault:
    return ShapeFault(PreFilterCause.CLAIM_UNSUPPORTED, what, remedy)


def not_ready(what: str, remedy: str) -> ShapeFault:
    return ShapeFault(PreFilterCause.CLAIM_NOT_READY, what, remedy)


class ShapeReader:
    """Reads claims with the classes of a cluster; filters and attributes get rows."""

    def __init__(self, classes: Mapping[str, DeviceClass], selectors: Selectors) -> None:
        self._classes: Final = classes
        self._selectors: Final = selectors
        self.filters: Final[dict[RequestFilter, int]] = {}
        # By namespace, what its claims ask for: expressions, filters, and attributes to match.
        self.asked: Final[dict[str, dict[object, None]]] = {}
        self.is_full = False  # a namespace was refused more of them
        self.attributes: Final[dict[str, int]] = {}

    @property
    def texts(self) -> set[str]:
        return {it for asked in self.asked.values() for it in asked if isinstance(it, str)}

    def read(self, namespace: str, spec: ResourceClaimSpec) -> ClaimShape | ShapeFault:
        claim = spec.devices
        fault = _size_fault(claim) or next(self._faults(claim.requests), None)
        fault = fault or next(_constraint_faults(claim.constraints), None)
        fault = fault or self._namespace_fault(namespace, claim)  # others are not even read
        fault = fault or next(self._expression_faults(claim.requests), None)
        if fault is not None:
            return fault
        requests = tuple([self._request(it) for it in claim.requests])
        least = sum([max(it.alternatives[0].number, 1) for it in requests])
        if least > MOST_CLAIM_DEVICES:
            what = f"requests {least} devices, but a claim gets at most {MOST_CLAIM_DEVICES}"
            return invalid(what, "it requests fewer")
        constraints = tuple([self._constraint(it, requests) for it in claim.constraints])
        gpus = sum([self._gpus(it) for it in claim.requests])
        return ClaimShape(requests, constraints, gpus)

    def _namespace_fault(
        self, namespace: str, claim: device_kinds.DeviceClaim
    ) -> ShapeFault | None:
        """Count what a claim asks for; each way is evaluated on all devices."""
        known = self.asked.setdefault(namespace, {})
        filters = [
            self._request_filter(it) for request in claim.requests for it in _alternatives(request)
        ]
        texts = [text for it in filters for text in it.key.expressions]
        attributes = [_Attribute(it.match_attribute) for it in claim.constraints]
        wanted: dict[object, None] = dict.fromkeys([*texts, *filters, *attributes])
        if len(known | wanted) > MOST_SELECTORS_PER_NAMESPACE:
            self.is_full = True
            what = (
                f"the claims of namespace {namespace} have more than "
                f"{MOST_SELECTORS_PER_NAMESPACE} different selectors, classes, tolerations and "
                "attributes to match"
            )
            return invalid(what, "they use fewer")
        known |= wanted
        return None

    def _faults(self, requests: Iterable[device_kinds.DeviceRequest]) -> Iterator[ShapeFault]:
        for request in requests:
            title = f"request {request.name!r}"
            if (request.exactly is None) == (not request.first_available):
                yield unsupported(
                    f"{title} has neither exactly nor firstAvailable, or both", "it has one of them"
                )
            if len(request.first_available) > MOST_DEVICE_REQUESTS:
                number = len(request.first_available)
                yield invalid(f"{title} has {number} alternatives, not at most 32", "it has fewer")
            for it in _alternatives(request):
                yield from self._alternative_faults(_named(request, it), it)

    def _alternative_faults(self, named: str, it: ExactDeviceRequest) -> Iterator[ShapeFault]:
        if it.admin_access:
            yield unsupported(f"{named} asks for adminAccess", "adminAccess is removed")
        if it.capacity:
            yield unsupported(
                f"{named} asks for a part of the capacity of devices (capacity)",
                "it asks for whole devices",
            )
        if it.allocation_mode not in {"", _EXACT, _EVERY}:
            yield unsupported(
                f"{named} has allocationMode {it.allocation_mode!r}",
                f"the mode is {_EXACT} or {_EVERY}",
            )
        if it.count < 1 and it.allocation_mode != _EVERY:
            yield invalid(f"{named} has count {it.count}")
        yield from self._class_faults(named, it)

    def _class_faults(self, named: str, it: ExactDeviceRequest) -> Iterator[ShapeFault]:
        device_class = self._classes.get(it.device_class_name)
        if device_class is None:
            known = listed_names(sorted(self._classes), _MOST_NAMED) or "there is none"
            yield invalid(
                f"{named} names DeviceClass {it.device_class_name!r}, which does not exist",
                f"the class is created, or it names one that exists ({known})",
            )
            return
        for owner, selectors in self._owned(named, it):
            if len(selectors) > MOST_SELECTORS:
                yield invalid(f"{owner} has {len(selectors)} selectors, not at most 32")
                return

    def _expression_faults(
        self, requests: Iterable[device_kinds.DeviceRequest]
    ) -> Iterator[ShapeFault]:
        for request in requests:
            for it in _alternatives(request):
                for owner, selectors in self._owned(_named(request, it), it):
                    for number, selector in enumerate(selectors):
                        fault = self._selectors.fault(selector.cel.expression)
                        if fault:
                            what = f"{owner}: the expression of selectors[{number}] {fault}"
                            yield not_ready(what, _INSTALLED) if fault == NO_CEL else invalid(what)

    def _owned(
        self, named: str, it: ExactDeviceRequest
    ) -> tuple[tuple[str, tuple[DeviceSelector, ...]], ...]:
        of_class = self._classes[it.device_class_name].spec.selectors
        return (f"DeviceClass {it.device_class_name}", of_class), (named, it.selectors)

    def _request(self, request: device_kinds.DeviceRequest) -> ClaimRequest:
        return ClaimRequest(
            request.name,
            tuple(
                [
                    Alternative(
                        self._filter(it), ALL if it.allocation_mode == _EVERY else it.count, it.name
                    )
                    for it in _alternatives(request)
                ]
            ),
        )

    def _filter(self, it: ExactDeviceRequest) -> int:
        return self.filters.setdefault(self._request_filter(it), len(self.filters))

    def _request_filter(self, it: ExactDeviceRequest) -> RequestFilter:
        spec = self._classes[it.device_class_name].spec
        expressions = [one.cel.expression for one in (*spec.selectors, *it.selectors)]
        key = DeviceFilterKey(tuple(dict.fromkeys(expressions)), it.tolerations)
        return RequestFilter(it.device_class_name, key, self._counts_gpus(it))

    def _constraint(
        self, constraint: DeviceConstraint, requests: tuple[ClaimRequest, ...]
    ) -> MatchConstraint:
        """Read a constraint; "request/alternative" names one of several alternatives."""
        named = set(constraint.requests)
        slots = frozenset(
            (r, a)
            for r, request in enumerate(requests)
            for a, alternative in enumerate(request.alternatives)
            if not named or {request.name, f"{request.name}/{alternative.name}"} & named
        )
        attribute = self.attributes.setdefault(constraint.match_attribute, len(self.attributes))
        return MatchConstraint(attribute, slots)

    def _gpus(self, request: device_kinds.DeviceRequest) -> int:
        """Return how many GPUs a request is charged: the fewest that it may get."""
        return min(
            [
                (it.count if it.allocation_mode != _EVERY else 1) * self._counts_gpus(it)
                for it in _alternatives(request)
            ]
        )

    def _counts_gpus(self, it: ExactDeviceRequest) -> bool:
        """Say whether the class is about GPUs: by its name, or by a driver that it selects."""
        spec = self._classes[it.device_class_name].spec
        texts = [one.cel.expression for one in spec.selectors]
        return it.device_class_name in GPU_DRIVERS or any(
            f"{quote}{driver}{quote}" in text
            for text in texts
            for driver in GPU_DRIVERS
            for quote in ("'", '"')
        )


def _named(request: device_kinds.DeviceRequest, it: ExactDeviceRequest) -> str:
    return f"request {request.name!r}" + (f" ({it.name})" if it.name else "")


def filters_of(requests: Iterable[ClaimRequest]) -> Iterator[int]:
    return (it.filter for request in requests for it in request.alternatives)


def count_fault(spec_claims: int) -> ShapeFault | None:
    if spec_claims <= MOST_CLAIMS:
        return None
    what = f"the pod has {spec_claims} claims, but at most {MOST_CLAIMS} are supported"
    return invalid(what, "it has fewer")


def with_row(name: str, shape: ClaimShape, row: int = NONE) -> PodClaim:
    return PodClaim(name, shape.requests, shape.constraints, row)


def _alternatives(request: device_kinds.DeviceRequest) -> tuple[ExactDeviceRequest, ...]:
    return request.first_available or ((request.exactly,) if request.exactly else ())


def _size_fault(claim: device_kinds.DeviceClaim) -> ShapeFault | None:
    if not claim.requests:
        return unsupported("requests no devices", "it has a request")
    for number, most, what in (
        (len(claim.requests), MOST_DEVICE_REQUESTS, "requests"),
        (len(claim.constraints), MOST_CLAIM_CONSTRAINTS, "constraints"),
    ):
        if number > most:
            return invalid(f"has {number} {what}, not at most {most}", "it has fewer")
    return None


def _constraint_faults(constraints: Iterable[DeviceConstraint]) -> Iterator[ShapeFault]:
    for number, it in enumerate(constraints):
        if it.distinct_attribute:
            yield unsupported(
                f"constraints[{number}] has distinctAttribute", "the constraint is removed"
            )
        elif not it.match_attribute:
            yield unsupported(
                f"constraints[{number}] has no matchAttribute", "the constraint has one"
            )
