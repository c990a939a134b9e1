"""The text that sibling pods have in common, learnt from one of them, and a store of templates.

A template is text with holes. One principle decides what may be a hole: before a template is kept,
the parser decodes a sibling with another text in every hole, and the template must give the same
result. If the text of a hole reaches a field that siblings share, no template is kept. One such
sibling is enough: a hole is the end of a string, and a field either contains that string or not.

The most recently used templates are kept, within bounds. Learning costs more than parsing, so a
template is learnt from the second pod that begins like an earlier one, and later only after twice
as many pods did not match. So pods that change often, or have no siblings, cost little more than
their parsing.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from trainer_kai.api.interning import (
    intern_finalizers,
    intern_owners,
    labels_without_index,
    spec_without_node,
)
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec, PodStatus

LabelsAndAnnotations: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]

_NODE: Final = b'"nodeName":"'
_TOKEN_BYTES: Final = 5
_LABELS: Final = b',"labels":{'
TO_BRACE: Final = len(_LABELS) - 1
_MANAGED: Final = b',"managedFields":[{'
_SPEC: Final = b']},"spec":{'
_STATUS: Final = b'},"status":'
_HOST: Final = b'"hostname":"'
_INDEX: Final = f'"{COMPLETION_INDEX}":"'.encode()
_ACCOUNT: Final = b'"serviceAccount":"'
_AUTOMOUNTS: Final = (
    b'"automountServiceAccountToken":false,',
    b'"automountServiceAccountToken":true,',
)
_TOKEN: Final = b'{"name":"kube-api-access-'
_AFTER_TOKEN: Final = (  # in volumes and in mounts; elsewhere the name is ordinary text
    b'","projected":{',
    b'","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}',
)
# the text that can follow a pod's hostname
_AFTER_HOST: Final = (b'","subdomain":"', b'","affinity":{', b'","schedulerName":"')
_OTHER_HEAD: Final = (
    b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c",'
    b'"resourceVersion":"1","creationTimestamp":"2026-01-05T09:00:00Z"'
)
_OTHER_NODE: Final = _NODE + b'n",'
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_OTHER_LETTERS: Final = bytes.maketrans(_LETTERS, _LETTERS[1:] + _LETTERS[:1])
_MARK_BYTES: Final = 96  # the text from the labels on, by which a template is found


class PodTextTemplate(msgspec.Struct, kw_only=True):
    """The text that siblings have in common, in order, and its meaning.

    First comes the text that the Job sets, without the index in labels and annotations. Then
    managedFields, which are skipped: they contain no list, so their end is the first bracket. Then
    the spec, with holes of five bytes for the generated names of token volumes and their mounts;
    five bytes are too few for the end of one field and the beginning of another.
    """

    to_index: bytes
    to_second: bytes  # from one index to the next; empty if there is none
    to_managed: bytes
    to_node: tuple[tuple[int, bytes], ...]  # each text, and its distance from the bracket
    last_at: int  # the distance of the last of them from the bracket, which differs:
    to_host: bytes  # for a pod without a node, up to the hostname
    last: bytes  # for a pod on a node, up to the node's name
    node_to_host: bytes  # and from there to the hostname
    to_status: bytes  # empty if there is no hostname
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    spec: PodSpec  # for a pod without a node
    by_index: dict[bytes, LabelsAndAnnotations] = {}
    by_node: dict[bytes, PodSpec] = {}
    # of the siblings that were read last: a short status, and a long one up to its conditions
    short_status_text: bytes = b""
    short_status: PodStatus = PodStatus()
    conditions_text: bytes = b"\0"
    conditions_status: PodStatus = PodStatus()

    @property
    def text_bytes(self) -> int:
        metadata = len(self.to_index) + len(self.to_second) + len(self.to_managed)
        placed = len(self.to_host) + len(self.last) + len(self.node_to_host)
        return metadata + self.last_at + placed + len(self.to_status)


def learn_template(
    pod: Pod, data: bytes, metadata_at: int, stop: int
) -> tuple[PodTextTemplate, bytes] | None:
    """Return the template of a whole pod that is already interned, if it can have one.

    It comes with a sibling of the model that has another text in every hole: longer ones, and a
    node only if the model has none.
    """
    texts = _metadata_and_spec(data, data.find(b"{", metadata_at + 1) - TO_BRACE, stop)
    if texts is None:
        return None
    index = pod.metadata.labels.get(COMPLETION_INDEX)
    metadata = _cut_out_index(texts[0], index)
    spec = _cut_at_node(texts[1])
    if metadata is None or spec is None:
        return None
    to_node, rest = spec
    pieces, other_to_node = _cut_out_tokens(to_node)
    last_at, last = pieces.pop()
    to_host, host, to_status = _cut_out_hostname(rest)
    meta = pod.metadata
    template = PodTextTemplate(
        to_index=metadata[0],
        to_second=metadata[1],
        to_managed=metadata[2],
        to_node=tuple(pieces),
        last_at=last_at,
        to_host=last + to_host,
        last=last + _NODE,
        node_to_host=to_host,
        to_status=to_status,
        namespace=meta.namespace,
        labels=meta.labels if index is None else labels_without_index(meta.labels),
        annotations=meta.annotations if index is None else labels_without_index(meta.annotations),
        owners=intern_owners(meta.owner_references),
        finalizers=intern_finalizers(meta.finalizers),
        spec=spec_without_node(pod.spec),
    )
    other_index = b"" if index is None else index.encode() + b"7"
    other_node = b"" if pod.spec.node_name else _OTHER_NODE
    other_rest = (to_host, host + b"7", to_status) if to_status else (to_host,)
    other = (other_index.join(metadata), b"}", other_to_node, other_node, *other_rest, b"{}}")
    return template, _OTHER_HEAD + b"".join(other)


def _metadata_and_spec(data: bytes, labels_at: int, stop: int) -> tuple[bytes, bytes] | None:
    """Return the text from the labels to managedFields, and from their end to the status."""
    managed_at = data.find(_MANAGED, labels_at, stop) + len(_MANAGED)
    bracket_at = data.find(b"]", managed_at, stop)
    status_at = data.find(_STATUS, bracket_at, stop) + len(_STATUS)
    if managed_at < len(_MANAGED) or status_at < len(_STATUS):
        return None
    if not data.startswith(_LABELS, labels_at) or not data.startswith(_SPEC, bracket_at):
        return None
    return data[labels_at:managed_at], data[bracket_at:status_at]


def _cut_out_index(text: bytes, index: str | None) -> tuple[bytes, bytes, bytes] | None:
    """Cut the index out of labels and annotations; None if only one of both has it."""
    if index is None:
        return text, b"", b""
    parts = text.split(_INDEX + index.encode() + b'"')
    if len(parts) != 3:
        return None
    return parts[0] + _INDEX, b'"' + parts[1] + _INDEX, b'"' + parts[2]


def _cut_at_node(text: bytes) -> tuple[bytes, bytes] | None:
    account_at = text.find(_ACCOUNT)
    cut = text.find(b'",', account_at + len(_ACCOUNT)) + 2
    if account_at < 0 or cut < 2:
        return None
    for automount in _AUTOMOUNTS:
        if text.startswith(automount, cut):
            cut += len(automount)
    rest = text[cut:]
    if rest.startswith(_NODE):
        rest = rest[rest.find(b'"', len(_NODE)) + 2 :]
    return text[:cut], rest


def _cut_out_hostname(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Cut the hostname out, if it is where the API server writes a pod's hostname."""
    to_host, marker, after = text.partition(_HOST)
    end = after.find(b'"')
    if b'"affinity":' in to_host or not after.startswith(_AFTER_HOST, end):
        return text, b"", b""
    return to_host + marker, after[:end], after[end:]


