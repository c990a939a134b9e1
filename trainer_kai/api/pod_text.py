"""Fast decoding of pods by comparing their text with that of a sibling pod; the result is the same.

Most objects of a cluster are pods, and most of a pod's text equals that of its siblings: what its
Job set, the template, and managedFields, which are not read. So the text of one pod of each Job is
kept as a template, and a sibling is compared with it byte by byte instead of being parsed. The gaps
of the template are read: name, uid, version, times, completion index, node and status. Other gaps
are skipped; before a template is kept, a test shows that they do not reach a value that siblings
share. A pod that differs elsewhere does not match and is parsed in full.

A search for a text such as `},"spec":{` finds structure and never a part of a value, because inside
a value a quotation mark has a backslash in front. All of this relies on the order in which the API
server writes the fields of its own kinds; with another order nothing matches.
"""

from functools import lru_cache
from typing import Final

import msgspec

from trainer_kai.api.interning import (
    IndexedLabels,
    drop_unclaimed_volumes,
    intern_conditions,
    intern_meta,
    intern_spec,
    intern_value,
    spec_on_node,
)
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.pod import ClaimStatus, Pod, PodSpec, PodStatus
from trainer_kai.api.pod_text_templates import (
    TEMPLATES,
    TO_BRACE,
    LabelsAndAnnotations,
    PodTextTemplate,
    learn_template,
)
from trainer_kai.api.resized_pod import ResizeStatus, may_be_resized, with_resize

NEXT: Final = b'},{"metadata":{'  # between two pods of a page

_SHORT_STATUS_BYTES: Final = 200  # bytes of a status without conditions


class _MetadataHead(
    msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True, gc=False
):
    """The text before the labels, matched completely so that no field in it is missed."""

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


