"""The text that sibling pods have in common, as learnt from one of them; see `podtext`."""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.meta import Condition, OwnerReference
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec, PodStatus
from trainer_kai.api.share import one_text_each, one_value, without_node

__all__ = ["MAX_MEMBERS", "NODE", "TO_BRACE", "Family", "family_of", "forget", "learn"]

NODE: Final = b'"nodeName":"'
MAX_MEMBERS: Final = 1024

_MARK_BYTES: Final = 96  # from the labels on, by which a family is looked up
_MAX_FAMILIES: Final = 256
_TOKEN_BYTES: Final = 5
_LABELS: Final = b',"labels":{'
TO_BRACE: Final = len(_LABELS) - 1
_MANAGED: Final = b',"managedFields":[{'
_SPEC: Final = b']},"spec":{'
_STATUS: Final = b'},"status":'
_HOST: Final = b'"hostname":"'
_INDEX: Final = f'"{COMPLETION_INDEX}":"'.encode()
_TOKEN: Final = b'"kube-api-access-'
_ACCOUNT: Final = b'"serviceAccount":"'
_AUTOMOUNTS: Final = (
    b'"automountServiceAccountToken":false,',
    b'"automountServiceAccountToken":true,',
)


class Family(msgspec.Struct, kw_only=True):
    """What siblings have in common: text after text in the order they stand, and the meaning.

    First comes what the Job put on them, with the index left out of labels and annotations. Then
    managedFields, which are passed over: what is in them holds no list, so their end is the first
    bracket. Then the spec, with holes of five bytes for the names that volumes of tokens are given;
    five bytes are too few for the end of one field and the beginning of another.
    """

    to_index: bytes
    to_second: bytes  # from one index to the other; empty where there is none
    to_managed: bytes
    to_node: tuple[tuple[int, bytes], ...]  # each text, and how far from the bracket it begins
    node_at: int  # how far from the bracket
    to_host: bytes
    to_status: bytes  # empty where there is no hostname
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    spec: PodSpec  # of a pod without a node
    members: dict[bytes, tuple[Mapping[str, str], Mapping[str, str]]] = {}
    nodes: dict[bytes, PodSpec] = {}
    # of the siblings that were read last: a short status, and a long one up to its conditions
    short: bytes = b""
    status: PodStatus = PodStatus()
    lead: bytes = b"\0"
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


_FAMILIES: Final[dict[bytes, Family]] = {}
_last: list[Family] = []  # the family that was asked for last: siblings come one after another


def family_of(data: bytes, labels_at: int) -> Family | None:
    """Return the family whose text up to the index is there."""
    if _last and data.startswith(_last[0].to_index, labels_at):
        return _last[0]
    family = _FAMILIES.get(data[labels_at : labels_at + _MARK_BYTES])
    if family is None or not data.startswith(family.to_index, labels_at):
        return None
    _last[:] = (family,)
    return family


def learn(pod: Pod, data: bytes, metadata_at: int, stop: int) -> bytes | None:
    """Learn a family from one whole pod; return what `forget` takes, if it could be learnt."""
    labels_at = data.find(b"{", metadata_at + 1) - TO_BRACE
    managed_at = data.find(_MANAGED, labels_at, stop) + len(_MANAGED)
    bracket_at = data.find(b"]", managed_at, stop)
    status_at = data.find(_STATUS, bracket_at, stop) + len(_STATUS)
    if managed_at < len(_MANAGED) or status_at < len(_STATUS):
        return None
    if not data.startswith(_LABELS, labels_at) or not data.startswith(_SPEC, bracket_at):
        return None
    stamped = _stamped(data[labels_at:managed_at], pod)
    spec = _spec(data[bracket_at:status_at])
    if stamped is None or spec is None:
        return None
    to_node, rest = spec
    to_host, host, after = rest.partition(_HOST)
    family = Family(
        to_index=stamped[0],
        to_second=stamped[1],
        to_managed=stamped[2],
        to_node=_pieces(to_node),
        node_at=len(to_node),
        to_host=to_host + host,
        to_status=after[after.find(b'"') :],
        namespace=one_value(pod.metadata.namespace),
        labels=one_text_each(pod.metadata.labels),
        annotations=one_text_each(pod.metadata.annotations),
        owners=one_value(pod.metadata.owner_references),
        finalizers=one_value(pod.metadata.finalizers),
        spec=without_node(pod.spec),
    )
    return _keep(family, data[labels_at : labels_at + _MARK_BYTES])


def forget(mark: bytes) -> None:
    """Forget a family whose own first member is not read right."""
    del _FAMILIES[mark]
    _last.clear()


def _keep(family: Family, mark: bytes) -> bytes:
    if not family.to_second:
        family.members[b""] = family.labels, family.annotations
    if len(_FAMILIES) >= _MAX_FAMILIES:
        del _FAMILIES[next(iter(_FAMILIES))]
    _FAMILIES[mark] = family
    _last.clear()
    return mark


def _stamped(text: bytes, pod: Pod) -> tuple[bytes, bytes, bytes] | None:
    """Cut the index out of labels and annotations; None if it is in one of them only."""
    index = pod.metadata.labels.get(COMPLETION_INDEX)
    if index is None:
        return text, b"", b""
    parts = text.split(_INDEX + index.encode() + b'"')
    if len(parts) != 3:
        return None
    return parts[0] + _INDEX, b'"' + parts[1] + _INDEX, b'"' + parts[2]


def _spec(text: bytes) -> tuple[bytes, bytes] | None:
    """Cut a spec in two where the node's name is or would be, and leave that out."""
    account_at = text.find(_ACCOUNT)
    cut = text.find(b'",', account_at + len(_ACCOUNT)) + 2
    if account_at < 0 or cut < 2:
        return None
    for automount in _AUTOMOUNTS:
        if text.startswith(automount, cut):
            cut += len(automount)
    rest = text[cut:]
    if rest.startswith(NODE):
        rest = rest[rest.find(b'"', len(NODE)) + 2 :]
    return text[:cut], rest


def _pieces(text: bytes) -> tuple[tuple[int, bytes], ...]:
    """Cut a text where its holes are."""
    pieces = []
    at = 0
    while (hole := text.find(_TOKEN, at) + len(_TOKEN)) >= len(_TOKEN):
        if not text.startswith(b'"', hole + _TOKEN_BYTES):
            break
        pieces.append((at, text[at:hole]))
        at = hole + _TOKEN_BYTES
    pieces.append((at, text[at:]))
    return tuple(pieces)