def _cut_out_tokens(text: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Cut a text at its holes; return it with other tokens in them, too."""
    pieces: list[tuple[int, bytes]] = []
    other: list[bytes] = []
    begins = at = 0
    while (at := text.find(_TOKEN, at) + len(_TOKEN)) >= len(_TOKEN):
        if text.startswith(_AFTER_TOKEN, at + _TOKEN_BYTES):
            pieces.append((begins, text[begins:at]))
            begins = at + _TOKEN_BYTES
            other += (pieces[-1][1], text[at:begins].translate(_OTHER_LETTERS))
    pieces.append((begins, text[begins:]))
    return pieces, b"".join((*other, pieces[-1][1]))


class PodTextTemplates:
    """The templates by how their labels begin, the least recently used first."""

    MAX_TEMPLATES: Final = 1024
    MAX_TEXT_BYTES: Final = 1024 * 1024
    MAX_VARIANTS: Final = 4096  # of all templates together: indexes and nodes
    MAX_SIGHTINGS: Final = 16_384

    def __init__(self) -> None:
        self._by_mark: dict[bytes, PodTextTemplate] = {}
        self.last: PodTextTemplate | None = None  # siblings usually come one after another
        self._sightings: dict[int, int] = {}  # how often a beginning did not match
        self._text_bytes = 0
        self._variants = 0

    def __len__(self) -> int:
        return len(self._by_mark)

    @property
    def text_bytes(self) -> int:
        return self._text_bytes

    def all(self) -> tuple[PodTextTemplate, ...]:
        return tuple(self._by_mark.values())

    def find(self, data: bytes, labels_at: int) -> PodTextTemplate | None:
        key = data[labels_at : labels_at + _MARK_BYTES]
        template = self._by_mark.pop(key, None)
        if template is None:
            return None
        self._by_mark[key] = template
        if not data.startswith(template.to_index, labels_at):
            return None
        self.last = template
        return template

    def should_learn(self, data: bytes, labels_at: int) -> bool:
        """Count a pod that did not match, and say whether to learn a template from it."""
        key = hash(data[labels_at : labels_at + _MARK_BYTES])
        seen = self._sightings.pop(key, 0) + 1
        self._sightings[key] = seen
        if len(self._sightings) > self.MAX_SIGHTINGS:
            del self._sightings[next(iter(self._sightings))]
        return seen > 1 and seen & (seen - 1) == 0

    def add(self, template: PodTextTemplate, data: bytes, labels_at: int) -> None:
        key = data[labels_at : labels_at + _MARK_BYTES]
        if key in self._by_mark:
            self._drop(key)
        self._by_mark[key] = template
        self._text_bytes += template.text_bytes
        while len(self._by_mark) > self.MAX_TEMPLATES or self._text_bytes > self.MAX_TEXT_BYTES:
            self._drop(next(iter(self._by_mark)))
        self.last = None

    def add_index(
        self, template: PodTextTemplate, index: bytes, labels_and_annotations: LabelsAndAnnotations
    ) -> None:
        self._make_room()
        template.by_index[index] = labels_and_annotations

    def add_node(self, template: PodTextTemplate, node: bytes, spec: PodSpec) -> None:
        self._make_room()
        template.by_node[node] = spec

    def clear_variants(self, template: PodTextTemplate) -> None:
        self._variants = max(0, self._variants - len(template.by_index) - len(template.by_node))
        template.by_index.clear()
        template.by_node.clear()

    def _drop(self, key: bytes) -> None:
        template = self._by_mark.pop(key)
        self._text_bytes -= template.text_bytes
        self.clear_variants(template)

    def _make_room(self) -> None:
        """Count one more; above the limit drop all, because each can be built again."""
        if self._variants >= self.MAX_VARIANTS:
            for template in self._by_mark.values():
                template.by_index.clear()
                template.by_node.clear()
            self._variants = 0
        self._variants += 1


TEMPLATES: Final = PodTextTemplates()
