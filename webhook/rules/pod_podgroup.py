"""What is written on a pod at its creation: its PodGroup and PodSet, from its own labels alone.

The controllers of workloads label every pod with the name and uid of its workload, and admission
labels the pod template with the PodGroup. So nothing is read from the API server.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import (
    COMPLETION_INDEX,
    GANG,
    JOB_INDEX,
    POD_GROUP,
    REPLICATED_JOB,
    SEGMENT_SIZE,
    SUBGROUP,
)
from trainer_kai.api.resources import JOBS, PODS
from trainer_kai.policy.podgroups.grouping import podgroup_name, podset_name
from trainer_kai.policy.podgroups.manifests import GroupingMode
from trainer_kai.policy.podgroups.segments import segment_of
from trainer_kai.policy.workloads.kinds import KINDS, kind_of_pod
from trainer_kai.policy.workloads.workload import WorkloadKind
from webhook.admission.patch import PatchBuilder
from webhook.admission.review import (
    UNCHANGED,
    AdmissionRequest,
    AdmissionResponse,
    unreadable_object,
)

_PODSET_LABELS: Final = (REPLICATED_JOB, JOB_INDEX)


class _Metadata(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Unlike `Meta`, this distinguishes a missing map from an empty one."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: _Metadata


def mutate_pod(request: AdmissionRequest, mode: GroupingMode) -> AdmissionResponse:
    """Set the PodGroup of a pod with our label, and for our scheduler its PodSet."""
    if not request.is_of(PODS, "CREATE"):
        return UNCHANGED
    try:
        meta = decode(_Pod, request.object).metadata
    except DecodeError as error:
        return unreadable_object(error)
    labels = meta.labels or {}
    if not labels.get(GANG):
        return UNCHANGED
    kind = kind_of_pod(labels) or KINDS[0]
    is_ours = mode == "bundled"
    has_podset = is_ours and bool(kind.form.jobs_path)
    fault = _fault(meta, labels, kind, has_podset=has_podset)
    if fault:
        warning = f"metadata.labels[{GANG}]: the pod is added to no PodGroup: {fault}"
        return AdmissionResponse(warnings=(warning,))
    podset = podset_name(labels[REPLICATED_JOB], labels[JOB_INDEX]) if has_podset else ""
    size, index = (meta.annotations or {}).get(SEGMENT_SIZE, ""), labels.get(COMPLETION_INDEX, "")
    subgroup = segment_of(podset, size, index) if is_ours else ""
    return _podgroup_response(meta, labels, kind, subgroup)


def _fault(
    meta: _Metadata, labels: Mapping[str, str], kind: WorkloadKind, *, has_podset: bool
) -> str:
    """Say why a pod is not a pod of a workload that we admitted."""
    owner = next((it for it in meta.owner_references or () if it.controller), None)
    if owner is None or (owner.api_version, owner.kind) != (JOBS.api_version, JOBS.kind):
        return "its controller is not a Job"
    needed = (kind.name_label, kind.uid_label, *(_PODSET_LABELS if has_podset else ()))
    missing = [name for name in needed if not labels.get(name)]
    return f"it lacks the label {' and the label '.join(missing)}" if missing else ""


def _podgroup_response(
    meta: _Metadata, labels: Mapping[str, str], kind: WorkloadKind, subgroup: str
) -> AdmissionResponse:
    podgroup = podgroup_name(labels[kind.name_label], labels[kind.uid_label], labels[GANG])
    patch = PatchBuilder({"metadata": {"labels": meta.labels, "annotations": meta.annotations}})
    current = (meta.annotations or {}).get(POD_GROUP)
    is_replaced = current not in {None, podgroup}
    patch.set(("metadata", "annotations", POD_GROUP), podgroup)
    if subgroup and (is_replaced or SUBGROUP not in labels):
        patch.set(("metadata", "labels", SUBGROUP), subgroup)
    if not is_replaced:
        return AdmissionResponse(patch.operations)
    # Its gang would wait for it for ever: the PodGroup of the workload counts all its pods.
    warning = f"metadata.annotations[{POD_GROUP}]: replaced by {podgroup}, the PodGroup of the pod"
    return AdmissionResponse(patch.operations, warnings=(warning,))
