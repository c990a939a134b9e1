"""What is worth telling about a TrainJob before it runs."""

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Code", "Finding"]


class Code(StrEnum):
    """By which rule of lint."""

    NOT_BUILT = "not-built"
    UNREACHABLE = "unreachable"
    WRONG_AMOUNT = "wrong-amount"
    POD_TOO_LARGE = "pod-too-large"
    POD_SAYS_TOO_MUCH = "pod-says-too-much"
    UNIT_TOO_LARGE = "unit-too-large"
    DOMAIN_TOO_SMALL = "domain-too-small"
    NO_NODE_TODAY = "no-node-today"
    OVER_LIMIT = "over-limit"
    OVER_QUOTA = "over-quota"
    UNKNOWN_PRIORITY = "unknown-priority"
    PRIORITY_REFUSED = "priority-refused"
    UNKNOWN_TOPOLOGY = "unknown-topology"
    TOPOLOGY_TO_COME = "topology-to-come"
    NOT_UNDERSTOOD = "not-understood"
    NOT_LOOKED_AT = "not-looked-at"


class Finding(NamedTuple):
    """One fact, and where it comes from."""

    path: str  # in the JobSet
    message: str
    blocks: bool = False  # something will never run
    code: str = ""  # of lint

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"
