"""The names that KAI's settings have for the actions and plugins of a scheduler.

The core runs the actions, `scheduler.policies` makes the plugins, and settings, `simulate` and
`migrate` check names. This module imports only the standard library, so that all of them can.
"""

from enum import StrEnum
from typing import Final


class Action(StrEnum):
    """An action of a plan, in the order in which they run; all but ALLOCATE evict pods.

    NODE_LEAVING and QUEUE_DRAIN are ours, and no setting. An administrator asks for the latter on a
    queue; the former comes before all others, because its pods are about to go in any case.
    """

    ALLOCATE = "allocate"
    CONSOLIDATION = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE_GANG_EVICTION = "stalegangeviction"
    QUEUE_DRAIN = "queuedrain"
    NODE_LEAVING = "nodeleaving"


# Plain strings, and no enum of plugins: settings have these names as keys, and messages quote them.
ACTIONS: Final = tuple(
    it.value for it in Action if it not in {Action.QUEUE_DRAIN, Action.NODE_LEAVING}
)

PRIORITY: Final = "priority"
ELASTIC: Final = "elastic"
NOMINATED_NODE: Final = "nominatednode"
NODE_AVAILABILITY: Final = "nodeavailability"
RESOURCE_TYPE: Final = "resourcetype"
GPU_PACK: Final = "gpupack"
GPU_SPREAD: Final = "gpuspread"
GPU_SHARING_ORDER: Final = "gpusharingorder"
NODE_PLACEMENT: Final = "nodeplacement"
PROPORTION: Final = "proportion"
MIN_RUNTIME: Final = "minruntime"
TOPOLOGY_PLUGIN: Final = "topology"

SUPPORTED_PLUGINS: Final = (
    *(PRIORITY, ELASTIC, NOMINATED_NODE, NODE_AVAILABILITY, RESOURCE_TYPE, GPU_PACK, GPU_SPREAD),
    *(GPU_SHARING_ORDER, NODE_PLACEMENT, PROPORTION, MIN_RUNTIME),
    TOPOLOGY_PLUGIN,
)
# Without these pods would be bound where they cannot run, or sub-groups would be split.
ALWAYS_ON_PLUGINS: Final = (
    *("predicates", "subgrouporder", "taskorder", "kubeflow", "ray", "snapshot"),
)
# Known, so that settings made for KAI are accepted.
UNSUPPORTED_PLUGINS: Final = (
    *("podaffinity", "dynamicresources", "numa", "sg-nodelocalgreedy"),
    *("sg-multinodegang", "reflectjoborder"),
)
OPTIONAL_PLUGINS: Final = (*SUPPORTED_PLUGINS, *UNSUPPORTED_PLUGINS)
PLUGINS: Final = (*OPTIONAL_PLUGINS, *ALWAYS_ON_PLUGINS)
