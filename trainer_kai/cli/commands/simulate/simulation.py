"""A cluster in files, planned as in production: objects in, one document out.

Each cycle plans and applies all decisions. The clock does not advance, and the order of the objects
does not matter.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from scheduler.core.model.result import Plan, Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.state.commands import changed_annotations, commands_from_plan
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.podgroups.departures import api_evictions_of
from scheduler.state.snapshot.cluster_state import ClusterState
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.meta import Key
from trainer_kai.api.names import DEFAULT_QUEUE, LAST_START, POD_GROUP, RESERVED, STALE_SINCE
from trainer_kai.api.pod import Pod
from trainer_kai.cli.commands.simulate.apply_plan import (
    Binding,
    SharingPods,
    apply_plan,
    finish_transitions,
    label_running_pods,
    pods_on_shared_gpus,
    shared_gpu_ids,
    with_terminating_as_running,
)
from trainer_kai.cli.commands.simulate.create_pods import create_missing_objects
from trainer_kai.cli.commands.simulate.device_claims import (
    allocate_claims,
    create_claims,
    free_claims,
)
from trainer_kai.cli.commands.simulate.end_state import (
    EndState,
    NominatedPods,
    domain_levels,
    end_state,
)
from trainer_kai.cli.commands.simulate.json_output import (
    cycle_json,
    own_podgroup_key,
    pod_phase,
    states_json,
    suspended_kinds,
)
from trainer_kai.cli.commands.simulate.notes import (
    assumed_access,
    hints,
    ignored_requests,
    missing_objects,
    names_of_jobs,
    other_scheduler_notes,
    suspended_podgroups,
)
from trainer_kai.cli.commands.simulate.owned_pods import create_owned_pods
from trainer_kai.cli.commands.simulate.scheduler_config import SchedulerConfig, scheduler_config
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.kind_defaults import NO_CHANGES, KindDefaults

SCHEMA: Final = "trainer-kai/simulate/v1"
Planner: TypeAlias = Callable[[Snapshot, Policies], Plan]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The options of a simulation; the defaults are those of the command."""

    actions: tuple[str, ...] = ()  # empty: all
    cycles: int = 1
    now: int | None = None  # seconds since 1970; None: the newest time in the input
    evicted_pods: Literal["recreate", "vanish"] = "recreate"
    terminating_pods: Literal["finish", "keep"] = "finish"
    nominations: Literal["drop", "keep"] = "drop"
    staleness_grace_s: int = 60  # below zero: never
    stuck_in_releasing_s: int = 120
    max_termination_grace_s: int = 3600
    scheduler_name: str = ""  # empty: from the SchedulingShard, or ours
    default_queue: str = DEFAULT_QUEUE
    victims: str = "kai"
    disruption_budgets: str = "best-effort"
    placement: str = ""  # empty: from the SchedulingShard, or binpack
    relocate: Literal["any", "allowed"] = "any"
    kueue: bool = False
    kind_defaults: KindDefaults = NO_CHANGES
    stats: bool = False


_DEFAULTS: Final = SimulationOptions()
_NEVER: Final = ": never runs: "
_NO_BINDS: Final = (
    "without the action allocate, a PodGroup that fits on free resources is not bound, and causes"
    " no evictions"
)


class SimulationInput(NamedTuple):
    cluster: Cluster
    config: SchedulerConfig
    state_options: StateOptions
    notes: tuple[str, ...]  # printed on standard error


class SimulationResult(NamedTuple):
    """The JSON document, and what the text output shows besides."""

    document: dict[str, Any]
    end_state: EndState
    counts: Mapping[Key, tuple[int, int]]  # by PodGroup: pods that are placed, and that wait
    podgroup_of_pod: Mapping[Key, Key]
    # From the scheduler's snapshot: what it ignores or interprets differently.
    warnings: tuple[str, ...]
    hints: Mapping[Key, str]  # by PodGroup, of those without a reason
    suspended: frozenset[Key]  # PodGroups that are suspended
    jobs: Mapping[Key, str]  # by PodGroup, such as job/nightly
    domain_levels: Mapping[Key, str]  # by PodGroup with a constraint of topology


def simulate(
    objects: Sequence[Mapping[str, Any]],
    options: SimulationOptions = _DEFAULTS,
    planner: Planner | None = None,
) -> dict[str, Any]:
    """Return the document for some objects; raise `ConfigError` if they cannot be used.

    *planner* replaces the planner, to test how its decisions are applied.
    """
    began = time.perf_counter()
    simulation_input = prepare((Document("input", dict(it)) for it in objects), options)
    return run(simulation_input, options, planner, load_s=time.perf_counter() - began).document


def prepare(documents: Iterable[Document], options: SimulationOptions) -> SimulationInput:
    """Read the objects, and create the PodGroups and pods that are missing."""
    return prepare_cluster(read_cluster(documents), options)


