"""The segments of a Job: sub-groups of so many pods each, by their completion index.

The size is an annotation of the pod template. So a pod has it too, and admission names the
sub-group of a pod without reading an object.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.names import SEGMENT_PREFERRED, SEGMENT_REQUIRED, SEGMENT_SIZE, TOPOLOGY
from trainer_kai.api.requested_values import is_count
from trainer_kai.policy.finding import Finding

_SEGMENT: Final = "segment-"
_MAX_UNHASHED: Final = 49  # characters: with "-segment-" and a number the name fits into a label
_HASHED_PREFIX: Final = 40  # characters before the hash
_NON_INDEXED: Final = "NonIndexed"


class Segmentation(NamedTuple):
    """How the pods of each Job are divided."""

    size: int = 0  # 0: they are not
    number: int = 0  # of segments

    def minimum(self, index: int, min_member: int) -> int:
        """Return the minimum of a segment; *min_member* is that of its Job."""
        return max(min(self.size, min_member - index * self.size), 0)


UNDIVIDED: Final = Segmentation()


def segmentation(
    job: ReplicatedJob, pods: int, path: str, findings: list[Finding], topology: str
) -> Segmentation:
    """Read it from the pod template, whose metadata is at *path*."""
    spec = job.template.spec
    annotations = spec.template.metadata.annotations
    size = annotations.get(SEGMENT_SIZE)
    findings += _placement_findings(annotations, path, topology)
    if size is None:
        return UNDIVIDED
    if not is_count(size):
        message = f"ignored: {size!r} must be a whole number, 1 or more"
    elif spec.completion_mode == _NON_INDEXED:
        message = "ignored: only pods of an Indexed Job have an index that divides them"
    else:
        indexes = max(pods, spec.completions or 0)
        return Segmentation(int(size), -(-indexes // int(size)))
    findings.append(Finding(f"{path}.annotations[{SEGMENT_SIZE}]", message))
    return UNDIVIDED


def _placement_findings(
    annotations: Mapping[str, str], path: str, topology: str
) -> Iterator[Finding]:
    for name in (SEGMENT_REQUIRED, SEGMENT_PREFERRED):
        missing = SEGMENT_SIZE if SEGMENT_SIZE not in annotations else TOPOLOGY
        is_complete = SEGMENT_SIZE in annotations and (topology or annotations.get(TOPOLOGY))
        if name in annotations and not is_complete:
            message = f"ignored: can only be set together with {missing}"
            yield Finding(f"{path}.annotations[{name}]", message)


def segment_prefix(podset: str) -> str:
    """Return the prefix of the segments of a Job; a number follows. A Job of its own has none."""
    if not podset:
        return _SEGMENT
    if len(podset) <= _MAX_UNHASHED:
        return f"{podset}-{_SEGMENT}"
    digest = hashlib.sha256(podset.encode()).hexdigest()[:8]
    return f"{podset[:_HASHED_PREFIX]}-{digest}-{_SEGMENT}"


def is_segment_prefix(prefix: str) -> bool:
    return prefix.endswith(f"-{_SEGMENT}")


def segment_of(podset: str, size: str, completion_index: str) -> str:
    """Return the sub-group of a pod by its annotation and label; if they are invalid, its PodSet.

    That is what `segmentation` decides as well: pods of another Job have no completion index.
    """
    if not (is_count(size) and completion_index.isdecimal()):
        return podset
    return f"{segment_prefix(podset)}{int(completion_index) // int(size)}"