class _StatusHead(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    phase: str
    conditions: tuple[Condition, ...]
    observed_generation: int = 0


class _StatusTail(msgspec.Struct, rename="camel", gc=False):
    reason: str = ""
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


_parse: Final = msgspec.json.Decoder(Pod).decode
_read_head: Final = msgspec.json.Decoder(_MetadataHead).decode
_read_resize: Final = msgspec.json.Decoder(ResizeStatus).decode
_read_tail: Final = msgspec.json.Decoder(_StatusTail).decode

# The fields of a status that we read are before the first and after the last of these.
_PAST_NOMINATION: Final = (b'"hostIP":"', b'"podIP":"', b'"startTime":"')
_NO_CLAIMS: Final = tuple(
    b'"qosClass":"%b"}' % word for word in (b"Guaranteed", b"Burstable", b"BestEffort")
)


def read_matching(
    data: bytes, metadata_at: int, stop: int, *, alone: bool
) -> tuple[Pod, int] | None:
    """Return the pod with metadata from here on and its end, if a template matches it.

    *stop* is the last brace of its text, or of the page's last pod if it is not *alone*.
    """
    labels_at = data.find(b"{", metadata_at + 1) - TO_BRACE
    template = TEMPLATES.last
    if template is None or not data.startswith(template.to_index, labels_at):
        template = TEMPLATES.find(data, labels_at)
        if template is None:
            return None
    try:
        matched = _match(data, labels_at + len(template.to_index), template)
        if matched is None:
            return None
        if not alone:
            end = data.find(NEXT, matched[2], stop)
            stop = stop if end < 0 else end
        return _read(data[metadata_at:labels_at], data, stop, template, matched), stop
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def intern_and_learn(pod: Pod, data: bytes, metadata_at: int, stop: int) -> Pod:
    """Intern the parts of a parsed pod, and learn its template if it decodes siblings correctly."""
    intern_spec(pod)
    intern_meta(pod.metadata)
    intern_conditions(pod.status.conditions)
    labels_at = data.find(b"{", metadata_at + 1) - TO_BRACE
    if labels_at > metadata_at and TEMPLATES.should_learn(data, labels_at):
        learnt = learn_template(pod, data, metadata_at, stop)
        if learnt is not None:
            return _keep_if_exact(*learnt, pod, data, (metadata_at, labels_at, stop))
    return pod


def _keep_if_exact(
    template: PodTextTemplate,
    sibling: bytes,
    parsed_pod: Pod,
    data: bytes,
    at: tuple[int, int, int],
) -> Pod:
    """Keep a template that decodes its model and another sibling like the parser."""
    sibling_at = sibling.find(b"{", 1)
    labels_at = sibling.find(b"{", sibling_at + 1) - TO_BRACE
    try:
        expected = _parse(sibling)
        drop_unclaimed_volumes(expected)
        pod = _read_by_template(template, sibling, (sibling_at, labels_at, len(sibling) - 1))
        TEMPLATES.clear_variants(template)
        if pod != expected:
            return parsed_pod
        pod = _read_by_template(template, data, at)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return parsed_pod
    if pod is None or pod != parsed_pod:
        return parsed_pod
    TEMPLATES.add(template, data, at[1])
    return pod


def _read_by_template(
    template: PodTextTemplate, data: bytes, at: tuple[int, int, int]
) -> Pod | None:
    metadata_at, labels_at, stop = at
    matched = _match(data, labels_at + len(template.to_index), template)
    if matched is None:
        return None
    return _read(data[metadata_at:labels_at], data, stop, template, matched)


def _read(
    head_text: bytes,
    data: bytes,
    stop: int,
    template: PodTextTemplate,
    matched: tuple[LabelsAndAnnotations, PodSpec, int],
) -> Pod:
    labels_and_annotations, spec, at = matched
    head = _read_head(head_text + b"}")
    if stop - at > _SHORT_STATUS_BYTES:
        status = _long_status(data, at, stop, template)
    else:
        text = data[at:stop]
        status = (
            template.short_status
            if text == template.short_status_text
            else _short_status(text, template)
        )
    meta = Meta(
        name=head.name,
        namespace=template.namespace if head.namespace == template.namespace else head.namespace,
        uid=head.uid,
        resource_version=head.resource_version,
        generation=head.generation,
        creation_timestamp=intern_value(head.creation_timestamp),
        deletion_timestamp=head.deletion_timestamp,
        deletion_grace_period_seconds=head.deletion_grace_period_seconds,
        labels=labels_and_annotations[0],
        annotations=labels_and_annotations[1],
        owner_references=template.owners,
        finalizers=template.finalizers,
    )
    pod = Pod(metadata=meta, spec=spec, status=status)
    return with_resize(pod, _read_resize(data[at:stop])) if may_be_resized(pod) else pod


def _match(
    data: bytes, at: int, template: PodTextTemplate
) -> tuple[LabelsAndAnnotations, PodSpec, int] | None:
    """Compare from the first index on; return the texts in the gaps, and the status's position."""
    index = b""
    if template.to_second:
        end = data.find(b'"', at)
        index = data[at:end]
        text = b"".join((template.to_second, index, template.to_managed))
        if not data.startswith(text, end):
            return None
        at = end + len(text)
    labels_and_annotations = template.by_index.get(index) or _add_index(template, index)
    if labels_and_annotations is None:
        return None
    at = data.find(b"]", at)
    for offset, text in template.to_node:
        if not data.startswith(text, at + offset):
            return None
    at += template.last_at
    if data.startswith(template.to_host, at):
        spec = template.spec
        at += len(template.to_host)
    else:
        placed = _match_node(data, at, template)
        if placed is None:
            return None
        spec, at = placed
    if template.to_status:
        at = data.find(b'"', at)
        if not data.startswith(template.to_status, at):
            return None
        at += len(template.to_status)
    return labels_and_annotations, spec, at


def _match_node(data: bytes, at: int, template: PodTextTemplate) -> tuple[PodSpec, int] | None:
    if not data.startswith(template.last, at):
        return None
    at += len(template.last)
    end = data.find(b'"', at)
    node = data[at:end]
    spec = template.by_node.get(node) or _add_node(template, node)
    at = end + 2
    if not data.startswith(template.node_to_host, at):
        return None
    return spec, at + len(template.node_to_host)


def _add_index(template: PodTextTemplate, index: bytes) -> LabelsAndAnnotations | None:
    if not template.to_second:
        return template.labels, template.annotations
    if not index.isdigit():
        return None
    number = intern_value(index.decode())
    labels_and_annotations = (
        IndexedLabels(template.labels, number),
        IndexedLabels(template.annotations, number),
    )
    TEMPLATES.add_index(template, index, labels_and_annotations)
    return labels_and_annotations


def _add_node(template: PodTextTemplate, node: bytes) -> PodSpec:
    spec = spec_on_node(template.spec, msgspec.json.decode(b'"%b"' % node, type=str))
    TEMPLATES.add_node(template, node, spec)
    return spec


def _short_status(text: bytes, template: PodTextTemplate) -> PodStatus:
    """Decode a status of a pod that was not scheduled yet, like most waiting pods."""
    template.short_status = _parse_status(text)
    template.short_status_text = text
    return template.short_status


def _long_status(data: bytes, at: int, stop: int, template: PodTextTemplate) -> PodStatus:
    """Decode a status with conditions; siblings change together, so many begin alike."""
    if data.startswith(template.conditions_text, at):
        end = at + len(template.conditions_text)
    else:
        end = data.find(b"}],", at, stop) + 2
        head_of_status = data[at:end]
        template.conditions_status = _parse_status_head(head_of_status)
        template.conditions_text = head_of_status
    conditions_status = template.conditions_status
    if data.startswith(_PAST_NOMINATION, end + 1) and data.endswith(_NO_CLAIMS, end, stop):
        return conditions_status
    tail = _read_tail(b"{" + data[end + 1 : stop])
    return PodStatus(
        phase=conditions_status.phase,
        reason=tail.reason,
        conditions=conditions_status.conditions,
        nominated_node_name=tail.nominated_node_name,
        resource_claim_statuses=tail.resource_claim_statuses,
    )


@lru_cache(maxsize=256)
def _parse_status(text: bytes) -> PodStatus:
    return msgspec.json.decode(text, type=PodStatus)


@lru_cache(maxsize=512)
def _parse_status_head(text: bytes) -> PodStatus:
    head_of_status = msgspec.json.decode(text + b"}", type=_StatusHead)
    intern_conditions(head_of_status.conditions)
    return PodStatus(phase=intern_value(head_of_status.phase), conditions=head_of_status.conditions)
