"""What of a group is made only later, and how many of its pods must be there before. Pure."""

import msgspec

from scheduler.core.model import Leaf, Tree
from scheduler.state.trees import group_bar, tree
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
    """Return without how many pods that exist nothing of a group can be placed."""
    if group_bar(group) is not None:
        return 0
    later = later_prefixes(group)

    def planted(name: str, least: int) -> Leaf:
        return Leaf(name, 0 if name.startswith(later) else least)

    return _least(tree(group, planted))


def _least(of: Tree) -> int:
    if isinstance(of, Leaf):
        return of.minimum
    return sum(sorted(map(_least, of.children))[: of.minimum])
