"""Claims of pods: what each class requests, and which claim each pod has.

Pods name a claim, which then several of them may use, or a template, from which Kubernetes creates
a claim for each of them; its name is in the status of the pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.claims import PodClaim
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.claims.claim_shapes import (
    ClaimShape,
    ShapeFault,
    ShapeReader,
    count_fault,
    filters_of,
    invalid,
    not_ready,
    unsupported,
    with_row,
)
from scheduler.state.claims.device_table import GPU_DRIVERS
from scheduler.state.claims.evaluation import Evaluation
from scheduler.state.claims.selectors import Selectors
from scheduler.state.inputs import Cluster
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import DONE, GATED, PENDING, RUNNING, SUCCEEDED, PodTable
from trainer_kai.api.bounds import MOST_CLAIM_USERS
from trainer_kai.api.device_kinds import ResourceClaim, ResourceClaimSpec
from trainer_kai.api.meta import Key
from trainer_kai.api.names import DEVICE_CLASS_PREFIX, QUEUE
from trainer_kai.api.pod import Pod, PodResourceClaim

_GPU: Final = 1000
_WITHOUT_NODE: Final = [PENDING, GATED]
_NOT_ON_NODE: Final = frozenset({PENDING, GATED, DONE, SUCCEEDED})
_POD: Final = "Pod"
_FEW_ROWS: Final = 64  # so many unused rows do no harm


class ClassClaims(NamedTuple):
    """What the pods of a class request by claims; *gpus* is what each is charged, in thousandths.

    Without claims if one of them cannot be used: then no pod of the class is placed. Those that run
    are charged for what they have.
    """

    claims: tuple[PodClaim, ...] = ()
    failures: tuple[PreFilterFailure, ...] = ()
    gpus: int = 0
    waiting_gpus: int = 0  # of a pod without a node: others are charged for a claim that they use


class _Users(NamedTuple):
    """The pods that name each claim, those of them that are on nodes, and those that stay there."""

    all: Counter[Key]
    on_nodes: Counter[Key]
    running: Counter[Key]


class _Charge(NamedTuple):
    """What each pod of a class is charged for one claim, on a node and without one."""

    on_node: int = 0
    waiting: int = 0


_NONE: Final = ClassClaims()


class ClaimTable:
    def __init__(
        self,
        cluster: Cluster,
        pod_table: PodTable,
        selectors: Selectors,
        evaluation: Evaluation,
    ) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._classes: Final = pod_table.class_table
        self._selectors: Final = selectors
        self._evaluation: Final = evaluation
        # Classes of which a claim asks for what is not evaluated yet.
        self._unevaluated: dict[int, PreFilterFailure] = {}
        self.shapes = ShapeReader(cluster.device_classes, selectors)
        self._known: dict[tuple[str, Key], ClaimShape | ShapeFault] = {}  # of names and templates
        self._by_class: Final[dict[int, tuple[int, ClassClaims]]] = {}  # with the serial
        self.rows: Final[dict[Key, int]] = {}  # of claims that several pods may use
        self._inputs: tuple[object, ...] = ()
        self._generation = 0

    @property
    def is_empty(self) -> bool:
        return not self._by_class

    def of_class(self, pod_class: PodClass) -> ClassClaims:
        known = self._by_class.get(pod_class.number)
        return known[1] if known is not None and known[0] == pod_class.serial else _NONE

    def row(self, claim: Key) -> int:
        return self.rows.setdefault(claim, len(self.rows))

    def read(
        self, pod_counts: Ints, changed: AbstractSet[Key], *, has_definitions: bool
    ) -> list[int]:
        """Read the claims of classes again; return the classes that request others than before.

        *has_definitions*: templates or DeviceClasses have changed. *changed* are claims.
        """
        if len(self.rows) > _FEW_ROWS + 2 * len(self._cluster.resource_claims):
            self.rows.clear()  # most are of claims that are gone
            has_definitions = True
        named = {key for key in changed if key in self.rows}
        if has_definitions:  # rows of filters that nothing requests any more are dropped as well
            self._forget_shapes()
        for key in named:
            self._known.pop(("claim", key), None)
        self._generation += has_definitions or bool(changed)
        numbers = np.flatnonzero(self._classes.has_claims[: len(pod_counts)])
        alive = pod_counts[numbers, :DONE].sum(axis=1)
        on_nodes = alive - pod_counts[numbers][:, _WITHOUT_NODE].sum(axis=1)
        of_claims = alive, on_nodes, pod_counts[numbers, RUNNING]
        pods = tuple([it.tobytes() for it in of_claims])
        inputs = self._generation, self._classes.serial[numbers].tobytes(), pods
        if inputs == self._inputs and not self._has_new_faults():
            return self._read_unevaluated()
        self._inputs = inputs
        users = _Users(*(self._users(numbers.tolist(), it.tolist()) for it in of_claims))
        found = {number: self._read_class(number, users) for number in numbers.tolist()}
        if self.shapes.is_full and not has_definitions:  # what is gone counts no more
            self._forget_shapes()
            has_definitions = True
            found = {number: self._read_class(number, users) for number in found}
        if self._has_new_faults():
            found = {number: self._read_class(number, users) for number in found}
        if has_definitions:
            self._selectors.keep(self.shapes.texts)
        before = {number: self._by_class.get(number) for number in {*self._by_class, *found}}
        self._by_class.clear()
        self._by_class.update(
            {n: (int(self._classes.serial[n]), claims) for n, claims in found.items()}
        )
        others = [
            number
            for number, was in before.items()
            if has_definitions or self._by_class.get(number) != was
        ]
        return [*dict.fromkeys([*others, *self._read_unevaluated()])]

    def _has_new_faults(self) -> bool:
        """Evaluate what claims ask for; say whether some are to be read again."""
        faulty = self._evaluation.run(self.shapes)
        filters = self.shapes.filters.items() if faulty else ()
        rows = {row for it, row in filters if not faulty.isdisjoint(it.key.expressions)}
        outdated = [
            it
            for it, shape in (self._known.items() if rows else ())
            if isinstance(shape, ClaimShape) and not rows.isdisjoint(filters_of(shape.requests))
        ]
        for it in outdated:
            del self._known[it]
        return bool(outdated)

    def _read_unevaluated(self) -> list[int]:
        """Note what is not evaluated yet; return the classes for which that has changed."""
        before, rows = self._unevaluated, self._evaluation.unevaluated(self.shapes)
        self._unevaluated = {}
        for number, (_, class_claims) in self._by_class.items() if rows else ():
            for claim in class_claims.claims:
                row = next((it for it in filters_of(claim.requests) if it in rows), None)
                if row is not None:
                    what = f"its selectors are being evaluated: {rows[row]}"
                    self._unevaluated[number] = not_ready(what, "that is done").of(claim.name)
                    break
        after = self._unevaluated
        return [it for it in {**before, **after} if before.get(it) != after.get(it)]

    def _forget_shapes(self) -> None:
        self.shapes = ShapeReader(self._cluster.device_classes, self._selectors)
        self._known = {}

    def _users(self, numbers: Iterable[int], pods: Iterable[int]) -> Counter[Key]:
        """Count the pods that name each claim, with the numbers of pods of each class."""
        users: Counter[Key] = Counter()
        for number, count in zip(numbers, pods, strict=True):
            pod_class = self._classes[number]
            for use in pod_class.spec.resource_claims:
                if use.resource_claim_name:
                    users[Key(pod_class.namespace, use.resource_claim_name)] += count
        return users

    def _read_class(self, number: int, users: _Users) -> ClassClaims:
        pod_class = self._classes[number]
        uses = pod_class.spec.resource_claims
        too_many = count_fault(len(uses))
        if too_many is not None:
            return ClassClaims(failures=(too_many.of(uses[0].name),))
        claims, failures, charges = [], [], []
        for use in uses:
            shape = self._shape(pod_class, use)
            key = Key(pod_class.namespace, use.resource_claim_name)
            is_named = bool(use.resource_claim_name)
            row = self.row(key) if is_named else NONE
            if is_named and users.all[key] > MOST_CLAIM_USERS:
                shape = _too_many_users(key, users.all[key])
            charges.append(self._charge(pod_class, use, shape, users))
            if isinstance(shape, ShapeFault):
                failures.append(shape.of(use.name))
                continue
            claims.append(with_row(use.name, shape, row))
        on_node, waiting = (sum(each) for each in zip(*charges, strict=True))
        return ClassClaims(() if failures else tuple(claims), tuple(failures), on_node, waiting)

    def _charge(
        self,
        pod_class: PodClass,
        use: PodResourceClaim,
        shape: ClaimShape | ShapeFault,
        users: _Users,
    ) -> _Charge:
        """Return what pods are charged; those that only wait for a claim lower no other's part.

        Pods on nodes are charged for what they have, which may be more than is requested at least,
        or by now: a claim can be deleted, and a template be created again with other requests.
        """
        requested = 0 if isinstance(shape, ShapeFault) else shape.gpus
        if not use.resource_claim_name:
            own = [max(requested, it) for it in self._held_by_pods(pod_class, use)]
            part = -(-_GPU * sum(own) // len(own)) if own else _GPU * requested
            return _Charge(part, _GPU * requested)
        key = Key(pod_class.namespace, use.resource_claim_name)
        claim, on_nodes = self._cluster.resource_claims.get(key), users.on_nodes[key]
        if on_nodes and claim is not None:
            requested = max(requested, _held_gpus(claim))
        of_each = -(-_GPU * requested // max(users.all[key], 1))
        on_node = -(-_GPU * requested // on_nodes) if on_nodes else of_each
        return _Charge(on_node, 0 if users.running[key] else of_each)

    def _held_by_pods(self, pod_class: PodClass, use: PodResourceClaim) -> Iterator[int]:
        """Yield the GPUs that each pod on a node has by a claim of its own."""
        states = self._pod_table.state
        for pod_row in pod_class.pod_rows:
            if states[pod_row] not in _NOT_ON_NODE:
                claim = self.claim_of(self._pod_table.pod(pod_row), use)
                yield 0 if claim is None else _held_gpus(claim)

    def _shape(self, pod_class: PodClass, use: PodResourceClaim) -> ClaimShape | ShapeFault:
        namespace = pod_class.namespace
        if not (use.resource_claim_name or use.resource_claim_template_name):
            what = "names neither a ResourceClaim nor a ResourceClaimTemplate"
            return invalid(what, "it names one")
        kind = "claim" if use.resource_claim_name else "template"
        key = Key(namespace, use.resource_claim_name or use.resource_claim_template_name)
        known = self._known.get((kind, key))
        if known is None:
            found = self._named_shape(key) if kind == "claim" else self._template_shape(key)
            if found is None:  # the template is gone: the claims have what it had
                claims = (self.claim_of(self._pod_table.pod(it), use) for it in pod_class.pod_rows)
                claim = next((it for it in claims if it is not None), None)
                if claim is None:
                    return not_ready(
                        f"ResourceClaimTemplate {key.name} does not exist", "it is created"
                    )
                return self.shapes.read(namespace, claim.spec)
            known = self._known[kind, key] = found
        return known

    def _named_shape(self, key: Key) -> ClaimShape | ShapeFault:
        claim = self._cluster.resource_claims.get(key)
        if claim is None:
            return not_ready(f"ResourceClaim {key.name} does not exist", "it is created")
        if claim.metadata.deletion_timestamp:
            return not_ready(f"ResourceClaim {key.name} is being deleted", "a new one exists")
        return self.shapes.read(key.namespace, claim.spec)

    def _template_shape(self, key: Key) -> ClaimShape | ShapeFault | None:
        template = self._cluster.claim_templates.get(key)
        return None if template is None else self.shapes.read(key.namespace, template.spec.spec)

    # The claims of single pods.

    def claim_key(self, pod: Pod, use: PodResourceClaim) -> Key | None:
        """Return the claim of a pod; None if it is not created yet, or not needed."""
        if use.resource_claim_name:
            return Key(pod.metadata.namespace, use.resource_claim_name)
        for status in pod.status.resource_claim_statuses:
            if status.name == use.name and status.resource_claim_name:
                return Key(pod.metadata.namespace, status.resource_claim_name)
        return None

    def claim_of(self, pod: Pod, use: PodResourceClaim) -> ResourceClaim | None:
        key = self.claim_key(pod, use)
        return None if key is None else self._cluster.resource_claims.get(key)

    def failures(
        self, pod_class: PodClass, queue: str, pod_rows: Iterable[int]
    ) -> Iterator[PreFilterFailure]:
        """Yield why some pods of a class wait for their claims; *queue* is that of the pods."""
        if not pod_class.spec.resource_claims:
            return
        found = self.of_class(pod_class)
        yield from found.failures
        if pod_class.number in self._unevaluated:
            yield self._unevaluated[pod_class.number]
        if found.gpus:
            for use in pod_class.spec.resource_claims:
                fault = self._label_fault(pod_class, use, queue)
                if fault is not None:
                    yield fault.of(use.name)
        yield from self._missing(pod_class, pod_rows)

    def extended_resource_failures(
        self, unknown_resources: Iterable[tuple[str, int]]
    ) -> Iterator[PreFilterFailure]:
        """Yield that pods request what no node has, and for which a DeviceClass stands."""
        for name, _ in unknown_resources:
            for device_class in sorted(self._cluster.device_classes):
                own = self._cluster.device_classes[device_class].spec.extended_resource_name
                if name in {own, f"{DEVICE_CLASS_PREFIX}{device_class}"}:
                    yield PreFilterFailure(PreFilterCause.EXTENDED_RESOURCE, (name, device_class))
                    break

    def _label_fault(
        self, pod_class: PodClass, use: PodResourceClaim, queue: str
    ) -> ShapeFault | None:
        """Return that a claim with GPUs that several pods use is not of the queue of the pods."""
        key = Key(pod_class.namespace, use.resource_claim_name)
        claim = self._cluster.resource_claims.get(key) if use.resource_claim_name else None
        if claim is None or claim.metadata.labels.get(QUEUE, "") == queue:
            return None
        shape = self._shape(pod_class, use)
        if isinstance(shape, ShapeFault) or not shape.gpus:
            return None
        has = claim.metadata.labels.get(QUEUE, "")
        label = f"the label {QUEUE}: {has}" if has else f"no label {QUEUE}"
        what = f"ResourceClaim {key.name} has GPUs and {label}, but the pods are in queue {queue}"
        return invalid(what, f"the claim has the label {QUEUE}: {queue}")

    def _missing(self, pod_class: PodClass, pod_rows: Iterable[int]) -> Iterator[PreFilterFailure]:
        """Yield that claims of pending pods are not created yet, or are not for their pod."""
        uses = [it for it in pod_class.spec.resource_claims if not it.resource_claim_name]
        if not uses:
            return
        for pod_row in pod_rows:
            if self._pod_table.state[pod_row] != PENDING:
                continue
            pod = self._pod_table.pod(pod_row)
            for use in uses:
                fault = self._claim_fault(pod, use)
                if fault is not None:
                    yield fault.of(use.name)._replace(pod=f"pod {pod.metadata.name}")
                    return

    def _claim_fault(self, pod: Pod, use: PodResourceClaim) -> ShapeFault | None:
        claim = self.claim_of(pod, use)
        if claim is None:
            template = use.resource_claim_template_name
            what = f"the ResourceClaim of template {template} is not created yet"
            return not_ready(what, "it exists")
        if claim.metadata.deletion_timestamp:
            return not_ready(
                f"ResourceClaim {claim.metadata.name} is being deleted", "a new one exists"
            )
        owner = claim.metadata.controller
        if owner is not None and owner.kind != _POD:
            what = f"ResourceClaim {claim.metadata.name} belongs to {owner.kind} {owner.name}"
            return unsupported(what, "the claim is one of the pod itself")
        if owner is None or owner.uid != pod.metadata.uid:
            what = f"ResourceClaim {claim.metadata.name} belongs to another pod"
            return not_ready(what, "one of its own exists")
        return self._template_fault(claim, use.resource_claim_template_name)

    def _template_fault(self, claim: ResourceClaim, name: str) -> ShapeFault | None:
        template = self._cluster.claim_templates.get(Key(claim.metadata.namespace, name))
        if template is None or _requests(template.spec.spec) == _requests(claim.spec):
            return None
        what = (
            f"ResourceClaim {claim.metadata.name} requests other devices than "
            f"ResourceClaimTemplate {name}, which was replaced"
        )
        return not_ready(what, "the pod is deleted and created again")


def _requests(spec: ResourceClaimSpec) -> tuple[object, ...]:
    return spec.devices.requests, spec.devices.constraints


def _held_gpus(claim: ResourceClaim) -> int:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return sum([it.driver in GPU_DRIVERS and not it.admin_access for it in results])


def _too_many_users(key: Key, users: int) -> ShapeFault:
    what = (
        f"{users} pods name ResourceClaim {key.name}, but at most {MOST_CLAIM_USERS} can be in its "
        "status.reservedFor, so they can never run together"
    )
    return ShapeFault(
        PreFilterCause.CLAIM_INVALID,
        what,
        "fewer pods name it, or each pod has a claim by resourceClaimTemplateName",
    )
