"""Predicates: on which nodes a pod can be placed; one function a rule, each returns a node mask.

These predicates depend on the node alone, and are evaluated once for each signature. The predicates
that change while pods are placed are in `pod_relations`.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import LabelRequirement, SchedulingSignature
from scheduler.core.model.rejections import FitErrorReason
from scheduler.core.model.resources import NONE, Bools
from scheduler.core.model.snapshot import GpuMode, NodeFault, Snapshot
from scheduler.core.nodes.device_sorts.claims import has_devices
from scheduler.core.nodes.device_sorts.gpu_share_table import WHOLE_GPU, share_on_nodes, whole_gpus

StaticPredicate = Callable[[Snapshot, SchedulingSignature], Bools]
LabelCodes = NDArray[np.int32]


def fits_empty_node(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    """Return the nodes that can take a pod when they are empty, [node]."""
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for _, rule in STATIC_PREDICATES:
        mask &= rule(snapshot, signature)
    return mask


def _without_fault(fault: NodeFault) -> StaticPredicate:
    def passes(snapshot: Snapshot, _signature: SchedulingSignature) -> Bools:
        return np.not_equal(snapshot.nodes.fault, fault)

    return passes


def tolerated(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    taints = snapshot.nodes.taints
    untolerated = [t for t in range(taints.shape[1]) if t not in signature.tolerated_taints]
    return ~any_of(taints[:, untolerated])


def selected(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for alternatives in signature.node_affinity:
        one = np.zeros(len(mask), dtype=np.bool_)
        for terms in alternatives:
            one |= _all_hold(snapshot, terms)
        mask &= one
    return mask


def _all_hold(snapshot: Snapshot, terms: tuple[LabelRequirement, ...]) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for requirement in terms:
        mask &= has_value(snapshot.nodes.labels, requirement)
    return mask


def has_value(labels: LabelCodes, requirement: LabelRequirement) -> Bools:
    """Return the nodes with a label that meets a requirement, [node]."""
    if not (requirement.codes and len(labels)):  # there may be no column
        return np.full(len(labels), requirement.is_negated)
    values = labels[:, requirement.key]
    # Indexed by label code, the last entry for nodes without the label: three times as fast as
    # `isin`.
    is_meant = np.full(max(int(values.max()), *requirement.codes) + 2, requirement.is_negated)
    is_meant[list(requirement.codes)] = not requirement.is_negated
    return is_meant[values]


def _offers_form(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    """Return the nodes that offer GPUs in the form that a pod requests: whole, shares or MIG."""
    mode = snapshot.nodes.gpu_mode
    if signature.requests_mig:
        is_mig: Bools = (mode == GpuMode.MIG) | (mode == GpuMode.MIG_MIXED)
        return is_mig & ~snapshot.nodes.closed_to_mig
    if signature.shared_devices:
        return np.equal(mode, GpuMode.WHOLE)
    if signature.has_gpu:
        return np.not_equal(mode, GpuMode.MIG_MIXED)
    return np.ones(len(mode), dtype=np.bool_)


def _knows_gpu_memory(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    memory = snapshot.nodes.gpu_memory
    if signature.device_memory and not signature.device_share:
        return np.greater(memory, 0)
    return np.ones(len(memory), dtype=np.bool_)


def _large_enough(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    if signature.unknown_resources:
        return np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    request = np.array(signature.request)
    requested = np.flatnonzero(request)
    mask = all_of(snapshot.nodes.allocatable[:, requested] >= request[requested])
    if signature.shared_devices:
        places = snapshot.nodes.allocatable[:, snapshot.resources.pods]
        mask &= places > signature.shared_devices  # for itself and reservation pods
        mask &= whole_gpus(snapshot) >= signature.shared_devices
        mask &= share_on_nodes(snapshot, signature) <= WHOLE_GPU
    return mask


def _has_devices(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    if not signature.claims:
        return np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    return has_devices(snapshot, signature.claims)


def all_of(table: Bools) -> Bools:
    rows: Bools = np.logical_and.reduce(table, axis=1)
    return rows


def any_of(table: Bools) -> Bools:
    rows: Bools = np.logical_or.reduce(table, axis=1)
    return rows


def _not_avoided(snapshot: Snapshot, signature: SchedulingSignature) -> Bools:
    mask = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    avoided = [it.node for it in signature.avoided_nodes]
    mask[... if NONE in avoided else avoided] = False
    return mask


STATIC_PREDICATES: Final[tuple[tuple[FitErrorReason, StaticPredicate], ...]] = (
    (FitErrorReason.LEAVING, _without_fault(NodeFault.LEAVING)),
    (FitErrorReason.CORDONED, _without_fault(NodeFault.CORDONED)),
    (FitErrorReason.NOT_READY, _without_fault(NodeFault.NOT_READY)),
    (FitErrorReason.PRESSURE, _without_fault(NodeFault.PRESSURE)),
    (FitErrorReason.NO_NETWORK, _without_fault(NodeFault.NO_NETWORK)),
    (FitErrorReason.TAINT, tolerated),
    (FitErrorReason.SELECTOR, selected),
    (FitErrorReason.GPU_MODE, _offers_form),
    (FitErrorReason.GPU_MEMORY, _knows_gpu_memory),
    (FitErrorReason.TOO_SMALL, _large_enough),
    (FitErrorReason.DEVICES, _has_devices),
    (FitErrorReason.AVOIDED, _not_avoided),
)
