"""What of a group is made only later, and how many of its pods must be there before. Pure."""

import msgspec

from scheduler.core.model import PodSet, SubGroupTree
from scheduler.state.trees import podgroup_tree, spec_failure
from trainer_kai.api.names import ANTICIPATED
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.anticipated import read_anticipated

__all__ = ["expected_prefixes", "min_existing_pods"]


def expected_prefixes(group: PodGroup) -> tuple[str, ...]:
    """Return how the leaves are called whose pods are made only when others run."""
    try:
        anticipated = read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return tuple(expected.sub_group_prefix for expected in anticipated.later)


def min_existing_pods(group: PodGroup) -> int:
    """Return without how many pods that exist nothing of a group can be placed."""
    if spec_failure(group) is not None:
        return 0
    expected = expected_prefixes(group)

    def make_podset(name: str, minimum: int) -> PodSet:
        return PodSet(name, 0 if name.startswith(expected) else minimum)

    return _min_pods(podgroup_tree(group, make_podset))


def _min_pods(tree: SubGroupTree) -> int:
    if isinstance(tree, PodSet):
        return tree.minimum
    return sum(sorted(map(_min_pods, tree.children))[: tree.minimum])
