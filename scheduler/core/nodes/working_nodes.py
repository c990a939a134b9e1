"""The working copy of the nodes of one plan: what has a part in a placement, by name.

A new sort of devices is one more line in `_DEVICES`, a new placement strategy one in `_STRATEGIES`.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from scheduler.core.gang import SignatureRuns, Tasks
from scheduler.core.model.podgroup import domain_constraints
from scheduler.core.model.resources import DeviceSort
from scheduler.core.model.result import PodGroupAllocation, Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.charges import NodeCharges
from scheduler.core.nodes.device_sorts.claims import Claims
from scheduler.core.nodes.device_sorts.gpu_shares import GpuShares
from scheduler.core.nodes.devices import DeviceParticipant, NodeDevices
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.pod_relations import PodRelationCounts
from scheduler.core.nodes.reserved_places import ReservedPlaces
from scheduler.core.nodes.statement import Statement
from scheduler.core.nodes.strategies.domains import NodesInUse
from scheduler.core.nodes.strategies.fragmentation import Fragments
from scheduler.core.nodes.strategies.strategy import EVERYWHERE, LargerGpus, PlacementStrategy
from scheduler.core.nodes.strategies.topology import PodGroupDomains

_DEVICES: Final[
    dict[DeviceSort, Callable[[Snapshot, NodeResources, Policies], DeviceParticipant]]
] = {DeviceSort.GPU_SHARE: GpuShares, DeviceSort.CLAIM: Claims}


class WorkingNodes:
    def __init__(self, snapshot: Snapshot, policies: Policies) -> None:
        self.snapshot: Final = snapshot
        self.resources: Final = NodeResources(snapshot)
        self.relations: Final = PodRelationCounts(snapshot)
        devices = [_DEVICES[sort](snapshot, self.resources, policies) for sort in DeviceSort]
        self.devices: Final = NodeDevices(tuple(devices), self.resources, snapshot.resources.pods)
        self.statement: Final = Statement((self.resources, self.relations, *devices))
        for it in devices:
            it.watch(self.statement.changed_nodes)
        # Only where a score asks for them.
        self.fragments: Final = (
            Fragments(snapshot, self.resources, self.devices, self.statement)
            if any(policies.minds_fragments)
            else None
        )
        self.reserved: Final = ReservedPlaces(self.resources, self.devices, self.statement)
        self.charges: Final = NodeCharges(snapshot, self.devices)
        self.allocations: Final[list[PodGroupAllocation]] = []  # of the plan so far, for strategies
        ignored = () if policies.places_by_topology else (_by_topology,)
        strategies = [of(self) for of in _STRATEGIES if of not in ignored]
        self._strategies: Final = [of for of in strategies if of is not None]

    def strategy_of(
        self, podgroup: int, tasks: Tasks, signatures: SignatureRuns
    ) -> PlacementStrategy:
        """Return how some tasks of a PodGroup, with these signatures, are placed."""
        for of in self._strategies:
            strategy = of(podgroup, tasks, signatures)
            if strategy is not None:
                return strategy
        return EVERYWHERE


# Returns the strategy for tasks of a PodGroup, with their signatures, if it needs one.
StrategyOf: TypeAlias = Callable[[int, Tasks, SignatureRuns], PlacementStrategy | None]


def _by_charge(nodes: WorkingNodes) -> StrategyOf | None:
    signatures, charges = nodes.snapshot.signatures, nodes.charges
    if not charges.depend_on_nodes:
        return None
    strategy = LargerGpus(nodes.snapshot, charges)

    def strategy_of(_row: int, _tasks: Tasks, runs: SignatureRuns) -> PlacementStrategy | None:
        return strategy if any(signatures[row].is_charged_by_node for row, _ in runs) else None

    return strategy_of


def _by_topology(nodes: WorkingNodes) -> StrategyOf | None:
    snapshot = nodes.snapshot
    if not snapshot.topologies or not any(
        True for it in snapshot.podgroups for _ in domain_constraints(it.tree)
    ):
        return None
    in_use = NodesInUse(snapshot, nodes.resources, nodes.devices, nodes.statement)
    return PodGroupDomains(in_use, nodes.charges, nodes.allocations).strategy_of


# Each returns None if no PodGroup of a snapshot needs it: then it costs nothing. The first one that
# a PodGroup needs is its strategy: one that restricts pods comes before one that only prefers, and
# minds itself what the other would do for the same pods.
_STRATEGIES: Final[tuple[Callable[[WorkingNodes], StrategyOf | None], ...]] = (
    _by_topology,
    _by_charge,
)
