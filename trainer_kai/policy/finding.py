"""A finding: a fault or a hint about a TrainJob before it runs."""

from enum import StrEnum
from typing import NamedTuple


class FindingCode(StrEnum):
    JOBSET_NOT_BUILT = "jobset-not-built"
    UNREACHABLE = "unreachable"
    INVALID_AMOUNT = "invalid-amount"
    RESERVED_LABEL = "reserved-label"
    POD_TOO_LARGE = "pod-too-large"
    POD_SPEC_TOO_LARGE = "pod-spec-too-large"
    PODGROUP_TOO_LARGE = "podgroup-too-large"
    DOMAIN_TOO_SMALL = "domain-too-small"
    NO_NODE_MATCHES = "no-node-matches"
    OVER_LIMIT = "over-limit"
    OVER_QUOTA = "over-quota"
    UNKNOWN_PRIORITY = "unknown-priority"
    PRIORITY_REFUSED = "priority-refused"
    UNKNOWN_TOPOLOGY = "unknown-topology"
    UNKNOWN_CLAIM = "unknown-claim"
    UNKNOWN_CLAIM_TEMPLATE = "unknown-claim-template"
    UNKNOWN_DEVICE_CLASS = "unknown-device-class"
    GPU_SHARING_OFF = "gpu-sharing-off"
    DEADLINE_INCLUDES_QUEUE = "deadline-includes-queue"
    INVALID_VALUE = "invalid-value"
    NOT_CHECKED = "not-checked"


class Finding(NamedTuple):
    path: str  # of a field of the JobSet or TrainJob
    message: str
    blocks: bool = False  # with it, at least a part of the TrainJob never runs
    code: str = ""  # of the lint rule

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"
