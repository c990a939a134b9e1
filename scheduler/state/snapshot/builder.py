"""All steps from changed objects to a snapshot, which cost what has changed.

Updates go one way: nodes, pods and pod classes, PodGroups, reservations, encoding, node occupancy,
PodGroup rows. Each step reports what it has changed, and the next step reads only that.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.gang import is_satisfied
from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues
from scheduler.state.claims.claim_state import (
    ClaimChanges,
    ClaimState,
    with_reserved_devices,
)
from scheduler.state.constraints.disruption_budgets import BudgetTable
from scheduler.state.constraints.domains import ConstraintResolver
from scheduler.state.constraints.namespace_bounds import NamespaceBounds
from scheduler.state.constraints.volumes import SharedClaims
from scheduler.state.inputs import Cluster, ObjectWarning, StateOptions
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.nodes.topologies import TopologyTable
from scheduler.state.podgroups.attributes import AttributeResolver, Evictability, QuotaScopes
from scheduler.state.podgroups.avoided_nodes import AvoidedNodes
from scheduler.state.podgroups.index import PodGroupIndex
from scheduler.state.podgroups.line import Lines
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PENDING, RELEASING, RUNNING, STUCK_RELEASING, PodTable
from scheduler.state.pods.ungrouped import UngroupedPods
from scheduler.state.queues.access import AccessQuestion, AccessQuestions, QueueAccessRule
from scheduler.state.queues.queue_table import QueueTable, with_reclaimable_resizes
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from scheduler.state.snapshot.occupancy import NodeOccupancy
from scheduler.state.snapshot.podgroup_rows import PodGroupTable
from scheduler.state.snapshot.prefilter import BuildContext, PreFilter
from scheduler.state.snapshot.queue_usage import QueueTotals, QueueUsageTable, releasing_by_queue
from scheduler.state.snapshot.signatures import (
    Encoding,
    EncodingGenerations,
    EncodingKey,
    current_encoding_key,
)
from trainer_kai.api.cluster_kinds import Node, ResourceQuota
from trainer_kai.api.meta import Key
from trainer_kai.api.names import QUEUE
from trainer_kai.api.pod import Pod
from trainer_kai.policy.workloads.workload import ObjectKey


class ObjectChanges(NamedTuple):
    """The objects that have changed since the last snapshot; None for a deleted object."""

    nodes: Mapping[str, Node | None]
    pods: Mapping[Key, Pod | None]
    pod_groups: Iterable[Key]  # or since when they lack pods
    workloads: Iterable[ObjectKey]
    suspendables: Iterable[ObjectKey]  # owners of workloads, and what cannot be suspended
    quotas: Mapping[Key, ResourceQuota | None]
    permits: AbstractSet[Key]  # namespaces and queues
    has_queues: bool
    has_priority_classes: bool
    has_namespaces: bool
    has_claims: bool  # or volumes or storage classes
    has_budgets: bool
    has_topologies: bool
    for_devices: ClaimChanges


class SnapshotBuilder:
    """The tables of one cluster state, and the snapshots that are built from them."""

    def __init__(self, cluster: Cluster, options: StateOptions) -> None:
        self._cluster: Final = cluster
        self._options: Final = options
        self._nodes: Final = NodeTable(options.leaving)
        self._topologies: Final = TopologyTable()
        self._class_table: Final = PodClassTable(options)
        self._pod_table: Final = PodTable(self._class_table, self._nodes, options)
        self._avoided_nodes: Final = AvoidedNodes(cluster.pod_groups, self._nodes)
        self._podgroup_index: Final = PodGroupIndex(cluster, self._pod_table, options)
        self._reservations: Final = Reservations(self._pod_table, self._nodes)
        self._lines: Final = Lines(cluster.pod_groups)
        self._shared_claims: Final = SharedClaims(cluster, self._pod_table)
        self._claim_state: Final = ClaimState(cluster, self._pod_table, self._nodes, options)
        self._evictability: Final = Evictability(
            cluster.owners,
            cluster.suspend_refusals,
            cluster.reverted_suspensions,
            kueue=options.kueue,
            max_grace_s=options.max_termination_grace_s,
        )
        self._access_rule: Final = QueueAccessRule(
            cluster.permits, options.default_access, needs_permission=options.needs_permission
        )
        self._access_questions: Final = AccessQuestions()
        self._podgroup_table: Final = PodGroupTable(options)
        self._ungrouped: Final = UngroupedPods(options.ungrouped_wait_s)
        self._now = options.now
        self._queue_usage: Final = QueueUsageTable()
        self._budgets: Final = BudgetTable()
        self._warnings: Final[dict[Key, list[ObjectWarning]]] = {}
        self._leaving: list[Key] = []  # PodGroups with pods on nodes that leave
        self._queues = QueueTable({})
        self._quotas: Final = QuotaScopes()
        self._attribute_resolver = AttributeResolver({}, self._quotas, cluster.pod_groups, options)
        self._generations = EncodingGenerations()
        self._claims_generation = 0  # how often claims, volumes or storage classes have changed
        self._pod_counts: Ints = self._pod_table.pod_counts
        self._namespace_bounds: Final = NamespaceBounds(self._pod_table)
        self._encoding = self._new_encoding(self._encoding_key())
        self._occupancy = self._new_occupancy()

    @property
    def is_sparse(self) -> bool:
        return self._pod_table.is_sparse

    @property
    def access_questions(self) -> KeysView[AccessQuestion]:
        """Return the namespaces and queues of PodGroups, unless the queue is annotated as open."""
        return self._access_questions.asked

    @property
    def terminating_pods(self) -> list[Pod]:
        return self._pod_table.terminating_pods

    def read(self, changes: ObjectChanges, now: int) -> None:
        self._now = now
        to_rebuild = self._read_rules(changes) | self._access_questions.podgroups_of(
            changes.permits
        )
        self._read_pods(changes, now)
        to_rebuild |= self._read_topologies(changes)
        to_rebuild |= self._avoided_nodes.read(
            changes.pod_groups, now, has_nodes_changed=bool(changes.nodes)
        )
        self._podgroup_index.begin(changes.suspendables, now)
        self._podgroup_index.update(
            self._pod_table.changed_classes, changes.pod_groups, changes.workloads
        )
        if self._nodes.new_row_of_old is not None:
            self._podgroup_index.mark_changed(self._reserved_or_nominated())
        if self._nodes.has_faults_changed:
            self._podgroup_index.mark_changed(tuple(self._reservations.annotations))
            self._podgroup_index.mark_changed(tuple(self._cluster.api_evictions))
        self._mark_leaving()
        self._pod_counts = self._pod_table.pod_counts
        self._podgroup_index.count(self._pod_counts)
        rows = self._pod_table.changed_nodes | self._nodes.changed_rows
        for key in self._podgroup_index.changed:
            record = self._podgroup_index.find(key)
            rows |= self._reservations.read(key, record)
            self._shared_claims.expect(key, record, self._reservations)
        for key in {*self._podgroup_index.changed, *changes.pod_groups}:
            self._lines.read(key, self._podgroup_index.find(key))
        to_rebuild |= self._read_encoding(changes, rows)
        if changes.has_budgets:
            self._budgets.read(self._cluster.budgets)
        self._read_podgroups(to_rebuild)

    def snapshot(self, now: int) -> EncodedSnapshot:
        encoding = self._encoding
        podgroups, podgroup_keys = self._podgroup_table.table()
        pods = self._podgroup_table.pods(self._context)
        ended = self._ended_pods(now)
        reserved = self._reservations.counts_by_node()
        snapshot = Snapshot(
            resources=encoding.requests.encoder.resource_columns,
            nodes=self._occupancy.table(),
            devices=self._occupancy.shared_gpus.table(),
            pod_relations=self._occupancy.pod_relations(self._shared_claims.claim_usage(reserved)),
            queues=self._snapshot_queues(),
            signatures=encoding.signatures.table(),
            pods=pods,
            podgroups=podgroups,
            total=self._claim_state.with_gpus(self._occupancy.total()),
            now=now,
            budgets=self._budgets.table(self._pod_table, self._pod_counts),
            topologies=self._topologies.table(),
            claim_devices=self._claim_state.table(),
            lines=self._lines.records(podgroup_keys, self._nodes.row_by_name, now),
            ended=ended,
            departing=self._podgroup_table.departing(),
        )
        if snapshot.claim_devices.names:
            snapshot = with_reserved_devices(snapshot)
        snapshot = with_reclaimable_resizes(snapshot, self._pod_table.resized)
        self._forget_unused(np.concatenate((pods.signature, np.array([*ended], dtype=np.int32))))
        return EncodedSnapshot(
            snapshot=snapshot,
            pod_keys=tuple(self._pod_table.keys),
            podgroup_keys=podgroup_keys,
            warnings=tuple(self._all_warnings()),
            reserved=_by_row(podgroup_keys, self._reservations.annotations),
            selectors=encoding.affinity.selectors,
            ports=encoding.host_ports.ports,
            claims=self._shared_claims.claims,
            claim_keys=self._claim_state.claim_keys(),
            outdated_lines=self._lines.outdated(now),
            unevaluated_namespaces=self._claim_state.unevaluated_namespaces,
        )

    def _encoding_key(self) -> EncodingKey:
        return current_encoding_key(
            self._class_table, self._namespace_bounds.considered, self._nodes, self._generations
        )

    def _forget_unused(self, signatures: NDArray[np.int32]) -> None:
        """Let the next snapshot have new signatures if pods have far fewer than there are."""
        if self._encoding.signatures.are_mostly_unused(signatures):
            number = self._generations.signatures + 1
            self._generations = self._generations._replace(signatures=number)

    def _ended_pods(self, now: int) -> dict[int, int]:
        """Return what pods that ended lately weigh, by signature."""
        found: dict[int, int] = {}
        if self._options.counts_ended_pods:
            weights = self._pod_table.ended_pods(now)
            for number in np.flatnonzero(weights).tolist():
                row = self._encoding.signatures.row(self._class_table[number])
                found[row] = found.get(row, 0) + int(weights[number])
        return found

    def _snapshot_queues(self) -> SnapshotQueues:
        requests = self._encoding.requests
        totals = QueueTotals(len(self._queues.names), self._pod_table, self._pod_counts, requests)
        self._queue_usage.add_to(totals)
        return replace(
            self._queues.table(totals.allocated, totals.non_preemptible, totals.requested),
            releasing=releasing_by_queue(self._pod_table, requests),
        )

    @property
    def _context(self) -> BuildContext:
        return BuildContext(
            pod_table=self._pod_table,
            pod_counts=self._pod_counts,
            podgroup_index=self._podgroup_index,
            reservations=self._reservations,
            attribute_resolver=self._attribute_resolver,
            queues=self._queues,
            encoding=self._encoding,
            evictability=self._evictability,
            access_rule=self._access_rule,
            shared_gpus=self._occupancy.shared_gpus,
            claim_state=self._claim_state,
            places_gpu_shares=self._options.places_gpu_shares,
            trusts_gpu_labels=self._options.trusts_gpu_labels,
            stale_since=self._cluster.stale_since,
            api_evictions=self._cluster.api_evictions,
            topologies=ConstraintResolver(self._topologies),
            avoided_nodes=self._avoided_nodes.by_podgroup,
        )

    def _read_pods(self, changes: ObjectChanges, now: int) -> None:
        nodes, pod_table = self._nodes, self._pod_table
        nodes.read(changes.nodes)
        pod_table.reset_changes()
        if nodes.new_row_of_old is not None:
            pod_table.renumber_nodes(nodes.new_row_of_old)
        pod_table.read(changes.pods)
        class_table = self._class_table
        changed = class_table.indexed_namespaces ^ class_table.index_selecting_namespaces
        if changed:  # then pods of those namespaces have other classes
            class_table.indexed_namespaces = class_table.index_selecting_namespaces
            pods = self._cluster.pods.items()
            pod_table.read({key: pod for key, pod in pods if key.namespace in changed})
        pod_table.update_stuck(now)

    def _read_topologies(self, changes: ObjectChanges) -> set[Key | int]:
        self._topologies.read_nodes(self._nodes)
        if not changes.has_topologies:
            return set()
        has_changed = self._topologies.read_topologies(self._cluster.topologies, self._nodes)
        return {*self._podgroup_index.by_key} if has_changed else set()

    def _read_rules(self, changes: ObjectChanges) -> set[Key | int]:
        """Read queues, priority classes, quotas; return the PodGroups and pod rows they concern."""
        before = self._queues
        if changes.has_queues and not before.is_same(self._cluster.queues):
            self._queues = QueueTable(self._cluster.queues)
        touched = self._quotas.read(changes.quotas)
        if changes.has_priority_classes or touched:
            priority_classes = dict(self._cluster.priority_classes)
            groups = self._cluster.pod_groups
            self._attribute_resolver = AttributeResolver(
                priority_classes, self._quotas, groups, self._options
            )
        if changes.has_priority_classes:
            return {*self._podgroup_index.by_key, *self._standalone_rows()}
        return self._podgroups_in_namespaces(touched) | self._podgroups_with_changed_queue(before)

    def _podgroups_in_namespaces(self, namespaces: set[str]) -> set[Key | int]:
        if not namespaces:
            return set()
        keys = self._pod_table.keys
        return {
            *(key for key in self._podgroup_index.by_key if key.namespace in namespaces),
            *(row for row in self._standalone_rows() if keys[row].namespace in namespaces),
        }

    def _podgroups_with_changed_queue(self, before: QueueTable) -> set[Key | int]:
        if self._queues is before:
            return set()
        records, standalone = self._podgroup_index.by_key, self._standalone_rows()
        after = self._queues
        queues_of: dict[Key | int, set[str]] = {
            key: _named_queues(record) | {self._attribute_resolver.of_podgroup(record).queue}
            for key, record in records.items()
        }
        for pod_row in standalone:
            pod_class = self._class_table[int(self._pod_table.class_number[pod_row])]
            queues_of[pod_row] = {self._attribute_resolver.of_standalone(pod_class).queue}
        changed = {
            name
            for name in set[str]().union(*queues_of.values())
            if before.rules_for_podgroups(name) != after.rules_for_podgroups(name)
        }
        # A PodGroup that does not exist is in one of two queues.
        missing = {key for key, record in records.items() if record.group is None}
        return {it for it, names in queues_of.items() if names & changed} | missing

    def _read_encoding(self, changes: ObjectChanges, rows: set[int]) -> set[Key | int]:
        """Bring encoding and nodes up to date; return the PodGroups and pod rows to rebuild."""
        if changes.has_namespaces:
            self._generations = self._generations._replace(
                namespaces=self._generations.namespaces + 1
            )
        if changes.has_claims:
            self._claims_generation += 1
        to_rebuild: set[Key | int] = set()
        changed = self._namespace_bounds.read(*self._considered_classes())
        to_rebuild |= self._podgroups_of_classes(changed)
        if self._class_table.is_expected[changed].any():
            to_rebuild |= self._podgroups_expecting_pods()
        new_claims = self._claim_state.read(changes.for_devices, self._pod_counts)
        encoding_key = self._encoding_key()
        claims = (
            self._claims_generation,
            self._shared_claims.update(self._pod_counts, self._claims_generation),
        )
        if encoding_key != self._encoding.key:
            self._encoding = self._new_encoding(encoding_key)
            self._occupancy = self._new_occupancy()
            rows = set(range(len(self._nodes)))
            to_rebuild |= self._podgroups_expecting_pods()
            to_rebuild.update(self._reservations.by_podgroup)
        else:
            self._encoding.read_classes()
            self._encoding.forget(changed)
            self._occupancy.read_capacity(self._nodes.changed_rows)
        if claims != self._encoding.claims_generation:
            self._encoding.read_claims(self._cluster, *claims)
            to_rebuild |= self._podgroups_of_classes(
                np.flatnonzero(self._class_table.has_volumes).tolist()
            )
            to_rebuild.update(self._shared_claims.expected_pods)
        for_devices = changes.for_devices
        if new_claims or for_devices.claims or for_devices.has_definitions:
            to_rebuild |= self._read_device_claims(for_devices, new_claims)
            rows |= self._claim_state.nodes_of(new_claims)
        return to_rebuild | self._occupancy.read(rows - {NONE}, self._reservations)

    def _read_device_claims(self, changes: ClaimChanges, numbers: list[int]) -> set[Key | int]:
        """Return the PodGroups and pod rows of classes that request others, or have new claims."""
        self._encoding.read_device_claims(numbers)
        unknown = self._encoding.requests.unknown_resources if changes.has_definitions else ()
        concerned = {*numbers, *unknown, *self._claim_state.classes_of(changes.claims)}
        known = [it for it in sorted(concerned) if self._class_table.is_known(it)]
        return self._podgroups_of_classes(known)

    def _new_encoding(self, encoding_key: EncodingKey) -> Encoding:
        return Encoding(
            encoding_key,
            self._nodes,
            self._cluster,
            self._class_table,
            self._claim_state.claims,
            self._options,
        )

    def _new_occupancy(self) -> NodeOccupancy:
        return NodeOccupancy(
            self._encoding,
            self._nodes,
            self._pod_table,
            self._cluster.bind_gpu_groups,
            trusts_gpu_labels=self._options.trusts_gpu_labels,
        )

    def _considered_classes(self) -> tuple[Bools, Bools]:
        """Return the pod classes with constraints to consider, and the pod classes on nodes.

        Considered are pods on nodes, pending and expected pods, pods of active PodGroups, and gated
        standalone pods.
        """
        classes, pod_counts = self._class_table, self._pod_counts
        size = len(pod_counts)
        on_node = self._pod_table.class_number[self._pod_table.node != NONE]
        is_on_node: Bools = np.bincount(on_node, minlength=size) > 0
        is_pending = classes.is_ours[:size] & (pod_counts[:, PENDING] > 0)
        is_standalone = classes.is_standalone[:size] & pod_counts[:, : RUNNING + 1].any(axis=1)
        is_of_active = self._podgroup_index.is_listed[classes.record_number[:size]]
        is_expected = classes.is_expected[:size]
        return is_on_node | is_pending | is_expected | is_standalone | is_of_active, is_on_node

    def _podgroups_expecting_pods(self) -> set[Key | int]:
        return {key for key, record in self._podgroup_index.by_key.items() if record.expected}

    def _podgroups_of_classes(self, numbers: Iterable[int]) -> set[Key | int]:
        podgroups: set[Key | int] = set()
        for number in numbers:
            pod_class = self._class_table[number]
            key = pod_class.podgroup_key
            podgroups.update(pod_class.pod_rows if key is None else (key,))
        return podgroups

    def _read_podgroups(self, to_rebuild: set[Key | int]) -> None:
        context = self._context
        prefilter = PreFilter(context)
        keys = dict.fromkeys(it for it in to_rebuild if not isinstance(it, int))
        refused: list[int] = []  # rows of pods that are charged to the queue of the PodGroup
        for key in self._podgroup_index.changed | keys:
            record = self._podgroup_index.find(key)
            self._warnings.pop(key, None)
            if record is None:
                self._podgroup_table.remove(key)
                self._queue_usage.remove(key)
                self._access_questions.put(key)
                continue
            attributes = context.attribute_resolver.of_podgroup(record)
            self._access_questions.put(key, *self._questions_of(record, attributes.queue))
            failure = prefilter.of_record(record, attributes)
            elastic_failure = prefilter.of_elastic(record, attributes)
            podgroup = self._podgroup_table.read_record(
                context, record, attributes, failure, elastic_failure
            )
            if elastic_failure is not None and podgroup is not None and is_satisfied(podgroup.tree):
                failure = elastic_failure  # it has its minimum: only elastic pods are missing
            self._queue_usage.read(context, record, attributes, failure)
            ignored = context.constraints_of(record).warnings
            if record.refusals or record.warnings or ignored:
                self._warnings[key] = [*record.object_warnings(self._is_waiting)]
                self._warnings[key] += [
                    ObjectWarning(key, f"PodGroup {key}: {it}", still_counts=True) for it in ignored
                ]
            refused += [pod_row for pod_class in record.refusals for pod_row in pod_class.pod_rows]
        pod_rows = [it for it in to_rebuild if isinstance(it, int)] + refused
        pod_rows += self._ungrouped.due(self._now)
        self._read_standalone(context, prefilter, pod_rows + self._podgroup_index.misplaced_rows)

    def _read_standalone(
        self, context: BuildContext, prefilter: PreFilter, to_rebuild: list[int]
    ) -> None:
        """Build the PodGroups of standalone pods, and read what these charge to their queues.

        A pod that runs without a place in the PodGroup that it names is one as well.
        """
        pod_table, classes = self._pod_table, self._class_table
        pod_rows = np.unique(np.array(self._pod_table.changed_rows + to_rebuild, dtype=np.int64))
        numbers, states = pod_table.class_number[pod_rows], pod_table.state[pod_rows]
        is_own = classes.is_standalone[numbers] | classes.is_misplaced[numbers]
        is_podgroup = (classes.is_standalone[numbers] & (states <= RUNNING)) | (
            is_own & (states == RUNNING)
        )
        for pod_row in self._podgroup_table.known_rows(pod_rows[~is_podgroup]):
            self._podgroup_table.remove(pod_row)
            self._access_questions.put(pod_row)
        for pod_row in pod_rows[is_podgroup].tolist():
            pod_class = classes[int(pod_table.class_number[pod_row])]
            is_pending = pod_table.state[pod_row] == PENDING
            queue = self._attribute_resolver.of_standalone(pod_class).queue
            self._access_questions.put(pod_row, self._question(pod_class.namespace, queue))
            title = f"pod {pod_table.keys[pod_row].name}"
            prefilter_failure = prefilter.of_standalone(
                pod_class, title, is_pending=bool(is_pending), pod_row=pod_row
            )
            if is_pending and prefilter_failure is None:
                pod = pod_table.pod(pod_row)
                prefilter_failure = self._ungrouped.failure(pod_row, pod, self._now)
            self._podgroup_table.read_standalone_pod(context, pod_row, prefilter_failure)
        charged = is_own & (states <= STUCK_RELEASING)  # terminating pods too: these have no row
        for pod_class in dict.fromkeys(classes[number] for number in numbers[charged].tolist()):
            if classes.is_misplaced[pod_class.number]:
                self._queue_usage.read_misplaced(context, pod_class)
                continue
            prefilter_failure = prefilter.of_standalone(
                pod_class, "", is_pending=self._is_waiting(pod_class)
            )
            self._queue_usage.read_standalone(context, pod_class, prefilter_failure)

    def _standalone_rows(self) -> list[int]:
        pod_table = self._pod_table
        is_own = (
            self._class_table.is_standalone[pod_table.class_number]
            | self._class_table.is_misplaced[pod_table.class_number]
        )
        is_present = is_own & (pod_table.state <= STUCK_RELEASING)
        pod_rows: list[int] = np.flatnonzero(is_present).tolist()
        return pod_rows

    def _questions_of(self, record: PodGroupRecord, queue: str) -> Iterator[AccessQuestion | None]:
        """Yield the access questions of a PodGroup: also of other queues that its pods name."""
        if record.group is None or not (record.is_active or self._has_terminating_pods(record)):
            return
        for asked in _named_queues(record) | {queue}:
            yield self._question(record.key.namespace, asked)

    def _has_terminating_pods(self, record: PodGroupRecord) -> bool:
        """Say whether pods of a PodGroup terminate on nodes, of older attempts too."""
        numbers = [pod_class.number for pod_class in record.pod_classes]
        return bool(self._pod_counts[numbers][:, (RELEASING, STUCK_RELEASING)].any())

    def _question(self, namespace: str, queue: str) -> AccessQuestion | None:
        """Return the question; None for a queue that takes no PodGroups anyway."""
        if self._queues.prefilter_failure(queue) is not None:
            return None
        return self._access_rule.question(Key(namespace, queue), self._queues.access(queue))

    def _is_waiting(self, pod_class: PodClass) -> bool:
        return bool(self._pod_counts[pod_class.number, PENDING])

    def _mark_leaving(self) -> None:
        """Mark the PodGroups with pods on nodes of which it has changed whether they leave."""
        before, nodes = self._leaving, self._nodes
        if before or nodes.leaving:
            self._leaving = self._on_leaving_nodes()
        if nodes.has_leaving_changed:
            self._podgroup_index.mark_changed((*before, *self._leaving))

    def _on_leaving_nodes(self) -> list[Key]:
        rows = [self._nodes.row_of(name) for name in self._nodes.leaving]
        is_there = np.isin(self._pod_table.node, [it for it in rows if it != NONE])
        numbers = np.unique(self._pod_table.class_number[is_there]).tolist()
        keys = [self._class_table[number].podgroup_key for number in numbers]
        return [key for key in dict.fromkeys(keys) if key is not None]

    def _reserved_or_nominated(self) -> list[Key]:
        classes = (
            self._class_table[int(self._pod_table.class_number[pod_row])]
            for pod_row in self._pod_table.nominated
        )
        nominated = [it.podgroup_key for it in classes if it.podgroup_key is not None]
        return [*self._reservations.annotations, *nominated]

    def _all_warnings(self) -> Iterable[ObjectWarning]:
        yield from self._nodes.warnings
        yield from self._queues.warnings
        for name, fault in sorted(self._topologies.faults.items()):
            yield ObjectWarning(Key("", name), f"Topology {name}: {fault}")
        resolver = ConstraintResolver(self._topologies)
        for name, default in sorted(self._queues.topologies.items()):
            for fault in resolver.faults_of_default(default):
                yield ObjectWarning(Key("", name), f"queue {name}: {fault}", still_counts=True)
        yield from dict.fromkeys(
            warning for key in sorted(self._warnings) for warning in sorted(self._warnings[key])
        )
        yield from sorted(self._reservations.warnings)


def _named_queues(record: PodGroupRecord) -> set[str]:
    """Return the queues that the pods of a PodGroup name, if it exists."""
    if record.group is None:
        return set()
    return {pod_class.labels.get(QUEUE, "") for pod_class in record.pod_classes} - {""}


def _by_row(podgroups: Sequence[Key], texts: Mapping[Key, str]) -> dict[int, str]:
    rows = enumerate(podgroups) if texts else ()
    return {row: texts[key] for row, key in rows if key in texts}
