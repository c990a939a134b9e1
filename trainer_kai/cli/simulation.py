"""A cluster in files, planned as in production: objects in, one document out.

Plan, write down, let everything decided come to pass, plan again. The clock stands still, and the
order of the objects changes nothing.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from scheduler.core.decision import Plan
from scheduler.core.model import Snapshot
from scheduler.core.plan import plan
from scheduler.core.policy import Policies
from scheduler.state.cluster import Cluster
from scheduler.state.encode import Encoded, encode
from scheduler.state.orders import Orders, read_orders
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.api.names import DEFAULT_QUEUE, LAST_START, POD_GROUP, RESERVED, STALE_SINCE
from trainer_kai.api.pod import Pod
from trainer_kai.cli.completion import Binding, finish, settle
from trainer_kai.cli.documents import Document
from trainer_kai.cli.ending import Ending, ending
from trainer_kai.cli.grouping import group_workloads
from trainer_kai.cli.hints import (
    hints,
    in_no_file,
    left_to_others,
    not_asked,
    not_looked_at,
    suspended,
)
from trainer_kai.cli.objects import read_objects
from trainer_kai.cli.protocol import cycle_json, evictions_of, own_group, phase_of, states_json
from trainer_kai.cli.site import Site, site_of
from trainer_kai.policy.groups import Rules

__all__ = ["SCHEMA", "Options", "Outcome", "Scene", "prepare", "run", "simulate"]

SCHEMA: Final = "trainer-kai/simulate/v1"
Planner: TypeAlias = Callable[[Snapshot, Policies], Plan]


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen; the defaults are those of the command."""

    actions: tuple[str, ...] = ()  # none named: all
    cycles: int = 1
    now: int | None = None  # seconds since 1970; None: the newest time in the input
    evicted_pods: Literal["recreate", "vanish"] = "recreate"
    terminating_pods: Literal["finish", "keep"] = "finish"
    nominations: Literal["drop", "keep"] = "drop"
    staleness_grace_s: int = 60  # below zero: never
    stuck_in_releasing_s: int = 120
    max_termination_grace_s: int = 3600
    scheduler_name: str = ""  # none: the shard's, or ours
    default_queue: str = DEFAULT_QUEUE
    victims: str = "kai"
    disruption_budgets: str = "best-effort"
    moves: Literal["any", "offered"] = "any"
    kueue: bool = False
    stats: bool = False


_DEFAULTS: Final = Options()
_NEVER: Final = ": never runs: "
_NO_BINDS: Final = (
    "without the action allocate a unit that there is room for is not bound, and takes nothing"
    " from others"
)


class Scene(NamedTuple):
    """All that is needed to begin."""

    cluster: Cluster
    site: Site
    terms: Terms
    notes: tuple[str, ...]  # what whoever asked should know


class Outcome(NamedTuple):
    """The document, and what else a picture shows."""

    document: dict[str, Any]
    ending: Ending
    counts: Mapping[Key, tuple[int, int]]  # by group: pods that are placed, and that wait
    groups: Mapping[Key, Key]  # of pods
    strays: tuple[str, ...]  # what was left aside, or counts as something else
    hints: Mapping[Key, str]  # by group: what has no verdict
    held_back: frozenset[Key]  # groups that are suspended


def simulate(
    objects: Sequence[Mapping[str, Any]],
    options: Options = _DEFAULTS,
    planner: Planner | None = None,
) -> dict[str, Any]:
    """Return the document for some objects; raise `ConfigError` if they cannot be used.

    *planner* stands in for the plan, to try what becomes of its decisions.
    """
    began = time.perf_counter()
    scene = prepare((Document("input", dict(it)) for it in objects), options)
    return run(scene, options, planner, load_s=time.perf_counter() - began).document