def prepare_cluster(inputs: InputCluster, options: SimulationOptions) -> SimulationInput:
    policies = options.victims, options.disruption_budgets, options.placement
    config = scheduler_config(inputs, options.actions, options.scheduler_name, *policies)
    rules = GroupingRules(
        "bundled",
        config.scheduler_name,
        options.default_queue,
        kind_defaults=options.kind_defaults,
    )
    create_missing_objects(inputs, rules)
    create_owned_pods(inputs, rules)
    create_claims(inputs.cluster)
    state_options = StateOptions(
        now=inputs.latest_time if options.now is None else options.now,
        scheduler_name=config.scheduler_name,
        default_queue=options.default_queue,
        stuck_in_releasing_s=options.stuck_in_releasing_s,
        max_termination_grace_s=options.max_termination_grace_s,
        staleness_grace_s=options.staleness_grace_s,
        relocates_by_default=options.relocate == "any",
        kueue=options.kueue,
        places_gpu_shares=True,
        trusts_gpu_labels=True,
        counts_ended_pods=any(config.policies.minds_fragments),
    )
    cluster = inputs.cluster
    cluster.api_evictions.update(api_evictions_of(cluster.pods, state_options.now))
    notes = [
        *_without_repeats(inputs.notes),
        *missing_objects(cluster, config.scheduler_name),
        *other_scheduler_notes(cluster, config.scheduler_name),
        *ignored_requests(cluster),
        *config.notes,
        *assumed_access(cluster, config.scheduler_name, options.default_queue),
    ]
    if "allocate" not in config.policies.actions:
        notes.append(_NO_BINDS)
    return SimulationInput(cluster, config, state_options, tuple(notes))


def _without_repeats(notes: Iterable[str]) -> Iterator[str]:
    """Yield the notes without those that repeat why an object never runs."""
    blocked = {note.replace(_NEVER, ": ", 1) for note in notes if _NEVER in note}
    return (note for note in notes if note.partition(": ")[2] not in blocked)


def run(
    simulation_input: SimulationInput,
    options: SimulationOptions,
    planner: Planner | None = None,
    *,
    load_s: float = 0.0,
) -> SimulationResult:
    """Run all cycles. The cluster of *simulation_input* is changed."""
    simulation = _Simulation(simulation_input, options, planner)
    final = simulation.run_cycle()
    for _ in range(options.cycles - 1):
        final = simulation.run_cycle()
    return simulation.result(final, load_s)


