"""What of a group is made only later, and how many of its pods must be there before. Pure."""

import msgspec

from scheduler.state.trees import group_bar, minima
from trainer_kai.api.names import ANTICIPATED
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.anticipated import read_anticipated

__all__ = ["later_prefixes", "least_pods"]


def later_prefixes(group: PodGroup) -> tuple[str, ...]:
    """Return how the leaves are called whose pods are made only when others run."""
    try:
        said = read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return tuple(later.sub_group_prefix for later in said.later)


def least_pods(group: PodGroup) -> int:
    """Return without how many pods nothing of a group can be placed; 0 if that depends."""
    spec = group.spec
    asked = [spec.min_sub_group, *(sub.min_sub_group for sub in spec.sub_groups)]
    if any(number is not None for number in asked) or group_bar(group) is not None:
        return 0
    later = later_prefixes(group)
    return sum(count for leaf, count in minima(group).items() if not leaf.startswith(later))