def prepare(documents: Iterable[Document], options: Options) -> Scene:
    """Read the objects, and make what is missing of their groups and pods."""
    given = read_objects(documents)
    chosen = options.victims, options.disruption_budgets
    site = site_of(given, options.actions, options.scheduler_name, *chosen)
    rules = Rules("bundled", site.scheduler_name, options.default_queue)
    group_workloads(given, rules)
    terms = Terms(
        now=given.newest if options.now is None else options.now,
        scheduler_name=site.scheduler_name,
        default_queue=options.default_queue,
        stuck_in_releasing_s=options.stuck_in_releasing_s,
        max_termination_grace_s=options.max_termination_grace_s,
        staleness_grace_s=options.staleness_grace_s,
        moves_unasked=options.moves == "any",
        kueue=options.kueue,
    )
    cluster = given.cluster
    unknown = in_no_file(cluster, site.scheduler_name)
    others = left_to_others(cluster, site.scheduler_name)
    notes = [*_once(given.notes), *unknown, *others, *not_looked_at(cluster), *site.notes]
    notes += not_asked(cluster, site.scheduler_name, options.default_queue)
    if "allocate" not in site.policies.actions:
        notes.append(_NO_BINDS)
    return Scene(cluster, site, terms, tuple(notes))


def _once(notes: Iterable[str]) -> Iterator[str]:
    """Yield what is noted, but not what an object says once more of why it never runs."""
    blocked = {note.replace(_NEVER, ": ", 1) for note in notes if _NEVER in note}
    return (note for note in notes if note.partition(": ")[2] not in blocked)


def run(
    scene: Scene, options: Options, planner: Planner | None = None, *, load_s: float = 0.0
) -> Outcome:
    """Plan as often as asked for. The cluster of the scene is changed."""
    simulation = _Simulation(scene, options, planner)
    ends = simulation.turn()
    for _ in range(options.cycles - 1):
        ends = simulation.turn()
    return simulation.outcome(ends, load_s)


