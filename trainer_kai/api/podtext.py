"""Pods read by their likeness to a sibling: the fast way to the same answer.

Most objects of a cluster are pods, and most of a pod's text is its siblings' text: what its Job
stamped on it, the template, and managedFields, which nobody reads. So the text of one pod of each
family is kept, and a sibling is compared with it byte by byte instead of being parsed. What lies in
the gaps is read: name, uid, version, times, completion index, node and status; what is in others is
passed over, and before a family is kept it is tried that it reaches nothing that siblings share. A
pod that differs anywhere else is not recognised, and is parsed in full.

A search for a text such as `},"spec":{` finds structure and no part of a value: inside a value a
quotation mark has a backslash before it. All of this counts on the order in which the API server
writes the fields of its own kinds; where the order is another, nothing is recognised.
"""

from functools import lru_cache
from typing import Final

import msgspec

from trainer_kai.api.families import FAMILIES
from trainer_kai.api.family import TO_BRACE, Family, Member, learn
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.pod import ClaimStatus, Pod, PodSpec, PodStatus
from trainer_kai.api.share import (
    Stamped,
    drop_volumes,
    on_node,
    one_value,
    share_conditions,
    share_meta,
    share_spec,
)

__all__ = ["NEXT", "introduce", "recognise"]

NEXT: Final = b'},{"metadata":{'  # between two pods of a page

_SHORT: Final = 200  # bytes of a status without conditions


class _Head(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True, gc=False):
    """What stands before the labels: all of it, so that nothing we read can stand there unread."""

    name: str
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str
    resource_version: str
    generation: int = 0
    creation_timestamp: str
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int = 0


