"""Pods read by their likeness to a sibling: the fast way to the same answer.

Most objects of a cluster are pods, and most of a pod's text is its siblings' text: what its Job
stamped on it, the template, and managedFields, which nobody reads. So the text of one pod of each
family is kept, and a sibling is compared with it byte by byte instead of being parsed. What lies in
the gaps is read: name, uid, version, times, completion index, node and status. A pod that differs
anywhere else is not recognised, and is parsed in full.

A search for a text such as `},"spec":{` finds structure and no part of a value: inside a value a
quotation mark has a backslash before it. All of this counts on the order in which the API server
writes the fields of its own kinds; where the order is another, nothing is recognised.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from trainer_kai.api.family import (
    HOLE,
    MAX_MEMBERS,
    NODE,
    TOKEN_BYTES,
    Family,
    find,
    forget,
    learn,
)
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.pod import ClaimStatus, Pod, PodSpec, PodStatus
from trainer_kai.api.share import (
    Stamped,
    on_node,
    one_value,
    share_conditions,
    share_meta,
    share_spec,
)

__all__ = ["NEXT", "introduce", "recognise"]

Labels: TypeAlias = Mapping[str, str]

NEXT: Final = b'},{"metadata":{'  # between two pods of a page

_SHORT: Final = 200  # bytes of a status without conditions


class _Head(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """What stands before the labels; where there is more, the order is not the expected one."""

    name: str
    uid: str
    resource_version: str
    creation_timestamp: str
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    generation: int = 0
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


_read_head: Final = msgspec.json.Decoder(_Head).decode
_read_tail: Final = msgspec.json.Decoder(_Tail).decode


def recognise(data: bytes, start: int, stop: int, *, alone: bool) -> tuple[Pod, int] | None:
    """Return the pod that begins there and where it ends, if it is like one that was learnt.

    *stop* is the last brace of its text, or of the page's last pod if it is not *alone*.
    """
    family, metadata_at, labels_at = find(data, start)
    if family is None:
        return None
    try:
        stamps = _stamps(data, labels_at, family)
        found = _spec(data, stamps[2], family) if stamps else None
        if stamps is None or found is None:
            return None
        spec, at = found
        if not alone:
            end = data.find(NEXT, at, stop)
            stop = stop if end < 0 else end
        head = _read_head(data[metadata_at:labels_at] + b"}")
        status = _status(data, at, stop, family)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    meta = Meta(
        name=head.name,
        namespace=family.namespace if head.namespace == family.namespace else head.namespace,
        uid=head.uid,
        resource_version=head.resource_version,
        generation=head.generation,
        creation_timestamp=one_value(head.creation_timestamp),
        deletion_timestamp=head.deletion_timestamp,
        labels=stamps[0],
        annotations=stamps[1],
        owner_references=family.owners,
        finalizers=family.finalizers,
    )
    return Pod(metadata=meta, spec=spec, status=status), stop


def introduce(pod: Pod, data: bytes, start: int, stop: int) -> Pod:
    """Share what a parsed pod can share, and learn its family if that reads the pod right."""
    share_spec(pod)
    mark = learn(pod, data, start, stop)
    if mark is not None:
        found = recognise(data, start, stop, alone=True)
        if found is not None and found[0] == pod:
            return found[0]
        forget(mark)
    share_meta(pod.metadata)
    share_conditions(pod.status.conditions)
    return pod


def _stamps(data: bytes, at: int, family: Family) -> tuple[Labels, Labels, int] | None:
    """Return labels, annotations and where the spec begins."""
    texts = family.stamped
    if not data.startswith(texts[0], at):
        return None
    at += len(texts[0])
    labels, annotations = family.labels, family.annotations
    if len(texts) > 1:
        end = data.find(b'"', at)
        index = data[at:end]
        member = family.members.get(index) or _join(family, index)
        text = b"".join((texts[1], index, texts[2]))
        if member is None or not data.startswith(text, end):
            return None
        labels, annotations = member
        at = end + len(text)
    if family.has_managed:
        at = data.find(b"]", at) + 1
    return labels, annotations, at


def _join(family: Family, index: bytes) -> tuple[Labels, Labels] | None:
    if not index.isdigit():
        return None
    number = one_value(index.decode())
    if len(family.members) >= MAX_MEMBERS:
        family.members.clear()
    member = Stamped(family.labels, number), Stamped(family.annotations, number)
    family.members[index] = member
    return member


def _spec(data: bytes, at: int, family: Family) -> tuple[PodSpec, int] | None:
    """Return the spec, and where the status begins."""
    text = family.to_node
    if family.token_at:
        token_at = at + family.token_at
        token = data[token_at : token_at + TOKEN_BYTES]
        text = text.replace(HOLE, token)
    if not data.startswith(text, at):
        return None
    at += len(text)
    spec = family.spec
    if data.startswith(NODE, at):
        at += len(NODE)
        end = data.find(b'"', at)
        node = data[at:end]
        spec = family.nodes.get(node) or _place(family, node)
        at = end + 2
    if not data.startswith(family.to_host, at):
        return None
    at += len(family.to_host)
    if family.to_status is not None:
        at = data.find(b'"', at)
        if not data.startswith(family.to_status, at):
            return None
        at += len(family.to_status)
    return spec, at


def _place(family: Family, node: bytes) -> PodSpec:
    if len(family.nodes) >= MAX_MEMBERS:
        family.nodes.clear()
    spec = on_node(family.spec, msgspec.json.decode(b'"%b"' % node, type=str))
    family.nodes[node] = spec
    return spec


def _status(data: bytes, at: int, stop: int, family: Family) -> PodStatus:
    if stop - at <= _SHORT:
        return _short_status(data[at:stop])
    if data.startswith(family.status, at):  # siblings change together, in the same second
        end = at + len(family.status)
    else:
        end = data.find(b"}],", at, stop) + 2
        family.status = data[at:end]
        family.phase, family.conditions = _conditions(family.status)
    tail = _read_tail(b"{" + data[end + 1 : stop])
    return PodStatus(
        phase=family.phase,
        conditions=family.conditions,
        nominated_node_name=tail.nominated_node_name,
        resource_claim_statuses=tail.resource_claim_statuses,
    )


@lru_cache(maxsize=256)
def _short_status(text: bytes) -> PodStatus:
    return msgspec.json.decode(text, type=PodStatus)


@lru_cache(maxsize=256)
def _conditions(text: bytes) -> tuple[str, tuple[Condition, ...]]:
    """Read a status up to the end of its conditions."""
    lead = msgspec.json.decode(text + b"}", type=_Lead)
    share_conditions(lead.conditions)
    return one_value(lead.phase), lead.conditions