class _Simulation:
    """Turn after turn."""

    def __init__(self, scene: Scene, options: Options, planner: Planner | None) -> None:
        self._scene: Final = scene
        self._options: Final = options
        self._planner: Final = planner or self._plan
        self._cycles: Final[list[dict[str, Any]]] = []
        self._stats: Final[list[dict[str, Any]]] = []
        self._passed: list[tuple[str, float]] = []  # actions of this turn, and when they were over
        self._encode_s = 0.0
        self._gone: Final[set[Key]] = set()  # evicted for good
        self._strays: tuple[str, ...] = ()
        self._counts: dict[Key, tuple[int, int]] = {}

    def turn(self) -> tuple[Encoded, Ending]:
        """Plan once, and let what was decided come to pass; return how that leaves the cluster."""
        cluster = self._scene.cluster
        encoded = self._encode()
        began = time.perf_counter()
        self._passed = [("", began)]
        made = self._planner(encoded.snapshot, self._scene.site.policies)
        self._stats.append(self._stats_of(made, time.perf_counter() - began))
        orders = read_orders(encoded, made)
        evicted = frozenset(it.pod for it in evictions_of(orders))
        binds = (Binding(it.pod, it.node) for it in orders.binds)
        promised = dict(orders.nominations)
        now = _rfc3339(self._scene.terms.now)
        notes = _notes(encoded, made, orders, now)
        for key in _whole(encoded, cluster):
            notes.setdefault(key, {})[STALE_SINCE] = ""
        settle(cluster, binds, evicted, promised, notes, now)
        self._cycles.append(cycle_json(encoded, orders, cluster))
        ends = self._ends(encoded, made, promised)
        finish(
            cluster,
            evicted,
            promised if self._options.nominations == "keep" else {},
            recreates=self._options.evicted_pods == "recreate",
            finishes=self._options.terminating_pods == "finish",
        )
        self._gone.update(key for key in evicted if key not in cluster.pods)
        return ends

    def outcome(self, ends: tuple[Encoded, Ending], load_s: float) -> Outcome:
        """Return all of it, after the last turn."""
        cluster, default = self._scene.cluster, self._scene.terms.default_queue
        document = {
            "schema": SCHEMA,
            "cycles": self._cycles,
            **states_json(cluster, self._gone, ends, self._cycles[-1], default),
        }
        if self._options.stats:
            loaded_s = round(load_s + self._encode_s, 6)
            document["stats"] = {"load_s": loaded_s, "cycles": self._stats}
        groups = _groups(cluster)
        last = self._cycles[-1]
        promised, evicted = (
            [Key(it["namespace"], it["pod"]) for it in last[what]]
            for what in ("nominations", "evictions")
        )
        told = hints(cluster, groups, promised, evicted)
        held_back = frozenset(suspended(cluster))
        return Outcome(document, ends[1], self._counts, groups, self._strays, told, held_back)

    def _ends(
        self, encoded: Encoded, made: Plan, promised: Mapping[Key, str]
    ) -> tuple[Encoded, Ending]:
        """Look at what was decided before it has come to pass, after the last turn."""
        self._strays = tuple(it.told for it in encoded.strays)
        if len(self._cycles) < self._options.cycles:
            return encoded, Ending((), ())
        self._counts = _counted(self._scene.cluster)
        settled = self._encode()
        names = encoded.snapshot.queues.names
        return settled, ending(settled, promised, made.fair_share, names)

    def _encode(self) -> Encoded:
        began = time.perf_counter()
        encoded = encode(self._scene.cluster, self._scene.terms)
        self._encode_s += time.perf_counter() - began
        return encoded

    def _plan(self, snapshot: Snapshot, policies: Policies) -> Plan:
        def passed(action: str) -> None:
            self._passed.append((action, time.perf_counter()))

        return plan(snapshot, policies, passed=passed)

    def _stats_of(self, made: Plan, plan_s: float) -> dict[str, Any]:
        took = zip(self._passed, self._passed[1:], strict=False)
        return {
            "plan_s": round(plan_s, 6),
            "actions": {action: round(ended - began, 6) for (_, began), (action, ended) in took},
            "simulations": made.stats.searches + made.stats.trials + made.stats.sets,
            "cut": made.stats.cut,
        }


def _notes(encoded: Encoded, made: Plan, orders: Orders, now: str) -> dict[Key, dict[str, str]]:
    """Return what is to be written on groups: what they hold, and when they started."""
    notes: dict[Key, dict[str, str]] = {}
    for one in made.decisions:
        if one.is_start:
            notes.setdefault(encoded.units[one.unit], {})[LAST_START] = now
    for key, text in orders.reserved.items():
        notes.setdefault(key, {})[RESERVED] = text
    return notes


def _whole(encoded: Encoded, cluster: Cluster) -> Iterable[Key]:
    """Yield the groups of which it is noted that they are short, and that are not."""
    for key, unit in zip(encoded.units, encoded.snapshot.units, strict=True):
        group = cluster.pod_groups.get(key)
        if group and unit.stale_at is None and STALE_SINCE in group.metadata.annotations:
            yield key


def _group_of(key: Key, pod: Pod) -> Key:
    group = pod.metadata.annotations.get(POD_GROUP)
    return Key(key.namespace, group) if group else own_group(key, pod)


def _groups(cluster: Cluster) -> dict[Key, Key]:
    return {key: _group_of(key, pod) for key, pod in cluster.pods.items()}


def _counted(cluster: Cluster) -> dict[Key, tuple[int, int]]:
    """Count before time passes by: who is going still has its room, and does not wait."""
    groups = _groups(cluster)
    counts: dict[Key, tuple[int, int]] = {}
    for key, pod in cluster.pods.items():
        placed, waiting = counts.get(groups[key], (0, 0))
        phase = phase_of(pod)
        counts[groups[key]] = placed + (phase == "Running"), waiting + (phase == "Pending")
    return counts


def _rfc3339(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
