"""Label and annotation keys that are similar to a key that trainer-kai reads.

A misspelled key has no effect and causes no error. So keys that differ from one of ours by up to
two letters are reported, and annotation keys among the labels, or label keys among the annotations.
Requests for shares of GPUs have no domain, and are found also by other names, with `_`, and in a
domain of KAI. All other keys are ignored, also those in domains of others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from trainer_kai.api.names import (
    ACCESS,
    ALLOW_DELETE,
    ANTICIPATED,
    CONSOLIDATION,
    EVICTED_BY,
    GPU_CONTAINER,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    KAI,
    LAST_CHECKPOINT,
    LAST_START,
    LINE,
    MEMBERS,
    NODE_POOL,
    PRIORITY_CLASS_NAME,
    PROVISIONING_CLASS,
    QUEUE,
    QUEUE_ORDER,
    RECLAIM_GOAL,
    RESERVED,
    RUN_AI,
    RUN_AI_DOMAIN,
    STAGE,
    STALE_SINCE,
    STOP_POLICY,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TRAINER_KAI_PREFIX,
)
from trainer_kai.errors import FieldError
from trainer_kai.policy.expand.jobset import (
    CARRIED_ANNOTATIONS,
    CARRIED_LABELS,
    CARRIED_TO_PODS,
)


class KnownKeys(NamedTuple):
    labels: tuple[str, ...]
    annotations: tuple[str, ...]


TRAINJOB_KEYS: Final = KnownKeys(
    (QUEUE, *CARRIED_LABELS), (*CARRIED_ANNOTATIONS, *CARRIED_TO_PODS, LAST_CHECKPOINT)
)
POD_KEYS: Final = KnownKeys((), CARRIED_TO_PODS)
QUEUE_KEYS: Final = KnownKeys(
    (NODE_POOL,),
    (
        *(RECLAIM_GOAL, CONSOLIDATION, ACCESS, STOP_POLICY, QUEUE_ORDER, ALLOW_DELETE),
        PROVISIONING_CLASS,
        *(TOPOLOGY, TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED),
    ),
)
PODGROUP_KEYS: Final = KnownKeys(
    (QUEUE, NODE_POOL, PRIORITY_CLASS_NAME),
    (STALE_SINCE, LAST_START, ANTICIPATED, RESERVED, EVICTED_BY, STAGE, MEMBERS, LINE),
)
# Other names of requests for shares of GPUs, with `-` for `_` and `.`.
_OTHER_NAMES: Final = {
    "gpu-mem": GPU_MEMORY,
    "gpu-portion": GPU_FRACTION,
    "gpu-share": GPU_FRACTION,
    "gpu-fraction-container": GPU_CONTAINER,
    "gpu-fraction-devices": GPU_FRACTION_DEVICES,
    "gpu-num-devices": GPU_FRACTION_DEVICES,
}
_OUR_DOMAINS: Final = frozenset(
    {"runai", RUN_AI_DOMAIN, KAI, RUN_AI, TRAINER_KAI_PREFIX.rstrip("/")}
)
_SIGNS: Final = str.maketrans("_.", "--")
_OF_OTHERS: Final = "cpu"  # what such keys begin with is no slip
_MAX_DIFFERENCE: Final = 2
_MAX_COMPARED: Final = 2000  # names, to find the one that was meant
_MIN_COMPARED_LENGTH: Final = 5  # shorter names are all alike
_MOST: Final = 200  # labels or annotations that are checked; an object may have thousands


def misspelled_keys(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    read: KnownKeys = TRAINJOB_KEYS,
    path: str = "",
) -> Iterator[FieldError]:
    """*path* leads to the object or template with the metadata."""
    at = f"{path}metadata."
    yield from _faults(labels, f"{at}labels", read.labels, read.annotations)
    yield from _faults(annotations, f"{at}annotations", read.annotations, read.labels)


def is_similar(given: str, right: str) -> bool:
    """Say whether changing at most two adjacent letters of one gives the other."""
    return _difference(given, right) <= _MAX_DIFFERENCE


def similar_name(given: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant: the nearest, then the first as text; or ""."""
    if len(given) < _MIN_COMPARED_LENGTH:
        return ""
    near = ((_difference(given, it), it) for it in islice(names, _MAX_COMPARED))
    return min((it for it in near if it[0] <= _MAX_DIFFERENCE), default=(0, ""))[1]


def _difference(given: str, right: str) -> int:
    """Return the length of the part in which two names differ, in the longer one."""
    one, other = given.lower(), right.lower()
    if abs(len(one) - len(other)) > _MAX_DIFFERENCE:
        return _MAX_DIFFERENCE + 1
    prefix_length = _common_prefix_length(one, other)
    one, other = one[prefix_length:], other[prefix_length:]
    suffix_length = _common_prefix_length(one[::-1], other[::-1])
    return max(len(one), len(other)) - suffix_length


def _common_prefix_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _faults(
    given: Mapping[str, str], at: str, read: Sequence[str], other_keys: Sequence[str]
) -> Iterator[FieldError]:
    before, _, what = at.rpartition(".")
    for name in islice(given, _MOST):
        path = f"{at}[{name}]"
        if name in other_keys and len(name) >= _MIN_COMPARED_LENGTH:
            right = "annotations" if what == "labels" else "labels"
            yield FieldError(path, f"has no effect here: move it to {before}.{right}")
        elif name not in read:
            meant = _nearest(name, (*read, *other_keys))
            if meant:
                yield FieldError(path, f"has no effect: unknown name. Did you mean {meant}?")


def _nearest(given: str, names: Sequence[str]) -> str:
    """Return the key that was probably meant; "" if the key is of others."""
    domain, slash, bare = given.rpartition("/")
    if not slash or domain in _OUR_DOMAINS:
        bare = bare.lower().translate(_SIGNS)
        meant = _OTHER_NAMES.get(bare, "")
        plain = (it for it in names if "/" not in it and len(it) >= _MIN_COMPARED_LENGTH)
        if not meant and not bare.startswith(_OF_OTHERS):
            meant = next((it for it in plain if is_similar(bare, it)), "")
        if meant in names:
            return meant
    return next((it for it in names if "/" in it and is_similar(given, it)), "")