class _Lead(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A status up to its conditions."""

    phase: str
    conditions: tuple[Condition, ...]
    observed_generation: int = 0


class _Tail(msgspec.Struct, rename="camel", gc=False):
    """What follows the conditions."""

    nominated_node_name: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


_parse: Final = msgspec.json.Decoder(Pod).decode
_read_head: Final = msgspec.json.Decoder(_Head).decode
_read_tail: Final = msgspec.json.Decoder(_Tail).decode

# What we read of a status after its conditions stands before the first and after the last of these.
_PAST_NOMINATION: Final = (b'"hostIP":"', b'"podIP":"', b'"startTime":"')
_NO_CLAIMS: Final = tuple(
    b'"qosClass":"%b"}' % word for word in (b"Guaranteed", b"Burstable", b"BestEffort")
)


def recognise(data: bytes, metadata_at: int, stop: int, *, alone: bool) -> tuple[Pod, int] | None:
    """Return the pod whose metadata begins there and where it ends, if it is like one learnt.

    *stop* is the last brace of its text, or of the page's last pod if it is not *alone*.
    """
    labels_at = data.find(b"{", metadata_at + 1) - TO_BRACE
    family = FAMILIES.last
    if family is None or not data.startswith(family.to_index, labels_at):
        family = FAMILIES.find(data, labels_at)
        if family is None:
            return None
    try:
        found = _alike(data, labels_at + len(family.to_index), family)
        if found is None:
            return None
        if not alone:
            end = data.find(NEXT, found[2], stop)
            stop = stop if end < 0 else end
        return _read(data[metadata_at:labels_at], data, stop, family, found), stop
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def introduce(pod: Pod, data: bytes, metadata_at: int, stop: int) -> Pod:
    """Share what a parsed pod can share, and learn its family if that reads its members right."""
    share_spec(pod)
    share_meta(pod.metadata)
    share_conditions(pod.status.conditions)
    labels_at = data.find(b"{", metadata_at + 1) - TO_BRACE
    if labels_at > metadata_at and FAMILIES.is_due(data, labels_at):
        learnt = learn(pod, data, metadata_at, stop)
        if learnt is not None:
            return _tried(*learnt, pod, data, (metadata_at, labels_at, stop))
    return pod


def _tried(family: Family, other: bytes, model: Pod, data: bytes, at: tuple[int, int, int]) -> Pod:
    """Keep a family by whose likeness its model and another sibling are read as they should be."""
    other_at = other.find(b"{", 1)
    labels_at = other.find(b"{", other_at + 1) - TO_BRACE
    try:
        want = _parse(other)
        drop_volumes(want)
        found = _by_likeness(family, other, (other_at, labels_at, len(other) - 1))
        FAMILIES.disband(family)
        if found != want:
            return model
        found = _by_likeness(family, data, at)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return model
    if found is None or found != model:
        return model
    FAMILIES.keep(family, data, at[1])
    return found


def _by_likeness(family: Family, data: bytes, at: tuple[int, int, int]) -> Pod | None:
    metadata_at, labels_at, stop = at
    found = _alike(data, labels_at + len(family.to_index), family)
    if found is None:
        return None
    return _read(data[metadata_at:labels_at], data, stop, family, found)


def _read(
    head_text: bytes, data: bytes, stop: int, family: Family, found: tuple[Member, PodSpec, int]
) -> Pod:
    """Read what is before the labels and what is after the spec."""
    member, spec, at = found
    head = _read_head(head_text + b"}")
    if stop - at > _SHORT:
        status = _long_status(data, at, stop, family)
    else:
        text = data[at:stop]
        status = family.status if text == family.short else _short_status(text, family)
    meta = Meta(
        name=head.name,
        namespace=family.namespace if head.namespace == family.namespace else head.namespace,
        uid=head.uid,
        resource_version=head.resource_version,
        generation=head.generation,
        creation_timestamp=one_value(head.creation_timestamp),
        deletion_timestamp=head.deletion_timestamp,
        deletion_grace_period_seconds=head.deletion_grace_period_seconds,
        labels=member[0],
        annotations=member[1],
        owner_references=family.owners,
        finalizers=family.finalizers,
    )
    return Pod(metadata=meta, spec=spec, status=status)


def _alike(data: bytes, at: int, family: Family) -> tuple[Member, PodSpec, int] | None:
    """Compare from the first index on; return what is in the gaps, and where the status begins."""
    index = b""
    if family.to_second:
        end = data.find(b'"', at)
        index = data[at:end]
        text = b"".join((family.to_second, index, family.to_managed))
        if not data.startswith(text, end):
            return None
        at = end + len(text)
    member = family.members.get(index) or _join(family, index)
    if member is None:
        return None
    at = data.find(b"]", at)
    for offset, text in family.to_node:
        if not data.startswith(text, at + offset):
            return None
    at += family.last_at
    if data.startswith(family.to_host, at):
        spec = family.spec
        at += len(family.to_host)
    else:
        placed = _on_node(data, at, family)
        if placed is None:
            return None
        spec, at = placed
    if family.to_status:
        at = data.find(b'"', at)
        if not data.startswith(family.to_status, at):
            return None
        at += len(family.to_status)
    return member, spec, at


def _on_node(data: bytes, at: int, family: Family) -> tuple[PodSpec, int] | None:
    """Compare the text around a node's name; return the spec of a pod there, and where it ends."""
    if not data.startswith(family.last, at):
        return None
    at += len(family.last)
    end = data.find(b'"', at)
    node = data[at:end]
    spec = family.nodes.get(node) or _place(family, node)
    at = end + 2
    if not data.startswith(family.node_to_host, at):
        return None
    return spec, at + len(family.node_to_host)


def _join(family: Family, index: bytes) -> Member | None:
    if not family.to_second:
        return family.labels, family.annotations
    if not index.isdigit():
        return None
    number = one_value(index.decode())
    member = Stamped(family.labels, number), Stamped(family.annotations, number)
    FAMILIES.join(family, index, member)
    return member


def _place(family: Family, node: bytes) -> PodSpec:
    spec = on_node(family.spec, msgspec.json.decode(b'"%b"' % node, type=str))
    FAMILIES.place(family, node, spec)
    return spec


def _short_status(text: bytes, family: Family) -> PodStatus:
    """Read a status of a pod that nothing has happened to, as of most that wait."""
    family.status = _whole_status(text)
    family.short = text
    return family.status


def _long_status(data: bytes, at: int, stop: int, family: Family) -> PodStatus:
    """Read a status with conditions; siblings change together, so in many it begins alike."""
    if data.startswith(family.lead, at):
        end = at + len(family.lead)
    else:
        end = data.find(b"}],", at, stop) + 2
        lead = data[at:end]
        family.begun = _conditions(lead)
        family.lead = lead
    begun = family.begun
    if data.startswith(_PAST_NOMINATION, end + 1) and data.endswith(_NO_CLAIMS, end, stop):
        return begun
    tail = _read_tail(b"{" + data[end + 1 : stop])
    return PodStatus(
        phase=begun.phase,
        conditions=begun.conditions,
        nominated_node_name=tail.nominated_node_name,
        resource_claim_statuses=tail.resource_claim_statuses,
    )


@lru_cache(maxsize=256)
def _whole_status(text: bytes) -> PodStatus:
    return msgspec.json.decode(text, type=PodStatus)


@lru_cache(maxsize=512)
def _conditions(text: bytes) -> PodStatus:
    """Read a status up to the end of its conditions."""
    lead = msgspec.json.decode(text + b"}", type=_Lead)
    share_conditions(lead.conditions)
    return PodStatus(phase=one_value(lead.phase), conditions=lead.conditions)
