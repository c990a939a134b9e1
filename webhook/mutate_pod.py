"""What is written on a pod when it is made: its group, from nothing but its own labels.

JobSet stamps the name and uid of its JobSet on every pod, and we stamped on the template which
group of that JobSet it is. So nothing is read, and a thousand pods are a thousand answers.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import (
    GANG,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    POD_GROUP,
    REPLICATED_JOB,
    SUBGROUP,
)
from trainer_kai.api.resources import JOBS, PODS
from trainer_kai.policy.groups import Mode
from trainer_kai.policy.names import group_name, leaf_name
from webhook.patch import Draft
from webhook.review import UNTOUCHED, Answer, Request, unreadable

__all__ = ["mutate_pod"]

_WHOSE: Final = (JOBSET_NAME, JOBSET_UID)
_WHERE: Final = (REPLICATED_JOB, JOB_INDEX)


class _Metadata(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Unlike `Meta` it tells a map that is missing from an empty one."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: _Metadata


def mutate_pod(request: Request, mode: Mode) -> Answer:
    """Name the group of a pod whose template we marked, and for our scheduler its place in it."""
    kind = request.kind
    is_pod = (kind.group, kind.version, kind.kind) == (PODS.group, PODS.version, PODS.kind)
    if not is_pod or request.operation != "CREATE" or request.sub_resource:
        return UNTOUCHED
    try:
        meta = decode(_Pod, request.object).metadata
    except DecodeError as error:
        return unreadable(error)
    labels = meta.labels or {}
    if not labels.get(GANG):
        return UNTOUCHED
    lack = _lack(meta, labels, mode)
    if lack:
        return Answer(warnings=(f"metadata.labels[{GANG}]: the pod joins no group: {lack}",))
    return _assigned(meta, labels, mode)


def _lack(meta: _Metadata, labels: Mapping[str, str], mode: Mode) -> str:
    """Say what keeps a pod from being one of a JobSet that we marked."""
    owner = next((it for it in meta.owner_references or () if it.controller), None)
    if owner is None or (owner.api_version, owner.kind) != (JOBS.api_version, JOBS.kind):
        return "its controller is no Job"
    needed = _WHOSE if mode == "external" else (*_WHOSE, *_WHERE)
    missing = [name for name in needed if not labels.get(name)]
    return f"it has no label {' and no label '.join(missing)}" if missing else ""


def _assigned(meta: _Metadata, labels: Mapping[str, str], mode: Mode) -> Answer:
    group = group_name(labels[JOBSET_NAME], labels[JOBSET_UID], labels[GANG])
    draft = Draft({"metadata": {"labels": meta.labels, "annotations": meta.annotations}})
    given = (meta.annotations or {}).get(POD_GROUP)
    if given not in {None, group}:
        return UNTOUCHED  # it is in a group that somebody chose, and there our places mean nothing
    draft.set(("metadata", "annotations", POD_GROUP), group)
    if mode == "bundled" and SUBGROUP not in labels:
        leaf = leaf_name(labels[REPLICATED_JOB], labels[JOB_INDEX])
        draft.set(("metadata", "labels", SUBGROUP), leaf)
    return Answer(draft.operations)