class _Simulation:
    def __init__(
        self, simulation_input: SimulationInput, options: SimulationOptions, planner: Planner | None
    ) -> None:
        self._input: Final = simulation_input
        self._options: Final = options
        self._planner: Final = planner or self._plan
        self._cycles: Final[list[dict[str, Any]]] = []
        self._stats: Final[list[dict[str, Any]]] = []
        self._action_times: list[tuple[str, float]] = []  # actions of a cycle, and when they ended
        self._encode_s = 0.0
        self._encoded_cluster = Cluster()  # with the workloads, as the last snapshot has them
        self._vanished: Final[set[Key]] = set()  # evicted and not recreated
        self._warnings: tuple[str, ...] = ()
        self._counts: dict[Key, tuple[int, int]] = {}
        self._gpu_groups: dict[Key, tuple[str, ...]] = {}  # as the last cycle counts them

    def run_cycle(self) -> tuple[EncodedSnapshot, EndState]:
        """Plan once, and apply the plan; return the snapshot and the state after it."""
        cluster = self._input.cluster
        encoded = self._encode()
        began = time.perf_counter()
        self._action_times = [("", began)]
        core_plan = self._planner(encoded.snapshot, self._input.config.policies)
        self._stats.append(self._stats_of(core_plan, time.perf_counter() - began))
        commands = commands_from_plan(encoded, core_plan)
        suspends = suspended_kinds(commands, self._encoded_cluster)
        evicted = frozenset(pod for it in commands.evictions for pod in it.pods)
        self._gpu_groups = gpu_groups = shared_gpu_ids(
            cluster, encoded, core_plan, self._sharing_pods(encoded)
        )
        label_running_pods(cluster, gpu_groups)
        binds = (Binding(it.pod, it.node, gpu_groups.get(it.pod, ())) for it in commands.binds)
        nominated = dict(commands.nominations)
        now = _rfc3339(self._input.state_options.now)
        annotations = _annotations(encoded, core_plan, now)
        for key in _no_longer_stale(encoded, cluster):
            annotations.setdefault(key, {})[STALE_SINCE] = ""
        apply_plan(cluster, binds, evicted, nominated, annotations, now)
        allocate_claims(cluster, commands)
        self._cycles.append(cycle_json(encoded, commands, cluster, gpu_groups, suspends))
        shared = {pod: gpu_groups[pod] for pod in nominated if pod in gpu_groups}
        final = self._end_of_cycle(encoded, core_plan, NominatedPods(nominated, shared))
        finish_transitions(
            cluster,
            evicted,
            nominated if self._options.nominations == "keep" else {},
            recreates=self._options.evicted_pods == "recreate",
            finishes=self._options.terminating_pods == "finish",
        )
        free_claims(cluster)
        create_claims(cluster)
        cluster.api_evictions.clear()  # this plan was made for them
        self._vanished.update(key for key in evicted if key not in cluster.pods)
        return final

    def result(self, final: tuple[EncodedSnapshot, EndState], load_s: float) -> SimulationResult:
        cluster, default_queue = self._input.cluster, self._input.state_options.default_queue
        document = {
            "schema": SCHEMA,
            "cycles": self._cycles,
            **states_json(
                cluster, self._gpu_groups, self._vanished, final, self._cycles[-1], default_queue
            ),
        }
        if self._options.stats:
            loaded_s = round(load_s + self._encode_s, 6)
            document["stats"] = {"load_s": loaded_s, "cycles": self._stats}
        groups = _podgroups_of_pods(cluster)
        last = self._cycles[-1]
        nominated, evicted = (
            [Key(it["namespace"], it["pod"]) for it in last[what]]
            for what in ("nominations", "evictions")
        )
        return SimulationResult(
            document=document,
            end_state=final[1],
            counts=self._counts,
            podgroup_of_pod=groups,
            warnings=self._warnings,
            hints=hints(cluster, groups, nominated, evicted),
            suspended=frozenset(suspended_podgroups(cluster)),
            jobs=names_of_jobs(cluster),
            domain_levels=domain_levels(final[0]),
        )

    def _end_of_cycle(
        self, encoded: EncodedSnapshot, core_plan: Plan, nominated: NominatedPods
    ) -> tuple[EncodedSnapshot, EndState]:
        """Return the state with all decisions applied; it is only built in the last cycle."""
        self._warnings = tuple(it.text for it in encoded.warnings)
        if len(self._cycles) < self._options.cycles:
            return encoded, EndState((), ())
        self._counts = _pod_counts(self._input.cluster)
        after_cycle = self._encode()
        names = encoded.snapshot.queues.names
        return after_cycle, end_state(after_cycle, nominated, core_plan.fair_share, names)

    def _sharing_pods(self, encoded: EncodedSnapshot) -> SharingPods:
        """Return the pods that share GPUs, also terminating ones, and their GPUs."""
        sharing = pods_on_shared_gpus(encoded)
        has_shared = bool(encoded.snapshot.devices.ids)
        running = with_terminating_as_running(self._input.cluster) if has_shared else None
        if running is None:
            return sharing
        return {**pods_on_shared_gpus(self._encode(running)), **sharing}

    def _encode(self, cluster: Cluster | None = None) -> EncodedSnapshot:
        began = time.perf_counter()
        state = ClusterState(self._input.state_options)
        state.put_all(cluster or self._input.cluster)
        encoded = state.snapshot(self._input.state_options.now)
        self._encoded_cluster = state.cluster
        self._encode_s += time.perf_counter() - began
        return encoded

    def _plan(self, snapshot: Snapshot, policies: Policies) -> Plan:
        def passed(action: str) -> None:
            self._action_times.append((action, time.perf_counter()))

        return plan(snapshot, policies, passed=passed)

    def _stats_of(self, core_plan: Plan, plan_s: float) -> dict[str, Any]:
        spans = pairwise(self._action_times)
        stats = core_plan.stats
        return {
            "plan_s": round(plan_s, 6),
            "actions": {action: round(ended - began, 6) for (_, began), (action, ended) in spans},
            "simulations": stats.searches + stats.trials + stats.sets,
            "cut": stats.truncated,
        }


def _annotations(encoded: EncodedSnapshot, core_plan: Plan, now: str) -> dict[Key, dict[str, str]]:
    annotations: dict[Key, dict[str, str]] = {}
    for one in core_plan.allocations:
        if one.is_start:
            annotations.setdefault(encoded.podgroup_keys[one.podgroup], {})[LAST_START] = now
    for key, text in changed_annotations(encoded, core_plan):
        annotations.setdefault(key, {})[RESERVED] = text
    return annotations


def _no_longer_stale(encoded: EncodedSnapshot, cluster: Cluster) -> Iterable[Key]:
    for key, podgroup in zip(encoded.podgroup_keys, encoded.snapshot.podgroups, strict=True):
        group = cluster.pod_groups.get(key)
        if group and podgroup.stale_at is None and STALE_SINCE in group.metadata.annotations:
            yield key


def _podgroup_key(key: Key, pod: Pod) -> Key:
    group = pod.metadata.annotations.get(POD_GROUP)
    return Key(key.namespace, group) if group else own_podgroup_key(key, pod)


def _podgroups_of_pods(cluster: Cluster) -> dict[Key, Key]:
    return {key: _podgroup_key(key, pod) for key, pod in cluster.pods.items()}


def _pod_counts(cluster: Cluster) -> dict[Key, tuple[int, int]]:
    """Count pods before evictions end: a terminating pod still has its resources."""
    groups = _podgroups_of_pods(cluster)
    counts: dict[Key, tuple[int, int]] = {}
    for key, pod in cluster.pods.items():
        placed, waiting = counts.get(groups[key], (0, 0))
        phase = pod_phase(pod)
        counts[groups[key]] = placed + (phase == "Running"), waiting + (phase == "Pending")
    return counts


def _rfc3339(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
