"""The text that sibling pods have in common, as learnt from one of them; see `podtext`."""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.meta import Condition, OwnerReference
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.share import one_text_each, one_value, without_node

__all__ = ["HOLE", "MAX_MEMBERS", "NODE", "TOKEN_BYTES", "Family", "find", "forget", "learn"]

NODE: Final = b'"nodeName":"'
HOLE: Final = b"\0"  # in the place of a token; JSON contains none
TOKEN_BYTES: Final = 5
MAX_MEMBERS: Final = 1024

_MARK_BYTES: Final = 96
_MAX_FAMILIES: Final = 256
_METADATA: Final = b'"metadata":{'
_IN_OBJECT: Final = len(b'{"kind":"Pod","apiVersion":"v1","metadata":')
_ITEM: Final = b'{"metadata":'  # a list says once what its items are
_IN_ITEM: Final = len(_ITEM)
_LABELS: Final = b',"labels":{'
_TO_BRACE: Final = len(_LABELS) - 1
_MANAGED: Final = b',"managedFields":[{'
_SPEC: Final = b'},"spec":{'
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

    `stamped` is what the Job put on them, with the index left out of labels and annotations; where
    there is no index, it is one text. managedFields come next and are passed over. In `to_node`
    the token has holes, in which the name of the volume for the service account's token differs.
    """

    stamped: tuple[bytes, ...]
    has_managed: bool
    token_at: int  # 0 where there is no token
    to_node: bytes
    to_host: bytes
    to_status: bytes | None  # None where there is no hostname
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    spec: PodSpec  # of a pod without a node
    members: dict[bytes, tuple[Mapping[str, str], Mapping[str, str]]] = {}
    nodes: dict[bytes, PodSpec] = {}
    # of the sibling that was read last
    status: bytes = b"\0"
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


_FAMILIES: Final[dict[bytes, Family]] = {}


def find(data: bytes, start: int) -> tuple[Family | None, int, int]:
    """Return a family that may be the one of the pod there, and where metadata and labels begin.

    The labels, if there are any, begin with the first brace in the metadata.
    """
    metadata_at = start + (_IN_ITEM if data.startswith(_ITEM, start) else _IN_OBJECT)
    labels_at = data.find(b"{", metadata_at + 1) - _TO_BRACE
    if not data.startswith(_METADATA, metadata_at - len(_METADATA) + 1):
        return None, metadata_at, labels_at
    return _FAMILIES.get(data[labels_at : labels_at + _MARK_BYTES]), metadata_at, labels_at


def learn(pod: Pod, data: bytes, start: int, stop: int) -> bytes | None:
    """Learn a family from one whole pod; return what `forget` takes, if it could be learnt."""
    _, _, labels_at = find(data, start)
    spec_at = data.find(_SPEC, labels_at, stop)
    status_at = data.find(_STATUS, spec_at, stop)
    if not data.startswith(_LABELS, labels_at) or spec_at < 0 or status_at < 0:
        return None
    managed_at = data.find(_MANAGED, labels_at, spec_at)
    stamped_end = managed_at + len(_MANAGED) if managed_at >= 0 else spec_at
    stamped = _stamped(data[labels_at:stamped_end], pod)
    spec = _spec(data[spec_at : status_at + len(_STATUS)])
    if stamped is None or spec is None:
        return None
    if len(_FAMILIES) >= _MAX_FAMILIES:
        del _FAMILIES[next(iter(_FAMILIES))]
    mark = data[labels_at : labels_at + _MARK_BYTES]
    token_at, to_node, to_host, to_status = spec
    _FAMILIES[mark] = Family(
        stamped=stamped,
        has_managed=managed_at >= 0,
        token_at=token_at,
        to_node=to_node,
        to_host=to_host,
        to_status=to_status,
        namespace=one_value(pod.metadata.namespace),
        labels=one_text_each(pod.metadata.labels),
        annotations=one_text_each(pod.metadata.annotations),
        owners=one_value(pod.metadata.owner_references),
        finalizers=one_value(pod.metadata.finalizers),
        spec=without_node(pod.spec),
    )
    return mark


def forget(mark: bytes) -> None:
    """Forget a family whose own first member is not read right."""
    del _FAMILIES[mark]


def _stamped(text: bytes, pod: Pod) -> tuple[bytes, ...] | None:
    """Cut the index out of labels and annotations; None if it is in one of them only."""
    index = pod.metadata.labels.get(COMPLETION_INDEX)
    if index is None:
        return (text,)
    parts = text.split(_INDEX + index.encode() + b'"')
    if len(parts) != 3:
        return None
    return parts[0] + _INDEX, b'"' + parts[1] + _INDEX, b'"' + parts[2]


def _spec(text: bytes) -> tuple[int, bytes, bytes, bytes | None] | None:
    """Cut token, node and hostname out of a spec."""
    account_at = text.find(_ACCOUNT)
    cut = text.find(b'",', account_at + len(_ACCOUNT)) + 2
    if account_at < 0 or cut < 2:
        return None
    for automount in _AUTOMOUNTS:
        if text.startswith(automount, cut):
            cut += len(automount)
    to_node, rest = text[:cut], text[cut:]
    if rest.startswith(NODE):
        rest = rest[rest.find(b'"', len(NODE)) + 2 :]
    token_at = to_node.find(_TOKEN) + len(_TOKEN)
    if token_at < len(_TOKEN):
        token_at = 0
    else:
        token = to_node[token_at : token_at + TOKEN_BYTES]
        to_node = to_node.replace(_TOKEN + token + b'"', _TOKEN + HOLE + b'"')
    to_host, host, after = rest.partition(_HOST)
    if not host:
        return token_at, to_node, rest, None
    return token_at, to_node, to_host + host, after[after.find(b'"') :]
